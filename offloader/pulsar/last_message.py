"""A topic's last message, as its broker tells readers: asked by one that reads nothing."""

from __future__ import annotations

from typing import NamedTuple

from offloader._proto.pulsar_wire_pb2 import GetLastMessageIdResponse
from offloader.errors import OffloadError
from offloader.model import Place, TopicName
from offloader.pulsar import commands
from offloader.pulsar.connection import BrokerConnection
from offloader.pulsar.lookup import TopicLookup
from offloader.pulsar.pin_consumer import Attachment

LATEST: Place = (2**63 - 1, 2**63 - 1)


class LastMessage(NamedTuple):
    """`batch_index`: -1 where it is in no batch."""

    place: Place
    batch_index: int


def last_message(lookup: TopicLookup, topic: TopicName, name: str) -> LastMessage | None:
    """None: the topic is empty. `name`: of the reader, which nobody else has. Raises what brokers raise."""
    attached = lookup.attach(topic, lambda connection: _subscribed(connection, topic, name, lookup.timeout))
    try:
        build = lambda n: commands.last_message_id(attached.consumer_id, n)  # noqa: E731
        answer = attached.connection.call(build, lookup.timeout, f"the last message of {topic}")
    finally:
        attached.let_go()
    return _told(answer.get_last_message_id_response)


def _subscribed(connection: BrokerConnection, topic: TopicName, name: str, timeout: float) -> Attachment:
    attached = Attachment(connection)
    wanted = commands.Subscription(str(topic), name, durable=False, after=LATEST)
    build = lambda n: commands.subscribe(attached.consumer_id, n, wanted)  # noqa: E731
    try:
        connection.call(build, timeout, f"subscribing to {topic}")
    except OffloadError:
        attached.let_go()
        raise
    return attached


def _told(response: GetLastMessageIdResponse) -> LastMessage | None:
    said = response.last_message_id
    place = commands.position(said)
    return LastMessage(place, said.batch_index if said.HasField("batch_index") else -1) if place[1] >= 0 else None
