"""The gateway's subscriptions, for which retention waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from offloader.cursors.stored import subscription_marks
from offloader.lifecycle.retention.plan import Holding, PulsarSide, due
from offloader.lifecycle.retention.policy import RetentionPolicy
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore


def with_waiting(
    store: ObjectStore,
    topic: TopicName,
    known: Sequence[Holding],
    policy: RetentionPolicy,
    now: int,
    pulsar: PulsarSide,
) -> list[Holding]:
    """With those that have not acknowledged everything. They are read only where something would go without them: a
    topic of which nothing is due costs nothing."""
    found = [due(each, policy, now, pulsar) for each in known]
    if not policy.keep_unacknowledged or all(each is None or each.is_handed_over for each in found):
        return list(known)
    waiting = tuple(subscription_marks(store, topic))
    return [replace(each, waiting=waiting) for each in known]
