"""Adding up what pieces of an object hold of each ledger."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from offloader.model import LedgerRange


def merge_ranges(ranges: Iterable[LedgerRange]) -> tuple[LedgerRange, ...]:
    """Neighbouring ranges of the same ledger as one, in the order given. The last known `closed_with` wins."""
    merged: list[LedgerRange] = []
    for following in ranges:
        if merged and merged[-1].ledger == following.ledger:
            merged[-1] = _joined(merged[-1], following)
        else:
            merged.append(following)
    return tuple(merged)


def _joined(before: LedgerRange, after: LedgerRange) -> LedgerRange:
    closed_with = before.closed_with if after.closed_with is None else after.closed_with
    count, size = before.count + after.count, before.size + after.size
    return replace(before, after=after.after, count=count, size=size, closed_with=closed_with)
