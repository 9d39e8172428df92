"""Which segments go by a topic's policy. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from offloader.cursors.core.records import SubscriptionMark
from offloader.lifecycle.retention.policy import RetentionPolicy
from offloader.metadata.deletions import DeletionReason, PulsarTrimmed, SegmentRange
from offloader.model import Position

DAY_MS = 86_400_000
MOST_NAMED = 3  # subscriptions, in a sentence
HANDED_OVER = "bridge.keepSegments: false"


@dataclass(frozen=True, slots=True)
class PulsarSide:
    """What is recorded of Pulsar's side. `readable`: ledgers that brokers have as objects; `unfit`: why others
    never can."""

    trimmed: PulsarTrimmed | None = None
    readable: Container[int] = ()
    unfit: Mapping[int, str] = field(default_factory=dict)


NOTHING_RECORDED = PulsarSide()


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

    @property
    def is_handed_over(self) -> bool:
        """Whether readers still have it."""
        return self.reason is DeletionReason.BRIDGED


@dataclass(frozen=True, slots=True)
class DueRange:
    """The oldest segments of an incarnation, which go together; `rest`: those kept behind them are not empty."""

    holding: Holding
    due: tuple[DueSegment, ...]
    rest: bool

    @property
    def is_handed_over(self) -> bool:
        """Whether readers still have all of it."""
        return self.due[0].is_handed_over

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


def due(holding: Holding, policy: RetentionPolicy, now: int, pulsar: PulsarSide = NOTHING_RECORDED) -> DueRange | None:
    """What goes of an incarnation, oldest first, up to the first segment that stays. What brokers get does not go
    together with what nobody has any more."""
    if policy.hold:
        return None
    return _range(holding, _due(holding, policy, now, pulsar))


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
    pulsar: PulsarSide = NOTHING_RECORDED,
) -> NextDue | None:
    """What comes next of an incarnation, behind what goes now; None: nothing is left."""
    taken = 0 if goes is None else len(goes.due)
    segment = next(islice(holding.segments, taken, None), None)
    if segment is None:
        return None
    size = holding.size - (0 if goes is None else goes.bytes)
    if segment.uuid == holding.protected:
        return NextDue(segment, None, "the newest segment stays as long as the topic is offloaded", size)
    if (found := _verdict(segment, holding, policy, now, size - segment.size, pulsar)) is not None:
        return NextDue(segment, None, _why_it_waits(found, goes), size)
    if (waits := holding.waits(segment.end)) and _by_age(segment, holding, policy, now, size - segment.size, pulsar):
        return NextDue(segment, None, f"it is due, but {who_waits(waits)}", size)
    due_at = _times(segment, holding, policy, now)
    at, words = min(due_at) if due_at else (None, " or ".join(_conditions(segment, holding, policy, size, pulsar)))
    return NextDue(segment, at, words, size)


def who_waits(waits: Sequence[SubscriptionMark]) -> str:
    """In words who has not acknowledged something. At least one."""
    names = ", ".join(
        f"{each.name} ({'damaged' if each.mark_delete is None else f'at {each.mark_delete}'})"
        for each in waits[:MOST_NAMED]
    )
    more = f" and {len(waits) - MOST_NAMED} more" if len(waits) > MOST_NAMED else ""
    return f"the gateway's subscriptions have not acknowledged it: {names}{more} (keepUnacknowledged)"


def _why_it_waits(found: DueSegment, goes: DueRange | None) -> str:
    if goes is not None and found.is_handed_over != goes.due[-1].is_handed_over:
        return f"{found.words}, once what is before it is gone"
    if found.is_handed_over:
        return "it is due, but an object of brokers is not as it must be, or a message begins in it that is kept behind"
    return "it is due, but a message begins in it that is kept behind it"


def _times(segment: KeptSegment, holding: Holding, policy: RetentionPolicy, now: int) -> list[tuple[int, str]]:
    found, at, over = [], aged_from(segment, now), holding.over_since
    if policy.time_ms is not None:
        found.append((at + policy.time_ms, f"archiveRetentionTimeInMinutes {policy.minutes}"))
    if policy.gone_ms is not None and over is not None:
        found.append((max(over, at) + policy.gone_ms, f"deletedTopicRetentionTimeInMinutes {policy.gone_minutes}"))
    return found


def _conditions(
    segment: KeptSegment, holding: Holding, policy: RetentionPolicy, size: int, pulsar: PulsarSide
) -> Iterator[str]:
    """What must come true for a segment to go, where no time says it. `size`: bytes from it on."""
    if policy.size is not None:
        left = policy.size - (size - segment.size)
        yield f"goes once {max(left, 0)} bytes more are archived (archiveRetentionSizeInMB {policy.megabytes})"
    if policy.gone_ms is not None:
        yield f"goes once the topic is gone (deletedTopicRetentionTimeInMinutes {policy.gone_minutes})"
    if policy.follow_pulsar:
        last = max(segment.ledgers, default=0)
        yield f"goes once Pulsar has deleted its ledgers up to {last} (followPulsarRetention)"
    if policy.hands_over and (never := _never_handed_over(segment, holding, pulsar)):
        yield f"stays, and so does all behind it: {never} ({HANDED_OVER})"
    elif policy.hands_over:
        ledger = next((each for each in segment.ledgers if each not in pulsar.readable), None)
        of_one = "" if ledger is None else f": ledger {ledger} is not bridged yet"
        yield f"goes once brokers have all of its ledgers ({HANDED_OVER}){of_one}"


def _never_handed_over(segment: KeptSegment, holding: Holding, pulsar: PulsarSide) -> str:
    """Why brokers never get it; "": they may."""
    if _is_trimmed(segment, holding, pulsar):
        return f"Pulsar has let go of ledger {min(segment.ledgers)}"
    return next((pulsar.unfit[each] for each in segment.ledgers if each in pulsar.unfit), "")


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
        if each is None or (taken and each.is_handed_over != taken[0].is_handed_over):
            rest = True
            break
        taken.append(each)
    return DueRange(holding, tuple(taken), rest) if taken else None


def _due(holding: Holding, policy: RetentionPolicy, now: int, pulsar: PulsarSide) -> Iterator[DueSegment | None]:
    behind = holding.size
    for segment in holding.segments:
        behind -= segment.size
        stays = segment.uuid == holding.protected
        yield None if stays else _verdict(segment, holding, policy, now, behind, pulsar)


def _verdict(
    segment: KeptSegment,
    holding: Holding,
    policy: RetentionPolicy,
    now: int,
    behind: int,
    pulsar: PulsarSide,
) -> DueSegment | None:
    """Why a segment goes; None: it stays. `behind`: bytes that are kept without it and all before it."""
    found = None if holding.waits(segment.end) else _by_age(segment, holding, policy, now, behind, pulsar)
    return found or _handed_over(segment, holding, policy, pulsar)


def _by_age(
    segment: KeptSegment,
    holding: Holding,
    policy: RetentionPolicy,
    now: int,
    behind: int,
    pulsar: PulsarSide,
) -> DueSegment | None:
    """The same by all but what brokers get: nobody has it afterwards."""
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
    trimmed = pulsar.trimmed
    marked = trimmed is not None and trimmed.incarnation == holding.incarnation
    if policy.follow_pulsar and marked and trimmed is not None and max(segment.ledgers, default=0) < trimmed.first:
        return DueSegment(segment, DeletionReason.FOLLOWS_PULSAR, "followPulsarRetention", trimmed.at)
    return None


def _handed_over(
    segment: KeptSegment, holding: Holding, policy: RetentionPolicy, pulsar: PulsarSide
) -> DueSegment | None:
    """Only of a topic that is there: with another one, brokers delete what they have of it."""
    if not policy.hands_over or holding.over_since is not None or not segment.ledgers:
        return None
    if not all(ledger in pulsar.readable for ledger in segment.ledgers):
        return None
    if _is_trimmed(segment, holding, pulsar):
        return None  # off Pulsar's list: brokers are about to delete their copy, or have done so
    return DueSegment(segment, DeletionReason.BRIDGED, HANDED_OVER)


def _is_trimmed(segment: KeptSegment, holding: Holding, pulsar: PulsarSide) -> bool:
    """Whether a ledger of it is recorded to be off Pulsar's list."""
    trimmed, first = pulsar.trimmed, min(segment.ledgers, default=None)
    if trimmed is None or first is None:
        return False
    return (trimmed.incarnation, trimmed.first) > (holding.incarnation, first)
