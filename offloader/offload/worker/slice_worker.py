"""One slice on an executor: tail entries, cut them into parts, upload, answer with a receipt.

Only a lost process keeps it from answering. It holds at most the reader's bytes, the part that it cuts, the parts that
it sends (one of them twice: as cut, and as sent), one block and the largest entry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from hashlib import sha256

from offloader.errors import BrokerUnavailableError, OffloadError, UnexplainedGapError
from offloader.format.cutter import Consecutive, CutPart, PartCutter
from offloader.format.entry import fault
from offloader.metadata.layout import data_key
from offloader.model import (
    SINGLE_PUT,
    EntryRange,
    FailureKind,
    Gap,
    LedgerList,
    Part,
    Position,
    Receipt,
    Silence,
    Slice,
    SliceStop,
    Turn,
    Walk,
)
from offloader.model.walk import QUIET_SECONDS
from offloader.offload.worker.part_uploads import PartUploads, Uploaded
from offloader.ports.entry_source import EntryReader, EntrySource, Extent, RawEntry
from offloader.ports.object_store import ObjectStore

READ_TIMEOUT = 0.2  # seconds; how often a waiting slice looks at its clock
QUIET_MS = int(1000 * QUIET_SECONDS)


def run_slice(work: Slice, source: EntrySource, store: ObjectStore, clock_ms: Callable[[], int]) -> Receipt:
    """Work through one slice. A receipt comes back whatever happens to the topic or the store."""
    return _SliceRun(work, source, store, clock_ms).run()


def died(work: Slice) -> Receipt:
    """The receipt of a slice whose task was lost. Spark's next attempt answers with it and reads nothing."""
    reason = "the task that read this slice died"
    return Receipt(work.id, SliceStop.FAILED, failure_kind=FailureKind.TASK_DIED, failure_reason=reason)


def refused(work: Slice, error: OffloadError) -> Receipt:
    """The receipt of a slice that could not be begun."""
    return Receipt(work.id, SliceStop.FAILED, failure_kind=FailureKind.of(error), failure_reason=_reason(error))


@dataclass
class _Progress:
    """How far a slice has come."""

    walk: Walk
    seen_to: Position | None = None
    read_bytes: int = 0


class Arrivals:
    """What arrived with a broken frame or checksum in one slice: stored like that, or changed on the way? An entry that
    arrives twice with the same bytes is stored with them."""

    def __init__(self) -> None:
        self._before: dict[tuple[int, int], bytes] = {}

    def trusted(self, entries: Consecutive) -> int:
        """How many of the entries may be taken; the others must be read again, which answers for all doubtful ones.
        Raises BrokerUnavailableError for an entry that arrived in two ways, both of them broken."""
        doubtful = []
        for number in entries.unreadable():
            data, place = entries.entries[number], (entries.ledger, entries.first + number)
            why = fault(data)
            if not why:
                continue
            digest = sha256(data).digest()
            if place not in self._before:
                self._before[place] = digest
                doubtful.append(number)
            elif self._before[place] != digest:
                raise BrokerUnavailableError(
                    f"{place[0]}:{place[1]} arrived twice, differently and broken both times ({why}): something on "
                    "the way changes bytes"
                )
        return min(doubtful, default=len(entries))


