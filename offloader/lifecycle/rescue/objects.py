"""A ledger's entries as segments of the archive's own format: data and index objects of a bounded size each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from crc32c import crc32c

from offloader.errors import IntegrityError, OutcomeUnknownError
from offloader.format.consecutive import Consecutive
from offloader.format.cutter import CutPart, PartCutter
from offloader.format.index import index_of_segment
from offloader.metadata.rescues import data_and_index
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

OBJECT_SIZE = 32 * MIB
"""Of a data object, about: it is in memory, twice, while it is written."""
MOST_LOSSES = 1000
_PUTS = 3


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
