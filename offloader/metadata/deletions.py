"""What a catalog records of the end of its segments, and what these records add up to. Pure.

A deletion has a number and goes through these records, each of which anybody may read at any time:

* `Deleting` says which segments go, why, and not before when. From here on new plans leave them out and say so.
* `DeletionUndone` takes it back: before `DeletionBegun`, or behind it while every object is there (`begun`).
* `DeletionBegun` is the second look: objects may be gone from here on. It is one compare-and-set behind all that was
  looked at. As of `Deleting`, its own object is written *behind* its slot: who finds that object knows that it was
  recorded.
* Then data objects go, then index objects, and `<uuid>-record` becomes a `Tombstone`.
* `Deleted` ends it.

What goes is the beginning of an incarnation, in whole segments. So all that ever went is one range for each incarnation
of which something is left, and one for all others that lie side by side: `Removal` is of one size however much went.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TypeVar

from offloader.errors import IntegrityError
from offloader.model import Position, Segment


class DeletionReason(StrEnum):
    """Why segments go."""

    TIME = "time"
    SIZE = "size"
    TOPIC_GONE = "topic-gone"
    FOLLOWS_PULSAR = "follows-pulsar"
    REQUEST = "request"


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """Whole segments of one incarnation: from where its first record begins, or what went before ends, to `end`.

    `late`: no message in it says a later publish time (None: nobody knows). `whole`: nothing of the incarnation was
    left behind it, nor expected to follow. What follows all the same takes that back: see `Removal.continued`."""

    start: Position
    end: Position
    segments: int = 0
    entries: int = 0
    size: int = 0
    late: int | None = None
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Deleting:
    """Segments are to go. `policy`: in words for readers; `by`: who asked; `at`, `not_before`: ms."""

    number: int
    ranges: tuple[SegmentRange, ...]
    reason: DeletionReason
    policy: str
    by: str
    at: int
    not_before: int


@dataclass(frozen=True, slots=True)
class DeletionUndone:
    """The deletion of this number does not take place. `begun`: it had begun, and every object was still there."""

    number: int
    by: str
    why: str
    at: int
    begun: bool = False


@dataclass(frozen=True, slots=True)
class DeletionBegun:
    """The second look found nothing against the deletion of this number: its objects may be gone from here on."""

    number: int
    by: str
    at: int


@dataclass(frozen=True, slots=True)
class Deleted:
    """A deletion is complete. It says all that `Deleting` said, which a rebuild may not find any more. `absent`: data
    and index objects that were not there when their turn came, also those that an interrupted try had deleted."""

    number: int
    ranges: tuple[SegmentRange, ...]
    reason: DeletionReason
    policy: str
    by: str
    at: int
    absent: int = 0


@dataclass(frozen=True, slots=True)
class TopicGone:
    """Pulsar had no such topic at `at`: its incarnation is over."""

    incarnation: int
    at: int


@dataclass(frozen=True, slots=True)
class PulsarTrimmed:
    """PIP-76's mark: of this incarnation Pulsar has deleted every ledger below `first`. `at`: when that was seen."""

    incarnation: int
    first: int
    at: int


@dataclass(frozen=True, slots=True)
class Tombstone(Segment):
    """What stays of a deleted segment, in place of its record: positions, ledgers, sums, predecessor; no parts."""

    reason: DeletionReason = DeletionReason.REQUEST
    policy: str = ""
    deleted_at: int = 0


DeletionRecord = Deleting | DeletionUndone | DeletionBegun | Deleted | TopicGone | PulsarTrimmed


@dataclass(frozen=True, slots=True)
class DeletedRange:
    """Deleted positions, side by side. `first_at`..`at`: when it was decided (ms); `policy`: of the last one."""

    start: Position
    end: Position
    reasons: tuple[DeletionReason, ...]
    policy: str
    first_at: int
    at: int
    segments: int = 0
    entries: int = 0
    size: int = 0
    late: int | None = None
    whole: bool = False

    def holds(self, position: Position) -> bool:
        """Whether a position is in it."""
        return self.start <= position <= self.end

    @property
    def told(self) -> str:
        """For readers, in the place of the data."""
        first, last = day(self.first_at), day(self.at)
        when = f"on {last}" if first == last else f"from {first} to {last}"
        return f"deleted by {self.policy} {when}"


AnyRange = TypeVar("AnyRange", SegmentRange, DeletedRange)


