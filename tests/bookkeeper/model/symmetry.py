"""Bookies that play the same part have names only: of states that differ in those, one stands for all."""

from __future__ import annotations

from itertools import permutations
from typing import NamedTuple

from offloader.bookkeeper.model import LedgerMetadata
from offloader.bookkeeper.recovery.decisions import write_sets
from tests.bookkeeper.model.clients import Clients, Renamed
from tests.bookkeeper.model.remembering import remembered
from tests.bookkeeper.model.world import ENTRIES, Ensembles, Ledger, Ledgers, State


class Renaming(NamedTuple):
    """`new[a]` is what bookie a is called, `old[b]` who is called b."""

    new: tuple[int, ...]
    old: tuple[int, ...]
    names: dict[str, str]


class Symmetry:
    def __init__(self, metadata: LedgerMetadata, spares: int, ledgers: Ledgers, clients: Clients) -> None:
        self._ledgers = ledgers
        self._renamings = _renamings(metadata, spares)
        self._clients = [Renamed(clients, renaming.names) for renaming in self._renamings]
        self._least = remembered(self._least_of)
        self._leading = remembered(self._leading_to)
        self._with = remembered(self._with_other)

    def canonical(self, state: State) -> State:
        """The same for all states that are the same."""
        least, renamed = self._least(state[0])
        clients = state[1:]
        if len(renamed) == 1:
            only = renamed[0]
            return (least, *sorted([only[client] for client in clients]))
        return (least, *min([sorted([others[client] for client in clients]) for others in renamed]))

    def _least_of(self, number: int) -> tuple[int, list[Renamed]]:
        """The least of a ledger's renamings, and what clients are called by those that lead there."""
        ledger = self._ledgers[number]
        renamed = {index: self._renamed(ledger, index) for index in self._leading(ledger.bookies)}
        least = min(renamed.values())
        return self._ledgers.number(least), [self._clients[index] for index, found in renamed.items() if found == least]

    def _leading_to(self, bookies: tuple[int, ...]) -> list[int]:
        """The renamings that lead to the least of the bookies'."""
        renamed = [tuple(bookies[old] for old in renaming.old) for renaming in self._renamings]
        return [index for index, found in enumerate(renamed) if found == min(renamed)]

    def _renamed(self, ledger: Ledger, index: int) -> Ledger:
        if index == 0:
            return ledger
        renaming = self._renamings[index]
        size, late = len(ledger.bookies), 0
        for bit in range(ENTRIES * size if ledger.late else 0):
            if ledger.late >> bit & 1:
                late |= 1 << (bit // size * size + renaming.new[bit % size])
        return ledger._replace(
            bookies=tuple(ledger.bookies[old] for old in renaming.old),
            metadata=ledger.metadata._replace(ensembles=self._with(ledger.metadata.ensembles, index)),
            late=late,
            casts=tuple(sorted(cast._replace(ensembles=self._with(cast.ensembles, index)) for cast in ledger.casts)),
            ensembles=self._with(ledger.ensembles, index),
        )

    def _with_other(self, ensembles: Ensembles, index: int) -> Ensembles:
        new = self._renamings[index].new
        return tuple((first, tuple(sorted(new[bookie] for bookie in members))) for first, members in ensembles)


def _renamings(metadata: LedgerMetadata, spares: int) -> list[Renaming]:
    """Those that change no entry's write set, as the ledger begins, and not what the write sets are, and no spare; the
    first one is none."""
    size = metadata.ensemble_size
    others = tuple(range(size, size + spares))
    own = [set(map(int, metadata.write_set(entry))) for entry in range(ENTRIES)]
    family = {frozenset(map(int, write_set)) for write_set in write_sets(metadata)}
    found = []
    for new in permutations(range(size)):
        kept = all({new[bookie] for bookie in write_set} == write_set for write_set in own)
        if kept and {frozenset(new[bookie] for bookie in write_set) for write_set in family} == family:
            old = tuple(new.index(bookie) for bookie in range(size))
            names = {str(a): str(b) for a, b in enumerate((*new, *others))}
            found.append(Renaming((*new, *others), (*old, *others), names))
    return found
