"""What Google's answers say, in this product's values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from google.cloud.storage import Blob

from offloader.ports.object_store import Stat
from offloader.storage.rules import crc_text, lower

_META = "x-goog-meta-"


def stat_of(blob: Blob) -> Stat:
    """Of an object that an answer has told of. The etag is the generation: Google's own changes with metadata, too."""
    held = bool(blob.temporary_hold or blob.event_based_hold)
    until = ms_of(blob.retention_expiration_time)
    return Stat(int(blob.size), str(blob.generation), lower(blob.metadata), ms_of(blob.updated), held, until)


def whole(blob: Blob) -> Blob:
    """An object as an answer tells of it. Raises ValueError where that was none of Google's."""
    if blob.size is None or blob.generation is None:
        raise ValueError("it tells of no object")
    return blob


def ms_of(at: datetime | None) -> int:
    """A time of the store's, in whole seconds as headers have it: whoever compares two must not find one later."""
    return int(at.timestamp()) * 1000 if at is not None else 0


def stat_told(resource: Mapping[str, Any]) -> Stat:
    """Of an object that was just written."""
    return Stat(int(resource["size"]), str(int(resource["generation"])), lower(resource.get("metadata")))


def stat_in(headers: Mapping[str, str]) -> Stat:
    """Of the whole object, from the headers of an answer with its bytes or some of them."""
    meta = {name.lower().removeprefix(_META): text for name, text in headers.items() if name.lower().startswith(_META)}
    modified = headers.get("last-modified")
    at = ms_of(parsedate_to_datetime(modified) if modified else None)
    return Stat(int(headers["x-goog-stored-content-length"]), str(int(headers["x-goog-generation"])), meta, at)


def is_made(blob: Blob, size: int, crc: int) -> bool:
    """Whether the object has this size and this CRC32C, which Google knows of every object."""
    return bool(blob.size == size and blob.crc32c == crc_text(crc))