class _SliceRun:
    def __init__(self, work: Slice, source: EntrySource, store: ObjectStore, clock_ms: Callable[[], int]) -> None:
        self._work = work
        self._source = source
        self._uploads = PartUploads(store, data_key(work.id.topic, work.id.uuid), work.id.upload)
        self._clock = clock_ms
        self._began = self._part_began = clock_ms()
        self._parts_cut = self._sending_ms = 0
        self._at = _Progress(Walk(LedgerList(work.ledgers), work.id.start, work.bound.place))
        self._parts: list[Part] = []
        self._gaps: list[Gap] = []
        self._finished = False
        self._left_out = 0  # bytes that were cut and are not uploaded
        self._lookups_left = work.max_gap_lookups
        self._arrivals = Arrivals()
        self._read_again = False  # the last delivery had broken entries
        self._cutter = PartCutter(
            work.cuts, first_part=work.id.first_part, offset=work.offset, first_block=work.first_block, room=work.room
        )

    def run(self) -> Receipt:
        try:
            stop = self._read_all()
            self._take(self._uploads.finish())
        except OffloadError as error:
            with suppress(OffloadError):  # what came first is what the slice failed for
                self._take(self._uploads.finish())
            receipt = self._receipt(SliceStop.FAILED)
            return replace(receipt, finished=False, failure_kind=FailureKind.of(error), failure_reason=_reason(error))
        finally:
            self._uploads.close()
        return self._receipt(stop)

    def _receipt(self, stop: SliceStop) -> Receipt:
        elapsed = self._clock() - self._began
        return Receipt(
            self._work.id,
            stop,
            parts=tuple(self._parts),
            seen_to=self._at.seen_to,
            seen_bytes=self._left_out + self._cutter.pending_bytes,
            gaps=tuple(self._gaps),
            finished=self._finished,
            elapsed_ms=elapsed,
            reading_ms=elapsed - self._sending_ms,
            read_bytes=self._at.read_bytes,
        )

    def _read_all(self) -> SliceStop:
        work, start = self._work, self._at.walk.expected
        while start is not None:
            extent = Extent(self._at.walk.ledgers, work.bound.place)
            with closing(
                self._source.open(work.id.topic, start.ledger, start.entry, max_bytes=work.read_ahead, extent=extent)
            ) as reader:
                stop = self._follow(reader)
            if stop is not None:
                return stop
            start = self._at.walk.expected
        return self._finish()

    def _follow(self, reader: EntryReader) -> SliceStop | None:
        """None: what comes next must be read again."""
        silence = Silence.begin(QUIET_MS, self._clock())
        self._read_again = False
        while True:
            if self._at.walk.done:
                return self._finish()
            entries = reader.read(READ_TIMEOUT)
            now = self._clock()
            if entries or (silence.too_long(now) and self._explain_silence(silence.lasted(now))):
                silence = silence.broken(now)
            elif silence.too_long(now):
                silence = silence.looked_into(now)
            stop = self._take_all(entries)
            if stop is not None:
                return stop
            hangs = self._work.stall_ms is not None and silence.lasted(now) >= self._work.stall_ms
            if hangs or self._waits_in_vain(now):
                return SliceStop.BUDGET if self._parts_cut else SliceStop.SLOW
            if self._read_again:
                return None

    def _waits_in_vain(self, now: int) -> bool:
        """Whether the part will not be whole by the hard limit, at its pace. The time budget is always waited for."""
        work, used = self._work, now - self._began
        if used < work.time_budget_ms:
            return False
        seen, goal = self._cutter.pending_bytes, work.cuts.part_size if self._parts_cut else work.goal
        left = work.hard_limit_ms - (self._part_began - self._began)
        return used >= work.hard_limit_ms or (now - self._part_began) * goal > left * seen

    def _finish(self) -> SliceStop:
        """Everything up to the bound is accounted for. Where the segment ends here, its last part may be short."""
        if self._work.seal and self._at.seen_to == self._work.bound:
            part = self._cutter.finish()
            if part is not None:
                self._upload(part)
            self._finished = True
        return SliceStop.BOUND

    def _take_all(self, entries: list[RawEntry]) -> SliceStop | None:
        """Account for delivered entries, gaps before and between them included."""
        first = 0
        while first < len(entries):
            behind = first + self._at.walk.in_turn(entries, first)
            if behind > first:
                stop = self._take_run(entries[first:behind])
            else:
                behind, stop = self._take_out_of_turn(entries, first)
            if stop is not None or self._read_again:
                return stop
            first = behind
        return None

    def _take_run(self, run: list[RawEntry]) -> SliceStop | None:
        """Cut entries that follow each other in one ledger."""
        first = run[0].entry
        entries = Consecutive.of(run[0].ledger, first, [data for _, _, data in run])
        trusted = self._arrivals.trusted(entries)
        self._read_again = trusted < len(run)
        taken = 0
        try:
            while taken < trusted:
                count, part = self._cutter.offer_all(entries, taken)
                taken += count
                if part is not None and self._work.id.upload == SINGLE_PUT:
                    self._left_out = part.size
                    return SliceStop.LARGER
                if part is not None:
                    self._upload(part)
                    if self._budget_used(entries.size(taken)):
                        return SliceStop.BUDGET
                elif not count:
                    return SliceStop.FULL
        finally:
            self._at.read_bytes += entries.size(len(run) if self._read_again else min(taken + 1, len(run)))
            if taken:
                self._reach(first + taken - 1)
        return self._finish() if self._at.walk.done else None

    def _reach(self, entry: int) -> None:
        """The entry of the ledger that is read, and those before it, are accounted for."""
        at = self._at
        if at.walk.expected is not None:
            at.seen_to = at.walk.expected.at(entry)
            at.walk = at.walk.behind(at.seen_to)

    def _take_out_of_turn(self, entries: list[RawEntry], number: int) -> tuple[int, SliceStop | None]:
        """Explain the gap before an unexpected entry, or drop it. Returns which is next. Raises UnexplainedGapError."""
        at, (ledger, entry, data) = self._at, entries[number]
        while not at.walk.done:
            turn = at.walk.turn_of((ledger, entry))
            if isinstance(turn, EntryRange):
                unexplained = self._explain(turn)
                if unexplained is not None:
                    raise self._unexplained(unexplained)
            elif turn is Turn.UNKNOWN:
                at.walk = at.walk.stopped()
            elif turn is Turn.SEEN:
                at.read_bytes += len(data)
                return number + 1, None
            else:
                return number, None
        return number, self._finish()

    def _budget_used(self, taken: int) -> bool:
        """Whether another part would be too much, or late. `taken`: bytes of the run that is being cut."""
        used = self._clock() - self._began
        next_part = used + used // self._parts_cut
        return next_part > self._work.time_budget_ms or self._at.read_bytes + taken >= self._work.byte_budget

    def _upload(self, cut: CutPart) -> None:
        self._take(self._uploads.start(cut))
        self._parts_cut += 1
        self._part_began = self._clock()

    def _take(self, uploads: Iterator[Uploaded]) -> None:
        """Take parts as uploaded, each with the gaps that lie before its end."""
        before = self._clock()
        try:
            for cut, etag, checksum in uploads:
                last = (cut.ledgers[-1].ledger, cut.ledgers[-1].last)
                inside = tuple(g for g in self._gaps if (g.ledger, g.first) < last)
                self._gaps = [g for g in self._gaps if (g.ledger, g.first) >= last]
                self._parts.append(cut.to_part(etag, checksum, inside))
        finally:
            self._sending_ms += self._clock() - before

    def _unexplained(self, gap: EntryRange) -> UnexplainedGapError:
        why = "nothing says why"
        if self._lookups_left <= 0:
            why = f"more than {self._work.max_gap_lookups} had to be looked up (limits.slice.maxGapLookups)"
        return UnexplainedGapError(
            f"{self._work.id.topic}: entries {gap.ledger}:{gap.first} to {gap.last} were not delivered and {why}; "
            "set pulsar.metadataServiceUri, and they are copied from bookies (with pulsar.source: bookkeeper, so is "
            "everything)"
        )

    def _explain_silence(self, silent_ms: float) -> bool:
        """Nothing arrives: entries up to the bound may be ones that no broker delivers. Whether some of them are
        accounted for now. Raises UnexplainedGapError once a broker would have delivered what it has."""
        before, unexplained = self._at.seen_to, None
        while unexplained is None and (rest := self._at.walk.rest()) is not None:
            unexplained = self._explain(rest)
        if self._at.seen_to != before:
            return True
        too_long = silent_ms >= self._work.silent_ms and not self._work.source.complete
        if unexplained is not None and too_long:
            raise self._unexplained(unexplained)
        return False

    def _explain(self, missing: EntryRange) -> EntryRange | None:
        """Account for the entries that are explained, from the expected one on. Returns those that are not."""
        limit = max(self._lookups_left, 1)
        gaps, unexplained = self._source.explain(self._work.id.topic, missing, limit=limit)
        self._lookups_left -= sum(gap.span for gap in gaps) + 1
        if gaps:
            self._gaps.extend(gaps)
            self._reach(gaps[-1].last)
        return None if unexplained is None else replace(missing, first=unexplained)


def _reason(error: OffloadError) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
