"""Which cursor keeps how much of a topic, from its nodes alone. Pure.

While a topic is loaded a cursor's position is in a ledger of its own, and its node says less; a clean unload writes it
into the node. So what a node says is a lower bound where it names a ledger: `certain` tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from offloader.bookkeeper.api import ManagedCursor
from offloader.lifecycle.topics.cursors.kinds import SubscriptionKind, SubscriptionNames
from offloader.lifecycle.topics.topic_nodes import DatedLedger


@dataclass(frozen=True, slots=True)
class KeptFrom:
    """A cursor keeps this ledger and all after it; `ledger` None: nothing that is written yet. `certain`: its node has
    its position; else it may have come further."""

    cursor: str
    kind: SubscriptionKind
    ledger: int | None
    certain: bool

    def keeps(self, ledger: int) -> bool:
        return self.ledger is not None and ledger >= self.ledger


def kept_from(name: str, cursor: ManagedCursor, ledgers: Sequence[DatedLedger], names: SubscriptionNames) -> KeptFrom:
    """As brokers count: a ledger whose last entry is acknowledged is done with; a cursor in a ledger that is gone goes
    on at the first one that is left. `ledgers`: sizes of the last one included."""
    kind, certain = names.kind(name), cursor.ledger is None and cursor.mark_delete is not None
    if cursor.mark_delete is None:
        return KeptFrom(name, kind, ledgers[0].ledger if ledgers else None, certain)
    at, entry = cursor.mark_delete
    left = (one.ledger for one in ledgers if one.ledger > at or (one.ledger == at and not _done(one, entry)))
    return KeptFrom(name, kind, next(left, None), certain)


def slowest(holders: Iterable[KeptFrom]) -> int | None:
    """The first ledger that some cursor certainly keeps."""
    return min((one.ledger for one in holders if one.certain and one.ledger is not None), default=None)


def _done(ledger: DatedLedger, entry: int) -> bool:
    return 0 < ledger.entries <= entry + 1
