"""The columns of messages and entries in Arrow and Spark: types, meanings, and how each decoder gets them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pyarrow as pa

from offloader._proto.pulsar_messages_pb2 import MessageIdData
from offloader.archive.messages import row_columns as rows
from offloader.archive.messages.arrays import (
    ENCRYPTION_KEYS,
    PROPERTIES,
    TIME,
    binary_array,
    encryption_value,
    microseconds,
    number_array,
    time_array,
)
from offloader.archive.messages.entries import Entries, Needs
from offloader.archive.messages.filters import MessageFilter
from offloader.archive.messages.message import Message, MessageProblem
from offloader.archive.messages.row_columns import RowView
from offloader.format.scan import Int64s, Mask
from offloader.model import Position, TopicName

PUBLISHED = "publishTime"  # of entries


class MessageColumn(NamedTuple):
    """A column of messages: a new one is added here, and nowhere else. Times are producers' clocks unless `doc` says
    otherwise.

    `of_message` is its value of a message that was unpacked by itself, `of_rows` the array of many rows (one element a
    row). What only `of_rows` needs: `fields` of the metadata, and with `opens` the payload of what is no batch.
    """

    name: str
    type: pa.DataType
    doc: str
    of_message: Callable[[Message, TopicName], Any]
    of_rows: Callable[[RowView], pa.Array]
    fields: tuple[str, ...] = ()
    opens: bool = False


class EntryTimes(NamedTuple):
    """Publish times in ms, and which entries say one: one element an entry."""

    ms: Int64s
    known: Mask


class EntryColumn(NamedTuple):
    """A column of entries. `of_entries`: the array of many (one element an entry); what is no time gets no times."""

    name: str
    type: pa.DataType
    doc: str
    of_entries: Callable[[Entries, TopicName, EntryTimes], pa.Array]


# `properties` too: they are the only fields that may be damaged inside, and damage must not depend on the columns.
_ALWAYS = (
    "publish_time", "compression", "uncompressed_size", "num_messages_in_batch", "encryption_keys", "marker_type",
    "num_chunks_from_msg", "properties",
)  # fmt: skip
_PROBLEMS = ", ".join(MessageProblem)


def _id_bytes(
    position: Position, partition: int, batch_index: int = -1, batch_size: int = 0, first_chunk: Position | None = None
) -> bytes:
    data = MessageIdData(ledger_id=position.ledger, entry_id=position.entry)
    if partition >= 0:
        data.partition = partition
    if batch_index >= 0:
        data.batch_index, data.batch_size = batch_index, batch_size
    if first_chunk is not None:
        data.first_chunk_message_id.ParseFromString(_id_bytes(first_chunk, partition))
    return data.SerializeToString()


# Names and types of the first seven are those of pulsar-spark.
MESSAGE_COLUMNS = (
    MessageColumn(
        "value", pa.binary(), "the payload, unpacked; null for a null value, and where `__problem` says why",
        lambda m, _: m.value, rows.value, ("null_value",), opens=True,
    ),
    MessageColumn(
        "__key", pa.binary(), "the key's bytes (a key that was sent as bytes is decoded from base64)",
        lambda m, _: m.key, rows.key, ("partition_key", "partition_key_b64_encoded", "null_partition_key"),
    ),
    MessageColumn(
        "__topic", pa.string(), "the topic's full name, the partition's where it is one",
        lambda _, topic: str(topic), lambda v: pa.repeat(pa.scalar(str(v.sources.topic)), len(v)),
    ),
    MessageColumn(
        "__messageId", pa.binary(), "the message id as clients write it to bytes (MessageIdData)",
        lambda m, topic: _id_bytes(m.position, topic.partition, m.batch_index, m.batch_size, m.first_chunk),
        rows.message_id,
    ),
    MessageColumn(
        "__publishTime", TIME, "when the producer sent it",
        lambda m, _: microseconds(m.publish_time), lambda v: time_array(v.entry_number("publish_time")),
    ),
    MessageColumn(
        "__eventTime", TIME, "the time that the application gave; null: none",
        lambda m, _: microseconds(m.event_time), rows.event_time, ("event_time",),
    ),
    MessageColumn(
        "__messageProperties", PROPERTIES, "the properties",
        lambda m, _: list(m.properties.items()), rows.properties,
    ),
    MessageColumn(
        "__ledgerId", pa.int64(), "the entry's ledger",
        lambda m, _: m.position.ledger, lambda v: pa.array(v.sources.entries.ledger[v.entry]),
    ),
    MessageColumn(
        "__entryId", pa.int64(), "the entry; of a chunked message its last chunk's",
        lambda m, _: m.position.entry, lambda v: pa.array(v.sources.entries.entry[v.entry]),
    ),
    MessageColumn(
        "__batchIndex", pa.int32(), "the place in the batch; null: not in a batch",
        lambda m, _: None if m.batch_index < 0 else m.batch_index,
        lambda v: number_array(v.batch_index, pa.int32(), v.in_batch),
    ),
    MessageColumn(
        "__partition", pa.int32(), "the partition's number; -1: the topic is no partition",
        lambda _, topic: topic.partition, lambda v: pa.repeat(pa.scalar(v.sources.topic.partition, pa.int32()), len(v)),
    ),
    MessageColumn(
        "__producerName", pa.string(), "the producer's name",
        lambda m, _: m.producer_name, rows.text_of("producer_name"), ("producer_name",),
    ),
    MessageColumn(
        "__sequenceId", pa.int64(), "the producer's sequence id",
        lambda m, _: m.sequence_id, lambda v: pa.array(v.own_or_entry_number("sequence_id")), ("sequence_id",),
    ),
    MessageColumn(
        "__orderingKey", pa.binary(), "the ordering key",
        lambda m, _: m.ordering_key, lambda v: v.own_bytes("ordering_key"), ("ordering_key",),
    ),
    MessageColumn(
        "__schemaVersion", pa.binary(), "the version of the schema in Pulsar's schema registry",
        lambda m, _: m.schema_version, lambda v: v.entry_bytes("schema_version"), ("schema_version",),
    ),
    MessageColumn(
        "__replicatedFrom", pa.string(), "the cluster that it was replicated from",
        lambda m, _: m.replicated_from, rows.text_of("replicated_from"), ("replicated_from",),
    ),
    MessageColumn(
        "__brokerPublishTime", TIME, "when the broker took it, by its clock; null without broker entry metadata",
        lambda m, _: microseconds(m.broker_time), rows.broker_time, ("broker_timestamp",),
    ),
    MessageColumn(
        "__index", pa.int64(), "the broker's count of messages in the topic; null without broker entry metadata",
        lambda m, _: m.broker_index, rows.broker_index, ("index",),
    ),
    MessageColumn(
        "__encryptionKeys", ENCRYPTION_KEYS, "the keys of an encrypted message, also of a decrypted one",
        lambda m, _: encryption_value(m.encryption), rows.encryption_keys,
    ),
    MessageColumn(
        "__problem", pa.string(), f"why `value` is not there: {_PROBLEMS}",
        lambda m, _: m.problem, rows.problem, opens=True,
    ),
)  # fmt: skip

ENTRY_COLUMNS = (
    EntryColumn(
        "topic", pa.string(), "the topic's full name, the partition's where it is one",
        lambda entries, topic, _: pa.repeat(pa.scalar(str(topic)), len(entries)),
    ),
    EntryColumn("ledgerId", pa.int64(), "the ledger", lambda entries, *_: pa.array(entries.ledger)),
    EntryColumn("entryId", pa.int64(), "the entry", lambda entries, *_: pa.array(entries.entry)),
    EntryColumn(
        PUBLISHED, TIME, "when the producer sent it; null where the entry is no message",
        lambda _, __, times: time_array(*times),
    ),
    EntryColumn(
        "data", pa.binary(), "the entry, byte for byte as BookKeeper stored it",
        lambda entries, *_: binary_array(entries.data, entries.ranges),
    ),
)  # fmt: skip

MESSAGE_SCHEMA = pa.schema([(column.name, column.type) for column in MESSAGE_COLUMNS])
ENTRY_SCHEMA = pa.schema([(column.name, column.type) for column in ENTRY_COLUMNS])

MESSAGE_COLUMN_OF = {column.name: column for column in MESSAGE_COLUMNS}
ENTRY_COLUMN_OF = {column.name: column for column in ENTRY_COLUMNS}


def needs_of(columns: Iterable[str], wanted: MessageFilter) -> Needs:
    """What these columns of messages and this filter need to be read of entries: what is not needed costs nothing."""
    names = {*columns} | ({"__key"} if wanted.keys is not None else set())
    read = [MESSAGE_COLUMN_OF[name] for name in names]
    fields = {field for column in read for field in column.fields}
    return Needs(frozenset({*_ALWAYS, *fields}), payloads=any(column.opens for column in read))
