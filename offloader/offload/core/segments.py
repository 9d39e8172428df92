"""The life of a segment as pure transitions of a topic's journal state.

Assigned (its end still open) -> Closing (its end fixed) -> Sealing -> Offloaded (then only the catalog knows it). A
failure is remembered beside it; abandoning gives the same range a new uuid. Nothing here does I/O: the driver journals
each returned state before it acts on it; `offloaded` after the catalog has the segment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard, TypeVar, assert_never

from offloader.errors import IntegrityError, PartRejectedError, UploadGoneError
from offloader.format.crc import combine
from offloader.metadata.state import Abandoned, AssignedAhead, CloseRequest, NextStart, OpenTopic, TopicState
from offloader.model import (
    Ending,
    Failure,
    FailureKind,
    Gap,
    LedgerList,
    LedgerRange,
    LedgerSpan,
    OpenSegment,
    Part,
    Position,
    Receipt,
    RollReason,
    SealedFacts,
    Segment,
    SegmentLayout,
    SegmentStatus,
    SliceStop,
    Source,
    merge_ranges,
)
from offloader.offload.core.retry_schedule import BACKOFF_LAST_MS, back_off_ms

State = TypeVar("State", bound=TopicState)

FULL_ENOUGH = 100  # a full segment may be so small a fraction (1 %) below its maximum size


class StaleReceiptError(IntegrityError):
    """A receipt that does not continue the journal's state: a retry's, a zombie's, another run's."""


def assigned(
    state: TopicState,
    *,
    uuid: str,
    start: NextStart,
    source: Source,
    cuts: SegmentLayout,
    now: int,
    predecessor: Ending | None,
) -> OpenTopic:
    """A new segment begins at `start`. Only when none is open: a failed one is resumed before another is opened."""
    if state.open is not None:
        raise IntegrityError(f"{state.topic}: segment {state.open.uuid} is not offloaded yet")
    return state.opened(
        OpenSegment(
            uuid=uuid,
            start=start.position,
            former_ledger_last=start.former_ledger_last,
            former_ledger=start.former_ledger,
            source=source,
            cuts=cuts,
            assigned_at=now,
            predecessor_uuid=predecessor.uuid if predecessor else "",
            predecessor_end=predecessor.end if predecessor else None,
        )
    )


def awaits_upload(state: TopicState, uuid: str) -> TypeGuard[OpenTopic]:
    """Whether the open segment has this uuid and no upload yet."""
    return state.open is not None and state.open.uuid == uuid and state.open.upload is None


def uploading(state: TopicState, uuid: str, upload: str) -> TopicState:
    """An upload of the object `uuid` has begun: the segment's, or one that nobody waits for and that must end."""
    if awaits_upload(state, uuid):
        return replace(state, open=replace(state.open, upload=upload))
    known = any(each.upload == upload for each in state.unfinished)
    if known or any(a.upload == upload for a in state.abandoned):
        return state
    return replace(state, abandoned=(*state.abandoned, Abandoned(uuid, upload, "its segment went on without it")))


def closing(state: OpenTopic, end: Position, reason: RollReason) -> OpenTopic:
    """Fix the segment's end; again only to an earlier one, which a full object forces. A short part that was uploaded
    for the later end stays unpublished: see `SliceId`."""
    segment = state.open
    if segment.closing_end is not None:
        end, reason = min((segment.closing_end, segment.roll_reason or reason), (end, reason), key=lambda pair: pair[0])
    return replace(state, open=replace(segment, status=SegmentStatus.CLOSING, closing_end=end, roll_reason=reason))


def next_position(segment: OpenSegment, ledgers: LedgerList) -> Position | None:
    """The first position that is not safely uploaded; None while its ledger's successor is unknown."""
    covered = segment.covered
    return segment.start if covered is None else ledgers.successor(covered)


def received(state: TopicState, receipt: Receipt, now: int, jitter: float) -> OpenTopic:
    """Take a receipt's parts and its end or failure. Raises StaleReceiptError unless it continues the journal."""
    if not isinstance(state, OpenTopic) or state.open.status is SegmentStatus.SEALING:
        raise StaleReceiptError(f"{state.topic}: no open segment awaits a receipt")
    segment = state.open
    ours = (segment.uuid, segment.upload, segment.next_part)
    theirs = (receipt.id.uuid, receipt.id.upload, receipt.id.first_part)
    begins = segment.parts or receipt.id.start == segment.start
    continues = segment.covered is None or receipt.id.start > segment.covered
    if ours != theirs or not begins or not continues:
        raise StaleReceiptError(f"{state.topic}: the journal is at {ours}, the receipt at {theirs}")
    state = replace(state, open=replace(segment, parts=segment.parts + receipt.parts))
    match receipt.stop:
        case SliceStop.FAILED:
            return failed(state, receipt.failure_kind or FailureKind.RETRYABLE, receipt.failure_reason, now, jitter)
        case SliceStop.FULL:
            end = _end_when_full(state.open, receipt)
            if end is None:
                raise StaleReceiptError(f"{state.topic}: a full segment that holds nothing")
            return _progressed(closing(state, end, RollReason.SIZE))
        case SliceStop.BOUND | SliceStop.BUDGET | SliceStop.SLOW | SliceStop.LARGER:
            return _progressed(state)
        case _:
            assert_never(receipt.stop)


