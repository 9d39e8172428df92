"""Messages that were unpacked one by one as Arrow columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from offloader._proto.pulsar_messages_pb2 import MessageIdData
from offloader.archive.messages.message import Encryption, Message
from offloader.archive.messages.schema import MESSAGE_SCHEMA, microseconds
from offloader.model import Position, TopicName


def message_column(name: str, messages: Sequence[Message], topic: TopicName) -> pa.Array:
    """A column of MESSAGE_SCHEMA."""
    made = _VALUES[name]
    return pa.array([made(message, topic) for message in messages], MESSAGE_SCHEMA.field(name).type)


def message_row(message: Message, topic: TopicName) -> dict[str, Any]:
    """A message as a row of MESSAGE_SCHEMA."""
    return {name: made(message, topic) for name, made in _VALUES.items()}


def id_bytes(
    position: Position, partition: int, batch_index: int = -1, batch_size: int = 0, first_chunk: Position | None = None
) -> bytes:
    """A message id as clients write it to bytes."""
    data = MessageIdData(ledger_id=position.ledger, entry_id=position.entry)
    if partition >= 0:
        data.partition = partition
    if batch_index >= 0:
        data.batch_index, data.batch_size = batch_index, batch_size
    if first_chunk is not None:
        data.first_chunk_message_id.ParseFromString(id_bytes(first_chunk, partition))
    return data.SerializeToString()


def encryption_value(encryption: Encryption | None) -> list[dict[str, Any]] | None:
    """The value of `__encryptionKeys`."""
    if encryption is None:
        return None
    return [
        {"name": key.name, "algorithm": encryption.algorithm or None, "metadata": list(key.metadata)} for key in encryption.keys
    ]


def _message_id(message: Message, topic: TopicName) -> bytes:
    return id_bytes(message.position, topic.partition, message.batch_index, message.batch_size, message.first_chunk)


_VALUES: dict[str, Callable[[Message, TopicName], Any]] = {
    "value": lambda m, _: m.value,
    "__key": lambda m, _: m.key,
    "__topic": lambda _, topic: str(topic),
    "__messageId": _message_id,
    "__publishTime": lambda m, _: microseconds(m.publish_time),
    "__eventTime": lambda m, _: microseconds(m.event_time),
    "__messageProperties": lambda m, _: list(m.properties.items()),
    "__ledgerId": lambda m, _: m.position.ledger,
    "__entryId": lambda m, _: m.position.entry,
    "__batchIndex": lambda m, _: None if m.batch_index < 0 else m.batch_index,
    "__partition": lambda _, topic: topic.partition,
    "__producerName": lambda m, _: m.producer_name,
    "__sequenceId": lambda m, _: m.sequence_id,
    "__orderingKey": lambda m, _: m.ordering_key,
    "__schemaVersion": lambda m, _: m.schema_version,
    "__replicatedFrom": lambda m, _: m.replicated_from,
    "__brokerPublishTime": lambda m, _: microseconds(m.broker_time),
    "__index": lambda m, _: m.broker_index,
    "__encryptionKeys": lambda m, _: encryption_value(m.encryption),
    "__problem": lambda m, _: m.problem,
}
