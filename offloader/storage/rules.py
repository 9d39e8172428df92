"""What stores share: keys, upload handles, lists of parts."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from crc32c import crc32c

from offloader.errors import (
    FatalError,
    FormatVersionError,
    IntegrityError,
    ObjectNotFoundError,
    PartRejectedError,
)
from offloader.ports.object_store import NO_CRC, ObjectStore, Stat, UploadedPart

MAX_KEY_BYTES = 1024  # S3's limit
HELPER_FOLDERS = (".uploads", ".tmp")  # of the stores themselves, at the root
LARGEST_DESCRIPTION = 64 * 1024  # of an upload: its key and metadata
UPLOAD_VERSION = 1  # of an upload's description, where that is a file


def check_key(key: str) -> str:
    """A key that every store can hold: no empty, `.` or `..` piece, no NUL, no helper folder, at most 1,024 bytes."""
    pieces = key.split("/")
    if any(piece in ("", ".", "..") for piece in pieces) or pieces[0] in HELPER_FOLDERS or "\0" in key:
        raise FatalError(f"{key!r} cannot be an object's key")
    if len(key.encode()) > MAX_KEY_BYTES:
        raise FatalError(f"the key {key[:80]!r}... is longer than {MAX_KEY_BYTES} bytes")
    return key


def make_handle(key: str, upload_id: str) -> str:
    """An upload's handle: plain text that names the upload and its key."""
    return f"{upload_id}:{key}"


def split_handle(upload: str) -> tuple[str, str]:
    """(key, upload id) of a handle."""
    upload_id, colon, key = upload.partition(":")
    if not (upload_id and colon and key):
        raise FatalError(f"{upload!r} is not an upload's handle")
    return key, upload_id


def check_upload_version(where: str, description: Mapping[str, object]) -> None:
    """Raises FormatVersionError for an upload that a newer version has begun, ValueError for what is no version. Those
    of builds before the first release say none."""
    version = description.get("version", UPLOAD_VERSION)
    if type(version) is not int:
        raise ValueError(f"{version!r:.100} is no version")
    if version > UPLOAD_VERSION:
        raise FormatVersionError(
            f"{where} has version {version}, this version reads up to {UPLOAD_VERSION}: run a newer one"
        )


def lower(meta: Mapping[str, str] | None) -> dict[str, str]:
    """Metadata with keys in lower case."""
    return {key.lower(): value for key, value in (meta or {}).items()}


def crc_text(crc: int) -> str:
    """A CRC32C as stores write it: base64 of four bytes, most significant first."""
    return base64.b64encode(crc.to_bytes(4, "big")).decode()


def md5_text(data: bytes) -> str:
    """An MD5 as HTTP writes it."""
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


def part_etag(size: int, crc: int) -> str:
    """The etag of a part where the store has none of its own."""
    return f"{size}-{crc:08x}"


def check_crc(number: int, data: bytes, crc: int) -> None:
    """Raise IntegrityError unless the bytes have this CRC32C."""
    found = crc32c(data)
    if found != crc:
        raise IntegrityError(
            f"part {number}: the bytes have CRC32C {found:08x}, not {crc:08x}: they were damaged in memory"
        )


def check_parts(key: str, parts: Iterable[UploadedPart], min_part_size: int = 1) -> list[UploadedPart]:
    """The parts of a commit: numbered 1, 2, 3..., each but the last at least the minimum. Raises PartRejectedError."""
    listed = list(parts)
    if not listed:
        raise PartRejectedError(f"{key}: an object needs at least one part")
    if [part.number for part in listed] != list(range(1, len(listed) + 1)):
        raise PartRejectedError(f"{key}: the parts are not numbered 1 to {len(listed)} in order")
    small = next((part for part in listed[:-1] if part.size < min_part_size), None)
    if small is not None:
        raise PartRejectedError(
            f"{key}: part {small.number} has {small.size} bytes; only the last may have less than {min_part_size}"
        )
    return listed


def total_size(parts: Iterable[UploadedPart]) -> int:
    """The bytes of an object made of these parts."""
    return sum(part.size for part in parts)


def holds_parts(read: Callable[[int, int], bytes], size: int, parts: Sequence[UploadedPart]) -> bool:
    """Whether an object of `size` bytes consists of exactly these parts; `read(offset, length)` gives its bytes. A part
    that the store copied has no CRC32C: who copies it compares it with its source."""
    if size != total_size(parts):
        return False
    offset = 0
    for part in parts:
        if part.crc32c != NO_CRC and crc32c(read(offset, part.size)) != part.crc32c:
            return False
        offset += part.size
    return True


def check_source(what: str, found: Stat, etag: str, end: int) -> None:
    """Whether a range up to `end` can be copied of the object that was looked at. Raises IntegrityError."""
    if etag and found.etag != etag:
        raise IntegrityError(f"{what} is another object than the one that was looked at")
    if found.size < end:
        raise IntegrityError(f"{what} has {found.size} bytes, and not {end} or more")


def existing(store: ObjectStore, key: str) -> Stat:
    """What the store says of an object. Raises ObjectNotFoundError."""
    found = store.stat(key)
    if found is None:
        raise ObjectNotFoundError(f"{store.url}: there is no object {key}")
    return found


def stat_if_equal(store: ObjectStore, key: str, data: bytes) -> Stat | None:
    """Of an object that another writer may have put in the place of `data`: None where it holds other bytes."""
    try:
        found, stat = store.read(key, 0, len(data) + 1)
    except ObjectNotFoundError:  # deleted since: still, another writer was first
        return None
    return stat if found == data else None


def delete_if_same(store: ObjectStore, key: str, etag: str) -> bool:
    """`delete_if` of a store that cannot decide at the moment of the deletion."""
    found = store.stat(key)
    if found is not None and found.etag != etag:
        return False
    store.delete([key])
    return True


def may_be_listed(key: str, prefix: str, start_after: str) -> bool:
    """Whether a key belongs to a listing; of a folder, which ends with a slash: whether one below it may."""
    if not key.endswith("/"):
        return key.startswith(prefix) and key > start_after
    return (key.startswith(prefix) or prefix.startswith(key)) and (key > start_after or start_after.startswith(key))
