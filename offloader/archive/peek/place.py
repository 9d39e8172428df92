"""What the archive has at one position: what records say of it, and the entry itself."""

from __future__ import annotations

from dataclasses import dataclass

from offloader.archive.items import ArchivedEntry, Missing
from offloader.archive.read_model import ObjectRange, OffloadedLedger, Selection
from offloader.archive.reading.fetches import RangeFetch
from offloader.archive.reading.plan import plan
from offloader.archive.reading.scan import BrokenEntry, Scanner
from offloader.archive.reading.sparse_index import SparseIndex, decode_points
from offloader.archive.reading.stores import Stores
from offloader.archive.records import TopicRecords
from offloader.archive.view import TopicSnapshot
from offloader.errors import DamagedObjectError, FatalError
from offloader.format.blocks import HEADER_SIZE, BlockHeader, decode_header
from offloader.model import Gap, Loss, Part, Position, Segment
from offloader.ports.object_store import ObjectStore
from offloader.storage.objects import naming, read_index

Owner = Segment | OffloadedLedger | Loss


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
    """A position, the record that accounts for it, and where it is an entry: the object, its part (None in V1) and the
    entry.

    `gap` or `missing` says why there is no entry.
    """

    position: Position
    owner: Owner
    object_key: str = ""
    part: Part | None = None
    stored: StoredAt | None = None
    gap: Gap | None = None
    missing: Missing | None = None


def peek(stores: Stores, records: TopicRecords, position: Position) -> Peeked:
    """Look at a position. Two requests where it is an entry, none otherwise.

    Raises FatalError for a position that is not in the archive; DamagedObjectError, ObjectNotFoundError.
    """
    alone = Selection(position, position)
    views = [view for view, _ in records.views(alone)]
    planned = list(records.plan(alone))
    owner = next((owner for view in views if (owner := _owner(view, position)) is not None), None)
    if not planned or owner is None:
        raise FatalError(f"{records.topic}: {position} is not in the archive, which has {_extent(records)}")
    item = planned[0]
    if isinstance(item, Missing):
        if item.damaged:
            raise item.as_error()
        return Peeked(position, owner, missing=item)
    if item.runs[0].gap is not None:
        return Peeked(position, owner, gap=_gap(owner, position))
    stored = _read(stores.open(item.object.store).store, item, position)
    return Peeked(position, owner, item.object.data_key, _part(owner, position), stored)


def _owner(view: TopicSnapshot, position: Position) -> Owner | None:
    """As reading chooses: a segment, else a ledger that a broker offloaded, else a loss."""
    owners: tuple[Owner, ...] = (*view.catalog.segments, *view.ledgers, *view.catalog.losses)
    return next((owner for owner in owners if owner.start <= position <= owner.end), None)


def _gap(owner: Owner, position: Position) -> Gap | None:
    gaps = owner.gaps if isinstance(owner, Segment) else ()
    return next(
        (gap for gap in gaps if gap.ledger == position.ledger and gap.first <= position.entry <= gap.last), None
    )


def _part(owner: Owner, position: Position) -> Part | None:
    parts = owner.parts if isinstance(owner, Segment) else ()
    place = (position.ledger, position.entry)
    return next((part for part in parts if part.first <= place <= part.last), None)


def _extent(records: TopicRecords) -> str:
    firsts = (items[0] for view, wanted in records.first() if (items := plan(view, wanted)))
    lasts = (items[-1] for view, wanted in records.last() if (items := plan(view, wanted)))
    first, last = next(firsts, None), next(lasts, None)
    if first is None or last is None:
        return "nothing yet"
    begin = first.first if isinstance(first, ObjectRange) else first.start
    end = last.last if isinstance(last, ObjectRange) else last.end
    return f"{begin}..{end}"


def _read(store: ObjectStore, piece: ObjectRange, position: Position) -> StoredAt:
    """From its block's header on: only that says whose the block is."""
    held = piece.object
    encoded, _ = read_index(store, held.index_key)
    with naming(held.index_key):
        points = decode_points(encoded, held.ledger)
        if held.size not in (None, points.data_length):
            raise DamagedObjectError(f"it is of an object of {points.data_length} bytes, the catalog's has {held.size}")
        number = points.at(position.ledger, position.entry)
        if number is None:
            raise DamagedObjectError(f"the index names no place from which {position} can be read")
    with naming(held.data_key):
        return _found(store, held.data_key, points, number, position)


def _found(store: ObjectStore, key: str, points: SparseIndex, number: int, position: Position) -> StoredAt:
    first = points.block_of(number)[0]
    begin, end = points.offsets[first], points.begin(number + 1)
    data, _ = store.read(key, begin, end - begin)
    faults = []
    for found in Scanner(points, position.incarnation).scan(RangeFetch(begin, end, first, number + 1), data):
        if isinstance(found, BrokenEntry):
            faults.append(found.why)
        elif found.ledger == position.ledger and found.first <= position.entry <= found.last:
            run = found.part(position.entry, position.next_entry.entry)
            header = decode_header(data[:HEADER_SIZE], begin)
            return StoredAt(next(run.entries()), run.offset + run.bounds[0], points.blocks[first], begin, header)
    raise DamagedObjectError(faults[0] if faults else f"offset {begin}: {position} is not in its block")
