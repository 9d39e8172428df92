"""Any other store through fsspec, if its file system has an atomic create: Google Cloud Storage, Azure Blob Storage.

Parts are objects of their own under `.uploads/<id>/`. The commit composes them where the file system offers that (gcsfs:
`merge`), else it writes the object in one call from memory, which takes as much memory as the object is long.
Metadata is not kept: there is no common way to write it.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any
from uuid import uuid4

import fsspec

from offloader.errors import (
    AccessDeniedError,
    ConfigError,
    ObjectNotFoundError,
    OffloadError,
    OutcomeUnknownError,
    PartRejectedError,
    StoreUnavailableError,
    UnprovenStoreError,
    UploadGoneError,
)
from offloader.storage.base import OpenUpload, Stat, UploadedPart
from offloader.storage.rules import (
    HELPER_FOLDERS,
    check_crc,
    check_key,
    check_parts,
    holds_parts,
    make_handle,
    part_etag,
    split_handle,
    total_size,
)

# Where pipe_file(mode="create") was seen to have exactly one winner, and readers never see a part of an object.
# (fsspec's memory file system only under a lock of ours: it looks first and writes then.)
PROVEN = frozenset({"memory", "gs", "gcs", "abfs", "abfss", "az"})
COMPOSE_LIMIT = 32  # Google Cloud Storage composes no more sources in one request
_UPLOADS = HELPER_FOLDERS[0]
_MEMORY_LOCK = threading.Lock()


class FsspecStore:
    """`ObjectStore` over an fsspec file system. Raises UnprovenStoreError for those without a proven atomic create, unless it is
    used for reading alone."""

    def __init__(self, url: str, options: Mapping[str, Any] | None = None, *, read_only: bool = False) -> None:
        protocol = url.partition("://")[0]
        if protocol not in PROVEN and not read_only:
            raise UnprovenStoreError(
                f"{url}: nothing proves that {protocol}:// creates objects atomically; use s3://, gs://, abfs:// or file://"
            )
        self.url = url
        self.min_part_size = 1
        self.retry_deadline = 0.0
        try:
            self._fs, path = fsspec.url_to_fs(url, use_listings_cache=False, **(options or {}))
        except (ImportError, ValueError, TypeError) as e:
            raise ConfigError(f"root: {url}: {e}") from e
        self._base = path.rstrip("/") + "/"
        self._creating: AbstractContextManager[Any] = _MEMORY_LOCK if protocol == "memory" else nullcontext()

    def put(self, key: str, data: bytes, *, meta: Mapping[str, str] | None = None, if_absent: bool = False) -> Stat | None:  # noqa: ARG002
        """See `ObjectStore.put`. Metadata is not kept."""
        path = self._base + check_key(key)
        with _errors(f"writing {path}", write=True):
            try:
                with self._creating:
                    self._fs.pipe_file(path, data, mode="create" if if_absent else "overwrite")
            except FileExistsError:
                return self._if_equal(key, data)
        return self._existing(key)

    def begin(self, key: str, *, meta: Mapping[str, str] | None = None) -> str:  # noqa: ARG002
        """See `ObjectStore.begin`. Metadata is not kept."""
        upload = make_handle(check_key(key), uuid4().hex)
        info = {"key": key, "began_at": time.time_ns() // 1_000_000}
        with _errors(f"beginning {key}", write=True):
            self._fs.pipe_file(self._folder(upload) + "upload.json", json.dumps(info).encode())
        return upload

    def put_part(self, upload: str, number: int, offset: int, data: bytes, crc32c: int) -> UploadedPart:  # noqa: ARG002
        """See `ObjectStore.put_part`."""
        check_crc(number, data, crc32c)
        part = UploadedPart(number, len(data), part_etag(len(data), crc32c), crc32c)
        path = self._part_path(upload, part)
        with _errors(f"uploading part {number} of {upload}", write=True):
            self._must_be_open(upload)
            self._fs.pipe_file(path, data)
            try:
                self._must_be_open(upload)
            except UploadGoneError:
                self._remove([path])
                raise
        return part

    def commit(self, upload: str, parts: Iterable[UploadedPart]) -> Stat:
        """See `ObjectStore.commit`."""
        key, _ = split_handle(upload)
        listed = check_parts(key, parts, self.min_part_size)
        with _errors(f"completing {key}", write=True):
            try:
                self._must_be_open(upload)
                self._check_sizes(upload, listed)
                self._assemble(upload, self._base + check_key(key), listed)
            except (UploadGoneError, FileNotFoundError):
                if not self._is_made_of(key, listed):
                    raise UploadGoneError(f"{self.url}: the upload of {key} is gone") from None
        self.abort(upload)
        return self._existing(key)

    def abort(self, upload: str) -> None:
        """See `ObjectStore.abort`."""
        folder = self._folder(upload)
        with _errors(f"aborting {upload}", write=True):
            self._remove([folder + "upload.json"])
            self._remove(list(self._find(folder)))

    def list_uploads(self, prefix: str = "") -> Iterator[OpenUpload]:
        """See `ObjectStore.list_uploads`."""
        with _errors("listing uploads"):
            for path in sorted(self._find(f"{self._base}{_UPLOADS}/")):
                if not path.endswith("/upload.json"):
                    continue
                with suppress(FileNotFoundError):  # ended since it was listed
                    info = json.loads(self._fs.cat_file(path))
                    if info["key"].startswith(prefix):
                        yield OpenUpload(info["key"], make_handle(info["key"], path.split("/")[-2]), info["began_at"])

    def read(self, key: str, offset: int = 0, length: int | None = None) -> tuple[bytes, Stat]:
        """See `ObjectStore.read`."""
        found = self._existing(key)
        end = found.size if length is None else min(offset + length, found.size)
        if offset >= end:
            return b"", found
        with _errors(f"reading {key}"):
            try:
                data = bytes(self._fs.cat_file(self._base + key, start=offset, end=end))
            except FileNotFoundError:
                raise ObjectNotFoundError(f"{self.url}: there is no object {key}") from None
        if len(data) != end - offset:
            raise StoreUnavailableError(f"{self.url}: {key}: {len(data)} bytes came instead of {end - offset}")
        return data, found

    def stat(self, key: str) -> Stat | None:
        """See `ObjectStore.stat`. The etag is a digest of all that the file system tells of the object."""
        with _errors(f"looking at {key}"):
            try:
                info = self._fs.info(self._base + check_key(key))
            except FileNotFoundError:
                return None
        if info["type"] != "file":
            return None
        described = json.dumps(info, sort_keys=True, default=str).encode()
        return Stat(info["size"], hashlib.sha256(described).hexdigest()[:32])

    def list(self, prefix: str = "", start_after: str = "") -> Iterator[tuple[str, int]]:
        """See `ObjectStore.list`."""
        folder = prefix.rpartition("/")[0]
        with _errors(f"listing {prefix}"):
            found = self._find(f"{self._base}{folder}/" if folder else self._base)
        for path in sorted(found):
            key = path.removeprefix(self._base)
            if key.startswith(prefix) and key > start_after and not key.startswith(f"{_UPLOADS}/"):
                yield key, found[path]

    def delete(self, keys: Iterable[str]) -> None:
        """See `ObjectStore.delete`."""
        with _errors("deleting", write=True):
            self._remove([self._base + check_key(key) for key in keys])

    def close(self) -> None:
        """Nothing to give back: fsspec keeps file systems for the life of the process."""

    def _folder(self, upload: str) -> str:
        return f"{self._base}{_UPLOADS}/{split_handle(upload)[1]}/"

    def _part_path(self, upload: str, part: UploadedPart) -> str:
        return f"{self._folder(upload)}{part.number:05}-{part_etag(part.size, part.crc32c)}"

    def _find(self, folder: str) -> dict[str, int]:
        # Without the end's slash, and filtered: some file systems list only so, and a folder may have a file's name.
        found = self._fs.find(folder.rstrip("/"), detail=True)
        return {path: info["size"] for path, info in found.items() if path.startswith(folder)}

    def _must_be_open(self, upload: str) -> None:
        if not self._fs.exists(self._folder(upload) + "upload.json"):
            raise UploadGoneError(f"{self.url}: the upload {upload} is gone")

    def _check_sizes(self, upload: str, parts: Sequence[UploadedPart]) -> None:
        stored = self._find(self._folder(upload))
        for part in parts:
            if stored.get(self._part_path(upload, part)) != part.size:
                raise PartRejectedError(f"{upload}: part {part.number} is missing or is another one")

    def _assemble(self, upload: str, target: str, parts: Sequence[UploadedPart]) -> None:
        sources = [self._part_path(upload, part) for part in parts]
        if hasattr(self._fs, "merge"):
            self._compose(self._folder(upload), target, sources)
        else:
            self._fs.pipe_file(target, b"".join(self._fs.cat_file(path) for path in sources))

    def _compose(self, folder: str, target: str, sources: Sequence[str]) -> None:
        level = 0
        while len(sources) > COMPOSE_LIMIT:
            groups = [sources[i : i + COMPOSE_LIMIT] for i in range(0, len(sources), COMPOSE_LIMIT)]
            sources = [f"{folder}level{level}-{i:05}" for i in range(len(groups))]
            for path, group in zip(sources, groups, strict=True):
                self._fs.merge(path, group)
            level += 1
        self._fs.merge(target, sources)

    def _is_made_of(self, key: str, parts: Sequence[UploadedPart]) -> bool:
        found = self.stat(key)
        if found is None or found.size != total_size(parts):
            return False
        return holds_parts(lambda offset, length: self.read(key, offset, length)[0], found.size, parts)

    def _remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            with suppress(FileNotFoundError):
                self._fs.rm_file(path)

    def _existing(self, key: str) -> Stat:
        found = self.stat(key)
        if found is None:
            raise ObjectNotFoundError(f"{self.url}: there is no object {key}")
        return found

    def _if_equal(self, key: str, data: bytes) -> Stat | None:
        try:
            found, stat = self.read(key)
        except ObjectNotFoundError:  # deleted since: still, another writer was first
            return None
        return stat if found == data else None


@contextmanager
def _errors(what: str, *, write: bool = False) -> Iterator[None]:
    """Every file system has exceptions of its own; what is not understood is unavailability, or an unknown outcome."""
    try:
        yield
    except OffloadError:
        raise
    except PermissionError as e:
        raise AccessDeniedError(f"{what}: {e}") from e
    except Exception as e:
        kind = OutcomeUnknownError if write else StoreUnavailableError
        raise kind(f"{what}: {type(e).__name__}: {e}") from e
