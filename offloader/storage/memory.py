"""A store in memory, for trials and tests. Several over one `MemoryBacking` are processes of one bucket."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from crc32c import crc32c as checksum

from offloader.errors import ObjectNotFoundError, PartRejectedError, UploadGoneError
from offloader.ports.object_store import ObjectStore, OpenUpload, Stat, UploadedPart
from offloader.storage.forwarding import innermost
from offloader.storage.rules import (
    check_crc,
    check_key,
    check_parts,
    check_source,
    holds_parts,
    make_handle,
    part_etag,
    split_handle,
)


@dataclass(frozen=True, slots=True)
class _Object:
    data: bytes
    stat: Stat


@dataclass(slots=True)
class _Upload:
    key: str
    meta: Mapping[str, str]
    began_at: int
    parts: dict[int, tuple[UploadedPart, bytes]] = field(default_factory=dict)


@dataclass
class MemoryBacking:
    """What the stores share: objects, open uploads, and the lock that makes each call atomic."""

    objects: dict[str, _Object] = field(default_factory=dict)
    uploads: dict[str, _Upload] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    writes: int = 0
    clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000

    def write(self, key: str, data: bytes, meta: Mapping[str, str] | None) -> Stat:
        """Make or replace an object, under the lock."""
        self.writes += 1
        lower = {k.lower(): v for k, v in (meta or {}).items()}
        stat = Stat(len(data), f"w{self.writes}", lower, self.clock_ms())
        self.objects[key] = _Object(data, stat)
        return stat


class MemoryStore:
    """`ObjectStore` in memory. `min_part_size` can be set to refuse what S3 refuses; without `copies` it is a store
    that copies no part by itself."""

    def __init__(
        self,
        backing: MemoryBacking | None = None,
        *,
        url: str = "memory://",
        min_part_size: int = 1,
        copies: bool = True,
    ) -> None:
        self.backing = backing or MemoryBacking()
        self.url = url
        self.min_part_size = min_part_size
        self.copies = copies
        self.retry_deadline = self.longest_call = 0.0

    def put(
        self,
        key: str,
        data: bytes,
        *,
        meta: Mapping[str, str] | None = None,
        if_absent: bool = False,
        as_upload: bool = False,  # noqa: ARG002
    ) -> Stat | None:
        check_key(key)
        with self.backing.lock:
            found = self.backing.objects.get(key)
            if if_absent and found is not None:
                return found.stat if found.data == data else None
            return self.backing.write(key, bytes(data), meta)

    def begin(self, key: str, *, meta: Mapping[str, str] | None = None, copies: bool = False) -> str:  # noqa: ARG002
        check_key(key)
        upload_id = uuid4().hex
        with self.backing.lock:
            self.backing.uploads[upload_id] = _Upload(key, dict(meta or {}), self.backing.clock_ms())
        return make_handle(key, upload_id)

    def put_part(self, upload: str, number: int, offset: int, data: bytes, crc32c: int) -> UploadedPart:  # noqa: ARG002
        check_crc(number, data, crc32c)
        part = UploadedPart(number, len(data), part_etag(len(data), crc32c), crc32c)
        with self.backing.lock:
            self._upload(upload).parts[number] = (part, bytes(data))
        return part

    def copy_part(
        self, upload: str, number: int, offset: int, source: ObjectStore, key: str, at: int, size: int, etag: str = ""
    ) -> UploadedPart | None:
        origin = innermost(source)
        if not (self.copies and isinstance(origin, MemoryStore)):
            return None
        data, found = origin.read(key, at, size)
        check_source(f"{origin.url}: {key}", found, etag, at + size)
        return self.put_part(upload, number, offset, data, checksum(data))

    def commit(self, upload: str, parts: Iterable[UploadedPart]) -> Stat:
        key, upload_id = split_handle(upload)
        listed = check_parts(key, parts, self.min_part_size)
        with self.backing.lock:
            if upload_id not in self.backing.uploads:
                return self._committed(key, listed)
            found = self._upload(upload)
            for part in listed:
                if found.parts.get(part.number, (None, b""))[0] != part:
                    raise PartRejectedError(f"{key}: part {part.number} is missing or is another one")
            data = b"".join(found.parts[part.number][1] for part in listed)
            del self.backing.uploads[upload_id]
            return self.backing.write(key, data, found.meta)

    def abort(self, upload: str) -> None:
        with self.backing.lock:
            self.backing.uploads.pop(split_handle(upload)[1], None)

    def list_uploads(self, prefix: str = "") -> Iterator[OpenUpload]:
        with self.backing.lock:
            found = [OpenUpload(u.key, make_handle(u.key, i), u.began_at) for i, u in self.backing.uploads.items()]
        return iter([upload for upload in found if upload.key.startswith(prefix)])

    def read(self, key: str, offset: int = 0, length: int | None = None) -> tuple[bytes, Stat]:
        with self.backing.lock:
            found = self.backing.objects.get(key)
        if found is None:
            raise ObjectNotFoundError(f"{self.url}: there is no object {key}")
        end = None if length is None else offset + length
        return found.data[offset:end], found.stat

    def stat(self, key: str) -> Stat | None:
        with self.backing.lock:
            found = self.backing.objects.get(key)
        return None if found is None else found.stat

    def list(self, prefix: str = "", start_after: str = "") -> Iterator[tuple[str, int]]:
        with self.backing.lock:
            found = sorted([key for key in self.backing.objects if key > start_after and key.startswith(prefix)])
            return iter([(key, self.backing.objects[key].stat.size) for key in found])

    def folders(self, prefix: str = "") -> Iterator[str]:
        rests = ((key, key[len(prefix) :].partition("/")) for key, _ in self.list(prefix))
        return iter(sorted({prefix + name + slash for _, (name, slash, _) in rests if slash}))

    def delete(self, keys: Iterable[str]) -> None:
        with self.backing.lock:
            for key in keys:
                self.backing.objects.pop(key, None)

    def delete_if(self, key: str, etag: str) -> bool:
        with self.backing.lock:
            found = self.backing.objects.get(key)
            if found is not None and found.stat.etag != etag:
                return False
            self.delete([key])
            return True

    def keeps_versions(self) -> bool | None:
        return False

    def close(self) -> None:
        """Keeps the backing."""

    def _upload(self, upload: str) -> _Upload:
        key, upload_id = split_handle(upload)
        found = self.backing.uploads.get(upload_id)
        if found is None:
            raise UploadGoneError(f"the upload of {key} is gone")
        return found

    def _committed(self, key: str, parts: Sequence[UploadedPart]) -> Stat:
        found = self.backing.objects.get(key)
        if found is None or not holds_parts(lambda o, n: found.data[o : o + n], len(found.data), parts):
            raise UploadGoneError(f"the upload of {key} is gone, and no object of these parts is there")
        return found.stat
