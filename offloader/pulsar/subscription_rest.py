"""Subscriptions from what the admin REST says of them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from offloader.errors import BrokerUnavailableError, ProtocolError
from offloader.model import TopicName
from offloader.ports.admin import SubscriptionTraits
from offloader.ports.subscriptions import SubscriptionUse
from offloader.printable import printable
from offloader.pulsar.answers import counted, described, properties_of, truth
from offloader.pulsar.commands import CONSUMER

PIN_PROPERTY = "pin"
"""The property of our subscriptions that has their token. Brokers store properties when a subscription is made; later
subscribers change nothing."""
LAZY_CURSORS = "lazyCursorRecovery"
"""The setting of brokers that load a topic before its cursors. They show the properties of the first subscriber after
the load, not those stored with the cursor."""
REPLICATED = ("isReplicated", "replicated")  # as versions of Pulsar name it
_TIMES = ("lastConsumedTimestamp", "lastAckedTimestamp", "lastMarkDeleteAdvancedTimestamp", "lastConsumedFlowTimestamp")


class ConsumerStats(NamedTuple):
    """A consumer as a topic's `stats` show it. `token`: what a consumer of the offloader brought, else empty."""

    name: str
    token: str


def consumers_of(stats: Any, subscription: str) -> tuple[ConsumerStats, ...]:
    """The connected consumers of a subscription, from `stats`. Raises ProtocolError."""
    with described("consumers"):
        consumers = stats["subscriptions"].get(subscription, {}).get("consumers") or ()
        return tuple(_consumer(said) for said in consumers)


def _consumer(said: Mapping[str, Any]) -> ConsumerStats:
    token = (said.get("metadata") or {}).get(CONSUMER, "")
    return ConsumerStats(str(said.get("consumerName") or ""), str(token))


def is_durable(said: Mapping[str, Any]) -> bool:
    """By a subscription's part of `stats`. Raises TypeError."""
    return truth(said.get("isDurable", said.get("durable", True)))


def last_active(said: Mapping[str, Any]) -> int:
    """When a subscription was last used, by its `stats`; 0: not since its topic was loaded. Raises ValueError."""
    return max(counted(said.get(name, 0)) for name in _TIMES)


def subscription_traits(stats: Any) -> dict[str, SubscriptionTraits]:
    """The durable ones, from `stats`. Raises ProtocolError."""
    with described("a topic's subscriptions"):
        return {
            name: SubscriptionTraits(
                truth(said.get("isReplicated", said.get("replicated", False))),
                properties_of(said.get("subscriptionProperties")),
            )
            for name, said in stats["subscriptions"].items()
            if is_durable(said)
        }


def loaded_topics(statistics: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """From a broker's `broker-stats/topics`, `{namespace: {bundle: {"persistent": {topic: …}}}}`: each persistent topic
    that it has loaded; a broker without topics may say nothing. Raises ProtocolError."""
    with described("its topics"):
        for bundles in ({} if statistics is None else statistics).values():
            for bundle in ({} if bundles is None else bundles).values():
                yield from bundle.get("persistent", {}).items()


def subscription_uses(statistics: Any) -> Iterator[tuple[TopicName, Mapping[str, SubscriptionUse]]]:
    """The same with their subscriptions. Raises ProtocolError."""
    with described("its topics"):
        for name, topic in loaded_topics(statistics):
            yield (
                TopicName.parse(name),
                {
                    each: SubscriptionUse(len(one["consumers"]), counted(one.get("msgBacklog", 0)))
                    for each, one in topic.get("subscriptions", {}).items()
                },
            )


def pin_token(stats: Any, subscription: str) -> str | None:
    """See `Admin.pin_token`; from a topic's `stats`. Raises ProtocolError."""
    with described("a topic's subscriptions"):
        found = stats["subscriptions"].get(subscription)
        properties = None if found is None else found.get("subscriptionProperties")
        token = "" if properties is None else properties.get(PIN_PROPERTY, "")
    if found is None:
        raise BrokerUnavailableError(f"the subscription {subscription} is not there now")
    if properties is None:
        return None
    if not isinstance(token, str):
        raise ProtocolError(f"the broker says that the subscription's token is of type {type(token).__name__}")
    return token


def keeps_properties(version: str) -> bool:
    """Whether a broker stores a subscription's properties: since 2.10.1. Before, it showed those of the first
    subscriber after each load. Raises BrokerUnavailableError for what is no version: then no broker has answered."""
    found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version.strip())
    if found is None:
        raise BrokerUnavailableError(f"the broker says that its version is {printable(version[:40])}, which is none")
    return tuple(int(part or 0) for part in found.groups()) >= (2, 10, 1)
