"""The entries of one run that consumers get, as columns: an entry is made when it is handed out. What is kept for those
who read it again is then a few lists, and nothing that Python's garbage collector goes through again and again."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate, repeat
from operator import sub
from typing import NamedTuple

from offloader.archive.items import EntryRun
from offloader.gateway.values import ServedEntry
from offloader.model import Place

_COPIED = 4096  # up to here a copy of an entry costs less than a view of it
_as_entry = partial(tuple.__new__, ServedEntry)


class Columns(NamedTuple):
    """Of each entry its number in the ledger, where it lies in the run's data, and what ServedEntry says of it."""

    entry: Sequence[int] = ()
    begin: Sequence[int] = ()
    end: Sequence[int] = ()
    skip: Sequence[int] = ()
    messages: Sequence[int] = ()
    sticky: Sequence[int] = ()
    deliver_at: Sequence[int] = ()


class ReadRun:
    """Threads may share it. `covered`: where the run ends. `size`: bytes that it holds in memory."""

    def __init__(self, run: EntryRun, columns: Columns) -> None:
        self.first: Place = run.start.place
        self.covered: Place = run.end.place
        self.size = run.bounds[-1] - run.bounds[0] if run.count else 0  # its neighbours hold the rest of the buffer
        self._ledger = run.ledger
        self._data = run.data
        self._columns = columns
        self._ends: list[int] = list(accumulate(map(sub, columns.end, columns.begin), initial=0))

    def __len__(self) -> int:
        return len(self._columns.entry)

    def entries(self, first: int = 0, after: int | None = None) -> list[ServedEntry]:
        """The entries number `first` to `after` - 1."""
        these = slice(first, after)
        entry, begin, end, *others = (column[these] for column in self._columns)
        columns = zip(zip(repeat(self._ledger), entry), self._slices(begin, end), *others, repeat(None), strict=False)
        return list(map(_as_entry, columns))  # a constructor for each would take as long as all the rest

    def bytes_between(self, first: int, after: int) -> int:
        """How long the entries number `first` to `after` - 1 are."""
        return self._ends[after] - self._ends[first]

    def up_to(self, first: int, most_entries: int, most_bytes: int) -> int:
        """Behind which number both bounds are reached, from entry number `first` on."""
        by_bytes = bisect_left(self._ends, self._ends[first] + most_bytes + 1) - 1
        return min(first + most_entries, by_bytes, len(self))

    def holds(self, place: Place) -> bool:
        """Whether a place is in it, whatever is there."""
        return self.first <= place <= self.covered

    def find(self, place: Place) -> ServedEntry | None:
        """The entry of this place; None: no consumer gets it."""
        number = bisect_left(self._columns.entry, place[1])
        found = self.entries(number, number + 1)
        return found[0] if found and found[0].place == place else None

    def _slices(self, begins: Sequence[int], ends: Sequence[int]) -> Iterator[bytes | memoryview]:
        """Copies of small entries; large ones stay where they were read into."""
        view, whole = self._data, self._data.obj
        data = whole if isinstance(whole, bytes) and len(whole) == len(view) else view
        for begin, end in zip(begins, ends, strict=True):
            yield data[begin:end] if end - begin <= _COPIED else view[begin:end]
