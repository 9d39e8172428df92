"""How one topic stands, and whether somebody has to look at it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from offloader.model import FailureKind, Lane, TopicName

LATE = 2  # times its roll: a segment that is open for so long does not advance
REFUSED = "Not offloaded"
SEVERAL = 3  # times in a row: what fails less often passes by itself,
SOON_MS = 60_000  # as does what has not lasted for longer
_PASSING = frozenset(("topic-silent", "not-acknowledged", "bridge-waits"))
_PASSING_KINDS = frozenset(
    (FailureKind.RETRYABLE, FailureKind.UNKNOWN, FailureKind.TASK_DIED, FailureKind.TOPIC_GONE, FailureKind.UPLOAD_GONE)
)
_IN_DANGER = frozenset(("pin-moved", "data-lost", "pin-past-bridge"))


class Need(IntEnum):
    """How much a topic needs somebody, the most urgent first."""

    DANGER = 0  # data is gone, or in danger
    TROUBLE = 1  # something fails again and again, or will not pass by itself
    LATE = 2  # it does not advance
    NONE = 3


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong, at least since `since`. `alarm`: its name in the manual. `attempts`: how often in a row it failed,
    where that is counted; `retry_at`: when it is tried again, 0: at once."""

    text: str
    alarm: str
    kind: FailureKind | None = None
    attempts: int = 0
    retry_at: int = 0
    since: int = 0

    @property
    def endangers_data(self) -> bool:
        return self.alarm in _IN_DANGER or self.kind is FailureKind.INTEGRITY

    def passes(self, now: int) -> bool:
        """Whether it is likely to be over soon: a broker moved a topic, a store was busy."""
        if self.alarm in _PASSING:
            return now - self.since < SOON_MS
        return self.kind in _PASSING_KINDS and self.attempts < SEVERAL


@dataclass(frozen=True, slots=True)
class Filling:
    """The open segment: `size` of `max_size` bytes, open since `opened_at`, closed after `roll_ms`."""

    size: int
    max_size: int
    opened_at: int
    roll_ms: int


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """`entries` and `size`: of all Offloaded segments and of the others' uploaded parts. `lag_entries`, `lag_bytes`:
    what Pulsar has beyond them; `pinned_bytes`: what it keeps because of us, since the open segment was begun.
    `ahead`: segments of its history that are uploaded ahead. `planned_at`: when the slice that is read now was planned;
    0: none is. `bridge`: where its bridge stands, "": brokers are not to read it."""

    topic: TopicName
    state: str
    segments: int = 0
    entries: int = 0
    size: int = 0
    lag_entries: int = 0
    lag_bytes: int = 0
    pinned_bytes: int = 0
    filling: Filling | None = None
    ahead: int = 0
    lane: Lane = Lane.FAST
    planned_at: int = 0
    bridge: str = ""
    trouble: Trouble | None = None

    @property
    def alarm(self) -> str:
        """What is wrong, in words; empty: nothing."""
        return "" if self.trouble is None else self.trouble.text

    def lag_ms(self, now: int) -> int:
        """The age of the oldest entry that is not in a committed segment: that of the open one."""
        return 0 if self.filling is None else max(now - self.filling.opened_at, 0)

    def need(self, now: int) -> Need:
        """Who looks first, and where."""
        if self.trouble is not None and not self.trouble.passes(now):
            return Need.DANGER if self.trouble.endangers_data else Need.TROUBLE
        late = self.filling is not None and self.lag_ms(now) > LATE * self.filling.roll_ms
        return Need.LATE if late else Need.NONE
