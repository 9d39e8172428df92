"""A look at an entry for people: what its metadata say, and its payload where that needs no decoding."""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import DecodeError

from offloader._proto.pulsar_messages_pb2 import CompressionType, MessageMetadata
from offloader.format.entry import MAGIC_BROKER_METADATA, MAGIC_CHECKSUM


@dataclass(frozen=True, slots=True)
class Look:
    """`payload` is None where `undecoded` says what stands in the way. Times are in ms."""

    messages: int = 0
    publish_time: int | None = None
    payload: bytes | None = None
    undecoded: str = ""


def look(data: bytes) -> Look:
    """What can be seen of an entry."""
    begin = _metadata_at(data)
    end = begin + 4 + int.from_bytes(data[begin : begin + 4])
    try:
        metadata = MessageMetadata.FromString(data[begin + 4 : end])
    except DecodeError:
        return Look(undecoded="not a message")
    if end > len(data) or not metadata.HasField("publish_time"):
        return Look(undecoded="not a message")
    obstacle = _obstacle(metadata)
    messages = 0 if metadata.HasField("marker_type") else metadata.num_messages_in_batch
    return Look(messages, metadata.publish_time, None if obstacle else data[end:], obstacle)


def _metadata_at(data: bytes) -> int:
    at = 6 + int.from_bytes(data[2:6]) if data.startswith(MAGIC_BROKER_METADATA) else 0
    return at + 6 if data.startswith(MAGIC_CHECKSUM, at) else at


def _obstacle(metadata: MessageMetadata) -> str:
    """Why the payload cannot be shown as it is."""
    found = []
    if metadata.HasField("marker_type"):
        found.append("a marker")
    if metadata.encryption_keys:
        found.append("encrypted")
    if metadata.compression != CompressionType.NONE:
        found.append(CompressionType.Name(metadata.compression))
    if metadata.HasField("num_messages_in_batch"):
        found.append("a batch")
    if metadata.num_chunks_from_msg > 1:
        found.append(f"chunk {metadata.chunk_id + 1} of {metadata.num_chunks_from_msg}")
    return ", ".join(found)
