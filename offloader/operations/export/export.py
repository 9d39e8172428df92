"""One topic into Parquet files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from offloader.archive.items import EntryRun, Missing, ReadItem
from offloader.archive.messages.columns import entry_batches, message_batches
from offloader.archive.messages.encryption import KeyReader
from offloader.archive.messages.filters import MessageFilter
from offloader.archive.messages.schema import ENTRY_SCHEMA, MESSAGE_SCHEMA
from offloader.archive.selection import EVERYTHING, Selection
from offloader.archive.topic import ArchivedTopic
from offloader.errors import ConfigError
from offloader.model import TopicName
from offloader.operations.export.parquet import ParquetFiles, WrittenFile

VALUE, PROBLEM = "value", "__problem"
Advance = Callable[[int], None]


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
