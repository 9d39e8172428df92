"""How many messages an entry has, as the broker counts them for permits."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from offloader._proto.pulsar_wire_pb2 import MessageCount

MAGIC_BROKER_METADATA = b"\x0e\x02"
MAGIC_CHECKSUM = b"\x0e\x01"


def message_count(entry: bytes) -> int:
    """Messages in the entry's batch, 1 if it is none. Whether the entry is sound is not decided here."""
    at = 0
    if entry.startswith(MAGIC_BROKER_METADATA):
        at = 6 + int.from_bytes(entry[2:6])
    if entry.startswith(MAGIC_CHECKSUM, at):
        at += 6
    size = int.from_bytes(entry[at : at + 4])
    try:
        return max(1, MessageCount.FromString(entry[at + 4 : at + 4 + size]).num_messages_in_batch)
    except DecodeError:
        return 1
