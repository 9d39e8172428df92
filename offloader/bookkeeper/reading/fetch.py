"""Runs of entries on their way: which entries one bookie can be asked for at once, which bookies were asked, what they
said, and how many bytes a reader may hold and ask for.

With an ensemble as large as the write quorum each bookie holds everything. A larger one is striped: entry e is on the
bookies e, e + 1, ... (modulo the ensemble's size), as many as the write quorum has; a bookie then holds runs of that
many entries.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

from offloader.bookkeeper.model import LedgerMetadata
from offloader.bookkeeper.status import Answer, NoLedgerError, answer
from offloader.errors import (
    BookieUnavailableError,
    EntryNotFoundError,
    FatalError,
    IntegrityError,
    LedgerNotFoundError,
    OffloadError,
    RetryableError,
)
from offloader.model import KIB
from offloader.ports.entry_source import RawEntry

_UNKNOWN = 64 * KIB
_OVERHEAD = 64  # a stored entry's header, digest and length
_WEIGHT = 0.1  # of what was just seen, against what was seen before


class ReplicaRun(NamedTuple):
    """Entries from `first` up to, and without, `after`. Each of `replicas` holds all of them; ask in this order."""

    first: int
    after: int
    replicas: tuple[str, ...]

    @property
    def span(self) -> int:
        """How many entries."""
        return self.after - self.first


def striped(metadata: LedgerMetadata, entry: int) -> bool:
    """Whether the bookies that hold this entry hold only some of its neighbours."""
    return len(metadata.fragment_of(entry).ensemble) > metadata.write_quorum


def run_at(metadata: LedgerMetadata, entry: int, after: int, most: int) -> ReplicaRun:
    """The longest run that begins at `entry`, ends before `after` and has at most `most` entries."""
    after = min(after, entry + most)
    after = after if after == entry + 1 else min(after, _next_fragment(metadata, entry, after))
    if after == entry + 1 or not striped(metadata, entry):
        return ReplicaRun(entry, after, tuple(dict.fromkeys(metadata.write_set(entry))))
    after = min(after, entry + metadata.write_quorum)
    ensemble = metadata.fragment_of(entry).ensemble
    holders = range(after - 1, entry + metadata.write_quorum)  # from those of the last entry on
    return ReplicaRun(entry, after, tuple(ensemble[i % len(ensemble)] for i in holders))


def _next_fragment(metadata: LedgerMetadata, entry: int, otherwise: int) -> int:
    return min((f.first_entry for f in metadata.fragments if f.first_entry > entry), default=otherwise)


class Budget:
    """Bounds a reader to `max_bytes`. Answers arrive on another thread than the one that asks."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._expected = 0
        self._held = 0

    @property
    def held(self) -> int:
        """Bytes that have arrived and were not handed out yet."""
        return self._held

    def room(self, size: int) -> bool:
        """Whether so many bytes may be asked for now."""
        return self._held + self._expected + size <= self.max_bytes

    def expect(self, size: int) -> None:
        """So many bytes were asked for."""
        with self._lock:
            self._expected += size

    def arrived(self, expected: int, size: int, *, needed: bool) -> bool:
        """`size` bytes came where `expected` were. False: drop them, they are more than can be held.

        `needed`: the reader cannot go on without them. Only those may exceed the bound.
        """
        with self._lock:
            self._expected -= expected
            if not needed and self._held + size > self.max_bytes:
                return False
            self._held += size
            return True

    def release(self, size: int) -> None:
        """So many bytes were handed out, or dropped after all."""
        with self._lock:
            self._held -= size


class Sizes:
    """Begins with the ledger's average where the ledger is closed, and follows what is seen."""

    def __init__(self, metadata: LedgerMetadata) -> None:
        entries = metadata.last_entry + 1
        self._mean = metadata.length / entries if metadata.closed and entries > 0 else _UNKNOWN

    def saw(self, size: int, entries: int) -> None:
        """So many bytes in so many entries."""
        self._mean += _WEIGHT * (size / entries - self._mean)

    @property
    def expected(self) -> int:
        """What one entry will probably not exceed, header included."""
        return int(self._mean * 1.25) + _OVERHEAD


class RunFetch:
    """A run, to be asked for as one (`batch`) or a single entry. For the reader's thread, but for `answered`.

    `asked`: bookies that have not answered yet; `said`: those that answered, but not with the entries. `expected`:
    bytes under way; `held`: bytes that have arrived.
    """

    __slots__ = ("arrived", "asked", "asked_at", "batch", "entries", "expected", "held", "run", "said")

    def __init__(self, run: ReplicaRun, *, batch: bool) -> None:
        self.run = run
        self.batch = batch
        self.asked: dict[str, Future[Any]] = {}
        self.said: dict[str, OffloadError] = {}
        self.asked_at = 0.0
        self.expected = 0
        self.held = 0
        self.arrived = False
        self.entries: list[RawEntry] | None = None

    @property
    def others(self) -> list[str]:
        """The bookies that can still be asked."""
        return [bookie for bookie in self.run.replicas if bookie not in self.asked and bookie not in self.said]

    @property
    def failed(self) -> bool:
        """Everybody answered, and nobody with the entries."""
        return len(self.said) == len(self.run.replicas)

    def answered(self, bookie: str, stored: list[bytes], budget: Budget, *, needed: bool) -> list[bytes] | None:
        """Take an answer, unless there is one already or no room for it. Called by the bookies' thread."""
        kept = None
        if not self.arrived:
            size = sum(map(len, stored))
            self.arrived = budget.arrived(self.expected, size, needed=needed)
            self.expected, self.held = 0, size if self.arrived else 0
            kept = stored if self.arrived else None
        self.asked.pop(bookie, None)  # last: until then the reader leaves it alone
        return kept

    def give_back(self, budget: Budget) -> None:
        """What it holds or expects is not to be."""
        budget.arrived(self.expected, 0, needed=True)
        budget.release(self.held)
        self.expected, self.held, self.arrived = 0, 0, False

    def cancel(self) -> None:
        """Nobody waits for the answers any more."""
        for future in list(self.asked.values()):
            future.cancel()


def verdict(metadata: LedgerMetadata, ledger: int, entry: int, said: Mapping[str, OffloadError]) -> OffloadError:
    """The error to raise for an acknowledged entry; `said` has each bookie's answer.

    It is not found only if all of its bookies say so: any of them may have the last copy, and one that is gone may come
    back with it. If no bookie is gone, a human must look.
    """
    what = f"entry {ledger}:{entry}"
    details = "; ".join(str(said[bookie]) for bookie in sorted(said))
    negative = [bookie for bookie, error in said.items() if answer(error) is Answer.NEGATIVE]
    if set(negative).issuperset(metadata.write_set(entry)):
        if all(isinstance(said[bookie], NoLedgerError) for bookie in negative):
            return LedgerNotFoundError(f"{what}: its bookies know nothing of its ledger; was it deleted? ({details})")
        return EntryNotFoundError(f"{what}: its bookies do not have it ({details})")
    final = [error for error in said.values() if isinstance(error, IntegrityError | FatalError)]
    if final and not any(isinstance(error, RetryableError) for error in said.values()):
        return type(final[0])(f"{what}: no bookie gave it ({details})")
    return BookieUnavailableError(f"{what}: no bookie gave it ({details})")
