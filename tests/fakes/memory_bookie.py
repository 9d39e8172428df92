"""One bookie in memory, with fences, master keys and recovery adds, as BookKeeper 4.17.2 has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

from offloader.bookkeeper.model import NO_ENTRY
from offloader.bookkeeper.status import NoEntryError, NoLedgerError, status_error
from offloader.bookkeeper.v3 import Group


@dataclass
class KeptLedger:
    """`stored`: entries by id, as they were added. `explicit`: the last WRITE_LAC's body."""

    master_key: bytes
    stored: dict[int, bytes] = field(default_factory=dict)
    fenced: bool = False
    explicit: bytes | None = None


class MemoryBookie:
    """Raises the status errors of `offloader.bookkeeper.status`. Not thread safe: one caller at a time."""

    def __init__(self) -> None:
        self.ledgers: dict[int, KeptLedger] = {}

    def read(self, ledger: int, entry: int, fence: bytes | None = None) -> bytes:
        """A stored entry, -1: the last one; `fence`: the master key with which to fence first."""
        if fence is not None:
            self._owned(ledger, fence).fenced = True
        stored = self._known(ledger).stored
        found = stored.get(max(stored, default=NO_ENTRY) if entry == NO_ENTRY else entry)
        if found is None:
            raise status_error(NoEntryError.status, f"{ledger}:{entry}")
        return found

    def batch(self, ledger: int, first: int, count: int, size: int) -> list[bytes]:
        """Consecutive entries while they are there and fit; the first one in any case."""
        entries = [self.read(ledger, first)]
        stored, frame = self._known(ledger).stored, 40 + len(entries[0])
        while len(entries) < count and (following := stored.get(first + len(entries))) is not None:
            frame += 4 + len(following)
            if frame > size:
                break
            entries.append(following)
        return entries

    def add(self, ledger: int, entry: int, stored: bytes, master_key: bytes, *, recovery: bool = False) -> None:
        """Keep an entry; the first one of a ledger also fixes its master key."""
        kept = self._owned(ledger, master_key)
        if kept.fenced and not recovery:
            raise status_error(504, f"{ledger}:{entry}")
        kept.stored[entry] = stored

    def read_lac(self, ledger: int) -> tuple[bytes | None, bytes | None]:
        """The last explicit LAC and the last entry."""
        kept = self._known(ledger)
        last = kept.stored[max(kept.stored)] if kept.stored else None
        if kept.explicit is None and last is None:
            raise status_error(NoEntryError.status, f"{ledger}")
        return kept.explicit, last

    def write_lac(self, ledger: int, body: bytes, master_key: bytes) -> None:
        """Keep an explicit LAC."""
        self._owned(ledger, master_key).explicit = body

    def entries_of(self, ledger: int) -> list[Group]:
        """The runs of entries it has."""
        return [Group(first, first, size, 0) for first, size in _runs(self._known(ledger).stored)]

    def _known(self, ledger: int) -> KeptLedger:
        if ledger not in self.ledgers:
            raise status_error(NoLedgerError.status, f"{ledger}")
        return self.ledgers[ledger]

    def _owned(self, ledger: int, master_key: bytes) -> KeptLedger:
        kept = self.ledgers.setdefault(ledger, KeptLedger(master_key))
        if kept.master_key != master_key:
            raise status_error(502, f"{ledger}")
        return kept


def _runs(entries: dict[int, bytes]) -> Iterator[tuple[int, int]]:
    """First and length of each run of consecutive ids."""
    for _, numbered in groupby(enumerate(sorted(entries)), lambda pair: pair[1] - pair[0]):
        run = [entry for _, entry in numbered]
        yield run[0], len(run)
