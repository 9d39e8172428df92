"""A cluster in memory: bookies, ZooKeeper's nodes in virtual time, and a scanner that has what they say judged."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace

from offloader._proto.managed_ledger_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from offloader.bookkeeper.entry_codec import digest_for, encode, master_key
from offloader.bookkeeper.layout import ledger_path
from offloader.bookkeeper.metadata_codec import decode_metadata, encode_metadata
from offloader.bookkeeper.model import LedgerState, StoredEntry
from offloader.bookkeeper.nodes import DeleteNode, Node
from offloader.errors import DamagedRecordError
from offloader.lifecycle.deletion.bookkeeper_side import BookKeeperSide
from offloader.lifecycle.deletion.owners import LoadedTopics
from offloader.lifecycle.ledgers.evidence import SeenLedger, seen_ledger
from offloader.lifecycle.ledgers.leftovers import leftover_managed_ledgers
from offloader.lifecycle.ledgers.references import References, UnreadableNode
from offloader.lifecycle.ledgers.refusals import Refusal
from offloader.lifecycle.ledgers.scanned import LedgerScan
from offloader.lifecycle.ledgers.verdicts import KnownStores, LedgerJudge
from offloader.state.managed_ledger import ManagedLedger
from offloader.state.subscription import CursorState
from tests.fakes.bookkeeper import SimulatedCluster
from tests.lifecycle.ledgers.read_nodes import read_cursor, read_list, read_locator
from tests.lifecycle.ledgers.world import data_of

NAMESPACE = "acme/orders"
DAY = 24 * 3600


class KilledError(BaseException):
    """The process is gone: nobody handles that."""


class OrphanCluster(SimulatedCluster):
    """Topics with ledger lists; ledgers that no list has."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__(seed, 3, prompt=True)
        self.put(f"/admin/policies/{NAMESPACE}", b"{}")
        self.deleted: Counter[int] = Counter()
        self.gone_before: set[str] = set()

    @property
    def now_ms(self) -> int:
        return int(self.network.now * 1000)

    def put(self, path: str, value: bytes) -> None:
        self.metadata.nodes.put(path, value)

    def list_ledgers(self, topic: str, *ledgers: int) -> None:
        info = ManagedLedgerInfo(ledgerInfo=[ManagedLedgerInfo.LedgerInfo(ledgerId=one) for one in ledgers])
        self.put(list_node(topic), info.SerializeToString())

    def put_cursor(self, topic: str, cursor: str, ledger: int, index: int | None = None) -> None:
        info = ManagedCursorInfo(cursorsLedgerId=ledger, markDeleteLedgerId=-1, markDeleteEntryId=-1)
        if index is not None:
            info.cursorProperties.add(name="#pulsar.internal.delayed.bucket_1_2", value=str(index))
        self.put(f"{list_node(topic)}/{cursor}", info.SerializeToString())

    def ledger(self, ledger: int, topic: str, entries: int = 1, *, is_open: bool = False, **more: bytes) -> None:
        metadata = self.create(ledger, 3, 2, 2, custom=data_of(f"{NAMESPACE}/persistent/{topic}") | more)
        for entry in range(entries):
            payload = b"%d" % entry
            stored = encode(StoredEntry(ledger, entry, entry - 1, 10 * entry, payload), digest_for(metadata))
            for bookie in metadata.write_set(entry):
                self.bookies[bookie].memory.add(ledger, entry, stored, master_key(b""))
        if not is_open:
            end = replace(metadata, state=LedgerState.CLOSED, last_entry=entries - 1, length=10 * entries)
            self.metadata.cluster.put_ledger(ledger, end)

    def closes(self, ledger: int, entries: int) -> None:
        """Somebody else does."""
        metadata = self.metadata.read(ledger).metadata
        end = replace(metadata, state=LedgerState.CLOSED, last_entry=entries - 1, length=10 * entries)
        path = self.path(ledger)
        self.metadata.nodes.set(path, encode_metadata(end), self.metadata.nodes.get(path).version)

    def ledger_ids(self) -> set[int]:
        nodes = self.metadata.nodes
        return {ledger for ledger, _ in walk_ledgers(nodes)}

    def path(self, ledger: int) -> str:
        return self.metadata.uri.root + ledger_path(self.metadata.layout, ledger)

    def side(self, nodes=None, **more) -> BookKeeperSide:
        """A process's own view. `nodes`: what is between it and ZooKeeper."""
        bookies, store = self.client()
        store.nodes = nodes or self.metadata.nodes
        scanner = more.pop("scanner", None) or JudgingScanner(store.nodes, lambda: self.now_ms)
        return BookKeeperSide(store, bookies, scanner, LoadedTopics(more.pop("loaded", dict), lambda _: ()), **more)