@dataclass(frozen=True, slots=True)
class Removal:
    """What deletions have taken of a topic. `ranges`: what is deleted, in order. `pending`: what is being deleted, and
    how that has `begun`, if it has. `following`: the number of the next deletion."""

    ranges: tuple[DeletedRange, ...] = ()
    pending: Deleting | None = None
    begun: DeletionBegun | None = None
    following: int = 0
    gone: TopicGone | None = None
    trimmed: PulsarTrimmed | None = None

    @property
    def told(self) -> tuple[DeletedRange, ...]:
        """All that readers are told to be deleted: also what is going to be. In order, without overlaps."""
        if self.pending is None:
            return self.ranges
        return _joined((*self.ranges, *_as_deleted(self.pending)))

    @property
    def absent(self) -> tuple[DeletedRange, ...]:
        """Where objects may be absent."""
        return self.told if self.begun else self.ranges

    def up_to(self, incarnation: int) -> Position | None:
        """The last position that is deleted of an incarnation."""
        ends = (each.end for each in self.ranges if each.start.incarnation <= incarnation <= each.end.incarnation)
        end = max(ends, default=None)
        if end is None or end.incarnation == incarnation:
            return end
        return Position(incarnation, 2**63 - 1, 2**63 - 1)

    def after(self, record: DeletionRecord) -> Removal:
        """With one more record. Raises IntegrityError where it does not continue these."""
        match record:
            case Deleting():
                if self.pending is not None:
                    raise IntegrityError(f"deletion {record.number}: deletion {self.pending.number} is under way")
                if any(each.start.incarnation != each.end.incarnation for each in record.ranges):
                    raise IntegrityError(f"deletion {record.number} has a range of several incarnations")
                return replace(self, pending=record, begun=None, following=max(self.following, record.number + 1))
            case DeletionUndone():
                self._check_pending(record.number)
                if self.begun and not record.begun:
                    raise IntegrityError(f"deletion {record.number} has begun: it cannot be undone any more")
                return replace(self, pending=None, begun=None)
            case DeletionBegun():
                self._check_pending(record.number)
                return replace(self, begun=record)
            case Deleted():
                if self.pending is not None:
                    self._check_pending(record.number)
                    record = replace(record, ranges=self.pending.ranges)  # what has followed since is known there
                ranges = _joined((*self.ranges, *_as_deleted(record)))
                following = max(self.following, record.number + 1)
                return replace(self, ranges=ranges, pending=None, begun=None, following=following)
            case TopicGone():
                return replace(self, gone=record)
            case PulsarTrimmed():
                return replace(self, trimmed=record)

    def buried(self, tombstone: Tombstone) -> Removal:
        """With a tombstone that a rebuild put into its segment's place."""
        found = DeletedRange(
            tombstone.start,
            tombstone.end,
            (tombstone.reason,),
            tombstone.policy,
            tombstone.deleted_at,
            tombstone.deleted_at,
            1,
            tombstone.entries,
            tombstone.size,
        )
        return replace(self, ranges=_joined((*self.ranges, found)))

    def continued(self, end: Position) -> Removal:
        """Behind something kept that ends there: what was deleted of its incarnation before it is not whole (any more).
        Else a topic made again under the name would join with that, over what is kept."""
        pending = self.pending
        if pending is not None and any(_ends_before(each, end) for each in pending.ranges):
            pending = replace(pending, ranges=tuple(_continued(each, end) for each in pending.ranges))
        if pending is self.pending and not any(_ends_before(each, end) for each in self.ranges):
            return self
        return replace(self, ranges=tuple(_continued(each, end) for each in self.ranges), pending=pending)

    def claimed(self, incarnation: int, at: int) -> Removal:
        """Behind a claim: a topic that somebody claims is there."""
        back = self.gone is not None and (self.gone.incarnation != incarnation or self.gone.at <= at)
        return replace(self, gone=None) if back else self

    def _check_pending(self, number: int) -> None:
        if self.pending is None or self.pending.number != number:
            raise IntegrityError(f"deletion {number} is not the one that is under way")


NOTHING_REMOVED = Removal()


def day(at: int) -> str:
    """A time (ms) as readers are told it; the number where it is no time of any calendar."""
    try:
        return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{at} ms"


def range_of(ranges: Iterable[DeletedRange], position: Position) -> DeletedRange | None:
    """The range that has a position."""
    return next((each for each in ranges if each.holds(position)), None)


