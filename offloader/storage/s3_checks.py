"""What S3 says of an object's content, and what it must say of an object made of given parts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence

from crc32c import crc32c

from offloader.ports.object_store import NO_CRC, UploadedPart
from offloader.storage.rules import crc_text, total_size


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


def is_made_of(head: Mapping[str, object], parts: Sequence[UploadedPart]) -> bool:
    """Whether HEAD (with ChecksumMode) tells of an object of these parts.

    By size, and by what the store offers: the composite CRC32C, else an ETag of AWS' form. Where encryption or another
    server makes ETags of another form and there is no checksum, by size alone: the key is a fresh uuid, and nobody else
    writes there. (Encrypted objects have ETags that look like AWS' form and are made of nothing that we know.)
    """
    if head.get("ContentLength") != total_size(parts):
        return False
    checksum = str(head.get("ChecksumCRC32C") or "")
    if re.fullmatch(r".+-[0-9]+", checksum) and all(part.crc32c != NO_CRC for part in parts):
        return checksum == composite_crc(parts)
    if head.get("ServerSideEncryption", "AES256") != "AES256" or "SSECustomerAlgorithm" in head:
        return True
    etag, expected = str(head.get("ETag") or "").strip('"'), composite_etag(parts)
    if expected is None or not re.fullmatch(r"[0-9a-f]{32}-[0-9]+", etag):
        return True
    return etag == expected
