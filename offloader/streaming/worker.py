"""One slice on an executor: tail entries, cut them into parts, upload, answer with a receipt.

What a slice meets is data: nothing but a lost process keeps it from answering. It holds at most the reader's bytes, one part
(twice: as it was cut, and as it is sent), one block and the largest entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import crc32c

from offloader.errors import (
    DataLostError,
    IntegrityError,
    OffloadError,
    OutcomeUnknownError,
    RetryableError,
    TopicNotFoundError,
    UnexplainedGapError,
    UploadGoneError,
)
from offloader.format.cutter import CutPart, PartCutter
from offloader.format.entry import inspect
from offloader.model import FailureKind, Gap, LedgerList, Part, Position, Receipt, Slice, SliceStop
from offloader.pulsar.api import EntryReader, EntrySource, RawEntry
from offloader.storage.base import ObjectStore

READ_TIMEOUT = 0.2  # seconds; how often a waiting slice looks at its clock
QUIET_MS = 1_000  # a reader that is silent for so long may be before entries that no broker delivers
READER_BYTES = 16 * 1024 * 1024

FAILURE_KINDS: tuple[tuple[type[OffloadError], FailureKind], ...] = (
    (UploadGoneError, FailureKind.UPLOAD_GONE),
    (TopicNotFoundError, FailureKind.TOPIC_GONE),
    (DataLostError, FailureKind.DATA_LOST),
    (OutcomeUnknownError, FailureKind.UNKNOWN),
    (RetryableError, FailureKind.RETRYABLE),
    (IntegrityError, FailureKind.INTEGRITY),
)


def failure_kind(error: OffloadError) -> FailureKind:
    """The kind that a failure is remembered as."""
    return next((kind for cls, kind in FAILURE_KINDS if isinstance(error, cls)), FailureKind.FATAL)


def run_slice(work: Slice, source: EntrySource, store: ObjectStore, clock_ms: Callable[[], int]) -> Receipt:
    """Work through one slice. Returns a receipt whatever happens to the topic or the store."""
    return _SliceRun(work, source, store, clock_ms).run()


def died(work: Slice) -> Receipt:
    """The receipt of a slice whose task was lost: a later attempt touches nothing."""
    return Receipt(
        topic=work.topic,
        run=work.run,
        plan=work.plan,
        uuid=work.uuid,
        upload=work.upload,
        first_part=work.first_part,
        start=work.start,
        stop=SliceStop.FAILED,
        failure_kind=FailureKind.TASK_DIED,
        failure_reason="the task that read this slice died",
    )


@dataclass
class _Progress:
    """How far a slice has come. `expected`: the next position to account for; None: the ledger after it is not listed."""

    expected: Position | None
    seen_to: Position | None = None
    read_bytes: int = 0


class _SliceRun:
    def __init__(self, work: Slice, source: EntrySource, store: ObjectStore, clock_ms: Callable[[], int]) -> None:
        self._work = work
        self._source = source
        self._store = store
        self._clock = clock_ms
        self._began = clock_ms()
        self._ledgers = LedgerList(work.ledgers)
        self._at = _Progress(expected=work.start)
        self._parts: list[Part] = []
        self._gaps: list[Gap] = []
        self._finished = False
        self._lookups_left = work.max_gap_lookups
        self._cutter = PartCutter(
            work.cuts, first_part=work.first_part, offset=work.offset, first_block=work.first_block, room=work.room
        )

    def run(self) -> Receipt:
        try:
            stop = self._read_all()
        except OffloadError as error:
            return self._failed(error)
        return self._receipt(stop)

    def _failed(self, error: OffloadError) -> Receipt:
        receipt = self._receipt(SliceStop.FAILED)
        return replace(receipt, finished=False, failure_kind=failure_kind(error), failure_reason=_reason(error))

    def _receipt(self, stop: SliceStop) -> Receipt:
        work = self._work
        return Receipt(
            topic=work.topic,
            run=work.run,
            plan=work.plan,
            uuid=work.uuid,
            upload=work.upload,
            first_part=work.first_part,
            start=work.start,
            stop=stop,
            parts=tuple(self._parts),
            seen_to=self._at.seen_to,
            seen_bytes=self._cutter.pending_bytes,
            gaps=tuple(self._gaps),
            finished=self._finished,
            elapsed_ms=self._clock() - self._began,
            read_bytes=self._at.read_bytes,
        )

    def _read_all(self) -> SliceStop:
        work = self._work
        reader = self._source.open(work.topic, work.start.ledger, work.start.entry, max_bytes=READER_BYTES)
        try:
            return self._follow(reader)
        finally:
            reader.close()

    def _follow(self, reader: EntryReader) -> SliceStop:
        heard = self._clock()
        while True:
            if self._at_bound():
                return self._finish()
            entries = reader.read(READ_TIMEOUT)
            now = self._clock()
            if entries:
                heard = now
            elif now - heard >= QUIET_MS:
                self._explain_silence()
                heard = now
            for entry in entries:
                stop = self._take(entry)
                if stop is not None:
                    return stop
            if now - self._began >= self._work.hard_limit_ms:
                return SliceStop.BUDGET if self._parts else SliceStop.SLOW

    def _at_bound(self) -> bool:
        expected = self._at.expected
        return expected is None or expected > self._work.bound

    def _finish(self) -> SliceStop:
        """Everything up to the bound is accounted for; where the segment ends here, its last part may be short."""
        if self._work.seal and self._at.seen_to == self._work.bound:
            part = self._cutter.finish()
            if part is not None:
                self._upload(part)
            self._finished = True
        return SliceStop.BOUND

    def _take(self, raw: RawEntry) -> SliceStop | None:
        """Account for one delivered entry, gaps before it included."""
        at, work = self._at, self._work
        expected = at.expected
        if expected is None:
            return self._finish()
        ledger, entry, data = raw
        at.read_bytes += len(data)
        if ledger != expected.ledger or entry != expected.entry:
            position = Position(expected.incarnation, ledger, entry)
            if position < expected:
                return None
            self._explain_before(min(position, _after(work.bound)))
            expected = at.expected
            if expected is None or expected > work.bound or position > work.bound:
                return self._finish()
            if position != expected:
                return None
        if self._cutter.would_exceed_room(len(data), ledger, entry):
            return SliceStop.FULL
        part = self._cutter.offer(ledger, entry, data, inspect(data))
        at.seen_to = expected
        at.expected = self._ledgers.successor(expected)
        if part is not None:
            self._upload(part)
            if self._budget_used():
                return SliceStop.BUDGET
        return self._finish() if self._at_bound() else None

    def _budget_used(self) -> bool:
        used = self._clock() - self._began
        return used >= self._work.time_budget_ms or self._at.read_bytes >= self._work.byte_budget

    def _upload(self, cut: CutPart) -> None:
        data = cut.data()
        checksum = crc32c.crc32c(data)
        uploaded = self._store.put_part(self._work.upload, cut.number, cut.offset, data, checksum)
        inside, self._gaps = _split(self._gaps, cut)
        self._parts.append(cut.to_part(uploaded.etag, checksum, tuple(inside)))

    def _explain_before(self, position: Position) -> None:
        """Account for every position before `position` that was not delivered. Raises UnexplainedGapError."""
        while self._at.expected is not None and self._at.expected < position:
            expected = self._at.expected
            last = self._last_before(expected, position)
            if last is None:
                return
            unexplained = self._explain(expected, last)
            if unexplained is not None:
                raise self._unexplained(expected.ledger, unexplained, last)

    def _unexplained(self, ledger: int, first: int, last: int) -> UnexplainedGapError:
        why = "nothing says why"
        if self._lookups_left <= 0:
            why = f"more than {self._work.max_gap_lookups} had to be looked up (limits.slice.maxGapLookups)"
        return UnexplainedGapError(
            f"{self._work.topic}: entries {ledger}:{first} to {last} were not delivered and {why}; "
            "the bookkeeper source (pulsar.source: bookkeeper) copies them"
        )

    def _last_before(self, expected: Position, position: Position) -> int | None:
        """The last missing entry of the expected position's ledger; None: where that ledger ends is not known yet."""
        if expected.ledger == position.ledger:
            return position.entry - 1
        last = self._ledgers.closed_with(expected.ledger)
        if last is None:
            self._at.expected = None
        return last

    def _explain_silence(self) -> None:
        """Nothing arrives: entries up to the bound may be ones that no broker delivers."""
        expected, bound = self._at.expected, self._work.bound
        while expected is not None and expected <= bound:
            last = bound.entry if expected.ledger == bound.ledger else self._ledgers.closed_with(expected.ledger)
            if last is None or self._explain(expected, last) is not None:
                return
            expected = self._at.expected

    def _explain(self, expected: Position, last: int) -> int | None:
        """Take the gaps that explain `expected`..`last` as accounted for. Returns the first entry id that none explains."""
        gaps, unexplained = self._source.explain(
            self._work.topic, expected.ledger, expected.entry, last, limit=max(self._lookups_left, 1)
        )
        self._lookups_left -= sum(g.last - g.first + 1 for g in gaps) + 1
        if gaps:
            self._gaps.extend(gaps)
            reached = Position(expected.incarnation, expected.ledger, gaps[-1].last)
            self._at.seen_to = reached
            self._at.expected = self._ledgers.successor(reached)
        return unexplained


def _after(position: Position) -> Position:
    return replace(position, entry=position.entry + 1)


def _split(gaps: list[Gap], part: CutPart) -> tuple[list[Gap], list[Gap]]:
    """The gaps that lie before the part's last entry, and the others."""
    last = (part.ledgers[-1].ledger, part.ledgers[-1].last)
    inside = [g for g in gaps if (g.ledger, g.first) < last]
    return inside, [g for g in gaps if (g.ledger, g.first) >= last]


def _reason(error: OffloadError) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
