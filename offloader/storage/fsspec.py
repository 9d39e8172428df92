"""Any other store through fsspec, if its file system has an atomic create; without that, for reading alone.

Parts are objects of their own under `.uploads/<id>/`. The commit writes the object in one call from memory, which takes
as much memory as the object is long.
Metadata is not kept: there is no common way to write it. A range is read between two looks at the object, because there
is no common way to name the version that is wanted. Each file system has exceptions of its own, of which many tell only
a status.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import datetime
from typing import Any
from uuid import uuid4

import fsspec

from offloader.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    ConfigError,
    FatalError,
    OffloadError,
    OutcomeUnknownError,
    PartRejectedError,
    RetryableError,
    StoreUnavailableError,
    UnprovenStoreError,
    UploadGoneError,
)
from offloader.json_text import parse_json
from offloader.ports.object_store import OpenUpload, Stat, UploadedPart
from offloader.storage import rules

LONGEST_MESSAGE = 400
_REFUSALS: dict[int, tuple[type[OffloadError], str]] = {
    400: (FatalError, "the store refuses the request; check storage.options"),
    401: (AccessDeniedError, "the store refuses our credentials"),
    403: (AccessDeniedError, "the store refuses our credentials for this call"),
    404: (BucketNotFoundError, "there is no such bucket or container; create it, or correct storage.root"),
}
_NUMBERS = (
    "block_size",
    "blocksize",
    "connection_timeout",
    "max_concurrency",
    "read_timeout",
    "timeout",
)
_WORDS = {"true": True, "false": False}
# Where pipe_file(mode="create") has exactly one winner. (fsspec's memory file system looks first and writes then: only
# under a lock of ours.)
PROVEN = frozenset({"memory"})
READ_ATTEMPTS = 20
_UPLOADS = rules.HELPER_FOLDERS[0]
_MODIFIED = ("last_modified", "created")  # the latter is fsspec's memory's
_MEMORY_LOCK = threading.Lock()


@contextmanager
def translated(what: str, *, write: bool = False) -> Iterator[None]:
    """Raise our errors for theirs. One that we do not understand is StoreUnavailableError, and OutcomeUnknownError in a
    write, also where only the look at what was written fails."""
    try:
        yield
    except RetryableError as e:
        if write:
            raise OutcomeUnknownError(f"{what}: {e}") from e
        raise
    except OffloadError:
        raise
    except Exception as e:
        usual = OutcomeUnknownError if write else StoreUnavailableError
        kind, hint = _REFUSALS.get(_status(e), (usual, ""))
        raise kind(": ".join(filter(None, [what, hint, _line(e)]))) from e


def _status(e: Exception) -> int:
    """The HTTP status, 0 where there is none."""
    if isinstance(e, FileNotFoundError):
        return 404
    if isinstance(e, PermissionError):
        return 403
    code = str(getattr(e, "status_code", None) or getattr(e, "code", None) or 0)
    return int(code) if code.isdecimal() else 0


def _line(e: Exception) -> str:
    return " ".join(f"{type(e).__name__}: {e}".split())[:LONGEST_MESSAGE]


def open_file_system(url: str, options: Mapping[str, Any], setting: str) -> tuple[Any, str]:
    """The file system and the path in it. Raises ConfigError; `setting` is how whoever gave the URL calls it."""
    chosen = {name: _typed(name, value) for name, value in options.items()}
    with translated(f"opening {url}"):
        try:
            fs, path = fsspec.url_to_fs(url, use_listings_cache=False, **chosen)
        except (ImportError, ValueError, TypeError) as e:
            raise ConfigError(f"{setting}: {url}: {' '.join(str(e).split())}") from e
    return fs, path


def _typed(name: str, value: Any) -> Any:
    """Options come as text."""
    if not isinstance(value, str):
        return value
    if name not in _NUMBERS:
        return _WORDS.get(value.lower(), value)
    try:
        return int(value)
    except ValueError:
        raise ConfigError(f"storage.options.{name}: {value!r} is not a whole number") from None


class FsspecStore:
    """`ObjectStore` over an fsspec file system. Raises UnprovenStoreError for those without a proven atomic create,
    unless it is used for reading alone."""

    def __init__(
        self, url: str, options: Mapping[str, Any] | None = None, *, read_only: bool = False, setting: str = "root"
    ) -> None:
        protocol = url.partition("://")[0]
        if protocol not in PROVEN and not read_only:
            raise UnprovenStoreError(
                f"{url}: nothing proves that {protocol}:// creates objects atomically; use s3://, gs://, "
                "az://, webhdfs:// or file://"
            )
        self.url = url
        self.retry_deadline = self.longest_call = 0.0  # what file systems try by themselves we do not know
        self._fs, path = open_file_system(url, options or {}, setting)
        self._base = path.rstrip("/") + "/"
        self._creating: AbstractContextManager[Any] = _MEMORY_LOCK if protocol == "memory" else nullcontext()

    def put(
        self,
        key: str,
        data: bytes,
        *,
        meta: Mapping[str, str] | None = None,  # noqa: ARG002
        if_absent: bool = False,
        as_upload: bool = False,  # noqa: ARG002
    ) -> Stat | None:
        """Metadata is not kept."""
        path = self._path(key)
        with translated(f"writing {path}", write=True):
            try:
                with self._creating:
                    self._write(path, data, "create" if if_absent else "overwrite")
            except FileExistsError:  # or ours: file systems repeat a create whose answer was lost
                return rules.stat_if_equal(self, key, data)
            return rules.existing(self, key)

    def begin(self, key: str, *, meta: Mapping[str, str] | None = None, copies: bool = False) -> str:  # noqa: ARG002
        self._path(key)
        upload = rules.make_handle(key, uuid4().hex)
        info = {"key": key, "began_at": time.time_ns() // 1_000_000}
        with translated(f"beginning {key}", write=True):
            self._write(self._folder(upload) + "upload.json", json.dumps(info).encode())
        return upload

    def put_part(self, upload: str, number: int, offset: int, data: bytes, crc32c: int) -> UploadedPart:  # noqa: ARG002
        rules.check_crc(number, data, crc32c)
        part = UploadedPart(number, len(data), rules.part_etag(len(data), crc32c), crc32c)
        path = self._part_path(upload, part)
        with translated(f"uploading part {number} of {upload}", write=True):
            self._must_be_open(upload)
            self._write(path, data)
            try:
                self._must_be_open(upload)
            except UploadGoneError:
                self._remove([path])
                raise
        return part

    def copy_part(self, *_: object, **__: object) -> None:
        """Not by itself."""

    def commit(self, upload: str, parts: Iterable[UploadedPart]) -> Stat:
        key, _ = rules.split_handle(upload)
        listed = rules.check_parts(key, parts)
        with translated(f"completing {key}", write=True):
            try:
                self._must_be_open(upload)
                self._check_sizes(upload, listed)
                self._assemble(upload, self._path(key), listed)
            except (UploadGoneError, FileNotFoundError):
                if not self._is_made_of(key, listed):
                    raise UploadGoneError(f"{self.url}: the upload of {key} is gone") from None
            self.abort(upload)
            return rules.existing(self, key)

    def abort(self, upload: str) -> None:
        folder = self._folder(upload)
        with translated(f"aborting {upload}", write=True):
            self._remove([folder + "upload.json"])
            self._remove(list(self._find(folder)))

    def list_uploads(self, prefix: str = "") -> Iterator[OpenUpload]:
        with translated("listing uploads"):
            for path, size in sorted(self._find(f"{self._base}{_UPLOADS}/").items()):
                if not path.endswith("/upload.json") or size > rules.LARGEST_DESCRIPTION:
                    continue
                # ended since, or not ours
                with suppress(FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
                    info = parse_json(self._fs.cat_file(path))
                    if info["key"].startswith(prefix):
                        yield OpenUpload(
                            info["key"], rules.make_handle(info["key"], path.split("/")[-2]), int(info["began_at"])
                        )

    def read(self, key: str, offset: int = 0, length: int | None = None) -> tuple[bytes, Stat]:
        found = rules.existing(self, key)
        for _ in range(READ_ATTEMPTS):
            end = found.size if length is None else min(offset + length, found.size)
            data = self._range(key, offset, end)
            before, found = found, rules.existing(self, key)
            if found == before and len(data) == max(0, end - offset):
                return data, found
        raise StoreUnavailableError(
            f"{self.url}: {key} is replaced faster than it can be read, or its bytes do not all come"
        )

    def stat(self, key: str) -> Stat | None:
        """The etag is a digest of all that the file system tells of the object."""
        with translated(f"looking at {key}"):
            try:
                info = self._fs.info(self._path(key))
            except FileNotFoundError:
                return None
        if info["type"] != "file":
            return None
        described = json.dumps(info, sort_keys=True, default=str).encode()
        return Stat(info["size"], hashlib.sha256(described).hexdigest()[:32], modified_at=_modified_at(info))

    def list(self, prefix: str = "", start_after: str = "") -> Iterator[tuple[str, int]]:
        folder = prefix.rpartition("/")[0]
        if start_after:
            yield from self._walk(f"{folder}/" if folder else "", prefix, start_after)
            return
        with translated(f"listing {prefix}"):
            found = self._find(f"{self._base}{folder}/" if folder else self._base)
        for path in sorted(found):
            key = path.removeprefix(self._base)
            if key.startswith(prefix) and key > start_after and not key.startswith(f"{_UPLOADS}/"):
                yield key, found[path]

    def folders(self, prefix: str = "") -> Iterator[str]:
        found = self._in_folder(prefix[: prefix.rfind("/") + 1], prefix)
        return (key for key, _ in found if key.endswith("/") and key.startswith(prefix))

    def _walk(self, folder: str, prefix: str, start_after: str) -> Iterator[tuple[str, int]]:
        """Folder by folder: those that come before are passed over, and what nobody takes is not listed."""
        for key, size in self._in_folder(folder, prefix):
            if rules.may_be_listed(key, prefix, start_after):
                yield from self._walk(key, prefix, start_after) if key.endswith("/") else ((key, size),)

    def _in_folder(self, folder: str, prefix: str) -> Sequence[tuple[str, int]]:
        """Objects and folders (with the closing slash) that are directly in one, in the order of keys."""
        path = self._base + folder
        with translated(f"listing {prefix}"):
            try:
                entries = self._fs.ls(path.rstrip("/"), detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return []
        found = []
        for entry in entries:
            name = entry["name"].rstrip("/")
            if name.startswith(path):
                key = name.removeprefix(self._base)
                found.append((f"{key}/", 0) if entry["type"] == "directory" else (key, entry["size"]))
        return sorted((key, size) for key, size in found if key != f"{_UPLOADS}/")

    def delete(self, keys: Iterable[str]) -> None:
        with translated("deleting", write=True):
            self._remove([self._path(key) for key in keys])

    def delete_if(self, key: str, etag: str) -> bool:
        return rules.delete_if_same(self, key, etag)

    def keeps_versions(self) -> bool | None:
        return None

    def close(self) -> None:
        """Nothing to give back: fsspec keeps file systems for the life of the process."""

    def _path(self, key: str) -> str:
        return self._base + rules.check_key(key)

    def _write(self, path: str, data: bytes, mode: str = "overwrite") -> None:
        self._fs.pipe_file(path, data, mode=mode)

    def _range(self, key: str, offset: int, end: int) -> bytes:
        """Bytes of an object that may be replaced meanwhile, by one that is shorter or by none."""
        if offset >= end:
            return b""
        with translated(f"reading {key}"):
            try:
                return bytes(self._fs.cat_file(self._path(key), start=offset, end=end))
            except FileNotFoundError:
                return b""

    def _folder(self, upload: str) -> str:
        return f"{self._base}{_UPLOADS}/{rules.split_handle(upload)[1]}/"

    def _part_path(self, upload: str, part: UploadedPart) -> str:
        return f"{self._folder(upload)}{part.number:05}-{rules.part_etag(part.size, part.crc32c)}"

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
        self._write(target, b"".join(self._fs.cat_file(path) for path in sources))

    def _is_made_of(self, key: str, parts: Sequence[UploadedPart]) -> bool:
        found = self.stat(key)
        if found is None or found.size != rules.total_size(parts):
            return False
        return rules.holds_parts(lambda offset, length: self.read(key, offset, length)[0], found.size, parts)

    def _remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            with suppress(FileNotFoundError):
                self._fs.rm_file(path)


def _modified_at(info: Mapping[str, Any]) -> int:
    """From whichever field the file system has; 0 where it is none, or in no zone."""
    found = next((info[name] for name in _MODIFIED if name in info), None)
    try:
        at = datetime.fromisoformat(found) if isinstance(found, str) else found
    except ValueError:
        return 0
    return int(at.timestamp() * 1000) if isinstance(at, datetime) and at.tzinfo is not None else 0