def _progressed(state: OpenTopic) -> OpenTopic:
    """Reading went on, and ends a failure to read. Uploads that fail again and again only a commit ends: what comes
    before the step that fails succeeds each time."""
    segment = state.open
    return state if segment.lost_uploads > 1 and segment.closing_end is not None else replace(state, failure=None)


def _end_when_full(segment: OpenSegment, receipt: Receipt) -> Position | None:
    """The last entry that fits; or the last whole part's, where the little behind it would take another batch."""
    if segment.covered is not None and receipt.seen_bytes * FULL_ENOUGH <= segment.size:
        return segment.covered
    return receipt.seen_to or segment.covered


def failed(state: State, kind: FailureKind, reason: str, now: int, jitter: float) -> State:
    """Remember a failure and when to try again: see `back_off_ms`."""
    attempts = max(state.attempts + 1, 0 if state.open is None else state.open.lost_uploads)
    return replace(state, failure=Failure(kind, reason, attempts, now + back_off_ms(attempts, jitter)))


def not_of_the_future(state: TopicState, now: int) -> TopicState:
    """A process whose clock was ahead wrote this: what it says is to come waits no longer than it would from now on.
    What a segment that is being sealed says stays as it is: its record may have been written."""
    if isinstance(state, OpenTopic):
        state = replace(state, open=_assigned_by(state.open, now))
    ahead = (AssignedAhead(_assigned_by(a.segment, now), _retried_soon(a.failure, now)) for a in state.ahead)
    return replace(state, failure=_retried_soon(state.failure, now), ahead=tuple(ahead))


def _assigned_by(segment: OpenSegment, now: int) -> OpenSegment:
    later = segment.sealed is None and segment.assigned_at > now
    return replace(segment, assigned_at=now) if later else segment


def _retried_soon(failure: Failure | None, now: int) -> Failure | None:
    later = failure is not None and failure.retry_at > now + BACKOFF_LAST_MS
    return replace(failure, retry_at=now + BACKOFF_LAST_MS) if failure is not None and later else failure


def abandoned(state: OpenTopic, new_uuid: str, reason: str) -> OpenTopic:
    """Give the segment's range a new uuid, from its beginning, after its upload has failed for good; the old upload
    must never be completed."""
    state = _renewed(state, new_uuid, reason)
    return replace(state, open=replace(state.open, lost_uploads=state.open.lost_uploads + 1))


def _renewed(state: OpenTopic, new_uuid: str, reason: str) -> OpenTopic:
    segment = state.open
    renewed = replace(segment, uuid=new_uuid, upload=None, parts=(), sealed=None)
    if segment.status is SegmentStatus.SEALING:
        renewed = replace(renewed, status=SegmentStatus.CLOSING)
    return replace(state, open=renewed, abandoned=(*state.abandoned, Abandoned(segment.uuid, segment.upload, reason)))


def begun_anew(
    state: OpenTopic,
    new_uuid: str,
    source: Source,
    reason: str,
    cuts: SegmentLayout | None = None,
    *,
    keep_end: bool = False,
) -> OpenTopic:
    """The segment's range from its beginning, with an open end unless others are assigned behind it; another uuid,
    since it will have other bytes. `cuts`: where it is to be cut otherwise."""
    state = _renewed(state, new_uuid, reason)
    renewed = replace(state.open, source=source, cuts=cuts or state.open.cuts)
    if not keep_end:
        renewed = replace(renewed, status=SegmentStatus.ASSIGNED, closing_end=None, roll_reason=None)
    return replace(state, open=renewed, failure=None)


def dropped(state: OpenTopic, reason: str) -> TopicState:
    """The segment ends without a record: its source is gone and it has no part, or the catalog went on without it. Its
    upload is left to abort."""
    given_up = Abandoned(state.open.uuid, state.open.upload, reason)
    return replace(state.closed(), failure=None, abandoned=(*state.abandoned, given_up))


def complete(state: OpenTopic, gaps: tuple[Gap, ...], ledgers: LedgerList, now: int) -> OpenTopic:
    """Everything up to the fixed end is uploaded: Sealing, with all that the remaining steps need. `gaps`: those after
    the last part. Raises IntegrityError when entries and gaps do not add up without a hole."""
    segment = state.open
    end = segment.closing_end
    if end is None:
        raise IntegrityError(f"{state.topic}: the end of segment {segment.uuid} is not fixed")
    all_gaps = tuple(g for part in segment.parts for g in part.gaps) + gaps
    ranges = account(segment.start, end, segment.parts, all_gaps, ledgers)
    facts = SealedFacts(
        offloaded_at=now,
        size=segment.size,
        crc32c=combine([(p.crc32c, p.size) for p in segment.parts]),
        end=end,
        ledgers=ranges,
        gaps=all_gaps,
    )
    return _progressed(replace(state, open=replace(segment, status=SegmentStatus.SEALING, sealed=facts)))


