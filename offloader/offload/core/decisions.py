"""What a decision about a topic rests on, and what comes of it. Frozen values, pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from offloader.metadata.state import NextStart, OpenTopic, TopicState
from offloader.model import (
    Ending,
    LedgerList,
    LedgerSums,
    OpenSegment,
    Position,
    RollReason,
    SegmentLayout,
    Source,
    TopicName,
)
from offloader.offload.core.borders import BorderSearch, Times
from offloader.offload.core.lanes import Speed


@dataclass(frozen=True, slots=True)
class TopicRules:
    """A topic's policy as the planner needs it, after the merge of all levels."""

    max_size: int
    roll_ms: int
    cuts: SegmentLayout
    source: Source = Source.BROKER
    fail_on_data_loss: bool = True
    min_roll_ms: int = 0
    pin_holds_last_entry: bool = True
    broker_readable: bool = False


@dataclass(frozen=True, slots=True)
class Reach:
    """As far as a slice is sure to come: less than a part, in about so many bytes."""

    end: Position
    size: int


@dataclass(frozen=True, slots=True)
class TopicView:
    """Everything that a decision about one topic rests on.

    `begin`: where its next segment starts, and the proof that it follows; None while that is unknown. `last`: the
    last readable position, None: no data. `pending_bytes`: estimate of what lies after the last uploaded position;
    below `wanted_bytes` it is not read again. `retire`: seal up to `last` and open no other segment. `allowance`:
    bytes that rate limits leave now; `allowed_at`: when they leave more. `reach`: how far a slice of a slow topic
    comes in the time that the slow lane gives it; None: far enough for a part, or its time has no limit. `copies`:
    the ledgers that brokers have offloaded and that become a segment each, as copies of the brokers' objects;
    `offloaded`: all that they have offloaded, of which BookKeeper may have no copy any more. `after`: the last position
    that is accounted for; `sums`: of the ledgers; `times`: what is known of entries' publish times. `most_at_once`: so
    many segments of its history are read at the same time; 1: one after the other, as the live end is. `span_ms`: how
    far apart entries of such a segment may be; `slow_ahead`: those ahead that
    are read in their turn alone, since others waited for them."""

    state: TopicState
    rules: TopicRules
    ledgers: LedgerList
    begin: NextStart | None
    last: Position | None
    pending_bytes: int
    wanted_bytes: int = 0
    predecessor: Ending | None = None
    retire: RollReason | None = None
    retire_at: Position | None = None
    allowance: int | None = None
    allowed_at: int = 0
    speed: Speed = field(default_factory=Speed)
    died: bool = False
    planned_at: int = 0
    reach: Reach | None = None
    copies: frozenset[int] = frozenset()
    offloaded: frozenset[int] = frozenset()
    after: Position | None = None
    sums: LedgerSums = field(default_factory=lambda: LedgerSums({}))
    times: Times = field(default_factory=dict)
    most_at_once: int = 1
    span_ms: int = 0
    slow_ahead: frozenset[str] = frozenset()

    @property
    def topic(self) -> TopicName:
        return self.state.topic


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
    of what is left to read; `attempts`: how often in a row it failed."""

    segment: OpenSegment
    upload: str
    start: Position
    bound: Position
    seal: bool
    pending_bytes: int
    attempts: int = 0


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

    view: TopicView
    state: TopicState
    step: Step
    ahead: tuple[Step, ...] = ()
    search: BorderSearch | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        """Of all segments, the oldest first."""
        return (self.step, *self.ahead)
