"""One subscription: acknowledgements in, records out. Pure: whoever holds it reads, writes and locks."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from offloader.cursors.core.ledger_acks import MOST_ENTRIES, BatchLeft, LedgerAcks
from offloader.cursors.core.piece_codec import decode_piece, encode_piece
from offloader.cursors.core.records import (
    FORGOTTEN,
    CursorMarker,
    LedgerKey,
    PieceAt,
    PieceRecord,
    key_of,
    records_to_move,
)
from offloader.errors import OffloadError
from offloader.model import KIB, MIB, Position

CACHE_BYTES = 3 * MIB  # PIP-81's maxIndividualAckCacheBytesPerCursor
PARTS_BYTES = 16 * MIB  # of a ledger's partly acknowledged batches: some 80,000; brokers keep 10,000
RECORD_BYTES = 256 * KIB  # of pieces: a ledger that is swapped in costs one read of that
MOST_NAMED = 64  # records that a marker names


class SwappedOutError(OffloadError):
    """A ledger's piece is not in memory: read it, and ask again."""

    def __init__(self, key: LedgerKey) -> None:
        super().__init__(f"the acknowledgements of ledger {key[1]} are not in memory")
        self.key = key


class LedgerLength(NamedTuple):
    """A ledger of the topic. `last`: its last entry, -1: it is empty; None: it is still written."""

    key: LedgerKey
    last: int | None


LedgersFrom = Callable[[LedgerKey], Iterable[LedgerLength]]
"""The topic's ledgers from one on, in order. As few of them are asked for as are needed."""


