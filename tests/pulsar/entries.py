"""Entries as producers write them."""

from __future__ import annotations

import struct

import crc32c

from offloader._proto.pulsar_messages_pb2 import BrokerEntryMetadata, MessageMetadata


def entry(size: int, messages: int | None = None, *, index: int | None = None) -> bytes:
    """An entry with a payload of `size` bytes; `messages` None: not a batch; with `index` it has broker metadata."""
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    if messages is not None:
        metadata.num_messages_in_batch = messages
    encoded = metadata.SerializeToString()
    body = struct.pack(">I", len(encoded)) + encoded + bytes(size)
    data = b"\x0e\x01" + struct.pack(">I", crc32c.crc32c(body)) + body
    if index is None:
        return data
    broker = BrokerEntryMetadata(broker_timestamp=1, index=index).SerializeToString()
    return b"\x0e\x02" + struct.pack(">I", len(broker)) + broker + data
