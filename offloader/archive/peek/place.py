"""What the archive has at one position: what records say of it, and the entry itself; and all that as JSON has it and
people see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from offloader.archive.items import ArchivedEntry, Missing
from offloader.archive.object_range import ObjectRange
from offloader.archive.peek.entry import take_apart
from offloader.archive.reading.plan import plan
from offloader.archive.reading.range_reader import deleted_by_pulsar, deleted_meanwhile
from offloader.archive.reading.scan import BrokenEntry, Scanner
from offloader.archive.reading.sparse_index import RangeFetch, SparseIndex, decode_sparse_index
from offloader.archive.reading.stores import Stores
from offloader.archive.records import TopicRecords
from offloader.archive.selection import Selection
from offloader.archive.shown import time_text
from offloader.archive.snapshot import OffloadedLedger, TopicSnapshot
from offloader.errors import DamagedObjectError, FatalError, ObjectNotFoundError
from offloader.format.blocks import HEADER_SIZE, BlockHeader, decode_header
from offloader.metadata.deletions import DeletedRange, range_of
from offloader.model import Gap, Loss, Part, Position, Segment
from offloader.ports.object_store import ObjectStore
from offloader.storage.bounded_reads import naming, read_index

Owner = Segment | OffloadedLedger | Loss | DeletedRange


@dataclass(frozen=True, slots=True)
class StoredAt:
    """An entry and where it stands: `offset` in the data object, `block` with its number and where it begins."""

    entry: ArchivedEntry
    offset: int
    block_number: int
    block_offset: int
    block: BlockHeader


@dataclass(frozen=True, slots=True)
class Peeked:
    """A position, the record that accounts for it, and its entry: object, part (None in V1) and place. Instead, the
    `gap` that it is in, or what is `missing`. `store`: the object's, where that is not the archive's."""

    position: Position
    owner: Owner
    object_key: str = ""
    part: Part | None = None
    stored: StoredAt | None = None
    gap: Gap | None = None
    missing: Missing | None = None
    store: str = ""


def peek(stores: Stores, records: TopicRecords, position: Position) -> Peeked:
    """Look at a position. Two requests where it is an entry, none otherwise.

    Raises FatalError for a position that is not in the archive; DamagedObjectError, ObjectNotFoundError.
    """
    alone = Selection(position, position)
    views = [snapshot for snapshot, _ in records.excerpts(alone)]
    planned = list(records.plan(alone))
    found = next((owner for snapshot in views if (owner := _owner(snapshot, position)) is not None), None)
    # Of all records of a deleted range only the last is read.
    owner = found or range_of(records.head.removed.told, position)
    if isinstance(owner, DeletedRange):
        return Peeked(position, owner, missing=Missing(position, position, owner.told, deleted=True))
    if not planned or owner is None:
        raise FatalError(f"{records.topic}: {position} is not in the archive, which has {_extent(records)}")
    item, place = planned[0], position.place
    if isinstance(item, Missing):
        if item.damaged:
            raise item.as_error()
        return Peeked(position, owner, missing=item)
    if item.runs[0].gap is not None:
        gaps = owner.gaps if isinstance(owner, Segment) else ()
        inside = (gap for gap in gaps if gap.ledger == place[0] and gap.first <= place[1] <= gap.last)
        return Peeked(position, owner, gap=next(inside, None))
    store = stores.open(item.object.store).store
    try:
        stored = _read(store, item, position)
    except ObjectNotFoundError:
        told = _why_absent(store, item, records, position)
        if told is None:
            raise
        return Peeked(position, owner, missing=Missing(position, position, told, deleted=True))
    parts = owner.parts if isinstance(owner, Segment) else ()
    part = next((part for part in parts if part.first <= place <= part.last), None)
    return Peeked(position, owner, item.object.data_key, part, stored, store=item.object.store)


def _owner(snapshot: TopicSnapshot, position: Position) -> Owner | None:
    """As reading chooses: a segment, else a ledger that a broker offloaded, else a loss."""
    owners: tuple[Owner, ...] = (*snapshot.catalog.segments, *snapshot.ledgers, *snapshot.catalog.losses)
    return next((owner for owner in owners if owner.start <= position <= owner.end), None)


def _why_absent(store: ObjectStore, item: ObjectRange, records: TopicRecords, position: Position) -> str | None:
    if item.object.is_bridged:
        return deleted_by_pulsar(item.object)
    return None if item.object.ledger is not None else deleted_meanwhile(store, records.topic, position)


def _extent(records: TopicRecords) -> str:
    firsts = (items[0] for snapshot, wanted in records.first() if (items := plan(snapshot, wanted)))
    lasts = (items[-1] for snapshot, wanted in records.before() if (items := plan(snapshot, wanted)))
    first, last = next(firsts, None), next(lasts, None)
    if first is None or last is None:
        return "nothing yet"
    return f"{first.start}..{last.end}"


def _read(store: ObjectStore, item: ObjectRange, position: Position) -> StoredAt:
    """From its block's header on: only that says whose the block is."""
    key, index_key = item.object.data_key, item.object.index_key
    encoded, _ = read_index(store, index_key)
    with naming(index_key):
        index = decode_sparse_index(encoded, item.object.ledger)
        index.check_length(item.object.size)
        number = index.at(position.ledger, position.entry)
        if number is None:
            raise DamagedObjectError(f"the index names no place from which {position} can be read")
    with naming(key):
        return _found(store, key, index, number, position)


