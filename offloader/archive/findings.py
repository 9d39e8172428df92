"""What a check of the archive found."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from offloader.model import Position, TopicName


class Kind(StrEnum):
    """The name of a finding."""

    MISSING_OBJECT = "missing-object"  # the catalog names a data object that is not there
    MISSING_INDEX = "missing-index"
    WRONG_SIZE = "wrong-size"
    WRONG_METADATA = "wrong-metadata"  # the format's version key is absent: stock readers refuse the object
    DAMAGED_PART = "damaged-part"  # a part's bytes do not have the recorded CRC32C
    DAMAGED_ENTRY = "damaged-entry"  # an entry's own checksum does not match
    DAMAGED_INDEX = "damaged-index"
    UNACCOUNTED_BYTES = "unaccounted-bytes"  # bytes that the format and the index do not account for
    WRONG_ENTRIES = "wrong-entries"  # other entries than the record says
    WRONG_STATISTICS = "wrong-statistics"
    DAMAGED_RECORD = "damaged-record"  # a catalog or journal record that cannot be read or contradicts itself
    HOLE = "hole"
    OVERLAP = "overlap"
    UNPROVEN_END = "unproven-end"
    WRONG_PREDECESSOR = "wrong-predecessor"
    DUPLICATE_UUID = "duplicate-uuid"
    NOT_CLAIMED = "not-claimed"  # an application's journal holds a topic that another one has claimed
    STRAY_OBJECT = "stray-object"  # neither a catalog nor a journal names it
    ABANDONED_OBJECT = "abandoned-object"  # a journal names it as one that must not be used
    LEFT_OVER = "left-over"  # a helper object of an interrupted start
    OPEN_UPLOAD = "open-upload"  # no journal names it


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it must be. `offset` is in bytes from the object's beginning."""

    kind: Kind
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
