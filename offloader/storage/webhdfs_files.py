"""Files and folders of HDFS, as far as a store needs them. Paths are absolute."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

from offloader.errors import StoreUnavailableError
from offloader.storage.calls import looked_back
from offloader.storage.webhdfs_calls import Body, WebHdfsCalls


@dataclass(frozen=True, slots=True)
class File:
    """What a namenode says of a file or a folder. `number`: no other file ever has it, and a rename keeps it."""

    number: int
    size: int
    modified_at: int
    is_folder: bool = False

    @property
    def etag(self) -> str:
        """Changes whenever the content does: what we write under a name is always a new file."""
        return f"{self.number}-{self.size}-{self.modified_at}"


class WebHdfsFiles:
    """Operations on files, each atomic. `temporary`: the folder for files that have no name yet."""

    def __init__(self, calls: WebHdfsCalls, temporary: str) -> None:
        self._calls = calls
        self._temporary = temporary
        self.url = calls.url

    def status(self, path: str) -> File | None:
        """What is there, None if nothing is."""
        try:
            told = self._calls.read(f"looking at {path}", "GET", path, "GETFILESTATUS")
        except FileNotFoundError:
            return None
        return self._file(path, told, "FileStatus")

    def list(self, folder: str, after: str = "") -> Iterator[tuple[str, File]]:
        """Names in a folder, with the closing slash of folders, in the order of such names; from a name behind `after`
        on, which may be none that is there. Nothing where there is no folder."""
        held: list[tuple[str, File]] = []
        for name, file in self._pages(folder, after):
            while held and held[0][0] < name:  # a folder's slash may sort behind names that follow the folder's
                yield heapq.heappop(held)
            heapq.heappush(held, (f"{name}/" if file.is_folder else name, file))
        while held:
            yield heapq.heappop(held)

    def read(self, file: File, offset: int, length: int) -> bytes:
        """Bytes of exactly this file, whatever has its name by now. Raises FileNotFoundError."""
        if length <= 0:
            return b""
        path = f"/.reserved/.inodes/{file.number}"
        return self._calls.fetch(f"reading {length} bytes of file {file.number}", path, offset, length)

    def create(self, what: str, data: bytes) -> tuple[str, File]:
        """A new file without a name, which holds just these bytes: where it is, and what it is."""
        path = self._calls.create(what, self._new_path, data)
        return path, self._made(what, path, len(data))

    def stream(self, what: str, size: int, body: Body) -> tuple[str, File]:
        """The same, of so many bytes that do not fit into memory: what they are, who calls has to look at."""
        path = self._calls.stream(what, self._new_path, size, body)
        return path, self._made(what, path, size)

    def rename(self, source: str, file: File, target: str, *, replace: bool) -> None:
        """Give a file its name, in a folder that is made where it is missing. Raises FileExistsError where something
        has the name and is not to be replaced; FileNotFoundError where the source is gone."""
        if self._named(source, file, target, replace=replace):
            return
        self.make_folder(target.rpartition("/")[0])
        if not self._named(source, file, target, replace=replace):
            raise FileNotFoundError(source)

    def move(self, source: str, target: str, *, replace: bool = False) -> None:
        """Rename, where the target's folder is there. Raises FileExistsError, FileNotFoundError."""
        option = "OVERWRITE" if replace else "NONE"
        self._calls.write(
            f"renaming {source} to {target}", "PUT", source, "RENAME", destination=target, renameoptions=option
        )

    def renames_like_hadoop(self, source: str, target: str) -> bool:
        """Whether a rename to a name that is taken is refused in so many words. HttpFS does not know the option: it
        answers with a boolean."""
        try:
            self._calls.write(
                f"trying a rename to {target}", "PUT", source, "RENAME", destination=target, renameoptions="NONE"
            )
        except FileExistsError:
            return True
        return False

    def reads_by_number(self, file: File) -> bool:
        """Whether a file is found by its number. Routers do not know that path."""
        try:
            return len(self.read(file, 0, file.size)) == file.size
        except FileNotFoundError:
            return False

    def concat(self, target: str, sources: Sequence[str]) -> None:
        """Append files to another one, which takes their blocks: no bytes are copied, and they are gone. Raises
        FileNotFoundError where one is missing; UnsupportedError where these cannot be put together so."""
        self._calls.write(f"appending to {target}", "POST", target, "CONCAT", sources=",".join(sources))

    def make_folder(self, path: str) -> None:
        """With those above it."""
        self._calls.read(f"making the folder {path}", "PUT", path, "MKDIRS")

    def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file, or a folder with all that is in it. What is missing is no error."""
        self._calls.write(f"deleting {path}", "DELETE", path, "DELETE", recursive=str(recursive).lower())

    def _new_path(self) -> str:
        return f"{self._temporary}/{uuid4().hex}"

    def _made(self, what: str, path: str, size: int) -> File:
        made = self.status(path)
        if made is None or made.size != size:
            raise StoreUnavailableError(f"{self.url}: {what}: the file that was written is not there, or not whole")
        return made

    def _named(self, source: str, file: File, target: str, *, replace: bool) -> bool:
        """False where the source or the target's folder is missing. An earlier try that lost its answer may have moved
        the source."""
        try:
            self.move(source, target, replace=replace)
        except FileNotFoundError:
            found = looked_back(f"{self.url}: naming {target}", partial(self.status, target))
            return found is not None and found.number == file.number
        return True

    def _pages(self, folder: str, after: str) -> Iterator[tuple[str, File]]:
        left = 1
        while left:
            try:
                told = self._calls.read(f"listing {folder}", "GET", folder, "LISTSTATUS_BATCH", startAfter=after)
            except FileNotFoundError:
                return
            try:
                page = told["DirectoryListing"]
                found = page["partialListing"]["FileStatuses"]["FileStatus"]
                left = page["remainingEntries"] if found else 0
                names = [str(entry["pathSuffix"]) for entry in found]
            except (KeyError, TypeError) as error:
                raise StoreUnavailableError(f"{self.url}: listing {folder}: the answer is no listing") from error
            for name, entry in zip(names, found, strict=True):
                if name:  # else it is a file that was listed
                    yield name, self._file(f"{folder}/{name}", {"": entry}, "")
                    after = name

    def _file(self, path: str, told: Any, name: str) -> File:
        try:
            entry = told[name]
            return File(
                int(entry["fileId"]), int(entry["length"]), int(entry["modificationTime"]), entry["type"] == "DIRECTORY"
            )
        except (KeyError, TypeError, ValueError) as error:
            raise StoreUnavailableError(f"{self.url}: looking at {path}: the answer says nothing of a file") from error
