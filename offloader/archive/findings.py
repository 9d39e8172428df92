"""What a check of the archive found."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from offloader.model import Position, TopicName


class FindingKind(StrEnum):
    """The name of a finding, and its `meaning`."""

    meaning: str

    def __new__(cls, name: str, meaning: str) -> Self:
        kind = str.__new__(cls, name)
        kind._value_, kind.meaning = name, meaning
        return kind

    MISSING_OBJECT = "missing-object", "the catalog names a data object that is not there"
    ARCHIVED_OBJECT = (
        "archived-object",
        "the store keeps an object in an archive tier and does not return its bytes: it cannot be checked or read",
    )
    MISSING_INDEX = "missing-index", "the catalog names a segment whose index object is not there"
    WRONG_SIZE = "wrong-size", "a data object is not as long as the catalog says"
    WRONG_METADATA = "wrong-metadata", "an object in S3 has no format version in its metadata: stock readers refuse it"
    DAMAGED_PART = "damaged-part", "a part's or bridged ledger's bytes do not have the recorded CRC32C"
    DAMAGED_ENTRY = (
        "damaged-entry",
        "an entry is no message or does not have its own checksum, and no record says that it was copied so",
    )
    DAMAGED_INDEX = "damaged-index", "an index object cannot be read, or is not of this segment"
    UNACCOUNTED_BYTES = "unaccounted-bytes", "bytes that the format and the index do not account for"
    WRONG_ENTRIES = "wrong-entries", "an object holds other entries than the catalog says"
    WRONG_STATISTICS = "wrong-statistics", "a part's messages, times or indexes are not those recorded"
    DAMAGED_RECORD = "damaged-record", "a record of a catalog or journal cannot be read, or contradicts itself"
    DAMAGED_MANIFEST = (
        "damaged-manifest",
        "a manifest does not say what its records say: readers may be slow or misled; `offloader catalog compact` "
        "writes it anew",
    )
    HOLE = "hole", "positions between two segments are in neither"
    OVERLAP = "overlap", "positions are in two segments"
    UNPROVEN_END = (
        "unproven-end",
        "a segment goes on in a later ledger, and nothing records that the one before had ended",
    )
    WRONG_PREDECESSOR = "wrong-predecessor", "a segment names another predecessor than the one before it"
    DUPLICATE_UUID = "duplicate-uuid", "several segments have the same uuid"
    NOT_CLAIMED = "not-claimed", "an application works on a topic that another one has claimed"
    STRAY_OBJECT = "stray-object", "neither a catalog nor a journal names the object"
    ABANDONED_OBJECT = "abandoned-object", "a journal names the object as one that must not be used"
    MISSING_RECORD = (
        "missing-record",
        "a record of a catalog has no copy beside the segments: a rebuild could not bring it back",
    )
    UNCOMMITTED_RECORD = (
        "uncommitted-record",
        "a record beside the segments is in no catalog: it was given up, or is being written",
    )
    MISSING_CLAIM = (
        "missing-claim",
        "a catalog says whose its topic is, and the list of claims does not: its application's next start lists it",
    )
    LEFT_OVER = (
        "left-over",
        "of an interrupted start or rebuild, of a generation of a catalog that is not in force, or of a claim that "
        "is not in force",
    )
    OPEN_UPLOAD = (
        "open-upload",
        "no journal names the upload: it costs, and never becomes an object; or it is another product's",
    )
    SECOND_COPY = (
        "second-copy",
        "two pairs of objects of Pulsar's own offloader hold the same ledger: only one of them is read",
    )
    MISSING_CONTEXT = (
        "missing-context",
        "a ledger is bridged, and Pulsar's record does not say so: brokers read it from BookKeeper while that has it",
    )
    OTHER_CONTEXT = "other-context", "Pulsar's record names another copy of a bridged ledger than its bridge log"
    STALE_BROKER = (
        "stale-broker",
        "the broker that has the topic loaded does not know what Pulsar's record says: unload the topic",
    )
    UNNAMED_COPY = "unnamed-copy", "the brokers' bucket has objects of a bridge that Pulsar's record does not name"
    NOT_BRIDGED = (
        "not-bridged",
        "brokers cannot read a ledger that is archived: it blocks the bridge, or the bridge has passed it",
    )


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it must be. `offset` is in bytes from the object's beginning."""

    kind: FindingKind
    key: str
    message: str
    topic: TopicName | None = None
    offset: int | None = None
    position: Position | None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.key}: {self.message}"


def offset_in(message: str) -> int | None:
    """The offset that a DamagedObjectError names."""
    found = re.search(r"\boffset (\d+)", message)
    return int(found.group(1)) if found else None
