"""A side: a place where something is deleted. BookKeeper's ledgers are one, the bucket's objects another, the brokers'
subscriptions a third."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

from offloader.lifecycle.deletion.machine import DeletionTry, SecondLook
from offloader.lifecycle.deletion.records import LedgerNode, PendingDeleteLedgerInfo

TOO_LATE = "it took longer than a try may take"


@dataclass(frozen=True, slots=True)
class SideLooks:
    """The second look at some records. `looks`: by the records' names, one for each.

    `things`: how many there are on this side, what is not to be deleted included; None: nobody counts them.
    `refusals`: why nothing of it may be deleted now; none: something may. `cut_short`: why the rest was not looked at:
    what was looked at goes on, and then nothing more of this side in this pass.
    """

    looks: Mapping[str, SecondLook]
    things: int | None
    refusals: tuple[str, ...] = ()
    cut_short: str = ""


class DeletionSide(Protocol):
    """What the service asks of each side. It looks, records what is ruled, and only then has it done."""

    def look(self, records: Sequence[PendingDeleteLedgerInfo], *, goes_on: bool = False) -> SideLooks:
        """All of them at once, by the rules of the first look. What fails is a refusal, or the look of one record.

        `goes_on`: right after another look at the same cluster, or bucket. What decides on these records is read now,
        each time; what that one has read of all others need not be read again."""
        ...

    def close(self, record: PendingDeleteLedgerInfo) -> LedgerNode:
        """Close what is open, safely; its node as it is now. Raises OffloadError: it was not closed."""
        ...

    def delete(self, record: PendingDeleteLedgerInfo, in_time: Callable[[], bool]) -> tuple[DeletionTry, str]:
        """Delete what the record says, as it was at the last look and not otherwise; and why it was refused.

        `in_time`: asked before the request that nothing outdates. False: the time of the try is over, an operator
        may have taken the deletion back, and nothing is sent: the answer is TOO_LATE."""
        ...


OpenSide = Callable[[ExitStack], DeletionSide]
"""Opens a side; what must be closed is left with the stack. Raises OffloadError."""
