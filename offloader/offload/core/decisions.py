"""What a decision about a topic rests on, and what comes of it. Frozen values, pure."""

from __future__ import annotations

from dataclasses import dataclass

from offloader.metadata.state import OpenTopic, TopicState
from offloader.model import (
    OpenSegment,
    Position,
)
from offloader.offload.core.borders import BorderSearch
from offloader.offload.core.lanes import LaneLimits
from offloader.offload.core.topic import Topic


@dataclass(frozen=True, slots=True)
class DecisionLimits:
    """What a decision about one topic may plan. `fast`, `slow`: the lanes' limits. `allowance`: bytes that rate limits
    leave now, None: nothing limits it; `allowed_at`: when they leave more."""

    fast: LaneLimits
    slow: LaneLimits
    allowance: int | None = None
    allowed_at: int = 0


@dataclass(frozen=True, slots=True)
class Hold:
    """Nothing to do before `until` (None: before something changes)."""

    reason: str
    until: int | None = None


@dataclass(frozen=True, slots=True)
class Begin:
    """The segment's upload must begin before its slice can be planned."""

    uuid: str


@dataclass(frozen=True, slots=True)
class Read:
    """A slice is due, which uploads to the segment's `upload`. `seal`: it ends the segment. `pending_bytes`: estimate
    of what is left to read; `attempts`: how often in a row it failed; `allowance`: see `DecisionLimits`."""

    segment: OpenSegment
    upload: str
    start: Position
    bound: Position
    seal: bool
    pending_bytes: int
    attempts: int = 0
    allowance: int | None = None


@dataclass(frozen=True, slots=True)
class Copy:
    """The segment is a ledger that brokers have offloaded: copy their object, and read the copy; or read only that."""

    state: OpenTopic
    ledger: int


@dataclass(frozen=True, slots=True)
class Seal:
    """Everything is uploaded and journaled: complete, index, commit."""

    state: OpenTopic


Step = Hold | Begin | Read | Copy | Seal


@dataclass(frozen=True, slots=True)
class Decision:
    """The topic's state after the decision (journal it first, where it differs), and the step that follows. `ahead`:
    those of the segments behind the open one. `search`: for borders, in which times are wanted."""

    topic: Topic
    state: TopicState
    step: Step
    ahead: tuple[Step, ...] = ()
    search: BorderSearch | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        """Of all segments, the oldest first."""
        return (self.step, *self.ahead)
