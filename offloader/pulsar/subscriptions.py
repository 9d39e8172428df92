"""Subscriptions as brokers have them: looked at, deleted, made again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from urllib.parse import quote

import httpx

from offloader.errors import (
    BrokerUnavailableError,
    OutcomeUnknownError,
    SubscriptionBusyError,
)
from offloader.model import EntryRange, PartlyAcknowledged, Place, TopicName
from offloader.ports.subscriptions import EARLIEST, SubscriptionLook, SubscriptionUse, ToAcknowledge
from offloader.pulsar.acknowledger import Acknowledger
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.loaded import LARGEST_STATISTICS
from offloader.pulsar.lookup import TopicLookup
from offloader.pulsar.pool import ConnectionPool
from offloader.pulsar.rest import RestClient
from offloader.pulsar.settings import PulsarSettings
from offloader.pulsar.subscription_stats import subscription_look, subscription_uses


class BrokerSubscriptions:
    """`Subscriptions` over REST and the binary protocol. `transport` carries the requests, by default over sockets."""

    def __init__(self, settings: PulsarSettings, *, transport: httpx.BaseTransport | None = None) -> None:
        self._settings = settings
        self._admin = AdminClient(settings, transport=transport)
        self._transport = transport
        self._pool = ConnectionPool(settings)
        self._acknowledger = Acknowledger(TopicLookup(self._pool))

    def uses(self) -> Mapping[TopicName, Mapping[str, SubscriptionUse]]:
        return {topic: uses for broker in self._brokers() for topic, uses in self._uses_at(broker)}

    def look(self, topic: TopicName, subscription: str) -> SubscriptionLook | None:
        rest, path = self._admin.rest, topic.rest_path
        internal = rest.get(f"{path}/internalStats")  # first: only this one says 404 of a missing topic
        return subscription_look(rest.get(f"{path}/internal-info"), internal, rest.get(f"{path}/stats"), subscription)

    def delete(self, topic: TopicName, subscription: str) -> None:
        self._change("DELETE", _path(topic, subscription), force="false")

    def create(
        self, topic: TopicName, subscription: str, properties: Mapping[str, str], first: Place = EARLIEST
    ) -> bool:
        body = {**_message(first), "properties": dict(properties)}
        return self._change("PUT", _path(topic, subscription), body) != httpx.codes.CONFLICT

    def describe(self, topic: TopicName, subscription: str, properties: Mapping[str, str]) -> None:
        if self._change("PUT", f"{_path(topic, subscription)}/properties", dict(properties)) == httpx.codes.CONFLICT:
            raise OutcomeUnknownError(f"{topic}: {subscription} was not given its properties: somebody else changes it")

    def replicate(self, topic: TopicName, subscription: str) -> None:
        self._change("POST", f"{_path(topic, subscription)}/replicatedSubscriptionStatus", True)

    def move(self, topic: TopicName, subscription: str, mark_delete: Place) -> None:
        body = {**_message(mark_delete), "excluded": mark_delete != EARLIEST}
        self._change("POST", f"{_path(topic, subscription)}/resetcursor", body)

    def acknowledge(
        self, topic: TopicName, subscription: str, whole: Iterable[EntryRange], parts: Iterable[PartlyAcknowledged]
    ) -> None:
        self._acknowledger.acknowledge(topic, subscription, whole, parts)

    def acknowledge_as_seen(
        self, topic: TopicName, subscription: str, decide: Callable[[], ToAcknowledge | None]
    ) -> bool:
        return self._acknowledger.acknowledge_as_seen(topic, subscription, decide)

    def close(self) -> None:
        self._pool.close()
        self._admin.close()

    def _change(self, method: str, path: str, body: object = None, **query: str) -> int:
        """The status of what was done, or was done already. Where no answer comes, it may have been done: also what a
        broker says of its own troubles proves nothing."""
        rest = self._admin.rest
        try:
            response = rest.request(method, path, body=body, **query)
        except BrokerUnavailableError as error:
            raise OutcomeUnknownError(f"{path}: it may have been done ({error})") from error
        status = response.status_code
        if response.is_success or (status == httpx.codes.CONFLICT and method == "PUT"):
            return status
        refused = rest.error(path, response)
        if status == httpx.codes.PRECONDITION_FAILED:
            raise SubscriptionBusyError(str(refused))
        if isinstance(refused, BrokerUnavailableError):
            raise OutcomeUnknownError(str(refused))
        raise refused

    def _brokers(self) -> Iterator[PulsarSettings]:
        names = self._admin.rest.get(f"brokers/{self._admin.cluster()}")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise BrokerUnavailableError("the list of brokers is none")
        scheme = self._settings.admin_url.partition("://")[0]
        return (replace(self._settings, admin_url=f"{scheme}://{name}") for name in names)

    def _uses_at(self, broker: PulsarSettings) -> list[tuple[TopicName, Mapping[str, SubscriptionUse]]]:
        client = RestClient(broker, transport=self._transport, largest=LARGEST_STATISTICS)
        try:
            return list(subscription_uses(client.get("broker-stats/topics")))
        finally:
            client.close()


def _path(topic: TopicName, subscription: str) -> str:
    return f"{topic.rest_path}/subscription/{quote(subscription, safe='')}"


def _message(place: Place) -> dict[str, int]:
    return {"ledgerId": place[0], "entryId": place[1], "partitionIndex": -1}
