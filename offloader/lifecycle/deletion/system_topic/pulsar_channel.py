"""The channel over Pulsar's own client (the package `pulsar-client`, an extra), which has Shared subscriptions,
redeliveries, delays and schemas."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from types import ModuleType
from typing import Any

from offloader.errors import BrokerUnavailableError, OutcomeUnknownError
from offloader.lifecycle.deletion.system_topic.interfaces import ArrivedMessage, SystemTopicName
from offloader.lifecycle.deletion.system_topic.letters import PUT_BACK_MS, WORKER
from offloader.lifecycle.deletion.system_topic.messages import AVRO_SCHEMA
from offloader.pulsar.client_library import NothingCameError, client_library, library_errors, open_client
from offloader.pulsar.settings import PulsarSettings

NEEDED_BY = "lifecycle.systemTopic"
QUEUED = 8  # messages that wait in this process, of each partition: each may have 5 MB


class PulsarChannel:
    """One client, with connections and threads of its own. Raises ConfigError where the package is missing."""

    def __init__(self, settings: PulsarSettings, *, put_back_ms: int = PUT_BACK_MS) -> None:
        self._library = client_library(NEEDED_BY)
        self._timeout_ms = int(settings.operation_timeout * 1000)
        self._put_back_ms = put_back_ms
        self._client = open_client(self._library, settings)

    def producer(self, topic: SystemTopicName) -> PulsarTopicProducer:
        """Registers our schema with the topic, where it has none like it."""
        with self._errors(f"producing to {topic.value}"):
            producer = self._client.create_producer(
                topic.value,
                schema=_schema(self._library),
                batching_enabled=False,
                send_timeout_millis=self._timeout_ms,
            )
        return PulsarTopicProducer(self._library, producer, topic.value)

    def consumer(self, name: str, properties: Mapping[str, str]) -> PulsarTopicConsumer:
        with self._errors(f"consuming {SystemTopicName.DELETION.value}"):
            consumer = self._client.subscribe(
                [SystemTopicName.DELETION.value, SystemTopicName.RETRY.value],
                WORKER,
                self._library.ConsumerType.Shared,
                consumer_name=name,
                properties=dict(properties),
                initial_position=self._library.InitialPosition.Earliest,
                receiver_queue_size=QUEUED,
                negative_ack_redelivery_delay_ms=self._put_back_ms,
                max_pending_chunked_message=1,  # a forged one may claim to have gigabytes
                auto_ack_oldest_chunked_message_on_queue_full=True,
                crypto_failure_action=self._library.ConsumerCryptoFailureAction.CONSUME,  # and then it is no message
            )
        return PulsarTopicConsumer(self._library, consumer)

    def close(self) -> None:
        with suppress(self._library.PulsarException):
            self._client.close()

    def _errors(self, what: str) -> Any:
        return library_errors(self._library, what)


class PulsarTopicProducer:
    """See `SystemTopicProducer`."""

    def __init__(self, library: ModuleType, producer: Any, topic: str) -> None:
        self._library = library
        self._producer = producer
        self._topic = topic

    def send(self, data: bytes, properties: Mapping[str, str], delay: int = 0) -> None:
        try:
            with library_errors(self._library, f"sending to {self._topic}"):
                after = timedelta(milliseconds=delay) if delay else None
                self._producer.send(data, properties=dict(properties), deliver_after=after)
        except BrokerUnavailableError as error:
            raise OutcomeUnknownError(f"{error}: it may be stored") from error

    def close(self) -> None:
        with suppress(self._library.PulsarException):
            self._producer.close()


class PulsarTopicConsumer:
    """See `SystemTopicConsumer`."""

    def __init__(self, library: ModuleType, consumer: Any) -> None:
        self._library = library
        self._consumer = consumer

    @property
    def is_connected(self) -> bool:
        return bool(self._consumer.is_connected())

    def receive(self, seconds: float) -> ArrivedMessage | None:
        try:
            with library_errors(self._library, "receiving"):
                # At least a millisecond: no time at all means to wait for ever.
                return _arrived(self._consumer.receive(max(int(seconds * 1000), 1)))
        except NothingCameError:
            return None

    def acknowledge(self, message: ArrivedMessage) -> None:
        with library_errors(self._library, "acknowledging"):
            self._consumer.acknowledge(message.handle)

    def put_back(self, message: ArrivedMessage) -> None:
        with library_errors(self._library, "putting back"):
            self._consumer.negative_acknowledge(message.handle)

    def close(self) -> None:
        with suppress(self._library.PulsarException):
            self._consumer.close()


def _arrived(message: Any) -> ArrivedMessage:
    place = message.message_id()
    return ArrivedMessage(
        topic=message.topic_name(),
        message_id=f"{place.ledger_id()}:{place.entry_id()}:{place.partition()}",  # as Java writes it
        data=message.data(),
        properties=_texts(message),
        schema_version=_schema_version(message),
        redeliveries=message.redelivery_count(),
        published=message.publish_timestamp(),
        handle=message,
    )


def _texts(message: Any) -> dict[str, str]:
    """What is no UTF-8 cannot be had from the package: such a message has no properties."""
    try:
        return dict(message.properties())
    except UnicodeDecodeError:
        return {}


def _schema_version(message: Any) -> int | None:
    """The package gives it as text, whatever its eight bytes are."""
    try:
        version = message.schema_version().encode()
    except UnicodeDecodeError as error:
        version = error.object
    return int.from_bytes(version, "big") if len(version) == 8 else None


def check_library() -> None:
    """Raises ConfigError where the package is missing."""
    client_library(NEEDED_BY)


def _schema(library: ModuleType) -> Any:
    """Our schema, with which the caller has encoded what it sends."""
    kind = importlib.import_module("_pulsar").SchemaType.AVRO

    class Encoded(library.schema.Schema):  # type: ignore[misc, name-defined]
        def encode(self, obj: bytes) -> bytes:
            return obj

        def decode(self, data: bytes) -> bytes:
            return data

    return Encoded(bytes, kind, AVRO_SCHEMA, str(AVRO_SCHEMA["name"]))
