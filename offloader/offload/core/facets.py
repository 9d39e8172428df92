"""The facets of a `Topic`: what the driver knows of it. Each is frozen; its owner puts another in its place. Two facets
are equal where the same would be decided: times and what is under way are not compared. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from offloader.metadata.state import CatalogHead, TopicState
from offloader.model import Failure, Position, RollReason, SegmentLayout, Source
from offloader.offload.core.evidence import Being, Look
from offloader.offload.core.lanes import Speed
from offloader.offload.core.retry_schedule import RetrySchedule
from offloader.ports.admin import TopicInfo
from offloader.ports.pins import TopicEnd

# Which module of this package may replace a facet. A test sees to it that no other does.
OWNERS = {
    "rules": "registry",
    "committed": "committing",
    "observed": "observed",
    "poll": "observed",
    "tail": "undelivered",
    "inquiry": "inquiries",
    "source": "lane_plans",
    "planned": "lane_plans",
    "rest": "lane_plans",
    "times": "polling",
    "learnt": "receiving",
    "pin": "acknowledging",
    "losses": "losses",
    "retirement": "retiring",
    "release": "retiring",
    "features": "feature",
    "changes": "registry",
}


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
class Committed:
    """What the topic's catalog has, as far as we know. `catalog_error`: what is wrong with that; it is loaded anew
    before anything else is decided, once `failure` lets it. `failure`: the last one since something was recorded, or
    since there was nothing to record."""

    catalog: CatalogHead
    catalog_error: str = ""
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Learnt:
    """What the last slices taught: `wanted_bytes`: below so many it is not read again. `died`: a task that read
    it did. `slow_ahead`: the segments ahead that are read in their turn alone, since others waited for them."""

    speed: Speed = field(default_factory=Speed)
    died: bool = False
    wanted_bytes: int = 0
    slow_ahead: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Planned:
    """When a slice was last planned. `travels`: its receipts are not in. `throttled_since`: 0: no limit holds it."""

    at: int = 0
    travels: bool = False
    throttled_since: int = 0


@dataclass(frozen=True, slots=True)
class Rest:
    """The topic was idle. No round decides on it until `ends_at`, unless a facet of it changes or the journal has
    another `state`. `due_at`: when what holds it back is over; None: when something happens."""

    state: TopicState | None
    ends_at: int
    due_at: int | None


@dataclass(frozen=True, slots=True)
class PublishTimes:
    """What is known of the publish times of entries that are not offloaded; None: an entry says none."""

    known: Mapping[Position, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PinState:
    """`alarm`: somebody else moved the pin; empty: nobody did. `ours`: it may well be there: so far it was
    acknowledged, or stood while no feature held it back. `error`: why it cannot be acknowledged now; empty: it can.
    `retry`: when it is acknowledged again."""

    alarm: str = ""
    ours: Position | None = None
    error: str = ""
    retry: RetrySchedule = field(default_factory=RetrySchedule)


@dataclass(frozen=True, slots=True)
class LossState:
    """`accepted`: losses are accepted up to here. `awaited`: the first position seen that is not accounted for."""

    accepted: Position | None = None
    awaited: Position | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """The pin is given up for good. `under_way`: it is being deleted; `done`: it is. `retry`: when to try again."""

    under_way: bool = False
    done: bool = False
    retry: RetrySchedule = field(default_factory=RetrySchedule)


@dataclass(frozen=True, slots=True)
class Retirement:
    """The topic is offloaded up to `at`, and no further. None: to its end at the first look after `asked_at`."""

    reason: RollReason
    at: Position | None
    asked_at: int


@dataclass(frozen=True, slots=True)
class Observed:
    """What Pulsar has of the topic, as it was last seen.

    `seen_at`: when its end was seen; `listed_at`: when its ledger list was, since the topic was adopted at
    `adopted_at`; `moved_at`: when it was last seen to have moved. `last`: the last position that could be accounted
    for then. `acknowledged`: what the broker has confirmed; None again when the pin is seen elsewhere. `doubted`: a
    slice failed, maybe because what it read was trimmed: the list may be out of date though no end has moved."""

    info: TopicInfo
    end: TopicEnd
    seen_at: int = field(compare=False)
    moved_at: int
    listed_at: int = 0
    adopted_at: int = field(default=0, compare=False)
    last: Position | None = field(default=None, compare=False)
    acknowledged: Position | None = None
    doubted: bool = False


@dataclass(frozen=True, slots=True)
class Poll:
    """When the topic's end is asked for again. `under_way`: it is now. `undecided`: there is an answer, and what it
    is waited for was not decided yet. `error`: why that failed last, if it did."""

    again_at: int = field(default=0, compare=False)
    under_way: bool = field(default=False, compare=False)
    undecided: bool = field(default=False, compare=False)
    error: str = ""
    retry: RetrySchedule = field(default_factory=RetrySchedule, compare=False)


@dataclass(frozen=True, slots=True)
class HiddenTail:
    """What is beyond everything that a broker delivers. `end`: up to here it is explained. `asked_at`: when that was
    begun by itself. `undecided`: an open transaction keeps the rest from being read."""

    end: Position | None = None
    asked_at: int = 0
    undecided: bool = False


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A topic that does not answer as the one that we know. `found`: what became of it, once proven. `adopted`: before
    that; one that was not is taken in anew where it is there after all. `vouched`: somebody says that it was
    deleted. `seen_at`: when Pulsar had it for the last time that we know of, also where what showed that is dropped by
    now. `subscription`: when to subscribe to the topic that may be in its place."""

    adopted: bool = True
    vouched: bool = False
    seen_at: int = 0
    looks: tuple[Look, ...] = ()
    look_at: int = 0
    subscription: RetrySchedule = field(default_factory=RetrySchedule)
    found: Being = Being.UNKNOWN
