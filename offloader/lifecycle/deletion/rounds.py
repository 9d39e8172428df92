"""What a pass over the queue of deletions has found, and what came of one of its rounds."""

from __future__ import annotations

from dataclasses import dataclass, field

from offloader.lifecycle.deletion.queue import StoredDeletion
from offloader.lifecycle.deletion.records import LedgerType
from offloader.lifecycle.deletion.watcher import PendingDeletions


@dataclass
class FoundDeletions:
    """What a pass over the queue has found. `due`: those whose turn it is, by type: a side that refuses for months
    keeps no other from its turn; no more of each than may be pending at all. `looked`: of which types a round was."""

    pending: PendingDeletions = field(default_factory=PendingDeletions)
    due: dict[LedgerType, list[StoredDeletion]] = field(default_factory=dict)
    looked: set[LedgerType] = field(default_factory=set)
    removed: int = 0

    def goes_on(self, kind: LedgerType) -> bool:
        """Whether a round of this pass has looked where such things are."""
        return not self.looked.isdisjoint(_BESIDE.get(kind, {kind}))


_BESIDE = dict.fromkeys(
    (LedgerType.LEDGER, LedgerType.MANAGED_LEDGER), frozenset({LedgerType.LEDGER, LedgerType.MANAGED_LEDGER})
)


@dataclass(frozen=True, slots=True)
class DeletionRound:
    """`looked_at`: records that were taken up. `left`: those that were due, too, and wait for the next round; neither
    counts those of a side that refused. `removed`: records that had ended long ago. `refusals`: why nothing was deleted
    on some side."""

    looked_at: int = 0
    left: int = 0
    removed: int = 0
    refusals: tuple[str, ...] = ()
