"""Where an export goes: all of it appears at once, or nothing does."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Self

from offloader.errors import FatalError
from offloader.model import TopicName

SUFFIX = ".parquet"
_PART = re.compile(r"part-[0-9]{5,}\.parquet")


class Destination:
    """`FILE.parquet`, or a folder with `part-00000.parquet` and so on; of a partitioned topic one for each partition.

    Files are written into a folder beside the target, whose name begins with a dot; `publish` renames it. The end of
    this context removes it; only a killed process leaves it. Raises FatalError for what may not be replaced: a folder
    only if it holds nothing but such parts.
    """

    def __init__(self, path: Path, token: str, *, partitioned: bool, overwrite: bool) -> None:
        self.path = path.resolve()  # what a link leads to is replaced, not the link
        self.is_file = path.name.endswith(SUFFIX)
        self._partitioned = partitioned
        self._overwrite = overwrite
        self._staging = self.path.parent / f".{self.path.name}.{token}.partial"

    def paths(self, topic: TopicName) -> Iterator[Path]:
        """Where to write a topic's files until they are published; one path only where the target is a file."""
        if self.is_file:
            return iter([self._staging / self._final(topic).name])
        folder = self._staging / topic.encoded if self._partitioned else self._staging
        return (folder / f"part-{number:05}{SUFFIX}" for number in count())

    def final(self, staged: Path) -> Path:
        """Where a written file will be."""
        return (self.path.parent if self.is_file else self.path) / staged.relative_to(self._staging)

    def pattern(self, path: Path) -> Path:
        """The path as it was named; where each partition has a file, with `-partition-N` in its name."""
        return self._of_partition(path, "N") if self.is_file and self._partitioned else path

    def check(self, topics: list[TopicName]) -> None:
        """Raises FatalError where something is in the way."""
        try:
            for path in {self._final(topic) for topic in topics} if self.is_file else {self.path}:
                self._check(path)
        except OSError as error:
            raise FatalError(f"{self.path} cannot be written: {error.strerror}") from error

    def publish(self) -> None:
        """Give everything its name."""
        try:
            if self.is_file:
                for staged in sorted(self._staging.iterdir()):
                    self._check(self.final(staged))
                    staged.replace(self.final(staged))
            else:
                self._check(self.path)
                self._replace_folder()
        except OSError as error:
            raise FatalError(f"{self.path} cannot be written: {error.strerror}") from error

    def __enter__(self) -> Self:
        try:
            self._staging.mkdir(parents=True)
        except OSError as error:
            raise FatalError(f"{self._staging} cannot be made: {error.strerror}") from error
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._staging, ignore_errors=True)

    def _final(self, topic: TopicName) -> Path:
        if not self._partitioned:
            return self.path
        return self._of_partition(self.path, str(topic.partition))

    @staticmethod
    def _of_partition(path: Path, number: str) -> Path:
        return path.with_name(f"{path.name.removesuffix(SUFFIX)}-partition-{number}{SUFFIX}")

    def _check(self, path: Path) -> None:
        if not path.exists():
            return
        if not (path.is_file() if self.is_file else path.is_dir()):
            no_file = f"is no file; a name that ends with {SUFFIX} means one"
            raise FatalError(f"{path} {no_file if self.is_file else f'is no folder, and no file with {SUFFIX}'}")
        if not self.is_file and not any(path.iterdir()):
            return
        if not self._overwrite:
            raise FatalError(f"{path} is there already; --overwrite replaces it")
        if not self.is_file and not _is_export(path):
            raise FatalError(f"{path} has more in it than an export, and is not replaced; choose another folder")

    def _replace_folder(self) -> None:
        if not self.path.exists():
            self._staging.replace(self.path)
            return
        former = self._staging.with_suffix(".former")
        self.path.replace(former)
        try:
            self._staging.replace(self.path)
        except BaseException:  # a Ctrl-C, too
            former.replace(self.path)
            raise
        shutil.rmtree(former)


def _is_export(folder: Path) -> bool:
    """Whether it holds nothing but what an export writes."""
    return all(
        _PART.fullmatch(path.name) is not None if path.is_file() else path.is_dir() and "-partition-" in path.name
        for path in folder.rglob("*")
    )
