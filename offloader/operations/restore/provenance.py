"""An entry as it is published, and what it says of where it came from: properties of its message metadata. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from struct import Struct

import crc32c

from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.archive.messages.envelope import Envelope, text
from offloader.errors import DamagedObjectError
from offloader.format.entry import MAGIC_CHECKSUM
from offloader.model import Position, TopicName

PREFIX = "offloader.source."
ROOT, TOPIC, POSITION, NUMBER = (PREFIX + name for name in ("root", "topic", "position", "number"))
REPLICATED_FROM = PREFIX + "replicated-from"
BEFORE = PREFIX + "before."
_NAMES = (ROOT, TOPIC, POSITION, NUMBER)
# One more `before.` each time: no two become one.
_SHORT = "|".join(name.removeprefix(PREFIX) for name in (*_NAMES, REPLICATED_FROM))
_OURS = re.compile(rf"{re.escape(PREFIX)}((?:before\.)*(?:{_SHORT}))")
_LENGTH = Struct(">I")
_CHECKSUM = Struct(">2sI")


@dataclass(frozen=True, slots=True)
class Origin:
    """An archived topic: the uuid of its archive's root, and its name."""

    root: str
    topic: TopicName

    def __str__(self) -> str:
        return f"{self.topic} of the archive {self.root}"


@dataclass(frozen=True, slots=True)
class Provenance:
    """An entry's position in its origin, and its number among those that were restored, from 1."""

    origin: Origin
    position: Position
    number: int


def put_provenance(metadata: MessageMetadata, provenance: Provenance) -> None:
    """Add the properties. Those that have these names already stay as `offloader.source.before.*`."""
    for each in metadata.properties:
        if found := _OURS.fullmatch(text(each.key)):
            each.key = BEFORE + found[1]
    position = provenance.position
    metadata.properties.add(key=ROOT, value=provenance.origin.root)
    metadata.properties.add(key=TOPIC, value=str(provenance.origin.topic))
    metadata.properties.add(key=POSITION, value=f"{position.incarnation}:{position.ledger}:{position.entry}")
    metadata.properties.add(key=NUMBER, value=str(provenance.number))


def added_bytes(origin: Origin) -> int:
    """About how many bytes the properties add to an entry."""
    metadata = MessageMetadata()
    put_provenance(metadata, Provenance(origin, Position(0, 100_000, 10_000), 100_000))
    return metadata.ByteSize()


def read_provenance(metadata: MessageMetadata) -> Provenance | None:
    """An entry's provenance, None where it has none. Raises DamagedObjectError where it makes no sense."""
    found = {p.key: text(p.value) for p in metadata.properties if p.key in _NAMES}
    if not found:
        return None
    try:
        incarnation, ledger, entry = map(int, found[POSITION].split(":"))
        origin = Origin(found[ROOT], TopicName.parse(found[TOPIC]))
        return Provenance(origin, Position(incarnation, ledger, entry), int(found[NUMBER]))
    except (KeyError, ValueError) as error:
        raise DamagedObjectError(f"properties {PREFIX}* that no restore has written: {found}") from error


class Skipped(StrEnum):
    """Why an archived entry is not published."""

    MARKER = "marker"  # of a transaction or a replicated subscription: only brokers write them
    ABORTED = "aborted"  # of a transaction that was aborted
    UNREADABLE = "unreadable"  # its metadata cannot be read: no broker would deliver it


@dataclass(frozen=True, slots=True)
class Outgoing:
    """An entry to be published. `messages` is what the broker counts."""

    provenance: Provenance
    data: bytes
    messages: int
    chunk: bool


def unchanged(version: bytes) -> bytes:
    """Entries name the schema versions that they named."""
    return version


def outgoing(
    envelope: Envelope, provenance: Provenance, schema_version: Callable[[bytes], bytes] = unchanged
) -> Outgoing:
    """The entry with its provenance and without its broker metadata. Uses the envelope up. `schema_version`: in the
    target, of an archived one. Raises what that raises.

    Producer name, sequence id and publish time stay: a broker stores what it is given. The transaction is over.
    `replicated_from` becomes a property: kept, it would hide the entry from replication of the target.
    """
    metadata = envelope.metadata
    put_provenance(metadata, provenance)
    metadata.ClearField("txnid_least_bits")
    metadata.ClearField("txnid_most_bits")
    if metadata.HasField("replicated_from"):
        metadata.properties.add(key=REPLICATED_FROM, value=metadata.replicated_from)
        metadata.ClearField("replicated_from")
    if metadata.schema_version:
        metadata.schema_version = schema_version(metadata.schema_version)
    serialized, payload = metadata.SerializePartialToString(), envelope.payload
    head = _LENGTH.pack(len(serialized)) + serialized
    checksum = crc32c.crc32c(payload, crc32c.crc32c(head))
    data = b"".join((_CHECKSUM.pack(MAGIC_CHECKSUM, checksum), head, payload))
    return Outgoing(provenance, data, metadata.num_messages_in_batch, envelope.is_chunk)
