"""Subscriptions as brokers have them: looked at, deleted, made again, acknowledged."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from urllib.parse import quote

import httpx

from offloader._proto.pulsar_wire_pb2 import MessageIdData
from offloader.errors import (
    BrokerUnavailableError,
    OutcomeUnknownError,
    SubscriptionBusyError,
)
from offloader.model import EntryRange, PartlyAcknowledged, Place, TopicName
from offloader.ports.subscriptions import EARLIEST, SubscriptionLook, SubscriptionUse
from offloader.pulsar import commands
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.connection import BrokerConnection
from offloader.pulsar.loaded import broker_statistics
from offloader.pulsar.lookup import TopicLookup
from offloader.pulsar.pin_consumer import Attachment, attach
from offloader.pulsar.pool import ConnectionPool
from offloader.pulsar.settings import PulsarSettings
from offloader.pulsar.subscription_rest import keeps_properties, subscription_uses
from offloader.pulsar.topic_rest import subscription_look, topic_state
from offloader.state.topic import PulsarTopic

AT_ONCE = 5000  # ids in a command: far below the largest frame
STORED_AFTER = 1.1  # seconds: brokers store a cursor once a second at most, and the next acknowledgement does it


class Acknowledger:
    """Acknowledges for a subscription entries that it was never sent, as a consumer that asks for none. `sleep`: passed
    in for tests."""

    def __init__(self, lookup: TopicLookup, sleep: Callable[[float], None] = time.sleep) -> None:
        self._lookup = lookup
        self._sleep = sleep

    def acknowledge(
        self, topic: TopicName, subscription: str, whole: Iterable[EntryRange], parts: Iterable[PartlyAcknowledged]
    ) -> None:
        """See `Subscriptions.acknowledge`. A broker says nothing of an acknowledgement that it drops: look."""
        attached = self._lookup.attach(topic, lambda connection: self._subscribe(connection, topic, subscription))
        try:
            ids = chain(
                (commands.message_id(one.ledger, entry) for one in whole for entry in one.ids),
                (commands.batch_id(part) for part in parts),
            )
            last: list[MessageIdData] = []
            for some in _some(ids):
                self._send(attached, topic, some)
                last = some[-1:]
            if last:
                self._sleep(STORED_AFTER)
                self._send(attached, topic, last)
        finally:
            self._let_go(attached)

    def _subscribe(self, connection: BrokerConnection, topic: TopicName, subscription: str) -> Attachment:
        wanted = commands.Subscription(str(topic), subscription, durable=True, type=commands.SHARED)
        return attach(connection, wanted, self._lookup.timeout, f"subscribing to {topic}")

    def _send(self, attached: Attachment, topic: TopicName, messages: Sequence[MessageIdData]) -> None:
        build = lambda n: commands.acknowledge_each(attached.consumer_id, n, messages)  # noqa: E731
        attached.connection.call(build, self._lookup.timeout, f"acknowledging in {topic}", write=True)

    def _let_go(self, attached: Attachment) -> None:
        """Wait until the broker has: whoever looks next counts consumers."""
        reply = attached.let_go()
        if reply is None:
            return
        try:
            attached.connection.wait(reply, self._lookup.timeout, "letting go of a subscription", write=True)
        except OutcomeUnknownError:
            return  # it ends with the connection


def _some(ids: Iterator[MessageIdData]) -> Iterator[list[MessageIdData]]:
    while some := list(islice(ids, AT_ONCE)):
        yield some


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

    def report(self, topic: TopicName, *, loaded: bool) -> PulsarTopic:
        rest, path = self._admin.rest, topic.rest_path
        if not loaded:
            return topic_state(topic, rest.get(f"{path}/internal-info"))
        internal = rest.get(f"{path}/internalStats")
        return topic_state(topic, rest.get(f"{path}/internal-info"), internal, rest.get(f"{path}/stats"))

    def keeps_properties(self, topic: TopicName) -> bool:
        """The owner's version counts: while brokers are upgraded there are several."""
        rest = self._admin.rest
        _, owner = rest.get_of_owner(f"{topic.rest_path}/stats")
        return keeps_properties(rest.text("brokers/version", address=owner))

    def delete(self, topic: TopicName, subscription: str) -> None:
        self._change("DELETE", _path(topic, subscription), force="false")

    def create(self, topic: TopicName, subscription: str, properties: Mapping[str, str]) -> bool:
        body = {**_message(EARLIEST), "properties": dict(properties)}
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
        return list(subscription_uses(broker_statistics(broker, self._transport)))


def _path(topic: TopicName, subscription: str) -> str:
    return f"{topic.rest_path}/subscription/{quote(subscription, safe='')}"


def _message(place: Place) -> dict[str, int]:
    return {"ledgerId": place[0], "entryId": place[1], "partitionIndex": -1}
