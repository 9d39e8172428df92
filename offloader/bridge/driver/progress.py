"""How far a topic's bridge is, as its steps tell: what the feature remembers of a topic. In the driver's thread."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from offloader.bridge.core.rounds import BridgeHead
from offloader.bridge.core.schedule import BridgeFacets, BridgeStep, BridgeWork, UnloadRate
from offloader.errors import (
    FatalError,
    IntegrityError,
    OffloadError,
    OutcomeUnknownError,
    OvertakenError,
    VersionConflictError,
)
from offloader.metadata.state import TopicState
from offloader.metrics import Metrics
from offloader.model import TopicName
from offloader.offload.core.evidence import Being
from offloader.offload.core.topic import Topic
from offloader.offload.driver import observed
from offloader.offload.driver.context import Context
from offloader.offload.driver.feature import remember
from offloader.offload.driver.work import WorkKind
from offloader.ports.admin import TopicInfo

log = logging.getLogger(__name__)

FIRST_RETRY_MS, LAST_RETRY_MS = 1_000, 600_000
GIVE_UP_AFTER = 5  # failures that do not go away by themselves
GIVE_UP_MS = 660_000  # of failures that may: longer than brokers have for an offload of theirs
WITHDRAWN_AGAIN_MS = 10_000  # a round that was withdrawn; twice as long each time
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BridgeAudit:
    """The search for ledgers that brokers were proven to read, and list no more. `info`: what was looked through last;
    None: it is done again, at `again_at`. `sound`: ledgers that are listed as not offloaded, and need not be."""

    info: TopicInfo | None = None
    again_at: int = 0
    sound: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class BridgeProgress:
    """How far stock brokers can read the topic. `head`: what is recorded; None: it is not known (any more) and loaded
    first. `changed_at`: when that last changed: a ledger list that is older says nothing about it. `given_up`: the
    topic is let go of, nobody waits for brokers any more. `handed_over`: brokers are to read all of it, whatever its
    policy says, before that. `hurries`: somebody waits for that. `error`, `in_vain`, `in_vain_since`: why its next step
    failed, how often, and since when; `hopeless`: nobody should wait for it any more. `refused`: because brokers
    refused it. `withdrawn`: rounds withdrawn by us since a proven one. `past`: the offload subscription stands past
    what brokers can read from objects; empty: it does not. `audit`: see there."""

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
    past: str = ""
    audit: BridgeAudit = field(default_factory=BridgeAudit)


def progress_of(topic: Topic) -> BridgeProgress:
    """How far the topic's bridge is. From any thread."""
    return topic.of_feature(BridgeProgress)


def is_wanted(topic: Topic) -> bool:
    """Whether brokers are to read the topic."""
    progress = progress_of(topic)
    return (topic.rules.broker_readable or progress.handed_over) and not progress.given_up


def facets_of(topic: Topic) -> BridgeFacets:
    """What is known of how brokers read the topic."""
    bridge, gone = progress_of(topic), topic.gone is Being.DELETED
    state = bridge.head.state if bridge.head else None
    return BridgeFacets(state, topic.catalog, topic.info, is_wanted(topic), bridge.retry_at, gone, bridge.refused)


def follow(topic: Topic, journaled: TopicState | None, *, hurries: bool | None = None) -> None:
    """What the journal says of the topic. Whoever lets go of one that was not handed over waits for no brokers."""
    bridge = progress_of(topic)
    handed_over = journaled is not None and journaled.handed_over
    given_up = journaled is not None and journaled.releasing is not None and not handed_over
    hurries = handed_over and (bridge.hurries if hurries is None else hurries)
    if (given_up, handed_over, hurries) != (bridge.given_up, bridge.handed_over, bridge.hurries):
        remember(topic, replace(bridge, given_up=given_up, handed_over=handed_over, hurries=hurries))


def loaded(topic: Topic, head: BridgeHead, now: int) -> None:
    """Its log was."""
    remember(topic, replace(progress_of(topic), head=head, error="", retry_at=0))
    if head.state is not None:  # whoever was at it before us may have changed what was listed since
        unloaded(topic, now)


def unloaded(topic: Topic, now: int) -> None:
    """What its broker says of it may be another thing now."""
    observed.doubt(topic)
    observed.soon(topic)
    remember(topic, replace(progress_of(topic), changed_at=now))


