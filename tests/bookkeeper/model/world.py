"""What may happen in the model, and what it looks like at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

ENTRIES = 2

# A bookie is a number made of these bits, and for each entry of two more, shifted.
FENCED, DOWN = 1, 2
_HAS, _TOOK = 4, 8


def has(entry: int) -> int:
    """It has the entry."""
    return _HAS << 2 * entry


def took(entry: int) -> int:
    """It took the entry from the writer."""
    return _TOOK << 2 * entry


@dataclass(frozen=True)
class World:
    """A ledger's shape, and how much may go wrong: `unknown` answers (metadata's included), `crashes` of bookies, disks
    that are lost.

    `spares`: bookies that can take another's place. `changes`: how often the writer gives one its place. `reduced`:
    leave out what cannot lead to anything new. From `lost_disks_refuse` on: how well clients and bookies do what they
    should. `writer_compares`: its metadata. `closes_with_changes`: a recovery writes the ensembles that it changed;
    `changes_last`: not before the ledger's end.
    """

    ensemble: int = 3
    write_quorum: int = 3
    ack_quorum: int = 2
    window: int = 1
    clients: int = 2
    unknown: int = 1
    crashes: int = 1
    lost_disks: int = 0
    spares: int = 0
    changes: int = 0
    reduced: bool = True
    lost_disks_refuse: bool = True
    last_fences: bool = True
    reads_fence: bool = True
    unknown_is_unknown: bool = True
    writes_back: bool = True
    compares: bool = True
    fences_survive: bool = True
    writer_compares: bool = True
    closes_with_changes: bool = True
    changes_last: bool = True

    @property
    def bookies(self) -> int:
        return self.ensemble + self.spares


Ensembles = tuple[tuple[int, tuple[int, ...]], ...]  # (first entry, bookies)


class Metadata(NamedTuple):
    """`state`: a LedgerState's value."""

    version: int
    state: int
    last: int
    ensembles: Ensembles


class Ledger(NamedTuple):
    """All but the clients. `late`: write-backs nobody waits for any more, a bit each. `casts`: writes of metadata that
    nobody waits for any more, with the version that they compare with. `stopped`: the writer sends nothing more.
    `ensembles`: the writer's, and `changes`: how often it may still change them."""

    bookies: tuple[int, ...]
    metadata: Metadata
    late: int
    casts: tuple[Metadata, ...]
    pipelined: bool
    stopped: bool
    unknown: int
    crashes: int
    lost_disks: int
    ensembles: Ensembles
    changes: int

    def holding(self, bookie: int, bits: int) -> Ledger:
        """With another state of one bookie."""
        if self.bookies[bookie] == bits:
            return self
        bookies = self.bookies
        return Ledger((*bookies[:bookie], bits, *bookies[bookie + 1 :]), *self[1:])


State = tuple[int, ...]  # the ledger's number, and the clients' (see `Clients`)


class Ledgers:
    """All states of ledgers by number: few, beside what they come to with all states of the clients."""

    def __init__(self) -> None:
        self._numbers: dict[Ledger, int] = {}
        self._ledgers: list[Ledger] = []

    def __getitem__(self, number: int) -> Ledger:
        return self._ledgers[number]

    def number(self, ledger: Ledger) -> int:
        number = self._numbers.setdefault(ledger, len(self._ledgers))
        if number == len(self._ledgers):
            self._ledgers.append(ledger)
        return number
