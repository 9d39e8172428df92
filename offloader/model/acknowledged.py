"""What of a topic a subscription has acknowledged, beyond its mark-delete. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from offloader.model.position import EntryRange

Place = tuple[int, int]
"""Ledger and entry; -1 is before a ledger's first entry, and -1:-1 before all of a topic."""


class AcknowledgedRange(NamedTuple):
    """Entries behind `after`, up to and including `last`; both are (ledger, entry), and may be of two ledgers."""

    after: Place
    last: Place


class PartlyAcknowledged(NamedTuple):
    """A batch of which some messages are acknowledged. `words`: 64 bits each, signed, the lowest bit first.

    1: still to be delivered, 0: acknowledged, and a missing word, too.
    """

    ledger: int
    entry: int
    words: tuple[int, ...]


def joined(ranges: Iterable[AcknowledgedRange]) -> tuple[AcknowledgedRange, ...]:
    """In order, overlapping ones and those that touch as one."""
    found: list[AcknowledgedRange] = []
    for one in sorted(ranges):
        if one.after >= one.last:
            continue
        if found and one.after <= found[-1].last:
            found[-1] = found[-1]._replace(last=max(found[-1].last, one.last))
        else:
            found.append(one)
    return tuple(found)


def by_ledger(ranges: Iterable[AcknowledgedRange], lengths: Sequence[tuple[int, int | None]]) -> Iterator[EntryRange]:
    """The same, split by ledger. `lengths`: the topic's ledgers in order with their entries, None: not known yet.

    What lies in ledgers that the topic does not list is left out, as a broker does.
    """
    ids = [ledger for ledger, _ in lengths]
    for one in ranges:
        for at in range(bisect_left(ids, one.after[0]), len(ids)):
            ledger, entries = lengths[at]
            if ledger > one.last[0]:
                break
            first = one.after[1] + 1 if ledger == one.after[0] else 0
            after = one.last[1] + 1 if ledger == one.last[0] else entries
            if after is not None and first < after:
                yield EntryRange(ledger, first, after)
