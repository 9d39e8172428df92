"""One run on its way: whom it was asked of, and what came of it."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from offloader.bookkeeper.reading.budget import Budget
from offloader.bookkeeper.reading.runs import ReplicaRun
from offloader.errors import OffloadError
from offloader.ports.entry_source import RawEntry


class RunFetch:
    """A run, to be asked for as one (`batch`) or a single entry.

    `asked`: bookies that have not answered yet; `said`: those that answered, and not with the entries. `expected`:
    bytes that are under way; `held`: bytes that have arrived. Belongs to the reader's thread, but for what `answered`
    does.
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
        """Take an answer, unless there is one already or no room for it. Called by the thread on which answers
        arrive."""
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
