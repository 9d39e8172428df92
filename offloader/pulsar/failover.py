"""Failover subscriptions, where a namespace does not allow exclusive ones, and the proof of being the only consumer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from offloader.errors import NotAllowedError, SubscriptionBusyError
from offloader.model import TopicName
from offloader.pulsar.commands import FAILOVER, Subscription
from offloader.pulsar.rest import RestClient
from offloader.pulsar.subscription_rest import consumers_of

T = TypeVar("T")


def exclusive_or_failover(subscribe: Callable[[Subscription], T], wanted: Subscription) -> T:
    """Subscribe exclusively, and as Failover where the broker does not allow that. Other limits refuse both."""
    try:
        return subscribe(wanted)
    except NotAllowedError:
        return subscribe(wanted._replace(type=FAILOVER))


class SoleConsumer(Protocol):
    """Proves that nobody else uses a subscription that others may use as well."""

    def prove(self, topic: TopicName, subscription: Subscription) -> None:
        """Raises SubscriptionBusyError where the topic's broker does not report this one as the only consumer, and
        whatever leaves it unproven."""
        ...


class ReportedSoleConsumer:
    """A `SoleConsumer` by the `stats` of the topic. `check_journal` raises where another process has the journal."""

    def __init__(self, rest: RestClient, check_journal: Callable[[], None]) -> None:
        self._rest = rest
        self._check_journal = check_journal

    def prove(self, topic: TopicName, subscription: Subscription) -> None:
        self._check_journal()
        consumers = consumers_of(self._rest.get(f"{topic.rest_path}/stats"), subscription.name)
        if [consumer.token for consumer in consumers] == [subscription.token]:
            return
        others = [consumer for consumer in consumers if consumer.token != subscription.token]
        names = " ".join(repr(consumer.name) for consumer in others) or "none is reported"
        raise SubscriptionBusyError(
            f"{topic}: this process is not the only consumer of the Failover subscription {subscription.name} (others: "
            f"{names}): nothing is adopted, acknowledged or unsubscribed; stop the others"
        )
