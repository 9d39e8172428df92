"""The columns that messages and entries have in Arrow and in Spark."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from offloader.archive.messages.message import MessageProblem

TIME = pa.timestamp("us", tz="UTC")
PROPERTIES = pa.map_(pa.string(), pa.string())
ENCRYPTION_KEYS = pa.list_(
    pa.struct([pa.field("name", pa.string()), pa.field("algorithm", pa.string()), pa.field("metadata", PROPERTIES)])
)


class Column(NamedTuple):
    """A column. Times are producers' clocks unless `doc` says otherwise; a time that the type cannot hold is null."""

    name: str
    type: pa.DataType
    doc: str


_PROBLEMS = ", ".join(MessageProblem)

# Names and types of the first seven are those of pulsar-spark.
MESSAGE_COLUMNS = (
    Column("value", pa.binary(), "the payload, unpacked; null for a null value, and where `__problem` says why"),
    Column("__key", pa.binary(), "the key's bytes (a key that was sent as bytes is decoded from base64)"),
    Column("__topic", pa.string(), "the topic's full name, the partition's where it is one"),
    Column("__messageId", pa.binary(), "the message id as clients write it to bytes (MessageIdData)"),
    Column("__publishTime", TIME, "when the producer sent it"),
    Column("__eventTime", TIME, "the time that the application gave; null: none"),
    Column("__messageProperties", PROPERTIES, "the properties"),
    Column("__ledgerId", pa.int64(), "the entry's ledger"),
    Column("__entryId", pa.int64(), "the entry; of a chunked message its last chunk's"),
    Column("__batchIndex", pa.int32(), "the place in the batch; null: not in a batch"),
    Column("__partition", pa.int32(), "the partition's number; -1: the topic is no partition"),
    Column("__producerName", pa.string(), "the producer's name"),
    Column("__sequenceId", pa.int64(), "the producer's sequence id"),
    Column("__orderingKey", pa.binary(), "the ordering key"),
    Column("__schemaVersion", pa.binary(), "the version of the schema in Pulsar's schema registry"),
    Column("__replicatedFrom", pa.string(), "the cluster that it was replicated from"),
    Column("__brokerPublishTime", TIME, "when the broker took it, by its clock; null without broker entry metadata"),
    Column("__index", pa.int64(), "the broker's count of messages in the topic; null without broker entry metadata"),
    Column("__encryptionKeys", ENCRYPTION_KEYS, "the keys of an encrypted message, also of a decrypted one"),
    Column("__problem", pa.string(), f"why `value` is not there: {_PROBLEMS}"),
)

ENTRY_COLUMNS = (
    Column("topic", pa.string(), "the topic's full name, the partition's where it is one"),
    Column("ledgerId", pa.int64(), "the ledger"),
    Column("entryId", pa.int64(), "the entry"),
    Column("publishTime", TIME, "when the producer sent it; null where the entry is no message"),
    Column("data", pa.binary(), "the entry, byte for byte as BookKeeper stored it"),
)


def _schema(columns: tuple[Column, ...]) -> pa.Schema:
    return pa.schema([pa.field(column.name, column.type) for column in columns])


MESSAGE_SCHEMA = _schema(MESSAGE_COLUMNS)
ENTRY_SCHEMA = _schema(ENTRY_COLUMNS)

LAST_MS = (2**63 - 1) // 1000


def microseconds(time: int | None) -> int | None:
    """A time in ms as TIME holds it; None where it cannot."""
    return time * 1000 if time is not None and 0 <= time <= LAST_MS else None
