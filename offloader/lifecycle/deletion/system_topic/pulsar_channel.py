"""The channel over Pulsar's own client (the package `pulsar-client`, an extra), which has Shared subscriptions,
redeliveries, delays and schemas."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import ModuleType
from typing import Any

from offloader.errors import (
    AuthenticationFailedError,
    AuthorizationFailedError,
    BrokerUnavailableError,
    ConfigError,
    FatalError,
    OutcomeUnknownError,
    TopicNotFoundError,
)
from offloader.lifecycle.deletion.system_topic.channel import ArrivedMessage, SystemTopicName
from offloader.lifecycle.deletion.system_topic.letters import PUT_BACK_MS, WORKER
from offloader.lifecycle.deletion.system_topic.messages import AVRO_SCHEMA
from offloader.pulsar.auth import Authentication, authentication
from offloader.pulsar.settings import PulsarSettings

QUEUED = 8  # messages that wait in this process, of each partition: each may have 5 MB
_REFUSED = {
    "AuthenticationError": AuthenticationFailedError,
    "AuthorizationError": AuthorizationFailedError,
    "IncompatibleSchema": FatalError,
    "TopicNotFound": TopicNotFoundError,
    "MessageTooBig": FatalError,
}


class PulsarChannel:
    """One client, with connections and threads of its own. Raises ConfigError where the package is missing."""

    def __init__(self, settings: PulsarSettings, *, put_back_ms: int = PUT_BACK_MS) -> None:
        self._library = _library()
        self._timeout_ms = int(settings.operation_timeout * 1000)
        self._put_back_ms = put_back_ms
        with self._errors("connecting"):
            self._client = self._library.Client(
                settings.service_url,
                authentication=_credentials(self._library, authentication(settings)),
                operation_timeout_seconds=max(int(settings.operation_timeout), 1),
                connection_timeout_ms=int(settings.connect_timeout * 1000),
                tls_trust_certs_file_path=settings.tls_trust_certs_file or None,
                tls_allow_insecure_connection=settings.tls_allow_insecure,
                tls_validate_hostname=settings.tls_verify_hostname and not settings.tls_allow_insecure,
                # What matters comes as an exception; a log of its own would go between the lines of ours.
                logger=self._library.FileLogger(self._library.LoggerLevel.Error, "/dev/null"),
            )

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
        return _errors(self._library, what)


class PulsarTopicProducer:
    """See `SystemTopicProducer`."""

    def __init__(self, library: ModuleType, producer: Any, topic: str) -> None:
        self._library = library
        self._producer = producer
        self._topic = topic

    def send(self, data: bytes, properties: Mapping[str, str], delay: int = 0) -> None:
        try:
            with _errors(self._library, f"sending to {self._topic}"):
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
            with _errors(self._library, "receiving"):
                # At least a millisecond: no time at all means to wait for ever.
                return _arrived(self._consumer.receive(max(int(seconds * 1000), 1)))
        except _NothingCameError:
            return None

    def acknowledge(self, message: ArrivedMessage) -> None:
        with _errors(self._library, "acknowledging"):
            self._consumer.acknowledge(message.handle)

    def put_back(self, message: ArrivedMessage) -> None:
        with _errors(self._library, "putting back"):
            self._consumer.negative_acknowledge(message.handle)

    def close(self) -> None:
        with suppress(self._library.PulsarException):
            self._consumer.close()


class _NothingCameError(BrokerUnavailableError):
    """A time-out, which is no failure of a receive."""


@contextmanager
def _errors(library: ModuleType, what: str) -> Iterator[None]:
    """The package's errors as ours."""
    try:
        yield
    except library.Timeout as error:
        raise _NothingCameError(f"{what}: no answer in time") from error
    except library.PulsarException as error:
        kind = _REFUSED.get(type(error).__name__, BrokerUnavailableError)
        raise kind(f"{what}: {type(error).__name__} {error}") from error


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
    _library()


def _library() -> ModuleType:
    try:
        return importlib.import_module("pulsar")
    except ImportError as error:
        raise ConfigError(
            "lifecycle.systemTopic: the package pulsar-client is not installed; "
            "pip install 'pulsar-streaming-offloader[systemtopic]'"
        ) from error


def _credentials(library: ModuleType, ours: Authentication) -> Any:
    """Asked at each connect: a token may change."""
    supplier: Callable[[], str] = lambda: ours.data().decode()  # noqa: E731
    return library.AuthenticationToken(supplier) if ours.method == "token" else None


def _schema(library: ModuleType) -> Any:
    """Our schema, with which the caller has encoded what it sends."""
    kind = importlib.import_module("_pulsar").SchemaType.AVRO

    class Encoded(library.schema.Schema):  # type: ignore[misc, name-defined]
        def encode(self, obj: bytes) -> bytes:
            return obj

        def decode(self, data: bytes) -> bytes:
            return data

    return Encoded(bytes, kind, AVRO_SCHEMA, str(AVRO_SCHEMA["name"]))
