"""The columns of chosen rows, one function each: what is not asked for is not made. Which is which: `schema.py`.

A `RowView` has the rows, and what their messages and entries say, as numpy and Arrow arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offloader.archive.messages.arrays import (
    ENCRYPTION_KEYS,
    binary_array,
    encryption_value,
    id_array,
    map_array,
    number_array,
    text_array,
    time_array,
)
from offloader.archive.messages.contents import Contents
from offloader.archive.messages.entries import Entries, Envelopes
from offloader.archive.messages.envelope import unbase64
from offloader.archive.messages.filters import MessageFilter
from offloader.archive.messages.rows import Pairs, Rows
from offloader.format.scan import Int64s, Mask, Ranges
from offloader.model import TopicName


@dataclass(frozen=True)
class RowSources:
    """What rows point into."""

    topic: TopicName
    entries: Entries
    envelopes: Envelopes
    contents: Contents
    rows: Rows


class RowView:
    """Some rows. A row's "own" values are those of its message in a batch, or of its entry outside of batches."""

    def __init__(self, sources: RowSources, rows: Int64s) -> None:
        self.sources = sources
        self.entry = sources.rows.entry[rows]
        self.batch_index = sources.rows.batch_index[rows]
        self.in_batch = self.batch_index >= 0
        self._rows = rows
        self._inside = sources.rows.inside[rows]

    def __len__(self) -> int:
        return len(self._rows)

    def part(self, mask: Mask) -> RowView:
        """Those of the rows that the mask chooses."""
        return self if mask.all() else RowView(self.sources, self._rows[mask])

    def values(self) -> Ranges:
        """Where the values lie in the contents' data."""
        return self.sources.rows.value[self._rows]

    def properties(self) -> list[Pairs]:
        """Properties with the rows' numbers in this view."""
        place = np.full(len(self.sources.rows.entry), -1, np.int64)
        place[self._rows] = np.arange(len(self._rows))
        found = []
        for pairs in self.sources.rows.properties:
            row = place[pairs.row]
            mine = row >= 0
            found.append(Pairs(pairs.data, row[mine], pairs.key[mine], pairs.value[mine]))
        return found

    def entry_number(self, name: str) -> Int64s:
        """A number of the entry's metadata."""
        return self.sources.envelopes.metadata.number(name)[self.entry]

    def entry_flag(self, name: str) -> Mask:
        return self.sources.envelopes.metadata.flag(name)[self.entry]

    def entry_bytes(self, name: str) -> pa.Array:
        """Bytes of the entry's metadata, null where it has none."""
        metadata = self.sources.envelopes.metadata
        return binary_array(self.sources.entries.data, metadata.bytes(name), metadata.has(name)).take(
            pa.array(self.entry)
        )

    def own_flag(self, name: str) -> Mask:
        return np.where(self._inside, self.sources.rows.single.flag(name)[self._rows], self.entry_flag(name))

    def own_or_entry_number(self, name: str) -> Int64s:
        """The message's own number; the entry's where it has none."""
        single = self.sources.rows.single
        own = self._inside & single.has(name)[self._rows]
        return np.where(own, single.number(name)[self._rows], self.entry_number(name))

    def own_bytes(self, name: str, valid: Mask | None = None) -> pa.Array:
        """Null where there are none, and where not `valid`."""
        inside = self._inside
        valid = np.ones(len(self), np.bool_) if valid is None else valid
        if inside.all():
            return self._single_bytes(name, valid)
        metadata = self.sources.envelopes.metadata
        present = metadata.has(name)[self.entry] & valid & ~inside
        outer = binary_array(self.sources.entries.data, metadata.bytes(name)[self.entry], present)
        if not inside.any():
            return outer
        return pc.if_else(pa.array(inside), self._single_bytes(name, valid & inside), outer)

    def _single_bytes(self, name: str, valid: Mask) -> pa.Array:
        single = self.sources.rows.single
        present = single.has(name)[self._rows] & valid
        return binary_array(self.sources.contents.data, single.bytes(name)[self._rows], present)


