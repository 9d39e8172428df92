"""The commands that we send, as values. `-1` travels as the largest u64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from offloader._proto.pulsar_wire_pb2 import (
    Ack,
    AuthData,
    AuthResponse,
    BaseCommand,
    CloseConsumer,
    CloseProducer,
    Connect,
    FeatureFlags,
    Flow,
    GetLastMessageId,
    KeyValue,
    Lookup,
    MessageIdData,
    PartitionedMetadata,
    Ping,
    Pong,
    Producer,
    Send,
    Subscribe,
    Unsubscribe,
)
from offloader.model import PartlyAcknowledged
from offloader.version import named

CLIENT_VERSION = named()  # in the statistics that brokers show of a topic
# 21 is what brokers of 4.0 speak; from 18 on they deliver broker entry metadata to a client that asks for it.
PROTOCOL_VERSION = 21
EXCLUSIVE, SHARED, FAILOVER = Subscribe.EXCLUSIVE, Subscribe.SHARED, Subscribe.FAILOVER
CONSUMER = "offloader"  # the name, among a consumer's metadata, of what no other consumer has


def command(**content: Any) -> BaseCommand:
    """A command's type is the number of its only field."""
    (name,) = content
    return BaseCommand(type=BaseCommand.DESCRIPTOR.fields_by_name[name].number, **content)


PING = command(ping=Ping())
PONG = command(pong=Pong())


class Subscription(NamedTuple):
    """What a consumer subscribes with. Durable: from the earliest entry where it is new.

    Not durable: `after` is the position behind which it starts, as if that one were acknowledged. `token`: which of
    its consumers this is, as the topic's `stats` show it.
    """

    topic: str
    name: str
    durable: bool
    after: tuple[int, int] | None = None
    consumer_name: str = ""
    properties: Mapping[str, str] = {}
    type: Subscribe.Type = EXCLUSIVE
    token: str = ""


def connect(auth_method: str, auth_data: bytes, proxy_to: str = "") -> BaseCommand:
    """Says who we are, and that we want entries with their broker metadata."""
    connecting = Connect(
        client_version=CLIENT_VERSION,
        protocol_version=PROTOCOL_VERSION,
        auth_method_name=auth_method,
        auth_data=auth_data,
        proxy_to_broker_url=proxy_to or None,
        feature_flags=FeatureFlags(supports_auth_refresh=True, supports_broker_entry_metadata=True),
    )
    return command(connect=connecting)


def auth_response(method: str, data: bytes) -> BaseCommand:
    """Answers AUTH_CHALLENGE."""
    proof = AuthData(auth_method_name=method, auth_data=data)
    return command(
        auth_response=AuthResponse(client_version=CLIENT_VERSION, protocol_version=PROTOCOL_VERSION, response=proof)
    )


def subscribe(consumer_id: int, request_id: int, subscription: Subscription) -> BaseCommand:
    """Never creates the topic."""
    subscribing = Subscribe(
        topic=subscription.topic,
        subscription=subscription.name,
        type=subscription.type,
        consumer_id=consumer_id,
        request_id=request_id,
        consumer_name=subscription.consumer_name,
        durable=subscription.durable,
        metadata=[KeyValue(key=CONSUMER, value=subscription.token)] if subscription.token else [],
        # A reader that starts behind the end must wait there; EARLIEST would send it back to the first entry.
        initial_position=Subscribe.EARLIEST if subscription.durable else Subscribe.LATEST,
        force_topic_creation=False,
        subscription_properties=[KeyValue(key=k, value=v) for k, v in subscription.properties.items()],
        start_message_id=message_id(*subscription.after) if subscription.after is not None else None,
    )
    return command(subscribe=subscribing)


def flow(consumer_id: int, permits: int) -> BaseCommand:
    """Lets the broker send so many messages more."""
    return command(flow=Flow(consumer_id=consumer_id, permits=permits))


def acknowledge(consumer_id: int, request_id: int, ledger: int, entry: int) -> BaseCommand:
    """Cumulative, with a receipt."""
    acknowledging = Ack(
        consumer_id=consumer_id, type=Ack.CUMULATIVE, request_id=request_id, message_id=[message_id(ledger, entry)]
    )
    return command(ack=acknowledging)


def acknowledge_each(consumer_id: int, request_id: int, messages: Sequence[MessageIdData]) -> BaseCommand:
    """One by one, with a receipt."""
    return command(ack=Ack(consumer_id=consumer_id, type=Ack.INDIVIDUAL, request_id=request_id, message_id=messages))


def unsubscribe(consumer_id: int, request_id: int) -> BaseCommand:
    """Deletes the consumer's subscription."""
    return command(unsubscribe=Unsubscribe(consumer_id=consumer_id, request_id=request_id))


def close_consumer(consumer_id: int, request_id: int) -> BaseCommand:
    """Lets go of the subscription."""
    return command(close_consumer=CloseConsumer(consumer_id=consumer_id, request_id=request_id))


def producer(producer_id: int, request_id: int, topic: str, name: str, epoch: int | None) -> BaseCommand:
    """The topic's only producer: whoever produces is fenced out. `epoch`: what our last one got, refused if others came
    since."""
    producing = Producer(
        topic=topic,
        producer_id=producer_id,
        request_id=request_id,
        producer_name=name,
        access_mode=Producer.EXCLUSIVE_WITH_FENCING,
        topic_epoch=epoch,
    )
    return command(producer=producing)


def send(producer_id: int, sequence: int, messages: int, *, chunk: bool) -> BaseCommand:
    """Publishes the entry that follows in the frame; the broker counts `messages` by what this says."""
    return command(
        send=Send(producer_id=producer_id, sequence_id=sequence, num_messages=messages, is_chunk=chunk or None)
    )


def close_producer(producer_id: int, request_id: int) -> BaseCommand:
    """Gives up the topic."""
    return command(close_producer=CloseProducer(producer_id=producer_id, request_id=request_id))


def last_message_id(consumer_id: int, request_id: int) -> BaseCommand:
    """Asks for the topic's last message and the subscription's mark-delete."""
    return command(get_last_message_id=GetLastMessageId(consumer_id=consumer_id, request_id=request_id))


def lookup(request_id: int, topic: str, *, authoritative: bool) -> BaseCommand:
    """Asks which broker serves a topic."""
    return command(lookup=Lookup(topic=topic, request_id=request_id, authoritative=authoritative))


def partitioned_metadata(request_id: int, topic: str) -> BaseCommand:
    """Asks for a topic's number of partitions."""
    return command(partitioned_metadata=PartitionedMetadata(topic=topic, request_id=request_id))


def message_id(ledger: int, entry: int) -> MessageIdData:
    """A position on the wire."""
    return MessageIdData(ledger_id=ledger % 2**64, entry_id=entry % 2**64)


def batch_id(part: PartlyAcknowledged) -> MessageIdData:
    """A batch, of which what has no bit is acknowledged. Its size is not known: that of the last message left."""
    size = max((64 * at + (word % 2**64).bit_length() for at, word in enumerate(part.words) if word), default=0)
    return MessageIdData(ledger_id=part.ledger, entry_id=part.entry, ack_set=part.words, batch_size=size)


def position(message: MessageIdData) -> tuple[int, int]:
    """A position from the wire."""
    return signed(message.ledger_id), signed(message.entry_id)


def signed(value: int) -> int:
    """A u64 that stands for an i64."""
    return value - 2**64 if value >= 2**63 else value
