"""File operations that survive a crash, with errors as this product names them, and what lies in a folder."""

from __future__ import annotations

import errno
import json
import mmap
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from offloader.errors import (
    AccessDeniedError,
    FatalError,
    OffloadError,
    OutcomeUnknownError,
    StoreFullError,
    StoreUnavailableError,
)
from offloader.json_text import parse_json
from offloader.ports.object_store import Stat
from offloader.storage import rules

_FULL = {errno.ENOSPC, errno.EDQUOT}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_BAD_KEY = {errno.ENOTDIR, errno.EISDIR}
_NO_ATTRIBUTES = {errno.ENOTSUP, errno.ENODATA, errno.EPERM}
_META = "user.offloader.meta"


@contextmanager
def os_errors(what: str) -> Iterator[None]:
    """Turn what the system says into this product's errors."""
    try:
        yield
    except OSError as e:
        raise _typed(what, e) from e


def _typed(what: str, e: OSError) -> OffloadError:
    if e.errno in _FULL:
        return StoreFullError(f"{what}: the file system is full")
    if e.errno in _DENIED:
        return AccessDeniedError(f"{what}: {e.strerror}; check the folder's owner and mode")
    if e.errno == errno.ENAMETOOLONG:
        limit = "names of topics and subscriptions have at most 255 bytes there, URL-encoded"
        return FatalError(f"{what}: {e.strerror}; a file system cannot hold this key: {limit}")
    if e.errno in _BAD_KEY:
        return FatalError(f"{what}: {e.strerror}; a file system cannot hold this key")
    return StoreUnavailableError(f"{what}: {e.strerror or e}")


def sync_folder(folder: Path) -> None:
    """Make a folder's entries durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_at(fd: int, data: bytes | memoryview, offset: int = 0) -> None:
    """Write all of it; on disk only after an fsync."""
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written


def uncache(fd: int, offset: int, length: int) -> None:
    """Take what was written, and is on disk, out of the page cache: nobody reads it soon, bookies need the memory, and
    the next part is written to the same pages (new ones cost a virtual machine more than the writing)."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, offset, length, os.POSIX_FADV_DONTNEED)


def read_at(fd: int, offset: int, length: int) -> bytes:
    """Read so many bytes, fewer only at the file's end."""
    pieces: list[bytes] = []
    while length > 0 and (piece := os.pread(fd, length, offset)):
        pieces.append(piece)
        offset, length = offset + len(piece), length - len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


@contextmanager
def mapped(fd: int, offset: int, length: int) -> Iterator[memoryview]:
    """So many bytes of a file that has them, without reading them into this process's memory."""
    with (
        mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as whole,
        memoryview(whole) as view,
        view[offset : offset + length] as wanted,
    ):
        yield wanted


@contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    """A file descriptor, closed at the end."""
    fd = os.open(path, flags | os.O_CLOEXEC, 0o666)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def temporary(path: Path) -> Iterator[int]:
    """A new file to be linked or moved to its place; its own name is gone at the end."""
    try:
        with opened(path, os.O_RDWR | os.O_CREAT | os.O_EXCL) as fd:
            yield fd
    finally:
        with suppress(FileNotFoundError):
            path.unlink()


def publish(source: Path, target: Path, *, if_absent: bool) -> bool:
    """Give a finished file its name, atomically and durably; False if the name is taken and must not be."""
    if if_absent:
        try:
            os.link(source, target)
        except FileExistsError:
            return False
    else:
        source.replace(target)
    keep_name(target)
    return True


def keep_name(path: Path) -> None:
    """Make a file's name durable, also one that is found: whoever named it may have died before this."""
    try:
        sync_folder(path.parent)
    except OSError as e:
        raise OutcomeUnknownError(f"{path}: written, but perhaps not on disk: {e}") from e


def complete(fd: int, meta: Mapping[str, str]) -> None:
    """The last step before a file gets its name: metadata, an exact time for the etag, all of it on disk."""
    _set_meta(fd, meta)
    now = time.time_ns()
    os.utime(fd, ns=(now, now))
    os.fsync(fd)


def _set_meta(fd: int, meta: Mapping[str, str]) -> None:
    if not meta or not hasattr(os, "setxattr"):
        return
    try:
        os.setxattr(fd, _META, json.dumps({key.lower(): value for key, value in meta.items()}).encode())
    except OSError as e:
        if e.errno not in _NO_ATTRIBUTES:
            raise


def stat_of(fd: int) -> Stat:
    """Size, metadata, and an etag that differs from that of any earlier content of the same name.

    (A zombie that writes a part once more after the commit changes the etag, never the content.)
    """
    found = os.fstat(fd)
    etag = f"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}"
    return Stat(found.st_size, etag, _get_meta(fd), found.st_mtime_ns // 1_000_000)


def _get_meta(fd: int) -> dict[str, str]:
    if not hasattr(os, "getxattr"):
        return {}
    try:
        return {str(key): str(value) for key, value in parse_json(os.getxattr(fd, _META)).items()}
    except (ValueError, AttributeError):  # whoever has changed it: nothing depends on it
        return {}
    except OSError as e:
        if e.errno not in _NO_ATTRIBUTES:
            raise
        return {}


def walk(folder: Path, base: str, prefix: str, start_after: str) -> Iterator[tuple[str, int]]:
    """(key, size) of the files below a folder, in key order."""
    for name, entry in entries(folder, base, prefix, start_after):
        key = base + name
        if name.endswith("/"):
            yield from walk(Path(entry.path), key, prefix, start_after)
        else:
            with suppress(FileNotFoundError):  # deleted since the folder was read
                yield key, entry.stat().st_size


def entries(folder: Path, base: str, prefix: str = "", start_after: str = "") -> list[tuple[str, os.DirEntry[str]]]:
    """What may be wanted of a folder: nothing else is kept, however much there is."""
    # Sorted with the slash that folders have in keys: "a-b" comes before "a/b".
    try:
        with os.scandir(folder) as found:
            all_named = ((entry.name + "/" if entry.is_dir() else entry.name, entry) for entry in found)
            named = [item for item in all_named if rules.may_be_listed(base + item[0], prefix, start_after)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    helpers = () if base else tuple(f"{name}/" for name in rules.HELPER_FOLDERS)
    return sorted((item for item in named if item[0] not in helpers), key=lambda item: item[0])
