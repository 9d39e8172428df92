"""What a check of the archive found."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from offloader.model import Position, TopicName


class FindingKind(StrEnum):
    """The name of a finding; `MEANINGS` says what each means."""

    MISSING_OBJECT = "missing-object"
    MISSING_INDEX = "missing-index"
    WRONG_SIZE = "wrong-size"
    WRONG_METADATA = "wrong-metadata"
    DAMAGED_PART = "damaged-part"
    DAMAGED_ENTRY = "damaged-entry"
    DAMAGED_INDEX = "damaged-index"
    UNACCOUNTED_BYTES = "unaccounted-bytes"
    WRONG_ENTRIES = "wrong-entries"
    WRONG_STATISTICS = "wrong-statistics"
    DAMAGED_RECORD = "damaged-record"
    DAMAGED_MANIFEST = "damaged-manifest"
    HOLE = "hole"
    OVERLAP = "overlap"
    UNPROVEN_END = "unproven-end"
    WRONG_PREDECESSOR = "wrong-predecessor"
    DUPLICATE_UUID = "duplicate-uuid"
    NOT_CLAIMED = "not-claimed"
    STRAY_OBJECT = "stray-object"
    ABANDONED_OBJECT = "abandoned-object"
    MISSING_RECORD = "missing-record"
    UNCOMMITTED_RECORD = "uncommitted-record"
    MISSING_CLAIM = "missing-claim"
    LEFT_OVER = "left-over"
    OPEN_UPLOAD = "open-upload"
    SECOND_COPY = "second-copy"


MEANINGS: Mapping[FindingKind, str] = {
    FindingKind.MISSING_OBJECT: "the catalog names a data object that is not there",
    FindingKind.MISSING_INDEX: "the catalog names a segment whose index object is not there",
    FindingKind.WRONG_SIZE: "a data object is not as long as the catalog says",
    FindingKind.WRONG_METADATA: "an object in S3 has no format version in its metadata: stock readers refuse it",
    FindingKind.DAMAGED_PART: "a part's bytes do not have the recorded CRC32C",
    FindingKind.DAMAGED_ENTRY: (
        "an entry is no message or does not have its own checksum, and no record says that it was copied so"
    ),
    FindingKind.DAMAGED_INDEX: "an index object cannot be read, or is not of this segment",
    FindingKind.UNACCOUNTED_BYTES: "bytes that the format and the index do not account for",
    FindingKind.WRONG_ENTRIES: "an object holds other entries than the catalog says",
    FindingKind.WRONG_STATISTICS: "a part's messages, times or indexes are not those recorded",
    FindingKind.DAMAGED_RECORD: "a record of a catalog or journal cannot be read, or contradicts itself",
    FindingKind.DAMAGED_MANIFEST: (
        "a manifest does not say what its records say: readers may be slow or misled; `offloader catalog compact` "
        "writes it anew"
    ),
    FindingKind.HOLE: "positions between two segments are in neither",
    FindingKind.OVERLAP: "positions are in two segments",
    FindingKind.UNPROVEN_END: "a segment goes on in a later ledger, and nothing records that the one before had ended",
    FindingKind.WRONG_PREDECESSOR: "a segment names another predecessor than the one before it",
    FindingKind.DUPLICATE_UUID: "several segments have the same uuid",
    FindingKind.NOT_CLAIMED: "an application works on a topic that another one has claimed",
    FindingKind.STRAY_OBJECT: "neither a catalog nor a journal names the object",
    FindingKind.ABANDONED_OBJECT: "a journal names the object as one that must not be used",
    FindingKind.MISSING_RECORD: (
        "a record of a catalog has no copy beside the segments: a rebuild could not bring it back"
    ),
    FindingKind.UNCOMMITTED_RECORD: (
        "a record beside the segments is in no catalog: it was given up, or is being written"
    ),
    FindingKind.MISSING_CLAIM: (
        "a catalog says whose its topic is, and the list of claims does not: its application's next start lists it"
    ),
    FindingKind.LEFT_OVER: (
        "of an interrupted start or rebuild, of a generation of a catalog and it can be deleted; or of a claim that "
        "is not in force"
    ),
    FindingKind.OPEN_UPLOAD: (
        "no journal names the upload: it costs, and never becomes an object; or it is another product's"
    ),
    FindingKind.SECOND_COPY: (
        "two pairs of objects of Pulsar's own offloader hold the same ledger: only one of them is read"
    ),
}


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
