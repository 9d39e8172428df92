"""The facets of a `Topic`: what the driver knows of it. Each is frozen; its owner puts another in its place. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from offloader.metadata.bridges import BridgeHead
from offloader.metadata.state import CatalogHead
from offloader.model import Position, RollReason
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
    "times": "publish_times",
    "learnt": "receiving",
    "pin": "acknowledging",
    "losses": "losses",
    "retirement": "retiring",
    "release": "retiring",
    "bridge": "bridge_progress",
    "minded": "bridge_minding",
}


@dataclass(frozen=True, slots=True)
class Committed:
    """What the topic's catalog has, as far as we know. `catalog_error`: what is wrong with that; it is loaded anew
    before anything else is decided, at `reload_at` or later."""

    catalog: CatalogHead
    catalog_error: str = ""
    reload_at: int = 0


@dataclass(frozen=True, slots=True)
class Learnt:
    """What the last slices taught: see `TopicView`. `slow_ahead`: segments."""

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
    """There was nothing to do. `known`: all that was known of the topic then; while nothing else is, no round has to
    look at it until `ends_at`. `due_at`: when what holds it back is over; None: when something happens."""

    known: tuple[object, ...]
    ends_at: int
    due_at: int | None


@dataclass(frozen=True, slots=True)
class PublishTimes:
    """What is known of the publish times of entries that are not offloaded; None: an entry says none."""

    known: Mapping[Position, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PinState:
    """`alarm`: somebody else moved the pin; empty: nobody did. `past_bridge`: so far that brokers cannot read all of it
    from objects. `ours`: it may well be there: so far it was acknowledged, or stood while nobody waited for brokers.
    `error`: why it cannot be acknowledged now; empty: it can. `retry`: when it is acknowledged again."""

    alarm: str = ""
    past_bridge: str = ""
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

    `seen_at`: when its end was seen; `listed_at`: when its ledger list was, since the topic was adopted; `moved_at`:
    when it was last seen to have moved. `last`: the last position that could be accounted for then. `acknowledged`:
    what the broker has confirmed; None again when the pin is seen elsewhere. `doubted`: a slice failed, maybe because
    what it read was trimmed: the list may be out of date though no end has moved."""

    info: TopicInfo
    end: TopicEnd
    seen_at: int
    moved_at: int
    listed_at: int = 0
    last: Position | None = None
    acknowledged: Position | None = None
    doubted: bool = False


@dataclass(frozen=True, slots=True)
class Poll:
    """When the topic's end is asked for again. `under_way`: it is now. `undecided`: there is an answer, and what it
    is waited for was not decided yet. `error`: why that failed last, if it did."""

    again_at: int = 0
    under_way: bool = False
    undecided: bool = False
    error: str = ""
    retry: RetrySchedule = field(default_factory=RetrySchedule)


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
    deleted."""

    adopted: bool = True
    vouched: bool = False
    looks: tuple[Look, ...] = ()
    look_at: int = 0
    found: Being = Being.UNKNOWN


@dataclass(frozen=True, slots=True)
class BridgeProgress:
    """How far stock brokers can read the topic. `head`: what is recorded; None: it is not known (any more) and loaded
    first. `changed_at`: when that last changed: a ledger list that is older says nothing about it. `given_up`: the
    topic is let go of, nobody waits for brokers any more. `handed_over`: brokers are to read all of it, whatever its
    policy says, before that. `hurries`: somebody waits for that. `error`, `in_vain`, `in_vain_since`: why its next step
    failed, how often, and since when; `hopeless`: nobody should wait for it any more. `refused`: because brokers
    refused it. `withdrawn`: rounds withdrawn by us since a proven one."""

    head: BridgeHead | None = None
    changed_at: int = 0
    given_up: bool = False
    handed_over: bool = False
    hurries: bool = False
    error: str = ""
    in_vain: int = 0
    in_vain_since: int = 0
    hopeless: bool = False
    refused: bool = False
    withdrawn: int = 0
    retry_at: int = 0


@dataclass(frozen=True, slots=True)
class Minded:
    """The search for ledgers that brokers were proven to read, and list no more. `info`: what was looked through last;
    None: it is done again, at `again_at`. `sound`: ledgers that are listed as not offloaded, and need not be."""

    info: TopicInfo | None = None
    again_at: int = 0
    sound: frozenset[int] = frozenset()
