"""Adding up what entries' metadata say."""

from __future__ import annotations

from offloader.format.entry import EntryFacts
from offloader.format.many import ManyFacts
from offloader.model import EntryStats, Transaction

_HIGHEST = 1 << 64  # above every uint64
_LOWEST = -1


class StatsBuilder:
    """The sums and bounds of the entries added so far."""

    __slots__ = ("_aborted", "_broker_time", "_index", "_messages", "_publish_time", "_unreadable")

    def __init__(self) -> None:
        self._messages = 0
        self._publish_time = (_HIGHEST, _LOWEST)
        self._broker_time = (_HIGHEST, _LOWEST)
        self._index = (_HIGHEST, _LOWEST)
        self._aborted: list[Transaction] = []
        self._unreadable = 0

    def add(self, facts: EntryFacts) -> None:
        """Count one entry in."""
        messages, publish_time, broker_time, index, aborted, unreadable = facts
        self._messages += messages
        self._unreadable += unreadable
        if publish_time is not None:
            self._publish_time = _widened(self._publish_time, publish_time)
        if broker_time is not None:
            self._broker_time = _widened(self._broker_time, broker_time)
        if index is not None:
            self._index = _widened(self._index, index)
        if aborted is not None:
            self._aborted.append(aborted)

    def add_all(self, facts: ManyFacts, first: int, behind: int) -> None:
        """Count the entries number `first` to `behind` - 1 in, of which none is odd."""
        self._messages += int(facts.messages[first:behind].sum())
        self._publish_time = _joined(self._publish_time, facts.publish_time.bounds(first, behind))
        self._broker_time = _joined(self._broker_time, facts.broker_time.bounds(first, behind))
        self._index = _joined(self._index, facts.broker_index.bounds(first, behind))

    def build(self) -> EntryStats:
        """What has been added so far."""
        times = (*_known(self._publish_time), *_known(self._broker_time), *_known(self._index))
        return EntryStats(self._messages, *times, aborted=tuple(self._aborted), unreadable=self._unreadable)


def _widened(bounds: tuple[int, int], value: int) -> tuple[int, int]:
    least, greatest = bounds
    if least <= value <= greatest:
        return bounds
    return (min(least, value), max(greatest, value))


def _joined(bounds: tuple[int, int], others: tuple[int, int] | None) -> tuple[int, int]:
    return bounds if others is None else (min(bounds[0], others[0]), max(bounds[1], others[1]))


def _known(bounds: tuple[int, int]) -> tuple[int, int] | tuple[None, None]:
    return bounds if bounds[0] <= bounds[1] else (None, None)
