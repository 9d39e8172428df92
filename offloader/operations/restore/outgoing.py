"""An archived entry as it is published again: its metadata names its provenance, its payload is untouched. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from struct import Struct

import crc32c

from offloader.archive.messages.envelope import Envelope
from offloader.format.entry import MAGIC_CHECKSUM
from offloader.operations.restore.provenance import REPLICATED_FROM, Provenance, put_provenance

_LENGTH = Struct(">I")
_CHECKSUM = Struct(">2sI")


class Skipped(StrEnum):
    """Why an archived entry is not published."""

    MARKER = "marker"  # of a transaction or a replicated subscription: only brokers write them
    ABORTED = "aborted"  # of a transaction that was aborted
    UNREADABLE = "unreadable"  # its metadata cannot be read: no broker would deliver it


@dataclass(frozen=True, slots=True)
class Outgoing:
    """An entry to be published. `messages` is what the broker counts; `schema_version` is empty where there is none."""

    provenance: Provenance
    data: bytes
    messages: int
    chunk: bool
    schema_version: bytes


def outgoing(envelope: Envelope, provenance: Provenance) -> Outgoing:
    """The entry with its provenance and without its broker metadata. Uses the envelope up.

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
    serialized, payload = metadata.SerializePartialToString(), envelope.payload
    head = _LENGTH.pack(len(serialized)) + serialized
    checksum = crc32c.crc32c(payload, crc32c.crc32c(head))
    data = b"".join((_CHECKSUM.pack(MAGIC_CHECKSUM, checksum), head, payload))
    return Outgoing(provenance, data, metadata.num_messages_in_batch, envelope.is_chunk, metadata.schema_version)