def buried(segment: Segment, reason: DeletionReason, policy: str, at: int) -> Tombstone:
    """What stays of a segment."""
    if isinstance(segment, Tombstone):
        return segment
    kept = {name: getattr(segment, name) for name in Segment.__dataclass_fields__}
    return Tombstone(**kept | {"parts": (), "gaps": ()}, reason=reason, policy=policy, deleted_at=at)


def _as_deleted(record: Deleting | Deleted) -> Iterator[DeletedRange]:
    for each in record.ranges:
        yield DeletedRange(
            each.start,
            each.end,
            (record.reason,),
            record.policy,
            record.at,
            record.at,
            each.segments,
            each.entries,
            each.size,
            each.late,
            each.whole,
        )


def _joined(ranges: Iterable[DeletedRange]) -> tuple[DeletedRange, ...]:
    """In order; those side by side are one. A range that lies in the others (a rebuild finds both tombstones and the
    records of their deletion) adds nothing."""
    found: list[DeletedRange] = []
    for each in sorted(ranges, key=lambda each: (each.start, each.end)):
        if found and each.end <= found[-1].end:
            last = found[-1]
            whole = last.whole or (each.whole and each.end == last.end)
            found[-1] = each if each.start == last.start and each.end == last.end else replace(last, whole=whole)
        elif found and _adjoin(found[-1], each):
            found[-1] = _sum(found[-1], each)
        else:
            found.append(each)
    return tuple(found)


def _adjoin(before: DeletedRange, after: DeletedRange) -> bool:
    """Whether nothing that is kept lies between: what goes is an incarnation's beginning, up to an end."""
    one, other = before.end.incarnation, after.start.incarnation
    return one == other or (before.whole and one + 1 == other)


def _ends_before(each: SegmentRange | DeletedRange, end: Position) -> bool:
    """Whether it is said to be whole, and is not: something of its incarnation ends behind it."""
    return each.whole and each.end.incarnation == end.incarnation and each.end < end


def _continued(each: AnyRange, end: Position) -> AnyRange:
    return replace(each, whole=False) if _ends_before(each, end) else each


def _sum(before: DeletedRange, after: DeletedRange) -> DeletedRange:
    overlap = after.start <= before.end  # of two sums, the later one's counts again what both have: at most too much
    latest = max(before, after, key=lambda each: each.at)
    return DeletedRange(
        before.start,
        after.end,
        tuple(sorted({*before.reasons, *after.reasons})),
        latest.policy,
        min(before.first_at, after.first_at),
        latest.at,
        after.segments if overlap else before.segments + after.segments,
        after.entries if overlap else before.entries + after.entries,
        after.size if overlap else before.size + after.size,
        None if before.late is None or after.late is None else max(before.late, after.late),
        after.whole,
    )


def in_order(records: Iterable[DeletionRecord], tombstones: Iterable[Tombstone] = ()) -> list[DeletionRecord]:
    """What a rebuild has found, as a log can have it: by number, each deletion up to its last step.

    One that has begun is not undone by a record from before its beginning. The object of the beginning is written
    behind its slot, so that was in a log. The object of an undo is written before its slot, which it may never have
    got. An undo from behind the beginning was written while every object was there; it counts unless a tombstone shows
    that objects have gone since."""
    found = list(records)
    steps: dict[int, dict[type, DeletionRecord]] = {}
    for each in sorted(found, key=lambda each: isinstance(each, DeletionUndone) and each.begun):  # these take the place
        if isinstance(each, Deleting | DeletionUndone | DeletionBegun | Deleted):
            steps.setdefault(each.number, {})[type(each)] = each
    graves = list(tombstones)
    ordered: list[DeletionRecord] = []
    for _, of in sorted(steps.items()):
        last = Deleted if Deleted in of or not _is_undone(of, graves) else DeletionUndone
        kinds: tuple[type, ...] = (Deleting, DeletionBegun, last) if Deleting in of else (Deleted,)
        ordered += [of[kind] for kind in kinds if kind in of]
    others = [each for each in found if isinstance(each, TopicGone | PulsarTrimmed)]
    return ordered + sorted(others, key=lambda each: each.at)


def _is_undone(steps: Mapping[type, DeletionRecord], tombstones: Sequence[Tombstone]) -> bool:
    undone, deleting = steps.get(DeletionUndone), steps.get(Deleting)
    if DeletionBegun not in steps:
        return True
    if not isinstance(undone, DeletionUndone) or not undone.begun or not isinstance(deleting, Deleting):
        return False
    return not any(
        each.deleted_at == deleting.at and span.start <= each.start and each.end <= span.end
        for each in tombstones
        for span in deleting.ranges
    )
