"""Streams of entries as Arrow record batches of messages, or of the entries themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from offloader.archive.items import EntryRun
from offloader.archive.messages.contents import Opener
from offloader.archive.messages.entries import Entries, Envelopes, committed, gathered, parse_envelopes
from offloader.archive.messages.filters import MessageFilter, publish_time
from offloader.archive.messages.message import Message
from offloader.archive.messages.payloads import UnpackOptions
from offloader.archive.messages.row_columns import RowSources, RowView, matching
from offloader.archive.messages.rows import make_rows
from offloader.archive.messages.schema import (
    ENTRY_COLUMN_OF,
    ENTRY_SCHEMA,
    MESSAGE_COLUMN_OF,
    MESSAGE_SCHEMA,
    PUBLISHED,
    EntryTimes,
    needs_of,
)
from offloader.format.scan import Int64s, Mask
from offloader.model import MIB, TopicName

MAX_ROWS = 65_536
MAX_BYTES = 16 * MIB
_NO_TIMES = EntryTimes(np.zeros(0, np.int64), np.zeros(0, np.bool_))


def message_batches(
    runs: Iterable[EntryRun],
    topic: TopicName,
    columns: Sequence[str] | None = None,
    *,
    wanted: MessageFilter | None = None,
    options: UnpackOptions | None = None,
    gather: bool = True,
    max_rows: int = MAX_ROWS,
    max_bytes: int = MAX_BYTES,
) -> Iterator[pa.RecordBatch]:
    """The messages of entries in the topic's order, with these columns of MESSAGE_SCHEMA (None: all; none: only a
    count).

    A batch has at most `max_rows` rows, and about `max_bytes` of payloads unless one entry has more. `gather`: small
    runs wait for more to come. Whatever the columns are, the rows are the same, so batches are always opened; of other
    messages nothing is parsed or decompressed that no column needs. Raises DamagedObjectError naming position and
    offset, KeyError for an unknown column.
    """
    options = options or UnpackOptions()
    maker = _Maker(topic, columns, wanted or MessageFilter(), options)
    for entries in gathered((kept for run in runs for kept in committed(run, options.aborted())), wait=gather):
        envelopes = parse_envelopes(entries, maker.needs.fields)
        for first, last in _parts(envelopes.size, max_bytes):
            whole = last - first == len(entries)
            part = entries if whole else entries.part(first, last)
            for batch in maker.batches(part, envelopes if whole else parse_envelopes(part, maker.needs.fields)):
                yield from _sliced(batch, max_rows)


def entry_batches(
    runs: Iterable[EntryRun],
    topic: TopicName,
    columns: Sequence[str] | None = None,
    *,
    published_from: int | None = None,
    published_to: int | None = None,
    gather: bool = True,
    max_rows: int = MAX_ROWS,
) -> Iterator[pa.RecordBatch]:
    """Entries as they are, with these columns of ENTRY_SCHEMA; with times (ms, both included) those that say such a
    publish time.

    `gather`: small runs wait for more to come. Raises KeyError for an unknown column.
    """
    schema = _schema(ENTRY_SCHEMA, columns)
    wanted = [ENTRY_COLUMN_OF[name] for name in schema.names]
    timed = published_from is not None or published_to is not None
    for entries in gathered(runs, wait=gather):
        times = _times(entries) if timed or PUBLISHED in schema.names else _NO_TIMES
        batch = _batch(schema, [column.of_entries(entries, topic, times) for column in wanted], len(entries))
        if timed:
            batch = batch.filter(pa.array(times.known & _within(times.ms, published_from, published_to)))
        yield from _sliced(batch, max_rows)


def _within(times: Int64s, published_from: int | None, published_to: int | None) -> Mask:
    found = np.ones(len(times), np.bool_)
    if published_from is not None:
        found &= times >= published_from
    if published_to is not None:
        found &= times <= published_to
    return found


def _times(entries: Entries) -> EntryTimes:
    envelopes = parse_envelopes(entries, ())
    ms, known = envelopes.metadata.number("publish_time").copy(), ~envelopes.irregular
    for number in np.flatnonzero(envelopes.irregular).tolist():
        time = publish_time(bytes(entries.bytes(number)))
        if time is not None:
            ms[number], known[number] = time, True
    return EntryTimes(ms, known)


class _Maker:
    """Makes record batches of entries' messages, in the topic's order."""

    def __init__(
        self, topic: TopicName, columns: Sequence[str] | None, wanted: MessageFilter, options: UnpackOptions
    ) -> None:
        self._topic = topic
        self._wanted = wanted
        self._schema = _schema(MESSAGE_SCHEMA, columns)
        self._opener = Opener(options, self._wanted)
        self._columns = [MESSAGE_COLUMN_OF[name] for name in self._schema.names]
        self.needs = needs_of(self._schema.names, wanted)

    def batches(self, entries: Entries, envelopes: Envelopes) -> Iterator[pa.RecordBatch]:
        """Those entries that were unpacked one by one are batches of their own."""
        wanted, metadata = self._wanted, envelopes.metadata
        in_time = _within(metadata.number("publish_time"), wanted.published_from, wanted.published_to)
        contents = self._opener.open(entries, envelopes, metadata.has("marker_type") | ~in_time, self.needs)
        rows = make_rows(entries, envelopes, contents, self.needs)
        for number in np.flatnonzero(rows.irregular & ~contents.dropped).tolist():
            self._opener.unpack_alone(contents, entries, number)
        live = rows.live & ~rows.irregular[rows.entry]
        view = RowView(RowSources(self._topic, entries, envelopes, contents, rows), np.flatnonzero(live))
        view = view.part(matching(view, wanted))
        at = 0
        for number in sorted(contents.alone):
            before = int(np.searchsorted(view.entry, number))
            yield from self._of_rows(view, at, before)
            yield from self._of_messages(contents.alone[number])
            at = before
        yield from self._of_rows(view, at, len(view))

    def _of_rows(self, view: RowView, first: int, last: int) -> Iterator[pa.RecordBatch]:
        if first == last:
            return
        if last - first < len(view):
            chosen = np.zeros(len(view), np.bool_)
            chosen[first:last] = True
            view = view.part(chosen)
        yield _batch(self._schema, [column.of_rows(view) for column in self._columns], len(view))

    def _of_messages(self, messages: list[Message]) -> Iterator[pa.RecordBatch]:
        if messages:
            arrays = [pa.array([c.of_message(m, self._topic) for m in messages], c.type) for c in self._columns]
            yield _batch(self._schema, arrays, len(messages))


def _schema(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    return schema if columns is None else pa.schema([schema.field(name) for name in columns])


def _batch(schema: pa.Schema, arrays: list[pa.Array], rows: int) -> pa.RecordBatch:
    if not arrays:  # a batch without columns still has rows: they are counted
        return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), rows, [None]))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _parts(sizes: Int64s, most: int) -> Iterator[tuple[int, int]]:
    """Consecutive entries whose sizes are at most `most` together, at least one at a time."""
    total = np.cumsum(sizes)
    first = 0
    while first < len(sizes):
        before = int(total[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(total, before + most, side="right")))
        yield first, last
        first = last


def _sliced(batch: pa.RecordBatch, max_rows: int) -> Iterator[pa.RecordBatch]:
    for first in range(0, batch.num_rows, max_rows):
        yield batch.slice(first, max_rows)
