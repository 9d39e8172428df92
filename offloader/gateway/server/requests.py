"""What a client's commands do. The names of topics come as users write them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from offloader._proto.pulsar_wire_pb2 import (
    Ack,
    BaseCommand,
    KeySharedMeta,
    MessageIdData,
    RedeliverUnacknowledged,
    Subscribe,
)
from offloader.errors import OutcomeUnknownError, OvertakenError, RetryableError
from offloader.gateway.core.events import EntryAck, KeyPolicy
from offloader.gateway.protocol import answers
from offloader.gateway.protocol.answers import place_of
from offloader.gateway.protocol.message_frames import bits_of
from offloader.gateway.protocol.schemas import SCHEMA_TYPES, consumer_schema, wire_data
from offloader.gateway.protocol.topic_lists import topics_hash
from offloader.gateway.server.connection import Connection
from offloader.gateway.server.consumer import ClientConsumer
from offloader.gateway.server.ports import SubscribedConsumer, Subscribing
from offloader.gateway.values import ErrorCode, LookUpAgainError, RefusedError, SubscriptionType
from offloader.model import Place, TopicName

log = logging.getLogger(__name__)

Handler = Callable[[Connection, BaseCommand], None]
AT_ONCE = 200  # ids of a long list, before others have their turn
MOST_RANGES = 1_000  # of hashes
AGAIN = 1.0  # seconds before a client that cannot be served now is told to look up again
NOT_ACCEPTED = (
    "an acknowledgement of a part of a batch names more messages than the batch has, or a batch that was not delivered "
    "lately: nothing of that batch is acknowledged"
)
READ_ONLY = "this is an archive: nothing can be produced to it"


def handle(connection: Connection, command: BaseCommand) -> None:
    """A command of a client that has said who it is. What nobody knows is passed over."""
    handler = HANDLERS.get(command.type)
    name = BaseCommand.DESCRIPTOR.fields_by_number.get(command.type)
    if handler is not None and name is not None and command.HasField(name.name):
        handler(connection, command)


def topic_of(text: str) -> TopicName:
    """Raises RefusedError."""
    try:
        return TopicName.parse(text)
    except ValueError as error:
        raise RefusedError(ErrorCode.TOPIC_NOT_FOUND, str(error)) from error


# What a topic is. Where the store does not answer, a look-up is never answered with ServiceNotReady: that ends the
# connection of all consumers, of other topics, too.


def _partitions(connection: Connection, command: BaseCommand) -> None:
    asked = command.partitioned_metadata

    async def work() -> BaseCommand:
        count = await connection.topics.partitions(topic_of(asked.topic), connection.role)
        return answers.partitions(asked.request_id, count)

    connection.answer_in_time(work(), partial(answers.partitions_refused, asked.request_id), ErrorCode.METADATA)


def _lookup(connection: Connection, command: BaseCommand) -> None:
    asked = command.lookup

    async def work() -> BaseCommand:
        address = await connection.topics.address(topic_of(asked.topic), connection.role)
        return answers.served_at(asked.request_id, address)

    connection.answer_in_time(work(), partial(answers.lookup_refused, asked.request_id), ErrorCode.METADATA)


def _topics(connection: Connection, command: BaseCommand) -> None:
    asked = command.get_topics_of_namespace

    async def work() -> BaseCommand:
        names = await connection.topics.topics(asked.namespace, connection.role)
        everything = answers.topics(asked.request_id, names, "", filtered=False, changed=True)
        if not asked.HasField("topics_pattern"):
            return everything
        try:
            found = await connection.matching(names, asked.topics_pattern)
        except RefusedError:
            return everything  # the client can do it, at its own cost
        hashed = topics_hash(found)
        changed = not asked.topics_hash or asked.topics_hash != hashed
        return answers.topics(asked.request_id, found, hashed, filtered=True, changed=changed)

    connection.answer_in_time(work(), partial(answers.refused, asked.request_id))


def _watch(connection: Connection, command: BaseCommand) -> None:
    asked = command.watch_topic_list

    async def work() -> BaseCommand:
        names = await connection.topics.topics(asked.namespace, connection.role)
        found = await connection.matching(names, asked.topics_pattern)
        connection.watch(asked.watcher_id, asked.namespace, asked.topics_pattern, names)
        return answers.watching(asked.request_id, asked.watcher_id, found, topics_hash(found))

    connection.answer_in_time(work(), partial(answers.refused, asked.request_id))


def _end_watch(connection: Connection, command: BaseCommand) -> None:
    connection.end_watch(command.watch_topic_list_close.watcher_id)
    connection.send(answers.success(command.watch_topic_list_close.request_id))


def _schema(connection: Connection, command: BaseCommand) -> None:
    asked = command.get_schema

    async def work() -> BaseCommand:
        topic = topic_of(asked.topic)
        version = int.from_bytes(asked.schema_version, "big", signed=True) if asked.schema_version else None
        found = await connection.topics.schema(topic, version, connection.role)
        kind, name = SCHEMA_TYPES.get(found.type, 0), topic.schema_name
        return answers.schema(asked.request_id, name, found.version, kind, wire_data(found), found.properties)

    connection.answer_in_time(work(), partial(answers.schema_refused, asked.request_id))


# Consumers


def _subscribe(connection: Connection, command: BaseCommand) -> None:
    asked = command.subscribe
    known = connection.consumers.get(asked.consumer_id)
    refuse = partial(answers.refused, asked.request_id)
    if known is not None and known.subscribed is not None:
        connection.send(answers.success(asked.request_id))  # it has not heard the first answer
        return
    if known is not None:
        error = RefusedError(ErrorCode.NOT_READY, "this consumer is being subscribed")
        connection.send(connection.refused(error, refuse))
        return
    if len(connection.consumers) >= connection.limits.consumers:
        most = f"a connection has {connection.limits.consumers} consumers at most"
        connection.send(connection.refused(RefusedError(ErrorCode.TOO_MANY_REQUESTS, most), refuse))
        return
    if full := connection.client_limits.refuses_consumer(connection.role):
        connection.send(connection.refused(RefusedError(ErrorCode.TOO_MANY_REQUESTS, full), refuse))
        return
    consumer = ClientConsumer(connection, asked.consumer_id)
    connection.consumers[asked.consumer_id] = consumer

    async def work() -> BaseCommand | None:
        if connection.consumers.get(consumer.number) is not consumer:  # closed while it waited in the line
            return None
        try:
            subscribed = await connection.topics.subscribe(subscribing(asked), consumer, connection.role)
        except LookUpAgainError:
            _look_up_again(connection, asked.request_id, consumer)
            return None
        except (OvertakenError, RetryableError, OutcomeUnknownError) as error:
            log.warning("gateway: %s waits: %s", asked.topic, error, extra={"see": "gateway-waits"})
            await asyncio.sleep(AGAIN)  # so that clients do not ask all the time
            _look_up_again(connection, asked.request_id, consumer)
            return None
        except BaseException:
            connection.forget(consumer)
            raise
        if consumer.is_closed:  # meanwhile, by its client
            subscribed.leave()
            return None
        connection.send(answers.success(asked.request_id))  # before anything that its subscription tells it
        consumer.begin(subscribed)
        consumer.pass_permits_on()
        return None

    connection.answer_in_line(work(), refuse, ErrorCode.NOT_ALLOWED)


def _look_up_again(connection: Connection, request: int, consumer: ClientConsumer) -> None:
    """Subscribed, and closed at once: whoever is refused may never ask again (see LookUpAgainError)."""
    if consumer.is_closed:  # meanwhile, by its client, which may have another one with that number
        return
    connection.send(answers.success(request))
    consumer.closed()


def subscribing(asked: Subscribe) -> Subscribing:
    """Raises RefusedError."""
    start = asked.start_message_id if asked.HasField("start_message_id") else None
    if not asked.subscription:
        raise RefusedError(ErrorCode.NOT_ALLOWED, "a subscription has a name")
    return Subscribing(
        topic=topic_of(asked.topic),
        subscription=asked.subscription,
        type=SubscriptionType(asked.type),
        durable=asked.durable,
        earliest=asked.initial_position == Subscribe.EARLIEST,
        start=None if start is None else place_of(start),
        rollback_seconds=asked.start_message_rollback_seconds,
        consumer_name=asked.consumer_name,
        priority=asked.priority_level,
        key_policy=_key_policy(asked),
        epoch=asked.consumer_epoch if asked.HasField("consumer_epoch") else None,
        properties={one.key: one.value for one in (*asked.metadata, *asked.subscription_properties)},
        schema=consumer_schema(asked),
    )


def _key_policy(asked: Subscribe) -> KeyPolicy:
    said = asked.key_shared
    if len(said.ranges) > MOST_RANGES:
        why = f"a consumer names {MOST_RANGES} ranges of hashes at most"
        raise RefusedError(ErrorCode.CONSUMER_ASSIGN, why)
    ranges = [(each.start, each.end) for each in said.ranges] if said.mode == KeySharedMeta.STICKY else None
    return KeyPolicy(ranges, said.allow_out_of_order)


def _flow(connection: Connection, command: BaseCommand) -> None:
    consumer = connection.consumers.get(command.flow.consumer_id)
    if consumer is not None:
        consumer.flow(command.flow.permits)


def _ack(connection: Connection, command: BaseCommand) -> None:
    ack = command.ack
    subscribed = _subscribed(connection, ack.consumer_id)
    if ack.HasField("txnid_most_bits") or ack.HasField("txnid_least_bits"):
        why = RefusedError(ErrorCode.NOT_ALLOWED, "this is an archive: there are no transactions")
        connection.send(answers.acknowledged(ack.consumer_id, ack.request_id, why))
        return
    if subscribed is None:
        return
    connection.in_turns(_acknowledging(connection, ack, subscribed))


def _acknowledging(connection: Connection, ack: Ack, subscribed: SubscribedConsumer) -> Iterator[None]:
    """Nothing more once the consumer is closed: somebody may have sought, and gets these entries again."""
    accepted = True
    for begin in range(0, len(ack.message_id), AT_ONCE):
        if _subscribed(connection, ack.consumer_id) is not subscribed:
            return
        ids = ack.message_id[begin : begin + AT_ONCE]
        if ack.type == Ack.CUMULATIVE:
            for message in ids:
                accepted &= subscribed.acknowledge_up_to(place_of(message), bits_of(message.ack_set))
        else:
            accepted &= subscribed.acknowledge(list(map(_entry_ack, ids)))
        yield
    if ack.HasField("request_id"):

        async def work() -> BaseCommand:
            await subscribed.durable()
            if not accepted:
                raise RefusedError(ErrorCode.NOT_ALLOWED, NOT_ACCEPTED)
            return answers.acknowledged(ack.consumer_id, ack.request_id)

        connection.answer_later(work(), partial(answers.acknowledged, ack.consumer_id, ack.request_id))


def _entry_ack(message: MessageIdData) -> EntryAck:
    return EntryAck(place_of(message), bits_of(message.ack_set))


def _redeliver(connection: Connection, command: BaseCommand) -> None:
    asked = command.redeliver_unacknowledged
    subscribed = _subscribed(connection, asked.consumer_id)
    if subscribed is not None:
        connection.in_turns(_redelivering(asked, subscribed))


def _redelivering(asked: RedeliverUnacknowledged, subscribed: SubscribedConsumer) -> Iterator[None]:
    places: list[Place] = []
    for begin in range(0, len(asked.message_ids), AT_ONCE):
        places += map(place_of, asked.message_ids[begin : begin + AT_ONCE])
        yield
    subscribed.redeliver(places or None, asked.consumer_epoch if asked.HasField("consumer_epoch") else None)
    yield


def _seek(connection: Connection, command: BaseCommand) -> None:
    asked = command.seek

    async def work() -> BaseCommand:
        subscribed = _wanted(connection, asked.consumer_id)
        if asked.HasField("message_id"):
            left = bits_of(asked.message_id.ack_set) if asked.message_id.ack_set else None
            await subscribed.seek(place_of(asked.message_id), left)
        elif asked.HasField("message_publish_time"):
            await subscribed.seek_time(asked.message_publish_time)
        else:
            raise RefusedError(ErrorCode.METADATA, "SEEK says neither a message nor a time")
        return answers.success(asked.request_id)

    connection.answer_in_line(work(), partial(answers.refused, asked.request_id), ErrorCode.NOT_READY)


def _last_message(connection: Connection, command: BaseCommand) -> None:
    asked = command.get_last_message_id

    async def work() -> BaseCommand:
        subscribed = _wanted(connection, asked.consumer_id)
        end, mark_delete = await subscribed.last_message()
        return answers.last_message(asked.request_id, end, subscribed.partition, mark_delete)

    connection.answer_in_time(work(), partial(answers.refused, asked.request_id))


def _unsubscribe(connection: Connection, command: BaseCommand) -> None:
    asked = command.unsubscribe

    async def work() -> BaseCommand:
        await _wanted(connection, asked.consumer_id).unsubscribe()
        connection.consumers.pop(asked.consumer_id, None)
        return answers.success(asked.request_id)

    connection.answer_in_line(work(), partial(answers.refused, asked.request_id), ErrorCode.NOT_READY)


def _close(connection: Connection, command: BaseCommand) -> None:
    consumer = connection.consumers.pop(command.close_consumer.consumer_id, None)
    if consumer is not None:
        consumer.leave()
    connection.send(answers.success(command.close_consumer.request_id))


def _stats(connection: Connection, command: BaseCommand) -> None:
    asked = command.consumer_stats

    async def work() -> BaseCommand:
        consumer = connection.consumers.get(asked.consumer_id)
        if consumer is None or consumer.subscribed is None:
            raise RefusedError(ErrorCode.CONSUMER_NOT_FOUND, "Consumer not found")
        found = await consumer.subscribed.stats()
        return answers.consumer_stats(asked.request_id, found, connection.address, consumer.since)

    connection.answer_in_time(work(), partial(answers.consumer_stats_refused, asked.request_id))


def _subscribed(connection: Connection, number: int) -> SubscribedConsumer | None:
    consumer = connection.consumers.get(number)
    return None if consumer is None else consumer.subscribed


def _wanted(connection: Connection, number: int) -> SubscribedConsumer:
    subscribed = _subscribed(connection, number)
    if subscribed is None:
        raise RefusedError(ErrorCode.METADATA, "Consumer not found")
    return subscribed


# What an archive does not do


def _producer(connection: Connection, command: BaseCommand) -> None:
    why = RefusedError(ErrorCode.NOT_ALLOWED, READ_ONLY)
    connection.send(connection.refused(why, partial(answers.refused, command.producer.request_id)))


def _transactions(connection: Connection, command: BaseCommand) -> None:
    connection.send(answers.transactions_refused(command.tc_client_connect.request_id))


def _numbers(handlers: Sequence[tuple[str, Handler]]) -> dict[int, Handler]:
    return {BaseCommand.DESCRIPTOR.fields_by_name[name].number: handler for name, handler in handlers}


HANDLERS = _numbers(
    [
        ("partitioned_metadata", _partitions),
        ("lookup", _lookup),
        ("get_topics_of_namespace", _topics),
        ("watch_topic_list", _watch),
        ("watch_topic_list_close", _end_watch),
        ("get_schema", _schema),
        ("subscribe", _subscribe),
        ("flow", _flow),
        ("ack", _ack),
        ("redeliver_unacknowledged", _redeliver),
        ("seek", _seek),
        ("get_last_message_id", _last_message),
        ("unsubscribe", _unsubscribe),
        ("close_consumer", _close),
        ("consumer_stats", _stats),
        ("producer", _producer),
        ("tc_client_connect", _transactions),
    ]
)
