"""A store in a folder: `file:///path`. Objects are plain files; multipart uploads are in `local_uploads.py`.

Needs a file system with hard links (create-if-absent is link(2)) that all processes see alike. Metadata is kept in an
extended attribute of the file, and not kept where the file system has none. Empty folders stay.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from uuid import uuid4

from crc32c import crc32c as checksum

from offloader.errors import BucketNotFoundError, FatalError, ObjectNotFoundError, UnprovenStoreError
from offloader.ports.object_store import ObjectStore, OpenUpload, Stat, UploadedPart
from offloader.storage import rules
from offloader.storage.forwarding import innermost
from offloader.storage.local_files import (
    complete,
    entries,
    keep_name,
    mapped,
    opened,
    os_errors,
    publish,
    read_at,
    stat_of,
    sync_folder,
    temporary,
    walk,
    write_at,
)
from offloader.storage.local_uploads import UploadFolder, UploadInfo, gone

LEFT_OVER_AFTER_SECONDS = 86_400
_UPLOAD_ID = re.compile("[0-9a-f]{32}")


class LocalStore:
    """`ObjectStore` in a folder. The first write creates it, where its parent exists, and proves that links work."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).absolute()
        self.url = self.root.as_uri()
        self.retry_deadline = self.longest_call = 0.0
        self._uploads, self._tmp = (self.root / name for name in rules.HELPER_FOLDERS)
        self._synced: set[Path] = set()
        self._prepared = False

    def put(
        self,
        key: str,
        data: bytes,
        *,
        meta: Mapping[str, str] | None = None,
        if_absent: bool = False,
        as_upload: bool = False,  # noqa: ARG002
    ) -> Stat | None:
        target, source = self._path(key), self._spare()
        with os_errors(f"{self.url}: writing {key}"), temporary(source) as fd:
            write_at(fd, data)
            complete(fd, meta or {})
            self._make_folders(target.parent)
            if publish(source, target, if_absent=if_absent):
                return stat_of(fd)
            found = rules.stat_if_equal(self, key, data)
            if found is not None:
                keep_name(target)
            return found

    def begin(self, key: str, *, meta: Mapping[str, str] | None = None, copies: bool = False) -> str:  # noqa: ARG002
        self._path(key)
        upload = rules.make_handle(key, uuid4().hex)
        with os_errors(f"{self.url}: beginning {key}"):
            self._folder(upload).create(UploadInfo(key, time.time_ns() // 1_000_000, dict(meta or {})))
        return upload

    def put_part(self, upload: str, number: int, offset: int, data: bytes, crc32c: int) -> UploadedPart:
        rules.check_crc(number, data, crc32c)
        return self._write_part(upload, number, offset, data, crc32c)

    def copy_part(
        self, upload: str, number: int, offset: int, source: ObjectStore, key: str, at: int, size: int, etag: str = ""
    ) -> UploadedPart | None:
        """Through the page cache: the part's claim needs its checksum before the first byte is written."""
        origin = innermost(source)
        if not isinstance(origin, LocalStore):
            return None
        with os_errors(f"{origin.url}: reading {key}"):
            try:
                with origin.opened_object(key) as fd:
                    rules.check_source(f"{origin.url}: {key}", stat_of(fd), etag, at + size)
                    with mapped(fd, at, size) as data:
                        return self._write_part(upload, number, offset, data, checksum(data))
            except FileNotFoundError:
                raise ObjectNotFoundError(f"{origin.url}: there is no object {key}") from None

    def commit(self, upload: str, parts: Iterable[UploadedPart]) -> Stat:
        key, _ = rules.split_handle(upload)
        listed = rules.check_parts(key, parts)
        with os_errors(f"{self.url}: completing {key}"):
            try:
                self._publish_upload(upload, listed)
            except FileNotFoundError:
                if not self._is_made_of(key, listed):
                    raise gone(upload) from None
                keep_name(self._path(key))
            self._folder(upload).remove()
        found = self.stat(key)
        if found is None:
            raise ObjectNotFoundError(f"{self.url}: {key} was deleted at the moment of its completion")
        return found

    def abort(self, upload: str) -> None:
        with os_errors(f"{self.url}: aborting {upload}"):
            self._folder(upload).remove()

    def list_uploads(self, prefix: str = "") -> Iterator[OpenUpload]:
        with os_errors(f"{self.url}: listing uploads"):
            names = sorted(path.name for path in self._uploads.iterdir()) if self._uploads.is_dir() else []
            for name in filter(_UPLOAD_ID.fullmatch, names):  # people may have left files of their own
                with suppress(FileNotFoundError, NotADirectoryError):  # ended since it was listed
                    info = UploadFolder(self._uploads / name, self._tmp).info()
                    if info.key.startswith(prefix):
                        yield OpenUpload(info.key, rules.make_handle(info.key, name), info.began_at)

    def read(self, key: str, offset: int = 0, length: int | None = None) -> tuple[bytes, Stat]:
        with os_errors(f"{self.url}: reading {key}"):
            try:
                with self.opened_object(key) as fd:
                    found = stat_of(fd)
                    rest = max(found.size - offset, 0)
                    return read_at(fd, offset, rest if length is None else min(length, rest)), found
            except FileNotFoundError:
                raise ObjectNotFoundError(f"{self.url}: there is no object {key}") from None

    def stat(self, key: str) -> Stat | None:
        with os_errors(f"{self.url}: looking at {key}"):
            try:
                with self.opened_object(key) as fd:
                    return stat_of(fd)
            except FileNotFoundError:
                return None

    def list(self, prefix: str = "", start_after: str = "") -> Iterator[tuple[str, int]]:
        folder = prefix.rpartition("/")[0]
        start = self._path(folder) if folder else self.root
        with os_errors(f"{self.url}: listing {prefix}"):
            yield from walk(start, f"{folder}/" if folder else "", prefix, start_after)

    def folders(self, prefix: str = "") -> Iterator[str]:
        """Without those that hold no object."""
        base = prefix[: prefix.rfind("/") + 1]
        with os_errors(f"{self.url}: listing {prefix}"):
            for name, entry in entries(self._path(base[:-1]) if base else self.root, base):
                key = base + name
                if (
                    name.endswith("/")
                    and key.startswith(prefix)
                    and any(True for _ in walk(Path(entry.path), key, "", ""))
                ):
                    yield key

    def delete(self, keys: Iterable[str]) -> None:
        touched: set[Path] = set()
        with os_errors(f"{self.url}: deleting"):
            for key in keys:
                path = self._path(key)
                with suppress(FileNotFoundError):
                    path.unlink()
                    touched.add(path.parent)
            for folder in touched:
                sync_folder(folder)

    def delete_if(self, key: str, etag: str) -> bool:
        return rules.delete_if_same(self, key, etag)

    def keeps_versions(self) -> bool | None:
        return False

    def close(self) -> None:
        """Nothing is held open."""

    def _write_part(self, upload: str, number: int, offset: int, data: bytes | memoryview, crc32c: int) -> UploadedPart:
        with os_errors(f"{self.url}: part {number} of {upload}"):
            try:
                etag = self._folder(upload).write(number, offset, data, crc32c)
            except FileNotFoundError:
                raise gone(upload) from None
        return UploadedPart(number, len(data), etag, crc32c)

    def _prepare(self) -> None:
        if not self.root.parent.is_dir():
            raise BucketNotFoundError(f"{self.url}: {self.root.parent} does not exist; create it or correct the root")
        for folder in (self.root, self._uploads, self._tmp):
            folder.mkdir(exist_ok=True)
            sync_folder(folder.parent)
        self._prove_links()
        _sweep(self._tmp, before=time.time() - LEFT_OVER_AFTER_SECONDS)
        self._prepared = True

    def _prove_links(self) -> None:
        name, other = self._tmp / uuid4().hex, self._tmp / uuid4().hex
        with temporary(name):
            try:
                os.link(name, other)
            except OSError as e:
                raise UnprovenStoreError(
                    f"{self.url}: no hard links here ({e.strerror}), so no atomic create; use another file system or s3://"
                ) from e
            other.unlink()

    def _spare(self) -> Path:
        if not self._prepared:
            with os_errors(self.url):
                self._prepare()
        return self._tmp / uuid4().hex

    def _path(self, key: str) -> Path:
        return self.root / rules.check_key(key)

    def _folder(self, upload: str) -> UploadFolder:
        _, upload_id = rules.split_handle(upload)
        if not _UPLOAD_ID.fullmatch(upload_id):
            raise FatalError(f"{upload!r} is not an upload in a folder")
        return UploadFolder(self._uploads / upload_id, self._spare())

    @contextmanager
    def opened_object(self, key: str) -> Iterator[int]:
        """Its file. Raises FileNotFoundError."""
        try:
            with opened(self._path(key), os.O_RDONLY) as fd:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise FileNotFoundError(key)
                yield fd
        except NotADirectoryError:
            raise FileNotFoundError(key) from None

    def _make_folders(self, folder: Path) -> None:
        path = self.root
        for name in folder.relative_to(self.root).parts:
            parent, path = path, path / name
            with suppress(FileExistsError):
                path.mkdir()
                self._synced.discard(path)
            if path not in self._synced:
                sync_folder(parent)
                self._synced.add(path)

    def _publish_upload(self, upload: str, parts: Sequence[UploadedPart]) -> None:
        target, copy = self._path(rules.split_handle(upload)[0]), self._spare()
        try:
            source = self._folder(upload).finish(parts, copy)
            self._make_folders(target.parent)
            publish(source, target, if_absent=False)
        finally:
            copy.unlink(missing_ok=True)

    def _is_made_of(self, key: str, parts: Sequence[UploadedPart]) -> bool:
        try:
            with self.opened_object(key) as fd:
                return rules.holds_parts(partial(read_at, fd), os.fstat(fd).st_size, parts)
        except FileNotFoundError:
            return False


def _sweep(folder: Path, *, before: float) -> None:
    # What processes that were killed have left: nobody can come back to a temporary name.
    for path in folder.iterdir():
        with suppress(FileNotFoundError):
            if path.stat().st_mtime >= before:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()