def matching(view: RowView, wanted: MessageFilter) -> Mask:
    """Which rows have the keys and properties that are wanted."""
    found = np.ones(len(view), np.bool_)
    if wanted.keys is not None:
        keys = pa.array(sorted(wanted.keys), pa.binary())
        found &= pc.is_in(key(view), value_set=keys).to_numpy(zero_copy_only=False)
    if wanted.properties:
        pairs = properties(view)
        row = np.repeat(np.arange(len(view)), np.diff(pairs.offsets.to_numpy()))
        for name, wanted_value in wanted.properties.items():
            same = pc.and_(pc.equal(pairs.keys, name), pc.equal(pairs.items, wanted_value))
            found &= np.isin(np.arange(len(view)), row[same.to_numpy(zero_copy_only=False)])
    return found


def value(view: RowView) -> pa.Array:
    """The payloads; null for null values, and where there is a problem."""
    contents = view.sources.contents
    valid = ~(view.own_flag("null_value") | view.entry_flag("null_value"))
    if contents.problem:
        valid &= ~np.isin(view.entry, list(contents.problem))
    return binary_array(contents.data, view.values(), valid)


def key(view: RowView) -> pa.Array:
    """The keys' bytes, decoded where a client had put them into base64."""
    keys = view.own_bytes("partition_key", ~view.own_flag("null_partition_key"))
    coded = view.own_flag("partition_key_b64_encoded")
    if not coded.any():
        return keys
    pairs = zip(keys.to_pylist(), coded.tolist(), strict=True)
    return pa.array(
        [unbase64(each) if is_coded and each is not None else each for each, is_coded in pairs], pa.binary()
    )


def message_id(view: RowView) -> pa.Array:
    """The ids as clients write them to bytes."""
    sources, partition = view.sources, view.sources.topic.partition
    return id_array([
        (1, sources.entries.ledger[view.entry], None),
        (2, sources.entries.entry[view.entry], None),
        (3, np.full(len(view), max(partition, 0)), np.full(len(view), partition >= 0)),
        (4, np.maximum(view.batch_index, 0), view.in_batch),
        (6, sources.envelopes.messages[view.entry], view.in_batch),
    ])  # fmt: skip


def properties(view: RowView) -> pa.Array:
    """The properties, each name of a message once."""
    found = view.properties()
    row = np.concatenate([pairs.row for pairs in found]) if found else np.zeros(0, np.int64)
    nothing = pa.array([], pa.binary())
    keys = pa.concat_arrays([nothing, *(binary_array(pairs.data, pairs.key) for pairs in found)])
    values = pa.concat_arrays([nothing, *(binary_array(pairs.data, pairs.value) for pairs in found)])
    if len(found) > 1:
        order = np.argsort(row, kind="stable")
        row, keys, values = row[order], keys.take(pa.array(order)), values.take(pa.array(order))
    return map_array(len(view), row, text_array(keys), text_array(values))


def event_time(view: RowView) -> pa.Array:
    """The times that applications gave; 0 means none, as in clients."""
    times = view.own_or_entry_number("event_time")
    return time_array(times, times != 0)


def text_of(name: str) -> Callable[[RowView], pa.Array]:
    """The text of a field of the entry's metadata."""
    return lambda view: text_array(view.entry_bytes(name))


def broker_time(view: RowView) -> pa.Array:
    """When the broker took the entries."""
    broker = view.sources.envelopes.broker
    return time_array(broker.number("broker_timestamp")[view.entry], broker.has("broker_timestamp")[view.entry])


def broker_index(view: RowView) -> pa.Array:
    """The entry's index is that of its last message."""
    envelopes = view.sources.envelopes
    behind: Int64s = np.where(view.in_batch, envelopes.messages[view.entry] - 1 - view.batch_index, 0)
    index, known = envelopes.broker.number("index"), envelopes.broker.has("index")
    return number_array(index[view.entry] - behind, pa.int64(), known[view.entry])


def encryption_keys(view: RowView) -> pa.Array:
    """The keys of entries that were encrypted."""
    found = view.sources.contents.encryption
    if not found:
        return pa.nulls(len(view), ENCRYPTION_KEYS)
    return pa.array([encryption_value(found.get(entry)) for entry in view.entry.tolist()], ENCRYPTION_KEYS)


def problem(view: RowView) -> pa.Array:
    """Why values are not there."""
    found = view.sources.contents.problem
    if not found:
        return pa.nulls(len(view), pa.string())
    return pa.array([found.get(entry) for entry in view.entry.tolist()], pa.string())