def list_node(topic: str) -> str:
    return f"/managed-ledgers/{NAMESPACE}/persistent/{topic}"


@dataclass
class JudgingScanner:
    """The least that scans: all nodes read one by one, ids first, each ledger judged by the product's judge."""

    nodes: object
    now_ms: Callable[[], int]
    refusals: tuple[Refusal, ...] = ()
    alone: bool = True
    between: Callable[[], None] = field(default=lambda: None)
    others: tuple[References, ...] = ()

    def scan(self, only: Collection[int] | None = None) -> LedgerScan:
        begun = self.now_ms()
        seen = dict(walk_ledgers(self.nodes))
        self.between()
        found = references(self.nodes)
        judge = LedgerJudge(KnownStores((found, *self.others), alone=self.alone))
        verdicts = [judge.verdict(self._again(one)) for one in seen.values() if only is None or one.ledger in only]
        counts = Counter(one.standing for one in verdicts)
        kept = tuple(one for one in verdicts if only is not None or one.orphan)
        gone = frozenset(one for one in only or () if one not in seen)
        return LedgerScan(begun, len(seen), counts, kept, gone, (), leftover_managed_ledgers(found), self.refusals)

    def look_again(self, only: Collection[int], leftovers: Collection[str] = ()) -> LedgerScan | None:
        """All is read each time."""
        del leftovers
        return self.scan(only)

    def close(self) -> None:
        """Nothing is opened."""

    def _again(self, one: SeenLedger) -> SeenLedger:
        return one


def walk_ledgers(nodes) -> Iterator[tuple[int, SeenLedger]]:
    for path, node in walk(nodes, "/ledgers"):
        if path.rpartition("/")[2].startswith("L") and not path.endswith("LAYOUT"):
            ledger = int(path.removeprefix("/ledgers").replace("/", "").replace("L", ""))
            yield ledger, _seen(ledger, node)


def _seen(ledger: int, node: Node) -> SeenLedger:
    try:
        metadata = decode_metadata(node.value)
    except DamagedRecordError:
        return seen_ledger(ledger, node.version, None)
    return seen_ledger(ledger, node.version, replace(metadata, listed_ms=node.created_ms))


def references(nodes) -> References:
    lists: dict[str, ManagedLedger | UnreadableNode] = {}
    cursors: dict[str, dict[str, CursorState | UnreadableNode]] = {}
    namespaces = frozenset(
        path.removeprefix("/admin/policies/") for path, _ in walk(nodes, "/admin/policies") if path.count("/") == 4
    )
    for path, node in walk(nodes, "/managed-ledgers"):
        pieces = path.removeprefix("/managed-ledgers/").split("/")
        if len(pieces) == 4:
            lists["/".join(pieces)] = read_list(node.value, node.version, node.created_ms)
        if len(pieces) == 5:
            cursors.setdefault("/".join(pieces[:4]), {})[pieces[4]] = read_cursor(
                node.value, node.version, node.created_ms
            )
    schemas = {
        path.removeprefix("/schemas/"): read_locator(node.value, node.version, node.created_ms)
        for path, node in walk(nodes, "/schemas")
        if path.count("/") == 4
    }
    return References("", namespaces, lists, cursors, schemas)


def walk(nodes, path: str) -> Iterator[tuple[str, Node]]:
    node = nodes.get(path)
    if node is not None:
        yield path, node
        for child in nodes.children(path) or ():
            yield from walk(nodes, f"{path}/{child}")


class DyingNodes:
    """What a process has of ZooKeeper: it dies at its `dies_at`th write, before it or after it."""

    def __init__(self, cluster: OrphanCluster, rng: random.Random, dies_at: int = -1) -> None:
        self._cluster = cluster
        self._inner = cluster.metadata.nodes
        self._rng = rng
        self.dies_at = dies_at

    def __getattr__(self, name: str):
        return getattr(self._inner, name)

    def set(self, path, value, version):
        with_effect = self._dying()
        written = self._inner.set(path, value, version)
        if with_effect:
            raise KilledError
        return written

    def multi(self, operations):
        with_effect = self._dying()
        self._inner.multi(operations)
        last = operations[-1]
        if isinstance(last, DeleteNode) and last.path.startswith("/ledgers/"):
            self._cluster.deleted[int(last.path.removeprefix("/ledgers").replace("/", "").replace("L", ""))] += 1
        if with_effect:
            raise KilledError

    def _dying(self) -> bool:
        self.dies_at -= 1
        if self.dies_at == 0 and self._rng.random() < 0.5:
            raise KilledError
        return self.dies_at == 0
