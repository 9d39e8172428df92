"""A small Pulsar that makes orphans: nodes and ledgers as bytes and values, by the steps that brokers take.

`orphans` is the truth: ledgers that nobody will ever use again, whatever the makings. `about_to_list`: what a paused
broker has created and not yet listed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random

from offloader._proto.managed_ledger_pb2 import ManagedCursorInfo, ManagedLedgerInfo, PositionInfo, SchemaLocator
from offloader.bookkeeper.model import DigestType, Fragment, LedgerMetadata, LedgerState
from offloader.lifecycle.ledgers.evidence import SeenLedger, seen_ledger
from offloader.lifecycle.ledgers.references import References, UnreadableNode, cursor_path, list_path, schema_path
from offloader.state.managed_ledger_codec import decode_record
from offloader.state.names import decoded, encoded
from offloader.state.subscription import COMPACTED_LEDGER, CursorState
from offloader.state.subscription_codec import decode_cursor_record
from tests.fakes.ledger_metadata import Compression, envelope
from tests.lifecycle.ledgers.read_nodes import read_cursor, read_last_entry, read_list, read_locator

COMPACTION = "__compaction"
BUCKET_PREFIX = "#pulsar.internal.delayed.bucket_"

PULSAR = {"application": b"pulsar"}


def data_of(name: str) -> dict[str, bytes]:
    return PULSAR | {"component": b"managed-ledger", "pulsar/managed-ledger": name.encode()}


def cursor_of(name: str, cursor: str) -> dict[str, bytes]:
    return data_of(name) | {"pulsar/cursor": cursor.encode()}


def schema_of(schema: str) -> dict[str, bytes]:
    return PULSAR | {"component": b"schema", "pulsar/schemaId": schema.encode()}


def view_custom(name: str) -> dict[str, bytes]:
    topic = topic_text(name).encode()
    return PULSAR | {
        "component": b"compacted-ledger",
        "pulsar/compactedTopic": topic,
        "pulsar/compactedTo": b"\x08\xff\xfe\x10",
    }


def bucket_custom(name: str, cursor: str, bucket: str) -> dict[str, bytes]:
    return PULSAR | {
        "component": b"delayed-index-bucket",
        "pulsar/delayedIndexBucketKey": bucket.encode(),
        "pulsar/delayedIndexTopic": topic_text(name).encode(),
        "pulsar/delayedIndexCursor": cursor.encode(),
    }


def topic_text(name: str) -> str:
    pieces = name.split("/")
    return f"persistent://{'/'.join(pieces[:-2])}/{decoded(pieces[-1])}"


def metadata(custom: dict[str, bytes], entries: int | None = None, digest=DigestType.CRC32C) -> LedgerMetadata:
    """`entries` None: open."""
    if entries is None:
        return LedgerMetadata(1, 1, 1, LedgerState.OPEN, (Fragment(0, ("b:1",)),), digest, custom=custom)
    return LedgerMetadata(
        *(1, 1, 1, LedgerState.CLOSED, (Fragment(0, ("b:1",)),), digest),
        last_entry=entries - 1,
        length=10 * entries,
        custom=custom,
    )


@dataclass
class Paused:
    """A broker between create and list: what it would write next, and the version that it read before."""

    ledger: int
    node: str
    version: int | None
    finish: Callable[[], None]


@dataclass
class World:
    random: Random
    nodes: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    ledgers: dict[int, LedgerMetadata | None] = field(default_factory=dict)
    last_entries: dict[int, bytes] = field(default_factory=dict)
    namespaces: set[str] = field(default_factory=set)
    packages: set[int] = field(default_factory=set)
    orphans: dict[int, str] = field(default_factory=dict)
    foreign: set[int] = field(default_factory=set)
    copies: dict[int, bool] = field(default_factory=dict)
    left_over: set[str] = field(default_factory=set)
    about_to_list: list[Paused] = field(default_factory=list)
    untrimmed: set[int] = field(default_factory=set)
    still_open: set[int] = field(default_factory=set)
    next_id: int = 0
    next_topic: int = 0
    now: int = 0
    made: dict[str | int, int] = field(default_factory=dict)  # when each node and each ledger was created, by the clock
    born: dict[str | int, int] = field(default_factory=dict)  # by which transaction
    jumps: bool = False  # the clock does, with each leader

    # What ZooKeeper and BookKeeper do

    def creates(self, what: str | int) -> None:
        self.now += 1
        self.born[what] = self.now
        self.made[what] = self.random.randrange(10**9) if self.jumps else self.now

    def put(self, path: str, value: bytes) -> None:
        if path not in self.nodes:
            self.creates(path)
        self.nodes[path] = (value, self.nodes[path][1] + 1 if path in self.nodes else 0)

    def version(self, path: str) -> int | None:
        return self.nodes[path][1] if path in self.nodes else None

    def create(self, custom: dict[str, bytes], entries: int | None = None, **more) -> int:
        self.next_id += self.random.randint(1, 3)
        self.ledgers[self.next_id] = metadata(custom, entries, **more)
        self.creates(self.next_id)
        return self.next_id

    def close(self, ledger: int, entries: int) -> None:
        known = self.ledgers.get(ledger)
        if known is not None and not known.closed:
            self.ledgers[ledger] = metadata(dict(known.custom), entries, known.digest)

    def drop(self, ledger: int) -> None:
        """Deleted, as it should be."""
        self.ledgers.pop(ledger, None)

    def forget(self, ledger: int, how: str) -> None:
        """Nobody will use it, and nobody deletes it."""
        if ledger in self.ledgers:
            self.orphans[ledger] = how

    # What there is

    @property
    def topics(self) -> list[str]:
        return [n for n in self.managed_ledgers if "__transaction" not in n]

    @property
    def managed_ledgers(self) -> list[str]:
        paths = [p.split("/") for p in self.nodes if p.startswith("/managed-ledgers/")]
        return ["/".join(p[2:]) for p in paths if p[-2] == "persistent"]

    def info(self, name: str) -> ManagedLedgerInfo:
        return decode_record(self.nodes[list_path(name)][0])

    def put_list(self, name: str, info: ManagedLedgerInfo) -> None:
        packed = self.random.choice(Compression.values())
        value = info.SerializeToString()
        self.put(list_path(name), envelope(value, packed) if value else value)

    def cursors(self, name: str) -> dict[str, ManagedCursorInfo]:
        start = list_path(name) + "/"
        return {
            decoded(path.removeprefix(start)): decode_cursor_record(value)
            for path, (value, _) in self.nodes.items()
            if path.startswith(start)
        }

    def put_cursor(self, name: str, cursor: str, info: ManagedCursorInfo) -> None:
        self.put(
            cursor_path(name, cursor), envelope(info.SerializeToString(), self.random.choice(Compression.values()))
        )

    def locator(self, schema: str) -> SchemaLocator | None:
        path = schema_path(schema)
        return SchemaLocator.FromString(self.nodes[path][0]) if path in self.nodes else None

    def view(self, name: str) -> int | None:
        info = self.cursors(name).get(COMPACTION)
        if info is None:
            return None
        properties = info.properties
        if info.cursorsLedgerId >= 0:
            properties = PositionInfo.FromString(self.last_entries[info.cursorsLedgerId]).properties
        return next((one.value for one in properties if one.name == COMPACTED_LEDGER), None)

    # What brokers do

    def topic(self, name: str | None = None) -> str:
        self.next_topic += 1
        name = name or f"t/n{self.random.randint(1, 3)}/persistent/{encoded(f'topic {self.next_topic}-a')}"
        self.namespaces.add("/".join(name.split("/")[:-2]))
        self.put(list_path(name), b"")
        self.roll(name)
        return name

    def roll(self, name: str, entries: int | None = None) -> int:
        ledger = self.create(data_of(name))
        self.list_ledger(name, ledger, self.random.randint(1, 9) if entries is None else entries)
        return ledger

    def list_ledger(self, name: str, ledger: int, entries: int = 5) -> None:
        info = self.info(name)
        if info.ledgerInfo:
            last = info.ledgerInfo[-1]
            self.close(last.ledgerId, entries)
            last.entries, last.size, last.timestamp = entries, 10 * entries, 1_700_000_000_000
        info.ledgerInfo.add(ledgerId=ledger)
        self.put_list(name, info)

    def trim(self, name: str, *, deleted: bool = True, how: str = "trim killed") -> list[int]:
        info = self.info(name)
        going = list(info.ledgerInfo)[: self.random.randint(0, max(0, len(info.ledgerInfo) - 1))]
        del info.ledgerInfo[: len(going)]
        if going:
            self.put_list(name, info)
        for one in going:
            if deleted:
                self.drop(one.ledgerId)
            elif one.ledgerId not in self.orphans:
                self.forget(one.ledgerId, how)
        return [one.ledgerId for one in going]

    def subscribe(self, name: str, cursor: str = "") -> str:
        cursor = cursor or f"sub-{self.random.randint(1, 3)} ä"
        if cursor not in self.cursors(name):
            self.put_cursor(name, cursor, ManagedCursorInfo(cursorsLedgerId=-1))
        return cursor

    def acknowledge(self, name: str, cursor: str, *, deleted: bool = True) -> int:
        """The cursor gets a new ledger; the old one is deleted."""
        ledger = self.create(cursor_of(name, cursor))
        self.set_cursor_ledger(name, cursor, ledger, deleted=deleted)
        return ledger

    def set_cursor_ledger(self, name: str, cursor: str, ledger: int, *, deleted: bool = True) -> None:
        info, view = self.cursors(name)[cursor], self.view(name) if cursor == COMPACTION else None
        old, info.cursorsLedgerId = info.cursorsLedgerId, ledger
        self.last_entries[ledger] = position(view)
        self.put_cursor(name, cursor, info)
        if old >= 0:
            self.close(old, 3)
            self.drop(old) if deleted else self.forget(old, "cursor's deletion failed")

    def unload(self, name: str) -> None:
        """Cleanly: what cursors' ledgers say goes into their nodes."""
        for cursor, info in self.cursors(name).items():
            if info.cursorsLedgerId >= 0:
                view = self.view(name) if cursor == COMPACTION else None
                del info.properties[:]
                if view is not None:
                    info.properties.add(name=COMPACTED_LEDGER, value=view)
                self.drop(info.cursorsLedgerId)
                info.cursorsLedgerId = -1
                self.put_cursor(name, cursor, info)

    def schema(self, schema: str) -> int:
        ledger = self.create(schema_of(schema), 1)
        self.put_schema(schema, ledger)
        return ledger

    def put_schema(self, schema: str, ledger: int) -> None:
        locator = self.locator(schema)
        version = 0 if locator is None else locator.info.version + 1
        index = [] if locator is None else list(locator.index)
        new = SchemaLocator.Version(version=version, hash=b"h")
        new.position.ledgerId, new.position.entryId = ledger, 0
        self.put(schema_path(schema), SchemaLocator(info=new, index=[*index, new]).SerializeToString())

    def compact(self, name: str) -> int:
        self.subscribe(name, COMPACTION)
        if self.cursors(name)[COMPACTION].cursorsLedgerId < 0:
            self.acknowledge(name, COMPACTION)
        old = self.view(name)
        view = self.create(view_custom(name), 4)
        self.last_entries[self.cursors(name)[COMPACTION].cursorsLedgerId] = position(view)
        if old is not None:
            self.drop(old)
        return view

    def delay(self, name: str, cursor: str) -> int:
        key = f"{BUCKET_PREFIX}{self.next_id}_{self.next_id + 9}"
        ledger = self.create(bucket_custom(name, cursor, key), 2)
        self.put_bucket(name, cursor, key, ledger)
        return ledger

    def put_bucket(self, name: str, cursor: str, key: str, ledger: int) -> None:
        info = self.cursors(name)[cursor]
        info.cursorProperties.add(name=key, value=str(ledger))
        self.put_cursor(name, cursor, info)

    def pending_acks(self, name: str, cursor: str, *, plain: bool = True) -> str:
        pieces = name.split("/")
        local = f"{decoded(pieces[-1])}-{cursor if plain else encoded(cursor)}__transaction_pending_ack"
        pending = "/".join((*pieces[:-1], encoded(local)))
        if pending not in self.managed_ledgers:
            self.topic(pending)
            self.acknowledge(pending, self.subscribe(pending, "__pending_ack_state"))
        return pending

    def pending_of(self, name: str) -> list[str]:
        start = "/".join(name.split("/")[:-1]) + "/"
        return [
            one
            for one in self.managed_ledgers
            if one.endswith("__transaction_pending_ack")
            and decoded(one).startswith(decoded(name) + "-")
            and one.startswith(start)
        ]

    def used_by(self, name: str) -> dict[int, str]:
        """The ledgers of a topic that its nodes name, and by which way."""
        found = {one.ledgerId: "data" for one in self.info(name).ledgerInfo}
        for info in self.cursors(name).values():
            found |= {info.cursorsLedgerId: "cursor"} if info.cursorsLedgerId >= 0 else {}
            found |= {int(one.value): "delayed" for one in info.cursorProperties}
        view = self.view(name)
        return found | ({} if view is None else {view: "view"})

    def remove_nodes(self, name: str) -> None:
        for path in [p for p in self.nodes if p == list_path(name) or p.startswith(list_path(name) + "/")]:
            del self.nodes[path]

    def delete(self, name: str) -> None:
        """A loaded topic: nothing stays."""
        for one in (*self.pending_of(name), name):
            for ledger in self.used_by(one):
                self.drop(ledger)
            self.remove_nodes(one)

    # What an operator does

    def restore(self, name: str, backup: ManagedLedgerInfo, *, anew: bool) -> None:
        """The list as a backup has it: written into the node, or the node made anew. Entries of the ledgers that it
        lacks are data that nobody ever trimmed."""
        kept = {one.ledgerId for one in backup.ledgerInfo}
        lost = {one.ledgerId for one in self.info(name).ledgerInfo} - kept
        for one in lost:
            known = self.ledgers[one]
            (self.untrimmed if known and known.closed else self.still_open).add(one)
        if anew:
            del self.nodes[list_path(name)]
        self.put_list(name, backup)

    # Brokers that are paused between create and list

    def pause_roll(self, name: str) -> int:
        node = list_path(name)
        version = self.version(node)
        ledger = self.create(data_of(name))
        self.about_to_list.append(Paused(ledger, node, version, lambda: self.list_ledger(name, ledger)))
        return ledger

    def pause_acknowledge(self, name: str, cursor: str) -> int:
        node = cursor_path(name, cursor)
        version = self.version(node)
        ledger = self.create(cursor_of(name, cursor))
        self.about_to_list.append(Paused(ledger, node, version, lambda: self.set_cursor_ledger(name, cursor, ledger)))
        return ledger

    def pause_schema(self, schema: str) -> int:
        node = schema_path(schema)
        version = self.version(node)
        ledger = self.create(schema_of(schema), 1)
        self.about_to_list.append(Paused(ledger, node, version, lambda: self.put_schema(schema, ledger)))
        return ledger

    def resume(self) -> list[int]:
        """Every paused broker goes on. Which of its ledgers it listed: the others' writes met a newer version."""
        listed = []
        for one in self.about_to_list:
            if self.version(one.node) == one.version:
                one.finish()
                listed.append(one.ledger)
            else:
                self.forget(one.ledger, "write refused")
        self.about_to_list.clear()
        return listed

    # What is read of it

    def seen(self) -> tuple[SeenLedger, ...]:
        return tuple(self.look(ledger) for ledger in sorted(self.ledgers))

    def look(self, ledger: int) -> SeenLedger:
        seen = seen_ledger(ledger, 0, self.ledgers[ledger])
        return replace(seen, created_ms=self.made.get(ledger), born=self.born.get(ledger))

    def references(self, store: str = "ours") -> References:
        lists, schemas, views = {}, {}, {}
        cursors: dict[str, dict[str, CursorState | UnreadableNode]] = {}
        for path, (value, version) in self.nodes.items():
            pieces = path.split("/")[2:]
            if path.startswith("/schemas/"):
                schemas["/".join(pieces)] = read_locator(value, version, self.made[path], self.born.get(path))
            elif pieces[-2] == "persistent":
                lists["/".join(pieces)] = read_list(value, version, self.made[path], self.born.get(path))
            else:
                name, cursor = "/".join(pieces[:-1]), decoded(pieces[-1])
                node = read_cursor(value, version, self.made[path], self.born.get(path))
                cursors.setdefault(name, {})[cursor] = node
                if cursor == COMPACTION and not isinstance(node, UnreadableNode) and node.cursor_ledger is not None:
                    with suppress(KeyError):
                        views[name] = read_last_entry(self.last_entries[node.cursor_ledger], node.cursor_ledger)
        return References(store, frozenset(self.namespaces), lists, cursors, schemas, views, frozenset(self.packages))


def position(view: int | None = None) -> bytes:
    entry = PositionInfo(ledgerId=1, entryId=1)
    if view is not None:
        entry.properties.add(name=COMPACTED_LEDGER, value=view)
    return entry.SerializeToString()


def refreshed(references: References, **changed) -> References:
    return replace(references, **changed)
