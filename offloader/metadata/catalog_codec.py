"""The catalog's records, to and from bytes."""

from __future__ import annotations

import struct
from typing import NamedTuple

from crc32c import crc32c

from offloader._proto import metadata_pb2 as pb
from offloader.errors import DamagedRecordError
from offloader.metadata.deletions import (
    Deleted,
    Deleting,
    DeletionBegun,
    DeletionRecord,
    DeletionUndone,
    PulsarTrimmed,
    Tombstone,
    TopicGone,
)
from offloader.metadata.envelope import DELETIONS_VERSION, FORMAT_VERSION, unwrap
from offloader.metadata.layout import slot_key
from offloader.metadata.message_codec import message_of, read_value
from offloader.metadata.record_codec import encode_kind, read_kind
from offloader.metadata.state import (
    CatalogHead,
    Claim,
    GenerationBegun,
    GenerationEnded,
    LedgerClosed,
    Record,
    Said,
    record_uuid,
)
from offloader.metadata.value_codec import damage_of, position_message, read_position
from offloader.model import Ending, Loss, Segment, TopicName

HEAD_MAGIC = b"PSOH"
STANDING = struct.Struct(">4sII")

KINDS: dict[str, type[Record]] = {
    "tombstone": Tombstone,  # which is a segment, too
    "claim": Claim,
    "segment": Segment,
    "loss": Loss,
    "ledger_closed": LedgerClosed,
    "generation_begun": GenerationBegun,
    "generation_ended": GenerationEnded,
    "deleting": Deleting,
    "deletion_undone": DeletionUndone,
    "deletion_begun": DeletionBegun,
    "deleted": Deleted,
    "topic_gone": TopicGone,
    "pulsar_trimmed": PulsarTrimmed,
}
"""By the field of the body that has it."""

TOPIC = "topic"
"""The property of a segment's driver that says whose it is."""


class LogRecord(NamedTuple):
    """A record of a catalog's log, its token, and what the records before it add up to."""

    before: CatalogHead
    record: Record
    token: str


def standing(before: CatalogHead, data: bytes) -> bytes:
    """A record's bytes, as they stand behind a head in the log."""
    last = {} if before.last is None else {"last_uuid": before.last.uuid, "last_end": position_message(before.last.end)}
    head: bytes = message_of(before, **last).SerializeToString(deterministic=True)
    return STANDING.pack(HEAD_MAGIC, crc32c(head), len(head)) + head + data


def opening(topic: TopicName, generation: int) -> bytes:
    """The first record of a generation that a rebuild has made, as it stands in the log."""
    return standing(
        CatalogHead(topic, generation=generation), encode_catalog(f"generation {generation}", GenerationBegun())
    )


def plain(data: bytes) -> bytes:
    """A record's bytes as they stand beside the segments, wherever these are from."""
    if data[:4] != HEAD_MAGIC or len(data) < STANDING.size:
        return data
    return data[STANDING.size + STANDING.unpack_from(data)[2] :]


def decode_slot(topic: TopicName, generation: int, slot: int, key: str, data: bytes) -> LogRecord:
    """The record that `key` holds, which is the one of this place. Raises as `decode_catalog`."""
    try:
        magic, checksum, length = STANDING.unpack_from(data)
        said = data[STANDING.size : STANDING.size + length]
    except struct.error as error:
        raise DamagedRecordError(f"{key}: {len(data)} bytes that are no record of a log") from error
    if magic != HEAD_MAGIC or crc32c(said) != checksum:
        raise DamagedRecordError(f"{key}: {len(data)} bytes that are no record of a log or do not match their checksum")
    with damage_of(key):
        before = _read_head(pb.Head.FromString(said))
    if (before.topic, before.generation, before.next_slot) != (topic, generation, slot):
        raise DamagedRecordError(
            f"{key}: it is a copy of {slot_key(before.topic, before.generation, before.next_slot)}"
        )
    token, record = decode_of(topic, key, data)
    return LogRecord(before, record, token)


def encode_catalog(token: str, record: Record, *, behind_deletions: bool = False) -> bytes:
    """A record's bytes: the same for the same arguments. `behind_deletions`: something was to be deleted before it."""
    newer = behind_deletions or isinstance(record, DeletionRecord | Tombstone)
    return encode_kind(KINDS, token, record, DELETIONS_VERSION if newer else FORMAT_VERSION)


def decode_of(topic: TopicName, key: str, data: bytes) -> tuple[str, Record]:
    """The record that `key` holds and its token, a uuid that shows whose it is. Raises as `decode_catalog`."""
    opened = unwrap(key, plain(data))
    record = read_kind(KINDS, key, opened, "into a catalog")
    elsewhere = isinstance(record, Segment) and dict(record.driver_properties).get(TOPIC, str(topic)) != str(topic)
    if elsewhere or (isinstance(record, Said) and opened.token != record_uuid(topic, record)):
        raise DamagedRecordError(f"{key}: a {type(record).__name__} of another topic or place")
    return opened.token, record


def decode_catalog(key: str, data: bytes) -> Record:
    """The record that `key` holds. Raises DamagedRecordError, FormatVersionError."""
    return read_kind(KINDS, key, unwrap(key, plain(data)), "into a catalog")


def _read_head(m: pb.Head) -> CatalogHead:
    last = Ending(m.last_uuid, read_position(m.last_end)) if m.HasField("last_end") else None
    return read_value(CatalogHead, m, last=last)
