"""One topic into Parquet files, within bounded memory."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from offloader.archive.items import EntryRun, Missing, ReadItem
from offloader.archive.messages.columns import entry_batches, message_batches
from offloader.archive.messages.encryption import KeyReader
from offloader.archive.messages.filters import MessageFilter
from offloader.archive.messages.schema import ENTRY_SCHEMA, MESSAGE_SCHEMA
from offloader.archive.selection import EVERYTHING, Selection
from offloader.archive.topic import ArchivedTopic
from offloader.errors import ConfigError, FatalError
from offloader.model import MIB, TopicName

VALUE, PROBLEM = "value", "__problem"
Advance = Callable[[int], None]
# What is held until it is written as a row group: readers read whole ones.
GROUP_BYTES = 32 * MIB
GROUP_ROWS = 1_000_000


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A finished file. `size` in bytes."""

    path: Path
    rows: int
    size: int


class ParquetFiles:
    """Writes one topic's rows: into one file, or into several of about `max_file_bytes` each; at least one, if need be
    without rows. A context manager: on an error the file under way stays unfinished. Raises FatalError where it cannot
    write.
    """

    def __init__(self, schema: pa.Schema, paths: Iterator[Path], max_file_bytes: int | None = None) -> None:
        self._done: list[WrittenFile] = []
        self._schema = schema
        self._paths = paths
        self._max = max_file_bytes
        self._group = GROUP_BYTES if max_file_bytes is None else min(GROUP_BYTES, max_file_bytes)
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0
        self._rows = 0
        self._file: _OpenFile | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Take a batch; `finish` writes it at the latest."""
        step = max(1, batch.num_rows * self._group // max(batch.nbytes, 1))
        for first in range(0, batch.num_rows, step):
            self._hold(batch.slice(first, step))

    def finish(self) -> list[WrittenFile]:
        """Write what is held, end the file, and return all files."""
        self._write_group()
        if not self._done:
            self._open_file()
        self._end_file()
        return self._done

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.abandon()

    def _hold(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._bytes += batch.nbytes
        self._rows += batch.num_rows
        if self._bytes >= self._group or self._rows >= GROUP_ROWS:
            self._write_group()

    def _write_group(self) -> None:
        if not self._held:
            return
        table = pa.Table.from_batches(self._held, self._schema)
        self._held, self._bytes, self._rows = [], 0, 0
        size = self._open_file().write(table)
        if self._max is not None and size >= self._max:
            self._end_file()

    def _open_file(self) -> _OpenFile:
        if self._file is None:
            self._file = _OpenFile(next(self._paths), self._schema)
        return self._file

    def _end_file(self) -> None:
        if self._file is not None:
            self._done.append(self._file.finish())
            self._file = None


class _OpenFile:
    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path = path
        self._rows = 0
        with _told(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._sink = pa.OSFile(str(path), "wb")
            self._writer = pq.ParquetWriter(self._sink, schema, compression="zstd")

    def write(self, table: pa.Table) -> int:
        """Write a row group; the file's bytes so far."""
        with _told(self._path):
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self._rows += table.num_rows
        return int(self._sink.tell())

    def finish(self) -> WrittenFile:
        with _told(self._path):
            self._writer.close()
            self._sink.close()
            _sync(self._path)
            return WrittenFile(self._path, self._rows, self._path.stat().st_size)

    def abandon(self) -> None:
        self._writer.is_open = False  # or it would write its end into a closed file when it is collected
        self._sink.close()


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FatalError(f"{path.name} cannot be written: {error.strerror or error}") from error


def _sync(path: Path) -> None:
    """A file that has its name must have its bytes, also after a crash."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to export. `columns` None: all; `keys` decrypts."""

    selection: Selection = EVERYTHING
    columns: tuple[str, ...] | None = None
    entries: bool = False
    keys: KeyReader | None = None

    @property
    def schema(self) -> pa.Schema:
        """The files' columns. Raises ConfigError."""
        whole = ENTRY_SCHEMA if self.entries else MESSAGE_SCHEMA
        unknown = [name for name in self.columns or () if name not in whole.names]
        if unknown:
            raise ConfigError(f"--columns: there is no column {unknown[0]}; there are {', '.join(whole.names)}")
        return whole if self.columns is None else pa.schema([whole.field(name) for name in self.columns])


@dataclass
class Tally:
    """What the export of a topic came across. `gaps`: positions of recorded gaps; `problems`: messages without their
    value, by the reason; `files`: the finished ones."""

    topic: TopicName
    rows: int = 0
    gaps: int = 0
    missing: list[Missing] = field(default_factory=list)
    problems: Counter[str] = field(default_factory=Counter)
    files: list[WrittenFile] = field(default_factory=list)

    def runs(self, items: Iterable[ReadItem], advance: Advance) -> Iterator[EntryRun]:
        """The entries; notes the rest. `advance` hears of their bytes."""
        for item in items:
            if isinstance(item, EntryRun):
                yield item
                advance(item.bounds[-1] - item.bounds[0])
            elif item.kind is not None:
                self.gaps += item.entries.span
            else:
                self.missing.append(item)


def export(source: ArchivedTopic, wanted: Wanted, files: ParquetFiles, advance: Advance) -> Tally:
    """Write a topic's rows. Raises what reading raises, and FatalError where a file cannot be written."""
    tally = Tally(source.name)
    runs = tally.runs(source.runs(wanted.selection), advance)
    for batch in _entries(source, wanted, runs) if wanted.entries else _messages(source, wanted, runs, tally):
        tally.rows += batch.num_rows
        files.add(batch)
    tally.files = files.finish()
    return tally


def _messages(
    source: ArchivedTopic, wanted: Wanted, runs: Iterator[EntryRun], tally: Tally
) -> Iterator[pa.RecordBatch]:
    names = wanted.schema.names
    # A value that is missing is counted, whether or not its reason is a column.
    read = names if VALUE not in names or PROBLEM in names else [*names, PROBLEM]
    times = MessageFilter(wanted.selection.published_from, wanted.selection.published_to)
    for batch in message_batches(runs, source.name, read, wanted=times, options=source.unpacking(wanted.keys)):
        if PROBLEM in read:
            found = batch.column(PROBLEM).drop_null().value_counts()
            tally.problems.update({one["values"].as_py(): one["counts"].as_py() for one in found})
        yield batch.select(names)


def _entries(source: ArchivedTopic, wanted: Wanted, runs: Iterator[EntryRun]) -> Iterator[pa.RecordBatch]:
    early, late = wanted.selection.published_from, wanted.selection.published_to
    return entry_batches(runs, source.name, wanted.schema.names, published_from=early, published_to=late)
