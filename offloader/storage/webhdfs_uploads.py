"""Multipart uploads in HDFS.

An upload is a folder `.uploads/<id>/` under the root, with `upload.json` (version, key, begin) and a file for each
part, whose name has its number, size and CRC32C: parts of other bytes do not meet. A part is written without a name and
then renamed into the folder, which fails where the folder is gone.

The commit first renames the folder to `<id>.closed`: no part comes any more. Then it makes the first part the object
and appends the others to it. HDFS does that by handing over their blocks: no bytes are copied, and each request is
atomic, so the object's length says at any moment which parts it has. Whoever repeats a commit goes on from there,
also beside another one: who is late finds the sources gone, and looks again. At last a rename gives the object its key.

Where the namenode refuses to hand over blocks (in encryption zones, for one) they are read and written again, in
pieces, and what has come of it is read back.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from offloader.errors import PartRejectedError, StoreUnavailableError
from offloader.ports.object_store import UploadedPart
from offloader.storage.rules import UPLOAD_VERSION, holds_parts, part_etag
from offloader.storage.webhdfs_calls import UnsupportedError
from offloader.storage.webhdfs_files import File, WebHdfsFiles

CLOSED = ".closed"
DESCRIPTION = "upload.json"
OBJECT = "object"
SOURCES = 100  # of one request
LONGEST_NAMES = 16_000  # characters of theirs in its URL; namenodes take headers of 64 KiB
COPY_SIZE = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class WebHdfsUpload:
    """One upload."""

    files: WebHdfsFiles
    folder: str

    @property
    def closed(self) -> str:
        """Where it is while it is committed."""
        return self.folder + CLOSED

    def create(self, key: str, began_at: int) -> None:
        """Make it appear complete or not at all."""
        text = json.dumps({"version": UPLOAD_VERSION, "key": key, "began_at": began_at}).encode()
        path, made = self.files.create(f"beginning {key}", text)
        spare = f"{path}-folder"
        self.files.rename(path, made, f"{spare}/{DESCRIPTION}", replace=False)
        folder = self.files.status(spare)
        assert folder is not None, f"{spare} was just made"
        self.files.rename(spare, folder, self.folder, replace=False)

    def is_open(self) -> bool:
        """Whether it takes parts."""
        return self.files.status(self.folder) is not None

    def write(self, part: UploadedPart, data: bytes) -> None:
        """Raises FileNotFoundError where the upload is gone."""
        target = f"{self.folder}/{_name(part)}"
        path, _ = self.files.create(f"writing {target}", data)
        try:
            self.files.move(path, target)
        except FileExistsError:  # sent before, with the same bytes
            self.files.remove(path)
        except FileNotFoundError:
            if self.files.status(target) is None:
                self.files.remove(path)
                raise

    def close(self, parts: Sequence[UploadedPart]) -> None:
        """Let no part come any more. Raises PartRejectedError, and leaves it open, where not all of these are there;
        FileNotFoundError where it is gone."""
        there = dict(self.files.list(self.folder))
        missing = [part for part in parts if _size(there.get(_name(part))) != part.size]
        if missing and self.is_open():  # else it was closed while it was listed, which a listing does not tell
            raise PartRejectedError(f"{self.folder}: part {missing[0].number} is missing or is another one")
        try:
            self.files.move(self.folder, self.closed)
        except FileNotFoundError:
            if self.files.status(self.closed) is None:
                raise

    def assemble(self, parts: Sequence[UploadedPart]) -> tuple[str, File]:
        """The file that consists of these parts, and has no key yet. Raises FileNotFoundError where it has one by now,
        or where the upload is gone; PartRejectedError where it was begun with other parts."""
        whole = f"{self.closed}/{OBJECT}"
        if self.files.status(whole) is None:
            self._begin_with(parts[0], whole)
        ends = list(itertools.accumulate(part.size for part in parts))
        while True:
            found = self.files.status(whole)
            if found is None:
                raise FileNotFoundError(whole)
            if found.size not in ends:
                raise PartRejectedError(f"{self.folder}: a commit of other parts was begun")
            missing = [part for part, end in zip(parts, ends, strict=True) if end > found.size]
            if not missing:
                return whole, found
            try:
                self._append(whole, found, missing)
            except UnsupportedError:
                self._copy(whole, found, parts, missing)

    def remove(self) -> None:
        """End it: afterwards nothing can be created in it."""
        self.files.remove(self.folder, recursive=True)
        self.files.remove(self.closed, recursive=True)

    def _begin_with(self, part: UploadedPart, whole: str) -> None:
        try:
            self.files.move(f"{self.closed}/{_name(part)}", whole)
        except (FileNotFoundError, FileExistsError):  # an earlier try, or another commit, was first
            if self.files.status(whole) is None:
                raise FileNotFoundError(whole) from None

    def _append(self, whole: str, found: File, missing: Sequence[UploadedPart]) -> None:
        sources = [f"{self.closed}/{_name(part)}" for part in missing if part.size]
        most = min(SOURCES, 1 + LONGEST_NAMES // len(quote(sources[0], safe="")))
        try:
            self.files.concat(whole, sources[:most])
        except FileNotFoundError:
            now = self.files.status(whole)
            if now is not None and now.size == found.size:
                raise PartRejectedError(f"{self.folder}: parts were removed while they were put together") from None

    def _copy(self, whole: str, found: File, parts: Sequence[UploadedPart], missing: Sequence[UploadedPart]) -> None:
        sources = [found]
        for part in missing:
            source = self.files.status(f"{self.closed}/{_name(part)}")
            if source is None or source.size != part.size:
                raise PartRejectedError(f"{self.folder}: part {part.number} is missing or is another one")
            sources.append(source)
        size = sum(source.size for source in sources)
        path, copy = self.files.stream(f"copying {len(sources)} files", size, lambda: self._bytes_of(sources))
        if not holds_parts(lambda at, length: self.files.read(copy, at, length), copy.size, parts):
            self.files.remove(path)
            raise StoreUnavailableError(f"{self.files.url}: copying {len(sources)} files: other bytes have arrived")
        self.files.move(path, whole, replace=True)

    def _bytes_of(self, sources: Sequence[File]) -> Iterator[bytes]:
        for source in sources:
            for at in range(0, source.size, COPY_SIZE):
                yield self.files.read(source, at, min(COPY_SIZE, source.size - at))


def _size(file: File | None) -> int:
    return -1 if file is None else file.size


def _name(part: UploadedPart) -> str:
    return f"{part.number:05}-{part_etag(part.size, part.crc32c)}"
