"""Who hears of what becomes of deletions: metrics, alarms, a command's output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from offloader.lifecycle.deletion.records import DeletionState, LedgerType, PendingDeleteLedgerInfo


@dataclass
class PendingDeletions:
    """How many records there are, by type and state; and how many cannot be read. `undoing`: of what an undo was
    interrupted."""

    counts: Counter[tuple[LedgerType, DeletionState]] = field(default_factory=Counter)
    damaged: int = 0
    undoing: tuple[str, ...] = ()

    def count(self, record: PendingDeleteLedgerInfo) -> None:
        """One more."""
        self.add(record.ledger_type, record.state)
        if record.state is DeletionState.UNDOING:
            self.undoing = (*self.undoing, record.thing)

    def add(self, kind: LedgerType, state: DeletionState) -> None:
        """One more, of which no more is known."""
        self.counts[kind, state] += 1

    def become(self, before: PendingDeleteLedgerInfo, now: PendingDeleteLedgerInfo) -> None:
        """One of them is another by now."""
        self.counts[before.ledger_type, before.state] -= 1
        self.count(now)

    def copy(self) -> PendingDeletions:
        """As it is now."""
        return PendingDeletions(Counter(self.counts), self.damaged, self.undoing)

    def in_flight(self, kind: LedgerType) -> int:
        """Those whose second phase is still to come, or under way."""
        return self.counts[kind, DeletionState.MARKED] + self.counts[kind, DeletionState.DELETING]


class DeletionWatcher(Protocol):
    """Thread safe. Ends are told once they are recorded."""

    def pending(self, pending: PendingDeletions, *, on: bool) -> None:
        """What a round found. `on`: whether deletion is switched on."""
        ...

    def refused(self, refusals: Mapping[LedgerType, Sequence[str]]) -> None:
        """Why a round deleted nothing of a side, by what is deleted there. Of a side that is not named it may have."""
        ...

    def damaged(self, name: str, why: str) -> None:
        """A record that cannot be read."""
        ...

    def failed(self, record: PendingDeleteLedgerInfo, why: str) -> None:
        """A look or a try that came to nothing, or whose outcome is not known. It is repeated."""
        ...

    def ended(self, record: PendingDeleteLedgerInfo) -> None:
        """Its state and answer say how."""
        ...

    def gave_up(self, record: PendingDeleteLedgerInfo) -> None:
        """After the last try."""
        ...
