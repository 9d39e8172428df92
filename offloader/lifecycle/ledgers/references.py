"""What the nodes of a metadata store refer to: ledger lists, cursors, schema locators, compacted views. Pure.

A node that cannot be read is a value, too: whoever depends on it is not judged. A node that says more than we know (a
newer version wrote it) may refer to ledgers in a way that we do not see; `says_more` tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar
from uuid import UUID

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from offloader._proto.managed_ledger_pb2 import OffloadContext, PositionInfo, SchemaLocator
from offloader.bookkeeper.managed_ledgers import decode_cursor_record, decode_record, encoded
from offloader.errors import DamagedRecordError
from offloader.lifecycle.ledgers.kinds import COMPACTION, RefereeKind, ledger_of

COMPACTED_LEDGER = "CompactedTopicLedger"
BUCKET_PREFIX = "#pulsar.internal.delayed.bucket_"
_HALF = 2**64  # a uuid's halves are signed numbers

_Node = TypeVar("_Node")


class OffloadedCopy(NamedTuple):
    """What a ledger list says of a ledger's copy in the bucket. `uuid` is "" where it names none."""

    uuid: str
    complete: bool
    bookkeeper_deleted: bool


class ListedData(NamedTuple):
    """A ledger in a list. `entries`, `size` and `timestamp_ms` are 0 until it is finished there."""

    ledger: int
    entries: int
    size: int
    timestamp_ms: int
    copy: OffloadedCopy | None = None

    @property
    def left_bookkeeper(self) -> bool:
        return self.copy is not None and self.copy.bookkeeper_deleted


@dataclass(frozen=True, slots=True)
class UnreadableNode:
    """A node whose value is damaged, or an answer that did not come."""

    version: int
    why: str


@dataclass(frozen=True, slots=True)
class ListNode:
    """A managed ledger's node: its ledgers in order, none where it was only just created. `created_ms`: when this very
    node was made, by its service's clock; None: not known. So it is of the other nodes."""

    version: int
    ledgers: Sequence[ListedData] = ()
    says_more: bool = False
    created_ms: int | None = None

    @property
    def greatest(self) -> int | None:
        return self.ledgers[-1].ledger if self.ledgers else None


@dataclass(frozen=True, slots=True)
class CursorNode:
    """A cursor's node. `ledger` None: what it says is in the node itself. `view`: the compacted view's ledger.

    `buckets`: the delayed index's ledgers by the keys of their buckets.
    """

    version: int
    ledger: int | None = None
    view: int | None = None
    buckets: Mapping[str, int] = field(default_factory=dict, hash=False)
    says_more: bool = False
    created_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LocatorNode:
    """A topic's schema locator: the ledgers of all its versions, in order.

    `whole`: no version is missing in its index. Old brokers left some out and found them by the entries of others.
    """

    version: int
    ledgers: tuple[int, ...]
    whole: bool = True
    says_more: bool = False
    created_ms: int | None = None

    @property
    def greatest(self) -> int:
        return self.ledgers[-1]


@dataclass(frozen=True, slots=True)
class LastEntry:
    """The last entry of a cursor's ledger: which view it names. `says_more`: as a node's."""

    cursor_ledger: int
    view: int | None
    says_more: bool = False


@dataclass(frozen=True, slots=True)
class References:
    """All that one metadata store refers to. `read_since`: when the first of it was read, by the scan's own count.

    `lists` by the managed ledgers' names, `cursors` by these and by subscription (decoded), `schemas` by their ids.
    `views`: the last entries of the ledgers of the cursors named `__compaction`, by managed ledger: all of them that
    have a ledger. `packages`: the ledgers of functions' packages. `namespaces`: those that have policies.
    """

    store: str
    read_since: int
    namespaces: frozenset[str] = frozenset()
    lists: Mapping[str, ListNode | UnreadableNode] = field(default_factory=dict, hash=False)
    cursors: Mapping[str, Mapping[str, CursorNode | UnreadableNode]] = field(default_factory=dict, hash=False)
    schemas: Mapping[str, LocatorNode | UnreadableNode] = field(default_factory=dict, hash=False)
    views: Mapping[str, LastEntry | UnreadableNode] = field(default_factory=dict, hash=False)
    packages: frozenset[int] = frozenset()


