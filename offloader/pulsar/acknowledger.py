"""Acknowledges for a subscription entries that it was never sent, as its only consumer and without asking for any."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice

from offloader._proto.pulsar_wire_pb2 import MessageIdData
from offloader.errors import OffloadError, OutcomeUnknownError
from offloader.model import EntryRange, PartlyAcknowledged, TopicName
from offloader.ports.subscriptions import ToAcknowledge
from offloader.pulsar import commands
from offloader.pulsar.connection import BrokerConnection
from offloader.pulsar.lookup import TopicLookup
from offloader.pulsar.pin_consumer import Attachment

AT_ONCE = 5000  # ids in a command: far below the largest frame
STORED_AFTER = 1.1  # seconds: brokers store a cursor once a second at most, and the next acknowledgement does it


class Acknowledger:
    """`sleep`: passed in for tests."""

    def __init__(self, lookup: TopicLookup, sleep: Callable[[float], None] = time.sleep) -> None:
        self._lookup = lookup
        self._sleep = sleep

    def acknowledge(
        self, topic: TopicName, subscription: str, whole: Iterable[EntryRange], parts: Iterable[PartlyAcknowledged]
    ) -> None:
        """See `Subscriptions.acknowledge`. A broker says nothing of an acknowledgement that it drops: look."""
        self.acknowledge_as_seen(topic, subscription, lambda: ToAcknowledge(whole, parts))

    def acknowledge_as_seen(
        self, topic: TopicName, subscription: str, decide: Callable[[], ToAcknowledge | None]
    ) -> bool:
        """See `Subscriptions.acknowledge_as_seen`."""
        attached = self._lookup.attach(topic, lambda connection: self._subscribe(connection, topic, subscription))
        try:
            decided = decide()
            if decided is None:
                return False
            ids = chain(
                (commands.message_id(one.ledger, entry) for one in decided.whole for entry in one.ids),
                (commands.batch_id(part) for part in decided.parts),
            )
            last: list[MessageIdData] = []
            for some in _some(ids):
                self._send(attached, topic, some)
                last = some[-1:]
            if last:
                self._sleep(STORED_AFTER)
                self._send(attached, topic, last)
            return True
        finally:
            self._let_go(attached)

    def _subscribe(self, connection: BrokerConnection, topic: TopicName, subscription: str) -> Attachment:
        attached = Attachment(connection)
        wanted = commands.Subscription(str(topic), subscription, durable=True, shared=True)
        build = lambda n: commands.subscribe(attached.consumer_id, n, wanted)  # noqa: E731
        try:
            connection.call(build, self._lookup.timeout, f"subscribing to {topic}")
        except OffloadError:
            attached.let_go()
            raise
        return attached

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
