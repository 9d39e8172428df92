"""A ledger's entries as segments of the archive's own format: data and index objects of a bounded size each, how they
are written, and how they are read back to the last byte."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from crc32c import crc32c

from offloader.errors import DamagedObjectError, IntegrityError, ObjectNotFoundError, OutcomeUnknownError
from offloader.format.blocks import entries, read_blocks
from offloader.format.cutter import Consecutive, CutPart, PartCutter
from offloader.format.index import decode_index, index_of_segment
from offloader.format.strict import account, check_ledger_infos
from offloader.metadata.rescues import RescuedLedger, data_and_index
from offloader.model import (
    MIB,
    LedgerRange,
    Loss,
    Part,
    Position,
    RollReason,
    Segment,
    SegmentLayout,
    Source,
    merge_ranges,
)
from offloader.ports.entry_source import RawEntry
from offloader.ports.object_store import ObjectStore
from offloader.storage.bounded_reads import naming, read_index

OBJECT_SIZE = 32 * MIB
"""Of a data object, about: it is in memory, twice, while it is written."""
MOST_LOSSES = 1000
_PUTS = 3

Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class RescueCuts:
    """How large objects and their parts are."""

    layout: SegmentLayout = field(default_factory=SegmentLayout)
    object_size: int = OBJECT_SIZE


class RescueWriter:
    """Takes a ledger's entries in their order. Nothing that it writes counts before a record names it.

    `folder`: where objects lie. `last_entry`: what the ledger was closed with."""

    def __init__(
        self,
        store: ObjectStore,
        folder: str,
        last_entry: int,
        new_uuid: Callable[[], str],
        clock_ms: Callable[[], int],
        cuts: RescueCuts,
    ) -> None:
        self._store = store
        self._folder = folder
        self._last_entry = last_entry
        self._new_uuid = new_uuid
        self._clock_ms = clock_ms
        self._cuts = cuts
        self._digest = sha256()
        self._parts: list[CutPart] = []
        self._began = clock_ms()
        self._cutter = self._new_cutter()
        self.segments: list[Segment] = []
        self.losses: list[Loss] = []

    @property
    def sha256(self) -> bytes:
        """See `RescuedLedger`."""
        return self._digest.digest()

    def take(self, run: Sequence[RawEntry]) -> None:
        """Consecutive entries, which follow those before."""
        for entry in run:
            self._digest.update(len(entry.data).to_bytes(4))
            self._digest.update(entry.data)
        entries = Consecutive.of(run[0].ledger, run[0].entry, [entry.data for entry in run])
        taken = 0
        while taken < len(run):
            count, part = self._cutter.offer_all(entries, taken)
            taken += count
            if part is not None:
                self._parts.append(part)
            elif not count:
                self.end_object()

    def lose(self, ledger: int, entry: int, why: str, by: str) -> None:
        """An entry that no bookie gives. Raises IntegrityError where these are too many."""
        self.end_object()
        at = Position(0, ledger, entry)
        before = self.losses[-1] if self.losses else None
        if before is not None and before.end.next_entry == at:
            self.losses[-1] = Loss(before.start, at, before.reason, by, before.at)
            return
        if len(self.losses) >= MOST_LOSSES:
            raise IntegrityError(f"ledger {ledger}: more than {MOST_LOSSES} ranges of its entries cannot be read")
        self.losses.append(Loss(at, at, why, by, self._clock_ms()))

    def end_object(self) -> None:
        """Write what is there, if anything is."""
        last = self._cutter.finish()
        parts = [*self._parts, *([last] if last else [])]
        self._parts = []
        self._cutter = self._new_cutter()
        if parts:
            self._write(parts)
        self._began = self._clock_ms()

    def _new_cutter(self) -> PartCutter:
        return PartCutter(self._cuts.layout, first_part=1, offset=0, first_block=1, room=self._cuts.object_size)

    def _write(self, cut: list[CutPart]) -> None:
        uuid, at = self._new_uuid(), self._clock_ms()
        held, indexed = self._held(cut), [entry for part in cut for entry in part.index]
        parts: list[Part] = []
        pieces: list[bytes] = []
        cut.reverse()
        while cut:  # each part's own buffers are free once it is joined
            part = cut.pop()
            pieces.append(part.data())
            parts.append(part.to_part("", crc32c(pieces[-1])))
        data = b"".join(pieces)
        del part, pieces
        index = index_of_segment(indexed, (held,), len(data), at)
        segment = Segment(
            uuid,
            Position(0, held.ledger, held.first),
            Position(0, held.ledger, held.last),
            assigned_at=self._began,
            offloaded_at=at,
            size=len(data),
            crc32c=crc32c(data),
            cuts=self._cuts.layout,
            source=Source.BOOKKEEPER,
            roll_reason=RollReason.REQUEST if held.last == self._last_entry else RollReason.SIZE,
            ledgers=(held,),
            parts=tuple(parts),
        )
        data_key, index_key = data_and_index(self._folder, uuid)
        put_new(self._store, data_key, data)
        put_new(self._store, index_key, index)
        self.segments.append(segment)

    def _held(self, cut: list[CutPart]) -> LedgerRange:
        (held,) = merge_ranges(each for part in cut for each in part.ledgers)
        return replace(held, closed_with=self._last_entry)


def put_new(store: ObjectStore, key: str, data: bytes) -> None:
    """Write an object whose name nobody else can have; again where nobody knows whether it was written."""
    for tries_left in reversed(range(_PUTS)):
        try:
            written = store.put(key, data, if_absent=True)
        except OutcomeUnknownError:
            if not tries_left:
                raise
            continue
        if written is None:
            raise IntegrityError(f"{key}: another object has this name, which was made up for this one")
        return


def damage_of_rescue(store: ObjectStore, folder: str, record: RescuedLedger, advance: Advance = lambda _: None) -> str:
    """Reads every byte: each part against its checksum, each block and entry against index and record, all entries
    against the sum of those that bookies gave. Returns what is wrong; "": nothing. One object at a time is in memory.
    `advance` hears bytes of entries.

    Raises what the store raises, but for what is not there."""
    digest = sha256()
    try:
        for segment in record.segments:
            for block in read_blocks(sound(store, folder, segment)):
                for found in entries(block):
                    digest.update(len(found.data).to_bytes(4))
                    digest.update(found.data)
            advance(sum(held.size for held in segment.ledgers))
    except (ObjectNotFoundError, DamagedObjectError) as error:
        return str(error)
    return "" if digest.digest() == record.sha256 else "its entries are not those that were read from the ledger"


def sound(store: ObjectStore, folder: str, segment: Segment) -> bytes:
    """A data object of which every byte is accounted for. Raises DamagedObjectError."""
    data_key, index_key = data_and_index(folder, segment.uuid)
    data, _ = store.read(data_key, 0, max(segment.size, 0) + 1)
    with naming(data_key):
        if len(data) != segment.size:
            raise DamagedObjectError(f"it should have {segment.size} bytes")
        view = memoryview(data)
        for part in segment.parts:
            if crc32c(view[part.offset : part.offset + part.size]) != part.crc32c:
                raise DamagedObjectError(f"offset {part.offset}: part {part.number} does not match its checksum")
    index_data, _ = read_index(store, index_key)
    with naming(index_key):
        index = decode_index(index_data)
        check_ledger_infos(index, segment.ledgers, segment.offloaded_at)
    with naming(data_key):
        found = account(data, index, own=True)
        if [each.ids for each in found.ledgers] != [each.ids for each in segment.ledgers]:
            raise DamagedObjectError("it has other entries than its record says")
    return data
