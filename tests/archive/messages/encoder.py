"""Entries as Pulsar's producers write them, and the rows that a reader must get of them: written down without the
reader's code."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import crc32c
import pyarrow as pa

from offloader._proto.pulsar_messages_pb2 import (
    BrokerEntryMetadata,
    CompressionType,
    MessageIdData,
    MessageMetadata,
    SingleMessageMetadata,
)
from offloader.archive.items import EntryRun
from offloader.model import TopicName

TOPIC = TopicName.parse("persistent://public/default/orders-partition-3")
LEDGER = 77
Row = dict[str, Any]


@dataclass(frozen=True)
class Sent:
    """A message as the application gave it."""

    value: bytes | None = b""
    key: bytes | None = None
    key_is_bytes: bool = False
    properties: tuple[tuple[str, str], ...] = ()
    event_time: int = 0
    sequence_id: int = 0
    ordering_key: bytes | None = None
    compacted_out: bool = False

    def describe(self, metadata: MessageMetadata | SingleMessageMetadata) -> None:
        for name, value in self.properties:
            metadata.properties.add(key=name, value=value)
        if self.key is not None:
            metadata.partition_key = base64.b64encode(self.key).decode() if self.key_is_bytes else self.key.decode()
        if self.key is not None and self.key_is_bytes:
            metadata.partition_key_b64_encoded = True
        if self.event_time:
            metadata.event_time = self.event_time
        if self.ordering_key is not None:
            metadata.ordering_key = self.ordering_key
        if self.value is None:
            metadata.null_value = True

    def row(self) -> Row:
        return {
            "value": self.value,
            "__key": self.key,
            "__messageProperties": sorted(dict(self.properties).items()),
            "__eventTime": self.event_time * 1000 or None,
            "__sequenceId": self.sequence_id,
            "__orderingKey": self.ordering_key,
        }


@dataclass(frozen=True)
class Producer:
    """What is the same for all messages of an entry."""

    name: str = "p"
    publish_time: int = 1_700_000_000_000
    compression: int = CompressionType.NONE
    schema_version: bytes | None = None
    replicated_from: str | None = None

    def metadata(self, sequence_id: int) -> MessageMetadata:
        metadata = MessageMetadata(producer_name=self.name, sequence_id=sequence_id, publish_time=self.publish_time)
        if self.schema_version is not None:
            metadata.schema_version = self.schema_version
        if self.replicated_from is not None:
            metadata.replicated_from = self.replicated_from
        if self.compression:
            metadata.compression = self.compression
        return metadata

    def row(self) -> Row:
        return {
            "__topic": str(TOPIC),
            "__publishTime": self.publish_time * 1000,
            "__partition": 3,
            "__producerName": self.name,
            "__schemaVersion": self.schema_version,
            "__replicatedFrom": self.replicated_from,
            "__encryptionKeys": None,
            "__problem": None,
        }


@dataclass(frozen=True)
class Encoded:
    """An entry and its rows, of which position, id and broker index are filled in where it is laid down."""

    metadata: MessageMetadata
    payload: bytes
    rows: tuple[Row, ...] = ()
    messages: int = 1
    broker: tuple[int, int] | None = None
    checksum: bool = True
    first_chunk_back: int | None = None  # how many entries before this one the first chunk lies

    @property
    def data(self) -> bytes:
        encoded = self.metadata.SerializeToString()
        body = len(encoded).to_bytes(4, "big") + encoded + self.payload
        if self.checksum:
            body = b"\x0e\x01" + crc32c.crc32c(body).to_bytes(4, "big") + body
        if self.broker is None:
            return body
        broker = BrokerEntryMetadata(broker_timestamp=self.broker[0], index=self.broker[1]).SerializeToString()
        return b"\x0e\x02" + len(broker).to_bytes(4, "big") + broker + body

    def rows_at(self, entry: int) -> list[Row]:
        """The rows of this entry at its place in the ledger."""
        return [self._row_at(entry, row) for row in self.rows]

    def _row_at(self, entry: int, row: Row) -> Row:
        number = row["__batchIndex"]
        message_id = MessageIdData(ledger_id=LEDGER, entry_id=entry, partition=3)
        if number is not None:
            message_id.batch_index, message_id.batch_size = number, self.messages
        if self.first_chunk_back is not None:
            first = message_id.first_chunk_message_id
            first.ledger_id, first.entry_id, first.partition = LEDGER, entry - self.first_chunk_back, 3
        behind = 0 if number is None else self.messages - 1 - number
        return row | {
            "__messageId": message_id.SerializeToString(),
            "__ledgerId": LEDGER,
            "__entryId": entry,
            "__brokerPublishTime": None if self.broker is None else self.broker[0] * 1000,
            "__index": None if self.broker is None else self.broker[1] - behind,
        }


def single(producer: Producer, sent: Sent) -> Encoded:
    """An entry of one message that is not a batch."""
    metadata = producer.metadata(sent.sequence_id)
    sent.describe(metadata)
    payload = compressed(producer.compression, sent.value or b"")
    metadata.uncompressed_size = len(sent.value or b"")
    return Encoded(metadata, payload, (producer.row() | sent.row() | {"__batchIndex": None},))


def batch(producer: Producer, messages: Sequence[Sent], *, own_sequence_ids: bool = True) -> Encoded:
    """An entry of many messages."""
    metadata = producer.metadata(messages[0].sequence_id)
    metadata.num_messages_in_batch = len(messages)
    plain = b"".join(_in_batch(sent, own_sequence_ids) for sent in messages)
    metadata.uncompressed_size = len(plain)
    first = messages[0].sequence_id
    sent_as = [sent if own_sequence_ids else replace(sent, sequence_id=first) for sent in messages]
    rows = [producer.row() | s.row() | {"__batchIndex": n} for n, s in enumerate(sent_as) if not s.compacted_out]
    return Encoded(metadata, compressed(producer.compression, plain), tuple(rows), len(messages))


def chunked(producer: Producer, sent: Sent, count: int, uuid: str) -> list[Encoded]:
    """The entries of a message in `count` chunks, one after the other. Its row is the last one's."""
    whole = single(producer, sent)
    cuts = [len(whole.payload) * n // count for n in range(count + 1)]
    entries = []
    for number in range(count):
        metadata = MessageMetadata()
        metadata.CopyFrom(whole.metadata)
        metadata.uuid, metadata.chunk_id, metadata.num_chunks_from_msg = uuid, number, count
        metadata.total_chunk_msg_size = len(whole.payload)
        rows = whole.rows if number == count - 1 else ()
        entries.append(Encoded(metadata, whole.payload[cuts[number] : cuts[number + 1]], rows))
    return entries


def marker() -> Encoded:
    """A server-only marker: no message."""
    metadata = MessageMetadata(producer_name="", sequence_id=0, publish_time=1, marker_type=21)
    return Encoded(metadata, b"")


def compressed(codec: int, data: bytes) -> bytes:
    if codec == CompressionType.NONE:
        return data
    if codec == CompressionType.ZLIB:
        return zlib.compress(data)
    names: dict[int, str] = {
        CompressionType.LZ4: "lz4_raw",
        CompressionType.ZSTD: "zstd",
        CompressionType.SNAPPY: "snappy",
    }
    return pa.compress(data, codec=names[codec], asbytes=True)


def run_of(entries: Sequence[bytes], first: int = 0, *, gap: bytes = b"", ledger: int = LEDGER) -> EntryRun:
    """The entries in one buffer, with `gap` before each."""
    data, bounds = bytearray(), []
    for entry in entries:
        data += gap
        bounds += [len(data), len(data) + len(entry)]
        data += entry
    return EntryRun(ledger, first, 0, memoryview(bytes(data)), bounds, 1000)


def _in_batch(sent: Sent, own_sequence_id: bool) -> bytes:
    metadata = SingleMessageMetadata(payload_size=len(sent.value or b""))
    sent.describe(metadata)
    if own_sequence_id:
        metadata.sequence_id = sent.sequence_id
    if sent.compacted_out:
        metadata.compacted_out = True
    encoded = metadata.SerializeToString()
    return len(encoded).to_bytes(4, "big") + encoded + (sent.value or b"")
