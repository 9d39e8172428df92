"""Adding up what entries' metadata say."""

from __future__ import annotations

from offloader.format.entry import EntryFacts
from offloader.format.many import ManyFacts
from offloader.model import EntryStats, Transaction

_HIGHEST = 1 << 64  # above every uint64
_LOWEST = -1


class StatsBuilder:
    """The sums and bounds of the entries added so far."""

    __slots__ = ("_aborted", "_bounds", "_messages", "_unreadable")

    def __init__(self) -> None:
        self._messages = 0
        self._bounds = [(_HIGHEST, _LOWEST)] * 3  # of publish time, broker time, broker index
        self._aborted: list[Transaction] = []
        self._unreadable = 0

    def add(self, facts: EntryFacts) -> None:
        """Count one entry in."""
        messages, *values, aborted, unreadable = facts
        self._messages += messages
        self._unreadable += unreadable
        for number, value in enumerate(values):
            if value is not None:
                self._bounds[number] = _joined(self._bounds[number], (value, value))
        if aborted is not None:
            self._aborted.append(aborted)

    def add_all(self, facts: ManyFacts, first: int, behind: int) -> None:
        """Count the entries number `first` to `behind` - 1 in, of which none is irregular."""
        self._messages += int(facts.messages[first:behind].sum())
        columns = (facts.publish_time, facts.broker_time, facts.broker_index)
        for number, column in enumerate(columns):
            self._bounds[number] = _joined(self._bounds[number], column.bounds(first, behind))

    def build(self) -> EntryStats:
        """What has been added so far."""
        bounds = (bound for pair in self._bounds for bound in (pair if pair[0] <= pair[1] else (None, None)))
        return EntryStats(self._messages, *bounds, aborted=tuple(self._aborted), unreadable=self._unreadable)


def _joined(bounds: tuple[int, int], others: tuple[int, int] | None) -> tuple[int, int]:
    return bounds if others is None else (min(bounds[0], others[0]), max(bounds[1], others[1]))
