"""Which segments go by a topic's policy. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from offloader.cursors.core.records import SubscriptionMark
from offloader.lifecycle.retention.policy import RetentionPolicy
from offloader.metadata.deletions import DeletionReason, PulsarTrimmed, SegmentRange
from offloader.model import Position

DAY_MS = 86_400_000
MOST_NAMED = 3  # subscriptions, in a sentence


@dataclass(frozen=True, slots=True)
class KeptSegment:
    """What a decision needs of a segment. `sealed_at`: by our clock. `newest`: the greatest publish or broker time of
    its messages (None: none says one); `late`: the greatest publish time, None where some message may have any."""

    uuid: str
    start: Position
    end: Position
    size: int
    entries: int
    sealed_at: int
    newest: int | None
    late: int | None
    ledgers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Holding:
    """What the archive keeps of one incarnation. `segments`: oldest first, read as they are taken. `size`: of all.

    `first`: the first position that is kept. `over_since`: when Pulsar had it no more, as far as was seen (None: it is
    there). `protected`: the segment that stays whatever a policy says: the newest one of an incarnation that goes on.
    `closed`: nothing can follow. `trailing`: something else is recorded behind the last segment. `waiting`: the
    gateway's subscriptions, of which none is to lose anything."""

    incarnation: int
    first: Position
    segments: Iterable[KeptSegment]
    size: int
    over_since: int | None = None
    protected: str = ""
    closed: bool = False
    trailing: bool = False
    waiting: tuple[SubscriptionMark, ...] = ()

    def waits(self, end: Position) -> list[SubscriptionMark]:
        """Who has not acknowledged everything up to an end, as far as is known."""
        return [each for each in self.waiting if each.mark_delete is None or each.mark_delete < end]


@dataclass(frozen=True, slots=True)
class DueSegment:
    """A segment that goes, and why. `since`: when it was due (ms; 0 where no time says it)."""

    segment: KeptSegment
    reason: DeletionReason
    words: str
    since: int = 0


@dataclass(frozen=True, slots=True)
class DueRange:
    """The oldest segments of an incarnation, which go together; `rest`: those kept behind them are not empty."""

    holding: Holding
    due: tuple[DueSegment, ...]
    rest: bool

    @property
    def range(self) -> SegmentRange:
        """As a record says it."""
        last = self.due[-1].segment
        lates = [each.segment.late for each in self.due]
        known = [late for late in lates if late is not None]
        return SegmentRange(
            self.holding.first,
            last.end,
            len(self.due),
            sum(each.segment.entries for each in self.due),
            sum(each.segment.size for each in self.due),
            max(known) if len(known) == len(lates) else None,
            self.holding.closed and not self.rest and not self.holding.trailing,
        )

    @property
    def bytes(self) -> int:
        return sum(each.segment.size for each in self.due)


def due(holding: Holding, policy: RetentionPolicy, now: int, trimmed: PulsarTrimmed | None = None) -> DueRange | None:
    """What goes of an incarnation, oldest first, up to the first segment that stays. `trimmed`: what Pulsar has deleted
    of the topic, as far as that is recorded."""
    if policy.hold:
        return None
    return _range(holding, _due(holding, policy, now, trimmed))


@dataclass(frozen=True, slots=True)
class NextDue:
    """The oldest segment of an incarnation that does not go now. `at`: when it will be due (ms; None: no time says it).
    `words`: by what, or why it stays. `size`: bytes from there on."""

    segment: KeptSegment
    at: int | None
    words: str
    size: int


def next_due(
    holding: Holding,
    goes: DueRange | None,
    policy: RetentionPolicy,
    now: int,
    trimmed: PulsarTrimmed | None = None,
) -> NextDue | None:
    """What comes next of an incarnation, behind what goes now; None: nothing is left."""
    taken = 0 if goes is None else len(goes.due)
    segment = next(islice(holding.segments, taken, None), None)
    if segment is None:
        return None
    size = holding.size - (0 if goes is None else goes.bytes)
    if segment.uuid == holding.protected:
        return NextDue(segment, None, "the newest segment stays as long as the topic is offloaded", size)
    if _verdict(segment, holding, policy, now, size - segment.size, trimmed) is not None:
        waits = holding.waits(segment.end)
        why = who_waits(waits) if waits else "a message begins in it that is kept behind it"
        return NextDue(segment, None, f"it is due, but {why}", size)
    due_at = _times(segment, holding, policy, now)
    at, words = min(due_at) if due_at else (None, " or ".join(_conditions(segment, policy, size)))
    return NextDue(segment, at, words, size)


