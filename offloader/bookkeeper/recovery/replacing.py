"""Other bookies in place of those that do not take what is written back. Pure.

As in BookKeeper's own recovery, the change is written only together with the ledger's end. Were it written before,
another recovery would ask the new bookies, which have nothing yet, and cut the ledger off.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from offloader.bookkeeper.model import Fragment, LedgerMetadata


class Replaced(NamedTuple):
    """From this entry on, another bookie has the place of one."""

    first_entry: int
    bookie: str
    by: str

    def __str__(self) -> str:
        return f"from entry {self.first_entry} on {self.by} in place of {self.bookie}"


def spares(metadata: LedgerMetadata, writable: Collection[str]) -> tuple[str, ...]:
    """Those that can take the place of a bookie of the last ensemble."""
    return tuple(bookie for bookie in writable if bookie not in metadata.fragments[-1].ensemble)


class Change(NamedTuple):
    """`taken`: those that have others' places now; `replaced`: those others."""

    metadata: LedgerMetadata
    taken: tuple[str, ...]
    replaced: tuple[str, ...]


def with_others(metadata: LedgerMetadata, first_entry: int, refused: Collection[str], usable: Sequence[str]) -> Change:
    """From this entry on, the next usable bookies in place of those of the last ensemble that refused, as far as they
    go. Everything before that entry must be safe where it is."""
    *before, last = metadata.fragments
    places = [place for place, bookie in enumerate(last.ensemble) if bookie in refused]
    changes = dict(zip(places, usable, strict=False))
    ensemble = tuple(changes.get(place, bookie) for place, bookie in enumerate(last.ensemble))
    kept = [*before, last] if last.first_entry < first_entry else before
    changed = replace(metadata, fragments=(*kept, Fragment(first_entry, ensemble)))
    gone = dict.fromkeys(last.ensemble[place] for place in changes)
    return Change(changed, tuple(changes.values()), tuple(bookie for bookie in gone if bookie not in ensemble))


def replaced(before: LedgerMetadata, after: LedgerMetadata) -> Iterator[Replaced]:
    """Who took whose place in a recovery that began with `before` and closed with `after`."""
    old = before.fragments[-1].ensemble
    for fragment in after.fragments[len(before.fragments) - 1 :]:
        pairs = zip(old, fragment.ensemble, strict=True)
        yield from (Replaced(fragment.first_entry, bookie, by) for bookie, by in pairs if bookie != by)
        old = fragment.ensemble
