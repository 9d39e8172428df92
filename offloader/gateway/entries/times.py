"""The last entry that is older than a time, found by bisection as brokers do: times of a topic's entries mostly grow.

Where they do not (times are producers' clocks where no broker's is stored), what is found is older, and what follows it
is not; brokers promise no more (`PersistentMessageFinder`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from offloader.gateway.entries.delivered import time_of
from offloader.gateway.entries.lookup import EntryLookup
from offloader.gateway.values import BEFORE_ALL, ServedEntry
from offloader.model import Place

AT_ONCE = 64  # so many entries are read together


def last_before(time: int, look: EntryLookup, ledgers: Sequence[tuple[int, int, int]]) -> Place:
    """The place; BEFORE_ALL: none is older. `ledgers`: see the port."""

    def is_older(entry: ServedEntry | None) -> bool:
        said = None if entry is None else time_of(entry)
        return said is not None and said < time  # as brokers do it: what cannot be read is not older

    older = bisect_left(ledgers, True, key=lambda each: not is_older(look.first((each[1], 0))))
    if older == 0:
        return BEFORE_ALL
    _, ledger, last = ledgers[older - 1]
    first = _narrowed(last, lambda entry: is_older(look.first((ledger, entry))))
    found = BEFORE_ALL
    for entry in look.between((ledger, first), (ledger, min(first + AT_ONCE, last))):
        if not is_older(entry):
            break
        found = entry.place
    return found


def _narrowed(last: int, is_older_at: Callable[[int], bool]) -> int:
    """An entry id at which it is still older, and `AT_ONCE` behind which it is not, or the ledger ends."""
    first, after = 0, last + 1
    while after - first > AT_ONCE:
        middle = (first + after) // 2
        if is_older_at(middle):
            first = middle
        else:
            after = middle
    return first
