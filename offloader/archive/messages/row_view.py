"""Chosen rows, and what their messages and entries say, as numpy and Arrow arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offloader.archive.messages.arrays import binary_array
from offloader.archive.messages.contents import Contents
from offloader.archive.messages.entries import Entries
from offloader.archive.messages.envelopes import Envelopes
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