class Referee(NamedTuple):
    """A node that names, or would have to name, a ledger. `version` None: it is not there."""

    store: str
    kind: RefereeKind
    node: str
    version: int | None


def list_path(managed_ledger: str) -> str:
    """The node of a managed ledger, below the store's root."""
    return f"/managed-ledgers/{managed_ledger}"


def cursor_path(managed_ledger: str, cursor: str) -> str:
    """The node of a subscription's cursor."""
    return f"{list_path(managed_ledger)}/{encoded(cursor)}"


def schema_path(schema: str) -> str:
    """The node of a schema locator."""
    return f"/schemas/{schema}"


def read_list(value: bytes, version: int, created_ms: int | None = None) -> ListNode | UnreadableNode:
    """A managed ledger's node; empty, raw or compressed."""
    found = _read(_list, value, version)
    return found if isinstance(found, UnreadableNode) else replace(found, created_ms=created_ms)


def read_cursor(value: bytes, version: int, created_ms: int | None = None) -> CursorNode | UnreadableNode:
    """A cursor's node, raw or compressed. An empty one is damaged: brokers write them whole."""
    found = _read(_cursor, value, version)
    return found if isinstance(found, UnreadableNode) else replace(found, created_ms=created_ms)


def read_locator(value: bytes, version: int, created_ms: int | None = None) -> LocatorNode | UnreadableNode:
    """A schema locator's node."""
    found = _read(_locator, value, version)
    return found if isinstance(found, UnreadableNode) else replace(found, created_ms=created_ms)


def read_last_entry(payload: bytes, cursor_ledger: int) -> LastEntry | UnreadableNode:
    """The last entry of the ledger of a cursor `__compaction`. Another program's form (JSON) cannot be read."""
    return _read(_last_entry, payload, cursor_ledger)


def view_of(references: References, managed_ledger: str) -> int | UnreadableNode | None:
    """The compacted view that a topic uses: by its cursor ledger's last entry, by the cursor's node where it has no
    ledger. None: none is named."""
    cursor = references.cursors.get(managed_ledger, {}).get(COMPACTION)
    if cursor is None or isinstance(cursor, UnreadableNode):
        return cursor
    if cursor.ledger is None:
        return cursor.view
    last = references.views.get(managed_ledger)
    if last is None:
        return UnreadableNode(cursor.version, f"the last entry of cursor ledger {cursor.ledger} was not read")
    if isinstance(last, UnreadableNode):
        return last
    if last.cursor_ledger != cursor.ledger or last.says_more:
        return UnreadableNode(cursor.version, f"the last entry of cursor ledger {cursor.ledger} is not known")
    return last.view


def named_ledgers(references: References) -> Iterator[tuple[int, Referee]]:
    """Every ledger that is named and should be in BookKeeper, with who names it."""
    store = references.store
    for name, listed in references.lists.items():
        if isinstance(listed, ListNode):
            referee = Referee(store, RefereeKind.LEDGER_LIST, list_path(name), listed.version)
            yield from ((one.ledger, referee) for one in listed.ledgers if not one.left_bookkeeper)
    for name, cursors in references.cursors.items():
        for cursor, node in cursors.items():
            if isinstance(node, CursorNode):
                yield from _named_by_cursor(references, name, cursor, node)
    for schema, locator in references.schemas.items():
        if isinstance(locator, LocatorNode):
            referee = Referee(store, RefereeKind.SCHEMA_LOCATOR, schema_path(schema), locator.version)
            yield from ((ledger, referee) for ledger in locator.ledgers)
    for ledger in references.packages:
        yield ledger, Referee(store, RefereeKind.FUNCTIONS_LOG, "/pulsar/functions", None)


