"""How far a topic's bridge is, as its steps tell: the facet `bridge`. In the driver's thread."""

from __future__ import annotations

import logging
from dataclasses import replace

from offloader.bridge.core.schedule import BridgeStep, BridgeWork
from offloader.errors import (
    FatalError,
    IntegrityError,
    OffloadError,
    OutcomeUnknownError,
    OvertakenError,
    VersionConflictError,
)
from offloader.metadata.bridges import BridgeHead
from offloader.metadata.state import TopicState
from offloader.metrics import Metrics
from offloader.offload.driver import observed
from offloader.offload.driver.topic import Topic

log = logging.getLogger(__name__)

FIRST_RETRY_MS, LAST_RETRY_MS = 1_000, 600_000
GIVE_UP_AFTER = 5  # failures that do not go away by themselves
GIVE_UP_MS = 660_000  # of failures that may: longer than brokers have for an offload of theirs
WITHDRAWN_AGAIN_MS = 10_000  # a round that was withdrawn; twice as long each time


def follow(topic: Topic, journaled: TopicState | None, *, hurries: bool | None = None) -> None:
    """What the journal says of the topic. Whoever lets go of one that was not handed over waits for no brokers."""
    bridge = topic.bridge
    handed_over = journaled is not None and journaled.handed_over
    given_up = journaled is not None and journaled.releasing is not None and not handed_over
    hurries = handed_over and (bridge.hurries if hurries is None else hurries)
    if (given_up, handed_over, hurries) != (bridge.given_up, bridge.handed_over, bridge.hurries):
        topic.bridge = replace(bridge, given_up=given_up, handed_over=handed_over, hurries=hurries)


def loaded(topic: Topic, head: BridgeHead, now: int) -> None:
    """Its log was."""
    topic.bridge = replace(topic.bridge, head=head, error="", retry_at=0)
    if head.state is not None:  # whoever was at it before us may have changed what was listed since
        unloaded(topic, now)


def unloaded(topic: Topic, now: int) -> None:
    """What its broker says of it may be another thing now."""
    observed.doubt(topic)
    observed.soon(topic)
    topic.bridge = replace(topic.bridge, changed_at=now)


def went_on(topic: Topic, step: BridgeStep, before: BridgeHead, after: BridgeHead, now: int) -> None:
    """A step was recorded."""
    bridge, over = topic.bridge, before.state.round if before.state is not None else None
    bridge = replace(bridge, head=after, error="", in_vain=0, hopeless=False, refused=False, retry_at=0)
    if step is BridgeWork.WITHDRAW and over is not None and over.repairs:
        bridge = replace(bridge, error=over.why)
    elif step is BridgeWork.WITHDRAW and after.state is not None:
        again = now + min(WITHDRAWN_AGAIN_MS << min(after.state.in_vain - 1, 12), LAST_RETRY_MS)
        bridge = replace(bridge, withdrawn=bridge.withdrawn + 1, retry_at=again)
    elif after.state is not None and after.state.finished is not None:
        bridge = replace(bridge, withdrawn=0)
    topic.bridge = bridge


def repaired(topic: Topic, head: BridgeHead) -> None:
    """It was looked at; the head has a round where one is to repair it."""
    topic.bridge = replace(topic.bridge, head=head, error="", in_vain=0, hopeless=False)


def failed(topic: Topic, step: str, error: OffloadError, now: int, metrics: Metrics) -> None:
    """A step was not recorded, or nobody knows."""
    if isinstance(error, OvertakenError):
        raise error
    bridge = topic.bridge
    in_vain = bridge.in_vain + 1
    again = now + min(FIRST_RETRY_MS << min(in_vain - 1, 12), LAST_RETRY_MS)
    known = None if isinstance(error, VersionConflictError | OutcomeUnknownError) else bridge.head
    since = bridge.in_vain_since if bridge.in_vain else now
    stays = isinstance(error, FatalError | IntegrityError)
    hopeless = in_vain >= GIVE_UP_AFTER and (stays or now - since >= GIVE_UP_MS)
    topic.bridge = replace(
        bridge,
        head=known,
        in_vain=in_vain,
        in_vain_since=since,
        hopeless=hopeless,
        retry_at=again,
        error=str(error),
    )
    metrics.bridge_failed(step)
    if str(error) != bridge.error:
        log.warning("bridge topic=%s waits (%s): %s", topic.name, step, error, extra={"see": "bridge-waits"})


def refused(topic: Topic, *, by_brokers: bool) -> None:
    """A step failed; whether because brokers refuse it until an operator changes something."""
    topic.bridge = replace(topic.bridge, refused=by_brokers)