def went_on(topic: Topic, step: BridgeStep, before: BridgeHead, after: BridgeHead, now: int) -> None:
    """A step was recorded."""
    bridge, over = progress_of(topic), before.state.round if before.state is not None else None
    bridge = replace(bridge, head=after, error="", in_vain=0, hopeless=False, refused=False, retry_at=0)
    if step is BridgeWork.WITHDRAW and over is not None and over.repairs:
        bridge = replace(bridge, error=over.why)
    elif step is BridgeWork.WITHDRAW and after.state is not None:
        again = now + min(WITHDRAWN_AGAIN_MS << min(after.state.in_vain - 1, 12), LAST_RETRY_MS)
        bridge = replace(bridge, withdrawn=bridge.withdrawn + 1, retry_at=again)
    elif after.state is not None and after.state.finished is not None:
        bridge = replace(bridge, withdrawn=0)
    remember(topic, bridge)


def repaired(topic: Topic, head: BridgeHead) -> None:
    """It was looked at; the head has a round where one is to repair it."""
    remember(topic, replace(progress_of(topic), head=head, error="", in_vain=0, hopeless=False))


def failed(topic: Topic, step: str, error: OffloadError, now: int, metrics: Metrics) -> None:
    """A step was not recorded, or nobody knows."""
    if isinstance(error, OvertakenError):
        raise error
    bridge = progress_of(topic)
    in_vain = bridge.in_vain + 1
    again = now + min(FIRST_RETRY_MS << min(in_vain - 1, 12), LAST_RETRY_MS)
    known = None if isinstance(error, VersionConflictError | OutcomeUnknownError) else bridge.head
    since = bridge.in_vain_since if bridge.in_vain else now
    stays = isinstance(error, FatalError | IntegrityError)
    hopeless = in_vain >= GIVE_UP_AFTER and (stays or now - since >= GIVE_UP_MS)
    remember(
        topic,
        replace(
            bridge,
            head=known,
            in_vain=in_vain,
            in_vain_since=since,
            hopeless=hopeless,
            retry_at=again,
            error=str(error),
        ),
    )
    metrics.bridge_failed(step)
    if str(error) != bridge.error:
        log.warning("bridge topic=%s waits (%s): %s", topic.name, step, error, extra={"see": "bridge-waits"})


def audited(topic: Topic, audit: BridgeAudit) -> None:
    """Its list was looked through, or is to be again."""
    remember(topic, replace(progress_of(topic), audit=audit))


def stands_past(topic: Topic, alarm: str) -> None:
    """Whether its subscription stands past what brokers can read from objects."""
    if alarm != progress_of(topic).past:
        remember(topic, replace(progress_of(topic), past=alarm))


def refused(topic: Topic, *, by_brokers: bool) -> None:
    """A step failed; whether because brokers refuse it until an operator changes something."""
    remember(topic, replace(progress_of(topic), refused=by_brokers))


class Unloading:
    """Posts as many as are set for a minute; each counts for as many unloads as it has made. `unloads`: what steps
    have made, by topic. In the driver's thread."""

    def __init__(self, context: Context, a_minute: int, unloads: Counter[TopicName]) -> None:
        self._context = context
        self._rate = UnloadRate(a_minute)
        self._unloads = unloads

    def post(
        self, topic: Topic, call: Callable[[], T], then: Callable[[T | OffloadError], None], now: int, *, again: bool
    ) -> bool:
        """Have it done, if its turn has come. `again`: something of the topic has failed before. Whether it was."""
        if not self._rate.take(now, again=again):
            return False
        ended = partial(self._ended, topic, now, then, again=again)
        self._context.work.post(WorkKind.BRIDGE_SWAP, topic.name, call, ended)
        return True

    def _ended(
        self,
        topic: Topic,
        began: int,
        then: Callable[[T | OffloadError], None],
        answer: T | OffloadError,
        *,
        again: bool,
    ) -> None:
        now = self._context.clock_ms()
        self._rate.made(began, now, self._unloads.pop(topic.name, 0), again=again)
        self._context.metrics.bridge_swapped((now - began) / 1000)
        unloaded(topic, now)
        then(answer)
