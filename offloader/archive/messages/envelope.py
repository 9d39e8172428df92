"""An entry's envelope: broker metadata, message metadata, where the payload begins; and how its fields are read.

    [0e 02][u32 length][BrokerEntryMetadata]                        optional
    [0e 01][u32 crc32c]                                             optional
    [u32 length][MessageMetadata][payload]

Whoever reads an object has checked the CRC32C.
"""

from __future__ import annotations

import binascii
from typing import NamedTuple, TypeVar

from google.protobuf.message import DecodeError

from offloader._proto.pulsar_messages_pb2 import BrokerEntryMetadata, MessageMetadata
from offloader.errors import DamagedObjectError
from offloader.format.entry import MAGIC_BROKER_METADATA, MAGIC_CHECKSUM

_CHECKSUM_SIZE = 6
_Metadata = TypeVar("_Metadata", BrokerEntryMetadata, MessageMetadata)


class Envelope(NamedTuple):
    """What stands in front of a payload. `broker_time` is in ms; `broker_index` is that of the entry's last message."""

    metadata: MessageMetadata
    payload: bytes
    broker_time: int | None
    broker_index: int | None

    @property
    def is_marker(self) -> bool:
        """Whether it is a server-only marker, which no consumer sees."""
        return self.metadata.HasField("marker_type")

    @property
    def is_batch(self) -> bool:
        return self.metadata.HasField("num_messages_in_batch") and not self.is_chunk

    @property
    def is_chunk(self) -> bool:
        return self.metadata.num_chunks_from_msg > 1


def parse_envelope(entry: bytes | memoryview) -> Envelope:
    """Raises DamagedObjectError where the entry is no message."""
    data = bytes(entry)
    at = 0
    broker_time = broker_index = None
    if data.startswith(MAGIC_BROKER_METADATA):
        at = _end(data, 2, "broker metadata")
        broker_time, broker_index = _broker_facts(data[6:at])
    if data.startswith(MAGIC_CHECKSUM, at):
        at += _CHECKSUM_SIZE
    end = _end(data, at, "message metadata")
    metadata = _parsed(MessageMetadata, data[at + 4 : end], "message metadata")
    if not metadata.HasField("publish_time"):
        raise DamagedObjectError("the entry is no message: its metadata have no publish time")
    return Envelope(metadata, data[end:], broker_time, broker_index)


def signed(value: int) -> int:
    """An unsigned 64-bit number as Java reads it."""
    return value - (1 << 64) if value >= 1 << 63 else value


def text(value: str | bytes) -> str:
    """A protobuf string: the library gives bytes where they are not UTF-8; those are replaced by U+FFFD."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def raw(value: str | bytes) -> bytes:
    """A protobuf string's bytes, as they stood in the entry."""
    return value if isinstance(value, bytes) else value.encode()


def unbase64(key: bytes) -> bytes:
    """A key that a client put into base64 because it is not text; as it stands where it is none."""
    try:
        return binascii.a2b_base64(key, strict_mode=True)
    except binascii.Error:
        return key


def _broker_facts(encoded: bytes) -> tuple[int | None, int | None]:
    broker = _parsed(BrokerEntryMetadata, encoded, "broker metadata")
    time = signed(broker.broker_timestamp) if broker.HasField("broker_timestamp") else None
    return time, signed(broker.index) if broker.HasField("index") else None


def _end(data: bytes, at: int, what: str) -> int:
    """Where the bytes end whose length stands at `at`."""
    begin = at + 4
    end = begin + int.from_bytes(data[at:begin])
    if begin > len(data) or end > len(data):
        raise DamagedObjectError(f"the entry of {len(data)} bytes ends inside its {what}")
    return end


def _parsed(kind: type[_Metadata], encoded: bytes, what: str) -> _Metadata:
    try:
        return kind.FromString(encoded)
    except DecodeError as error:
        raise DamagedObjectError(f"the entry's {what} cannot be parsed") from error
