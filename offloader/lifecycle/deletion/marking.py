"""What is written on what is marked, and what came of it, on whichever side it is. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from offloader.lifecycle.deletion.machine import marked
from offloader.lifecycle.deletion.records import DeletionSwitch, PendingDeleteLedgerInfo

NO_WAY_BACK = (
    "once it is deleted, `orphans undo` will not be possible: ZooKeeper hides from us who may do what with its nodes, "
    "so they could only be created again by hand"
)


class MarkOutcome(StrEnum):
    """What the first phase did."""

    MARKED = "marked"
    WOULD_BE_MARKED = "would be marked"
    PENDING = "pending already"
    SPARED = "spared"  # an operator has undone or dropped it before: only by its name
    KEPT = "kept"  # it holds data, and that stays known as long as it is there; or a policy holds it
    NOT_DELETABLE = "not deletable"
    CHANGED = "changed meanwhile"


def warning_of(record: PendingDeleteLedgerInfo) -> str:
    """What an operator must know of what is marked; mostly nothing."""
    return NO_WAY_BACK if record.node.acl_is_hidden else ""


@dataclass(frozen=True, slots=True)
class MarkStamp:
    """What the first phase writes on each record. `now_ms`: by the clock of what the things are in, so that it does not
    matter whose clock is wrong. `switch`: as it was set before."""

    now_ms: Callable[[], int]
    switch: DeletionSwitch | None

    def marked(
        self, candidate: PendingDeleteLedgerInfo, former: PendingDeleteLedgerInfo | None
    ) -> PendingDeleteLedgerInfo | None:
        """The record to be written. None: it would lack what a deletion needs."""
        return marked(candidate, former, self.now_ms(), self.switch)


def moved_clock(ours: Callable[[], int], theirs: int) -> Callable[[], int]:
    """Our clock, put to what another one says now: for as long as it takes to mark everything."""
    ahead = theirs - ours()
    return lambda: ours() + ahead