class Cursor:
    """What a subscription has acknowledged. Ledgers that were not used lately may be in the store alone.

    What is not written yet is in memory. Whoever writes tells of each record that stands (`written`), in their order,
    and goes on with those of one call of `records` until all of them do."""

    def __init__(self, marker: CursorMarker, *, cache_bytes: int = CACHE_BYTES, parts_bytes: int = PARTS_BYTES) -> None:
        self._mark_delete = marker.mark_delete
        self._properties = marker.properties
        self._pieces = dict(marker.pieces)  # the newest that stands of each ledger
        self._head_written: tuple[object, ...] | None = self._head
        self._cache_bytes = cache_bytes
        self._parts_bytes = parts_bytes
        self._loaded: OrderedDict[LedgerKey, LedgerAcks] = OrderedDict()  # the least recently used first
        self._ledgers = sorted(self._pieces)  # the keys of `_pieces` and `_loaded`
        self._memory: dict[LedgerKey, int] = {}
        self._bytes = 0
        self._dirty: set[LedgerKey] = set()
        self._writing: set[LedgerKey] = set()
        self._drop_what_is_covered()

    @property
    def mark_delete(self) -> Position:
        """Everything up to and including it is acknowledged."""
        return self._mark_delete

    @property
    def properties(self) -> tuple[tuple[str, int], ...]:
        """Pulsar's long ones."""
        return self._properties

    @property
    def memory(self) -> int:
        """About how many bytes the ledgers in memory take."""
        return self._bytes

    @property
    def changed(self) -> bool:
        """Whether there is anything that no record says, nor one that is being written."""
        return bool(self._dirty) or self._head != self._head_written

    @property
    def named(self) -> Mapping[LedgerKey, PieceAt]:
        """Where the newest piece of each ledger stands."""
        return MappingProxyType(self._pieces)

    @property
    def swapped_out(self) -> list[LedgerKey]:
        """The ledgers whose pieces are in the store alone, the newest first: in that order they are read at a start."""
        return sorted(self._pieces.keys() - self._loaded.keys(), reverse=True)

    def swap_in(self, key: LedgerKey, piece: bytes) -> None:
        """A ledger's piece, read. Raises DamagedRecordError."""
        if key in self._loaded or key not in self._pieces:  # meanwhile it was, or it is covered
            return
        self._loaded[key] = acks = decode_piece(piece)
        acks.drop_before(self._first_behind(key))
        self._weigh(key)

    def swap_out(self) -> bool:
        """Forget what stands in the store, the least recently used ledger first, until the rest is within the bound, or
        one ledger is left. False: some of it must be written first."""
        if self._fits():
            return True
        for key in [each for each in self._loaded if each not in self._dirty and each not in self._writing]:
            if self._fits():
                break
            self._forget(key)
        return self._fits()

    def forget_surplus(self) -> None:
        """Forget what was acknowledged in the least recently used ledgers, written or not, until the rest is within the
        bound, or one ledger is left."""
        while not self._fits():
            key = next(iter(self._loaded))
            self._forget(key)
            self._dirty.discard(key)
            self._pieces.pop(key, None)
            del self._ledgers[bisect_left(self._ledgers, key)]

    # Acknowledgements. They raise SwappedOutError where a piece is needed, and then have changed nothing.

    def acknowledge(self, key: LedgerKey, first: int, last: int) -> bool:
        """Entries of a ledger. Returns whether anything changed."""
        first = max(first, self._first_behind(key))
        return first <= last and self._have(key, lambda acks: acks.acknowledge(first, last))

    def acknowledge_part(self, position: Position, size: int, left: int) -> bool:
        """Messages of a batch of `size`: those whose bit in `left` is 0. Returns whether anything changed. Beyond a
        bound no more batches of a ledger are remembered: until they are acknowledged whole, all of them is left."""
        key = key_of(position)
        if position <= self._mark_delete or (left and self._has_no_room(key, position.entry)):
            return False
        return self._have(key, lambda acks: acks.acknowledge_part(position.entry, size, left))

    def acknowledge_up_to(self, position: Position) -> bool:
        """Everything up to and including it. Never moves backwards. Returns whether anything changed."""
        if position <= self._mark_delete:
            return False
        self._mark_delete = position
        self._drop_what_is_covered()
        return True

    def is_acknowledged(self, position: Position) -> bool:
        """Whether the whole entry is."""
        return position <= self._mark_delete or self._acks(key_of(position)).is_acknowledged(position.entry)

    def left_of(self, position: Position) -> BatchLeft | None:
        """Of a batch of which a part is acknowledged what is left; None: of any other entry."""
        return None if position <= self._mark_delete else self._acks(key_of(position)).batches.get(position.entry)

    def has_none_of(self, key: LedgerKey, first: int, last: int) -> bool:
        """Whether of a ledger's entries `first`..`last` nothing is acknowledged, no part either."""
        return first >= self._first_behind(key) and self._acks(key).has_none_of(first, last)

    def acknowledged_of(self, ledgers: Iterable[LedgerKey]) -> int | None:
        """How many entries of these ledgers are acknowledged behind the mark-delete position; None: some are not in
        memory."""
        count = 0
        for key in ledgers:
            if key in self._loaded:
                count += self._loaded[key].count
            elif key in self._pieces:
                return None
        return count

    def count_left(self, key: LedgerKey, first: int, last: int) -> int:
        """How many of a ledger's entries `first`..`last` are not acknowledged as a whole."""
        first = max(first, self._first_behind(key))
        return last - first + 1 - self._acks(key).count_in(first, last) if first <= last else 0

    def count_property(self, name: str, by: int) -> None:
        """Add to one of the properties. A subscription that is deleted counts nothing: it would be there again."""
        if self._properties == FORGOTTEN:
            return
        found = dict(self._properties)
        found[name] = found.get(name, 0) + by
        self._properties = tuple(found.items())

    def next_left(self, position: Position) -> Position:
        """The first position from there on, in its ledger, that is not acknowledged as a whole."""
        first = max(position.entry, self._first_behind(key_of(position)))
        return position.at(self._acks(key_of(position)).first_hole(first))

    def advance(self, ledgers_from: LedgersFrom) -> bool:
        """Move the mark-delete position over what is acknowledged. Returns whether it moved."""
        mark = self._mark_delete
        for key, last in ledgers_from(key_of(mark)):
            first = mark.entry + 1 if key == key_of(mark) else 0
            end = self._acks(key).first_hole(first) - 1
            if end >= first or last == -1:
                mark = Position(*key, end if last is None else min(end, last))
            if last is None or end < last:
                break
        return self.acknowledge_up_to(mark)

    def begin_anew(self, position: Position, properties: tuple[tuple[str, int], ...] | None = None) -> None:
        """A reset: everything up to and including `position` is acknowledged, and nothing else. `properties` None: they
        stay."""
        for key in list(self._loaded):
            self._forget(key)
        self._pieces.clear()
        self._ledgers.clear()
        self._dirty.clear()
        self._writing.clear()
        self._mark_delete = position
        self._properties = self._properties if properties is None else properties
        self._head_written = None

    # Records

    def to_move(self) -> dict[LedgerKey, PieceAt]:
        """Pieces that the next records hold anew, unchanged: a marker names a bounded number of records."""
        kept = {key: piece for key, piece in self._pieces.items() if key not in self._dirty}
        moved = records_to_move(kept.values(), MOST_NAMED)
        return {key: piece for key, piece in kept.items() if piece.record in moved}

    def records(self, epoch: int, slot: int, moved: Mapping[LedgerKey, bytes]) -> list[PieceRecord]:
        """What is to be written now, to `slot` and those behind it; `moved`: the bytes of `to_move`. What each record
        says was acknowledged before this call."""
        inline = {key: data for key, data in moved.items() if key in self._pieces and key not in self._dirty}
        for key in self._dirty:
            inline[key] = encode_piece(self._loaded[key])
        found, pieces = list[PieceRecord](), dict(self._pieces)
        for group in _groups(inline):
            at = slot + len(found)
            pieces |= {key: PieceAt(epoch, at, len(data)) for key, data in group.items()}
            found.append(PieceRecord(CursorMarker(self._mark_delete, self._properties, dict(pieces)), group))
        self._writing, self._dirty = self._dirty, set()
        self._head_written = self._head
        return found

    def written(self, record: PieceRecord) -> None:
        """The record stands. What was reset, or is covered since, stays forgotten."""
        for key in record.inline.keys() & (self._pieces.keys() | self._writing):
            self._pieces[key] = record.marker.pieces[key]
        self._writing -= record.inline.keys()

    # Within

    @property
    def _head(self) -> tuple[object, ...]:
        return self._mark_delete, self._properties

    def _fits(self) -> bool:
        return self._bytes <= self._cache_bytes or len(self._loaded) <= 1

    def _has_no_room(self, key: LedgerKey, entry: int) -> bool:
        acks = self._acks(key)
        return acks.batch_memory >= self._parts_bytes and entry not in acks.batches

    def _first_behind(self, key: LedgerKey) -> int:
        """The first entry of a ledger that the mark-delete position does not cover."""
        mark = key_of(self._mark_delete)
        if key < mark:
            return MOST_ENTRIES
        return self._mark_delete.entry + 1 if key == mark else 0

    def _acks(self, key: LedgerKey) -> LedgerAcks:
        acks = self._loaded.get(key)
        if acks is not None:
            self._loaded.move_to_end(key)
            return acks
        if key in self._pieces:
            raise SwappedOutError(key)
        return LedgerAcks()

    def _have(self, key: LedgerKey, change: Callable[[LedgerAcks], bool]) -> bool:
        acks = self._acks(key)
        if not change(acks):
            return False
        if key not in self._loaded:  # nor among the pieces: it is new
            insort(self._ledgers, key)
        self._loaded[key] = acks
        self._dirty.add(key)
        self._weigh(key)
        return True

    def _weigh(self, key: LedgerKey) -> None:
        now = self._loaded[key].memory
        self._bytes += now - self._memory.get(key, 0)
        self._memory[key] = now

    def _forget(self, key: LedgerKey) -> None:
        del self._loaded[key]
        self._bytes -= self._memory.pop(key)

    def _drop_what_is_covered(self) -> None:
        mark = key_of(self._mark_delete)
        covered = bisect_left(self._ledgers, mark)
        for key in self._ledgers[:covered]:
            if key in self._loaded:
                self._forget(key)
            self._pieces.pop(key, None)
            self._dirty.discard(key)
            self._writing.discard(key)
        del self._ledgers[:covered]
        if mark in self._loaded:
            self._loaded[mark].drop_before(self._mark_delete.entry + 1)
            self._weigh(mark)


def _groups(pieces: Mapping[LedgerKey, bytes]) -> list[dict[LedgerKey, bytes]]:
    """As many as a record has; one without any where there are none."""
    groups, size = [dict[LedgerKey, bytes]()], 0
    for key, data in sorted(pieces.items()):
        if groups[-1] and size + len(data) > RECORD_BYTES:
            groups.append({})
            size = 0
        groups[-1][key] = data
        size += len(data)
    return groups