def _found(store: ObjectStore, key: str, index: SparseIndex, number: int, position: Position) -> StoredAt:
    first = index.block_of(number)[0]
    begin, end = index.offsets[first], index.begin(number + 1)
    data, _ = store.read(key, begin, end - begin)
    faults = []
    for found in Scanner(index, position.incarnation).scan(RangeFetch(begin, end, first, number + 1), data):
        if isinstance(found, BrokenEntry):
            faults.append(found.why)
        elif found.ledger == position.ledger and found.first <= position.entry <= found.last:
            run = found.part(position.entry, position.next_entry.entry)
            header = decode_header(data[:HEADER_SIZE], begin)
            return StoredAt(next(run.entries()), run.offset + run.bounds[0], index.blocks[first], begin, header)
    raise DamagedObjectError(faults[0] if faults else f"offset {begin}: {position} is not in its block")


def peek_facts(found: Peeked, limit: int) -> dict[str, Any]:
    """All that is known of a position; a payload is opened up to `limit` bytes."""
    facts: dict[str, Any] = {"position": str(found.position), "incarnation": found.position.incarnation}
    facts |= owner_facts(found.owner)
    if found.gap is not None:
        gap = found.gap
        facts["gap"] = {"kind": str(gap.kind), "ledger": gap.ledger, "first": gap.first, "last": gap.last}
    if found.missing is not None:
        facts["missing"] = found.missing.why
    if found.stored is not None:
        facts["object"] = _object(found)
        facts["entry"] = take_apart(found.stored.entry.data, limit)
    return facts


def owner_facts(owner: Owner) -> dict[str, Any]:
    """What a record says of the positions that it accounts for."""
    place: dict[str, Any] = {"start": str(owner.start), "end": str(owner.end)}
    if isinstance(owner, Loss):
        return {"loss": place | {"reason": owner.reason, "acceptedBy": owner.accepted_by, "at": time_text(owner.at)}}
    if isinstance(owner, DeletedRange):
        return {"deleted": place | {"segments": owner.segments, "policy": owner.policy, "at": time_text(owner.at)}}
    if isinstance(owner, OffloadedLedger):
        return {"ledger": place | {"uuid": owner.uuid, "size": owner.size, "store": owner.store}}
    return {
        "segment": {
            "uuid": owner.uuid,
            **place,
            "entries": owner.entries,
            "size": owner.size,
            "crc32c": f"{owner.crc32c:08x}",
            "assigned": time_text(owner.assigned_at),
            "offloaded": time_text(owner.offloaded_at),
            "source": str(owner.source),
            "reason": str(owner.roll_reason),
        }
    }


def _object(found: Peeked) -> dict[str, Any]:
    stored, part = found.stored, found.part
    assert stored is not None
    facts: dict[str, Any] = {
        **({"store": found.store} if found.store else {}),
        "key": found.object_key,
        "offset": stored.offset,
        "block": {
            "number": stored.block_number,
            "offset": stored.block_offset,
            "length": stored.block.length,
            "firstEntry": stored.block.first_entry,
            "version": stored.block.version,
        },
    }
    if part is not None:
        facts["part"] = {
            "number": part.number,
            "offset": part.offset,
            "size": part.size,
            "crc32c": f"{part.crc32c:08x}",
            "unreadable": part.stats.unreadable,
        }
    return facts
