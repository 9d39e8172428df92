"""One run on its way: which bookies were asked for it, what they said, and what it means that none gave it."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from offloader.bookkeeper.model import LedgerMetadata
from offloader.bookkeeper.reading.budget import Budget
from offloader.bookkeeper.reading.runs import ReplicaRun
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
from offloader.ports.entry_source import RawEntry


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