def _named_by_cursor(
    references: References, managed_ledger: str, cursor: str, node: CursorNode
) -> Iterator[tuple[int, Referee]]:
    path = cursor_path(managed_ledger, cursor)
    if node.ledger is not None:
        yield node.ledger, Referee(references.store, RefereeKind.CURSOR_NODE, path, node.version)
    for ledger in node.buckets.values():
        yield ledger, Referee(references.store, RefereeKind.DELAYED_BUCKETS, path, node.version)
    view = view_of(references, managed_ledger) if cursor == COMPACTION else None
    if isinstance(view, int):
        yield view, Referee(references.store, RefereeKind.COMPACTION_CURSOR, path, node.version)


def _read(decode: Callable[[bytes, int], _Node], value: bytes, version: int) -> _Node | UnreadableNode:
    try:
        return decode(value, version)
    except (DamagedRecordError, DecodeError) as error:
        return UnreadableNode(version, str(error).partition("\n")[0])


def _list(value: bytes, version: int) -> ListNode:
    info = decode_record(value)
    ledgers = sorted(
        ListedData(one.ledgerId, one.entries, one.size, one.timestamp, _copy(one.offloadContext))
        for one in info.ledgerInfo
    )
    if _impossible([one.ledger for one in ledgers]):
        raise DamagedRecordError("no managed ledger can have such a list: a ledger's id is negative or stands twice")
    return ListNode(version, tuple(ledgers), _says_more(info))


def _impossible(ids: list[int]) -> bool:
    return len(set(ids)) != len(ids) or any(one < 0 for one in ids)


def _copy(context: OffloadContext) -> OffloadedCopy | None:
    if not context.ListFields():
        return None
    has_uuid = context.HasField("uidMsb") and context.HasField("uidLsb")
    uuid = str(UUID(int=context.uidMsb % _HALF * _HALF + context.uidLsb % _HALF)) if has_uuid else ""
    return OffloadedCopy(uuid, context.complete, context.bookkeeperDeleted)


def _cursor(value: bytes, version: int) -> CursorNode:
    info = decode_cursor_record(value)
    if not all(isinstance(text, str) for one in info.cursorProperties for text in (one.name, one.value)):
        raise DamagedRecordError("this is no record of a cursor: a property is no text")
    buckets = {one.name: one.value for one in info.cursorProperties if one.name.startswith(BUCKET_PREFIX)}
    known = {name: ledger for name, text in buckets.items() if (ledger := ledger_of(text)) is not None}
    return CursorNode(
        version=version,
        ledger=info.cursorsLedgerId if info.cursorsLedgerId >= 0 else None,
        view=_view({one.name: one.value for one in info.properties}),
        buckets=known,
        says_more=len(known) < len(buckets) or _says_more(info),
    )


def _view(properties: Mapping[str, int]) -> int | None:
    view = properties.get(COMPACTED_LEDGER, -1)
    return view if view >= 0 else None


def _locator(value: bytes, version: int) -> LocatorNode:
    locator = SchemaLocator.FromString(value)
    if not locator.IsInitialized():
        raise DamagedRecordError("this is no schema locator: a required field is missing")
    entries = (locator.info, *locator.index)
    ledgers = sorted({one.position.ledgerId for one in entries})
    if ledgers[0] < 0:
        raise DamagedRecordError("this is no schema locator: a ledger's id is negative")
    versions = {one.version for one in entries}
    whole = min(versions) == 0 and len(versions) == locator.info.version + 1
    return LocatorNode(version, tuple(ledgers), whole, _says_more(locator))


def _last_entry(payload: bytes, cursor_ledger: int) -> LastEntry:
    position = PositionInfo.FromString(payload)
    if not position.IsInitialized():
        raise DamagedRecordError("this is no cursor's position: a required field is missing")
    view = _view({one.name: one.value for one in position.properties})
    return LastEntry(cursor_ledger, view, _says_more(position))


def _says_more(message: Message) -> bool:
    """Whether it, or anything in it, has a field that we do not know."""
    if len(UnknownFieldSet(message)):
        return True
    for descriptor, value in message.ListFields():
        if descriptor.message_type is not None:
            parts = value if descriptor.is_repeated else (value,)
            if any(_says_more(part) for part in parts):
                return True
    return False