def who_waits(waits: Sequence[SubscriptionMark]) -> str:
    """In words who has not acknowledged something. At least one."""
    names = ", ".join(
        f"{each.name} ({each.trouble if each.mark_delete is None else f'at {each.mark_delete}'})"
        for each in waits[:MOST_NAMED]
    )
    more = f" and {len(waits) - MOST_NAMED} more" if len(waits) > MOST_NAMED else ""
    return f"the gateway's subscriptions have not acknowledged it: {names}{more} (keepUnacknowledged)"


def _times(segment: KeptSegment, holding: Holding, policy: RetentionPolicy, now: int) -> list[tuple[int, str]]:
    found, at, over = [], aged_from(segment, now), holding.over_since
    if policy.time_ms is not None:
        found.append((at + policy.time_ms, f"archiveRetentionTimeInMinutes {policy.minutes}"))
    if policy.gone_ms is not None and over is not None:
        found.append((max(over, at) + policy.gone_ms, f"deletedTopicRetentionTimeInMinutes {policy.gone_minutes}"))
    return found


def _conditions(segment: KeptSegment, policy: RetentionPolicy, size: int) -> Iterator[str]:
    """What must come true for a segment to go, where no time says it. `size`: bytes from it on."""
    if policy.size is not None:
        left = policy.size - (size - segment.size)
        yield f"goes once {max(left, 0)} bytes more are archived (archiveRetentionSizeInMB {policy.megabytes})"
    if policy.gone_ms is not None:
        yield f"goes once the topic is gone (deletedTopicRetentionTimeInMinutes {policy.gone_minutes})"
    if policy.follow_pulsar:
        last = max(segment.ledgers, default=0)
        yield f"goes once Pulsar has deleted its ledgers up to {last} (followPulsarRetention)"


def all_of(holding: Holding, words: str) -> DueRange | None:
    """What goes of an incarnation on request: all but what is protected."""
    found = (DueSegment(each, DeletionReason.REQUEST, words) for each in holding.segments)
    return _range(holding, (each if each.segment.uuid != holding.protected else None for each in found))


def aged_from(segment: KeptSegment, now: int) -> int:
    """From when on a segment's time counts: its newest message's, and never before it was sealed.

    A time that lies ahead of us is a producer's invention: it must not keep the segment for ever."""
    newest = segment.newest if segment.newest is not None and segment.newest <= now + DAY_MS else segment.sealed_at
    return max(segment.sealed_at, newest)


def _range(holding: Holding, found: Iterable[DueSegment | None]) -> DueRange | None:
    taken: list[DueSegment] = []
    rest = False
    for each in found:
        if each is None:
            rest = True
            break
        taken.append(each)
    return DueRange(holding, tuple(taken), rest) if taken else None


def _due(
    holding: Holding, policy: RetentionPolicy, now: int, trimmed: PulsarTrimmed | None
) -> Iterator[DueSegment | None]:
    behind = holding.size
    for segment in holding.segments:
        behind -= segment.size
        stays = segment.uuid == holding.protected or holding.waits(segment.end)
        yield None if stays else _verdict(segment, holding, policy, now, behind, trimmed)


def _verdict(
    segment: KeptSegment,
    holding: Holding,
    policy: RetentionPolicy,
    now: int,
    behind: int,
    trimmed: PulsarTrimmed | None,
) -> DueSegment | None:
    """Why a segment goes by its policy; None: it stays. `behind`: bytes that are kept without it and all before it."""
    time, size, gone = policy.time_ms, policy.size, policy.gone_ms
    at = aged_from(segment, now)
    if time is not None and now - at > time:
        words = f"archiveRetentionTimeInMinutes {policy.minutes}"
        return DueSegment(segment, DeletionReason.TIME, words, at + time)
    if size is not None and behind >= size:
        return DueSegment(segment, DeletionReason.SIZE, f"archiveRetentionSizeInMB {policy.megabytes}")
    over = holding.over_since
    if gone is not None and over is not None and now - max(over, at) > gone:
        words = f"deletedTopicRetentionTimeInMinutes {policy.gone_minutes}"
        return DueSegment(segment, DeletionReason.TOPIC_GONE, words, max(over, at) + gone)
    marked = trimmed is not None and trimmed.incarnation == holding.incarnation
    if policy.follow_pulsar and marked and trimmed is not None and max(segment.ledgers, default=0) < trimmed.first:
        return DueSegment(segment, DeletionReason.FOLLOWS_PULSAR, "followPulsarRetention", trimmed.at)
    return None
