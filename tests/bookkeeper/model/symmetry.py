"""Bookies that play the same part have names only: of states that differ in those, one stands for all."""

from __future__ import annotations

from itertools import permutations
from typing import NamedTuple

from offloader.bookkeeper.coverage import write_sets
from offloader.bookkeeper.model import LedgerMetadata
from tests.bookkeeper.model.clients import Clients
from tests.bookkeeper.model.world import ENTRIES, State


class Renaming(NamedTuple):
    """`new[a]` is what bookie a is called, `old[b]` who is called b."""

    new: tuple[int, ...]
    old: tuple[int, ...]
    names: dict[str, str]


class Symmetry:
    def __init__(self, metadata: LedgerMetadata, clients: Clients) -> None:
        self._clients = clients
        self._renamings = _renamings(metadata)
        self._leasts: dict[tuple[int, ...], tuple[tuple[int, ...], list[int]]] = {}

    def canonical(self, state: State) -> State:
        """The same for all states that are the same."""
        bookies, indexes = self._least(state.bookies)
        if indexes == [0]:  # the first renaming renames nothing
            return state
        clients, late = min(self._renamed(state, index) for index in indexes)
        return State(bookies, state.metadata, tuple(clients), late, *state[4:])

    def _least(self, bookies: tuple[int, ...]) -> tuple[tuple[int, ...], list[int]]:
        """The least of its renamings, and which ones lead there."""
        if bookies not in self._leasts:
            renamed = [tuple(bookies[old] for old in renaming.old) for renaming in self._renamings]
            least = min(renamed)
            self._leasts[bookies] = (least, [index for index, found in enumerate(renamed) if found == least])
        return self._leasts[bookies]

    def _renamed(self, state: State, index: int) -> tuple[list[int], int]:
        renaming = self._renamings[index]
        clients = sorted([self._clients.renamed(number, index, renaming.names) for number in state.clients])
        size, late = len(state.bookies), 0
        for bit in range(ENTRIES * size if state.late else 0):
            if state.late >> bit & 1:
                late |= 1 << (bit // size * size + renaming.new[bit % size])
        return clients, late


def _renamings(metadata: LedgerMetadata) -> list[Renaming]:
    """Those that change no entry's write set and not what the write sets of the last fragment are; the first one is none."""
    size = metadata.ensemble_size
    own = [set(map(int, metadata.write_set(entry))) for entry in range(ENTRIES)]
    family = {frozenset(map(int, write_set)) for write_set in write_sets(metadata)}
    found = []
    for new in permutations(range(size)):
        kept = all({new[bookie] for bookie in write_set} == write_set for write_set in own)
        if kept and {frozenset(new[bookie] for bookie in write_set) for write_set in family} == family:
            old = tuple(new.index(bookie) for bookie in range(size))
            found.append(Renaming(new, old, {str(a): str(b) for a, b in enumerate(new)}))
    return found
