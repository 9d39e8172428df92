"""What S3's answers say, in this product's values, and what it must say of an object made of given parts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from crc32c import crc32c

from offloader.ports.object_store import NO_CRC, Stat, UploadedPart
from offloader.storage.rules import crc_text, lower, total_size


def named_part(part: UploadedPart, *, checked: bool) -> dict[str, object]:
    """A part as a completion names it; `checked`: with its checksum."""
    named: dict[str, object] = {"PartNumber": part.number, "ETag": f'"{part.etag}"'}
    return {**named, "ChecksumCRC32C": crc_text(part.crc32c)} if checked else named


def composite_crc(parts: Sequence[UploadedPart]) -> str:
    """The checksum of a multipart object of type COMPOSITE: that of the parts' checksums, and their number."""
    joined = b"".join(part.crc32c.to_bytes(4, "big") for part in parts)
    return f"{crc_text(crc32c(joined))}-{len(parts)}"


def composite_etag(parts: Sequence[UploadedPart]) -> str | None:
    """The ETag of a multipart object: MD5 of the parts' MD5s, and their number; None where their ETags are no MD5s."""
    if not all(re.fullmatch("[0-9a-f]{32}", part.etag) for part in parts):
        return None
    joined = b"".join(bytes.fromhex(part.etag) for part in parts)
    return f"{hashlib.md5(joined, usedforsecurity=False).hexdigest()}-{len(parts)}"


def is_made_of(head: Mapping[str, object], parts: Sequence[UploadedPart]) -> bool | None:
    """Whether HEAD (with ChecksumMode) describes an object of these parts; None: its bytes must be read to know.

    Another size is proof against it, and the composite CRC32C or an ETag of AWS' form is proof for it. One that differs
    proves nothing: encryption and other servers compute ETags from what we do not know, also in AWS' form (SeaweedFS
    from its own chunks).
    """
    if head.get("ContentLength") != total_size(parts):
        return False
    if all(part.crc32c != NO_CRC for part in parts) and head.get("ChecksumCRC32C") == composite_crc(parts):
        return True
    return True if plain_etag(head.get("ETag")) == composite_etag(parts) else None


def plain_etag(value: object) -> str:
    """An ETag without its quotes, and without the mark of a weak one, which proxies that compress answers set."""
    return str(value or "").removeprefix("W/").strip('"')


def told(ask: Callable[..., Mapping[str, Any]], request: Mapping[str, Any]) -> Mapping[str, Any]:
    """An answer that must have content: a listing that does not even say whether there is more is no empty bucket's."""
    answer = ask(**request)
    if not answer.keys() - {"ResponseMetadata"}:
        raise ValueError("it has no content")
    return answer


def etag_of(answer: Mapping[str, Any]) -> str:
    """Raises KeyError where the answer has none."""
    return plain_etag(answer["ETag"])


def stat_of(answer: Mapping[str, Any]) -> Stat:
    """Of the whole object, also where a range was asked for."""
    whole = str(answer.get("ContentRange", "")).rpartition("/")[2]
    size = int(whole) if whole.isdecimal() else int(answer["ContentLength"])
    held = answer.get("ObjectLockLegalHoldStatus") == "ON"
    modified_at = _milliseconds(answer.get("LastModified"))
    held_until = _milliseconds(answer.get("ObjectLockRetainUntilDate"))
    return Stat(size, etag_of(answer), lower(answer.get("Metadata")), modified_at, held, held_until)


def _milliseconds(at: object) -> int:
    return int(at.timestamp() * 1000) if isinstance(at, datetime) else 0
