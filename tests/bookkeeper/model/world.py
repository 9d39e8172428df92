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
    """A ledger's shape, and how much may go wrong: `unknown` answers (metadata's included), `crashes` of bookies, disks that are lost.

    `reduced`: leave out what cannot lead to anything new. From `lost_disks_refuse` on: how well clients and bookies do what they should.
    """

    ensemble: int = 3
    write_quorum: int = 3
    ack_quorum: int = 2
    window: int = 1
    clients: int = 2
    unknown: int = 1
    crashes: int = 1
    lost_disks: int = 0
    reduced: bool = True
    lost_disks_refuse: bool = True
    last_fences: bool = True
    reads_fence: bool = True
    unknown_is_unknown: bool = True
    writes_back: bool = True
    compares: bool = True
    fences_survive: bool = True


class Metadata(NamedTuple):
    """`state`: a LedgerState's value."""

    version: int
    state: int
    last: int


class State(NamedTuple):
    """`clients`: their numbers (see `Clients`). `late`: write-backs nobody waits for any more, a bit each. `casts`: writes of metadata that
    nobody waits for any more, with the version that they compare with. `stopped`: the writer has closed the ledger."""

    bookies: tuple[int, ...]
    metadata: Metadata
    clients: tuple[int, ...]
    late: int
    casts: tuple[Metadata, ...]
    pipelined: bool
    stopped: bool
    unknown: int
    crashes: int
    lost_disks: int

    def holding(self, bookie: int, bits: int) -> State:
        """With another state of one bookie."""
        bookies = self.bookies
        return State((*bookies[:bookie], bits, *bookies[bookie + 1 :]), *self[1:])