def of_offloaded(state: OpenTopic, parts: tuple[Part, ...], ledgers: LedgerList, at: int) -> OpenTopic:
    """The object is there, a copy of what a broker had offloaded, and was read completely; its index, too, since
    `at`."""
    return complete(replace(state, open=replace(state.open, parts=parts)), (), ledgers, at)


def account(
    start: Position, end: Position, parts: tuple[Part, ...], gaps: tuple[Gap, ...], ledgers: LedgerList
) -> tuple[LedgerRange, ...]:
    """Per ledger what `start`..`end` accounts for, gaps included; `count` and `size` are of the entries held. Raises
    IntegrityError at the first position that is neither in a part nor in a gap, or is in two."""
    held = [run for part in parts for run in _entry_runs(part)]
    missing = [LedgerRange(gap.ledger, gap.first, gap.after, count=0, size=0) for gap in gaps]
    pieces = sorted((*held, *missing), key=lambda piece: (piece.ledger, piece.first, piece.after))
    ranges = merge_ranges(pieces)
    ledgers = _with_ended(ledgers, ranges)
    expected: Position | None = start
    for piece in pieces:
        if expected is None or (piece.ledger, piece.first) != expected.place:
            raise IntegrityError(f"entries up to {piece.ledger}:{piece.first} do not continue at {expected}")
        reached = Position(start.incarnation, piece.ledger, piece.last)
        expected = None if reached == end else ledgers.successor(reached)
    if not ranges or (ranges[-1].ledger, ranges[-1].last) != end.place:
        raise IntegrityError(f"entries and gaps end before {end}")
    return tuple(replace(r, closed_with=ledgers.closed_with(r.ledger)) for r in ranges)


def _with_ended(ledgers: LedgerList, ours: Sequence[LedgerRange]) -> LedgerList:
    """The list with those of our ledgers that are not in it any more: each ended where the next one of ours begins."""
    gone = [
        LedgerSpan(one.ledger, one.last if number < len(ours) else None)
        for number, one in enumerate(ours, 1)
        if one.ledger not in ledgers
    ]
    return LedgerList((*ledgers.spans, *gone)) if gone else ledgers


def _entry_runs(part: Part) -> list[LedgerRange]:
    """The part's entries as runs without the gaps in between; counts and sizes stay with the first run of a ledger."""
    runs: list[LedgerRange] = []
    for held in part.ledgers:
        left = list(held.without(gap for gap in part.gaps if held.has(gap)))
        runs += [*left[:1], *(replace(run, count=0, size=0) for run in left[1:])]
        if sum(run.span for run in left) != held.count:
            raise IntegrityError(
                f"part {part.number}: ledger {held.ledger} has {held.count} entries in {held.first}..{held.last}"
            )
    return runs


def as_record(state: OpenTopic, driver: str, driver_properties: tuple[tuple[str, str], ...]) -> Segment:
    """The OffloadSegment record of a segment in Sealing: always the same."""
    segment = state.open
    facts = segment.sealed
    if facts is None:
        raise IntegrityError(f"{state.topic}: segment {segment.uuid} is not complete")
    return Segment(
        uuid=segment.uuid,
        start=segment.start,
        end=facts.end,
        assigned_at=segment.assigned_at,
        offloaded_at=facts.offloaded_at,
        size=facts.size,
        crc32c=facts.crc32c,
        cuts=segment.cuts,
        source=segment.source,
        roll_reason=segment.roll_reason or RollReason.SIZE,
        ledgers=facts.ledgers,
        parts=segment.parts,
        gaps=facts.gaps,
        predecessor_uuid=segment.predecessor_uuid,
        predecessor_end=segment.predecessor_end,
        driver=driver,
        driver_properties=driver_properties,
        former_ledger_last=segment.former_ledger_last,
        former_ledger=segment.former_ledger,
    )


def offloaded(state: OpenTopic) -> TopicState:
    """The catalog has the segment: the journal need not remember it (what to acknowledge follows from the catalog)."""
    return replace(state.closed(), failure=None)


def satisfied(state: State, end: Position | None) -> tuple[State, tuple[CloseRequest, ...]]:
    """Take out the requests that a catalog which ends at `end` satisfies."""
    done = tuple(r for r in state.requests if end is not None and r.end <= end)
    return replace(state, requests=tuple(r for r in state.requests if r not in done)), done


def must_abandon(error: Exception) -> bool:
    """Whether an upload that fails so can never be completed."""
    return isinstance(error, UploadGoneError | PartRejectedError)
