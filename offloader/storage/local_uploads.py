"""Multipart uploads in a file system.

An upload is a folder `.uploads/<id>/` under the root: `upload.json` (version, key, metadata, begin), `data`, and the
parts' *claims*. Parts are written in place: part n's bytes go straight to their offset in `data`, which the commit only
renames, so that no byte is written twice. What makes this safe against tasks that run twice, die, or come back as
zombies:

* Before a part is written in place it claims its range: a symbolic link `<n>` whose target's text is
  `<offset>-<size>-<crc32c>`. A link is created atomically with its content, the first one wins, and none ever changes.
* A claim must begin where that of part n-1 ends, so claimed ranges never overlap: what is written in place to a range
  is always the same bytes, however often and by whomever, also after the commit.
* Anything else (a part with other bytes than the claimed, or that arrives before its predecessor) goes to a side file
  `<n>.<size>-<crc32c>`.
* The commit of N parts first claims N+1 as `end`: then nobody can lengthen `data` any more, and a rename publishes it.
  If a named part is in a side file, or N+1 is claimed by a part that is not named, a fresh file is copied together
  instead, checked by CRC32C; zombies still write only to `data`.
* Abort and the end of a commit move the whole folder away. Files are opened inside it by path, `data` without O_CREAT:
  who comes later finds nothing and creates nothing.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from crc32c import crc32c as checksum

from offloader.errors import PartRejectedError, UploadGoneError
from offloader.json_text import parse_json
from offloader.ports.object_store import UploadedPart
from offloader.storage.local_files import complete, opened, read_at, sync_folder, temporary, uncache, write_at
from offloader.storage.rules import (
    LARGEST_DESCRIPTION,
    UPLOAD_VERSION,
    check_upload_version,
    part_etag,
    total_size,
)

_END = "end"


@dataclass(frozen=True, slots=True)
class UploadInfo:
    """What was said at begin."""

    key: str
    began_at: int
    meta: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Claim:
    offset: int
    size: int
    crc: int

    def __str__(self) -> str:
        return f"{self.offset}-{self.size}-{self.crc:08x}"

    @classmethod
    def parse(cls, text: str) -> _Claim:
        offset, size, crc = text.split("-")
        return cls(int(offset), int(size), int(crc, 16))


@dataclass(frozen=True, slots=True)
class UploadFolder:
    """One upload. `FileNotFoundError` from any method: it is gone."""

    folder: Path
    spare: Path  # a name for temporary files and folders, unused so far, in the same file system

    def create(self, info: UploadInfo) -> None:
        """Make it appear complete or not at all."""
        self.spare.mkdir()
        text = json.dumps({"version": UPLOAD_VERSION, **asdict(info)})
        for name, content in (("upload.json", text.encode()), ("data", b"")):
            with opened(self.spare / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd:
                write_at(fd, content)
                os.fsync(fd)
        sync_folder(self.spare)
        self.spare.rename(self.folder)
        sync_folder(self.folder.parent)

    def info(self) -> UploadInfo:
        """Key, metadata and begin. An upload that a broken disk has left without them is as good as gone. Raises
        FormatVersionError."""
        path = self.folder / "upload.json"
        try:
            with opened(path, os.O_RDONLY) as fd:
                said = parse_json(read_at(fd, 0, LARGEST_DESCRIPTION))
            check_upload_version(str(path), said)
            said.pop("version", None)
            return UploadInfo(**said)
        except (ValueError, TypeError, AttributeError) as error:
            raise FileNotFoundError(errno.ENOENT, "no description of an upload", str(self.folder)) from error

    def write(self, number: int, offset: int, data: bytes | memoryview, crc: int) -> str:
        """Write a part to its place or to a side file, durably; its etag."""
        if self._claim(number, _Claim(offset, len(data), crc)):
            with opened(self.folder / "data", os.O_WRONLY) as fd:
                write_at(fd, data, offset)
                os.fsync(fd)
                uncache(fd, offset, len(data))
        else:
            self._write_aside(number, data, crc)
        sync_folder(self.folder)
        return part_etag(len(data), crc)

    def finish(self, parts: Sequence[UploadedPart], target: Path) -> Path:
        """Bring exactly these parts into one durable file; its path: `data`, or `target` where it had to copy them."""
        if self._closed_after(parts):
            return self._finish_in_place(parts)
        self._copy(parts, target)
        return target

    def remove(self) -> None:
        """End it: afterwards nothing can be created in it."""
        try:
            self.folder.rename(self.spare)
        except FileNotFoundError:
            return
        # What cannot be removed now is no longer an upload, and swept as a left-over later.
        shutil.rmtree(self.spare, ignore_errors=True)

    def _claim(self, number: int, wanted: _Claim) -> bool:
        found = self._claimed(number)
        if found is None and self._continues(number, wanted.offset):
            found = self._link(number, str(wanted))
        return found == str(wanted)

    def _continues(self, number: int, offset: int) -> bool:
        if number == 1:
            return offset == 0
        before = self._claimed(number - 1)
        if before in (None, _END):
            return False
        claim = _Claim.parse(str(before))
        return claim.offset + claim.size == offset

    def _claimed(self, number: int) -> str | None:
        try:
            return str((self.folder / str(number)).readlink())
        except FileNotFoundError:
            return None

    def _link(self, number: int, text: str) -> str | None:
        try:
            (self.folder / str(number)).symlink_to(text)
        except FileExistsError:
            return self._claimed(number)
        return text

    def _write_aside(self, number: int, data: bytes | memoryview, crc: int) -> None:
        with temporary(self.spare) as fd:
            write_at(fd, data)
            os.fsync(fd)
            self.spare.rename(self._aside(number, len(data), crc))

    def _aside(self, number: int, size: int, crc: int) -> Path:
        return self.folder / f"{number}.{part_etag(size, crc)}"

    def _closed_after(self, parts: Sequence[UploadedPart]) -> bool:
        offset = 0
        for part in parts:
            if self._claimed(part.number) != str(_Claim(offset, part.size, part.crc32c)):
                return False
            offset += part.size
        return self._link(len(parts) + 1, _END) == _END

    def _finish_in_place(self, parts: Sequence[UploadedPart]) -> Path:
        data, info = self.folder / "data", self.info()
        with opened(data, os.O_RDWR) as fd:
            if os.fstat(fd).st_size != total_size(parts):
                raise PartRejectedError(f"{info.key}: parts were begun that were never written completely")
            complete(fd, info.meta)
        return data

    def _copy(self, parts: Sequence[UploadedPart], target: Path) -> None:
        info = self.info()
        with opened(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as out:
            offset = 0
            for part in parts:
                write_at(out, self._read_part(info.key, part), offset)
                offset += part.size
            complete(out, info.meta)

    def _read_part(self, key: str, part: UploadedPart) -> bytes:
        for path, offset in self._places(part):
            with opened(path, os.O_RDONLY) as fd:
                data = read_at(fd, offset, part.size)
            if len(data) == part.size and checksum(data) == part.crc32c:
                return data
        if not self.folder.exists():
            raise FileNotFoundError(self.folder)
        raise PartRejectedError(f"{key}: part {part.number} is missing or is another one")

    def _places(self, part: UploadedPart) -> Iterator[tuple[Path, int]]:
        text = self._claimed(part.number)
        if text not in (None, _END):
            yield self.folder / "data", _Claim.parse(str(text)).offset
        aside = self._aside(part.number, part.size, part.crc32c)
        if aside.exists():
            yield aside, 0


def gone(key: str) -> UploadGoneError:
    """The error of an upload that is no more."""
    return UploadGoneError(f"the upload of {key} is gone")
