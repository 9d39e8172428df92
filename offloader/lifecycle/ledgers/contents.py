"""What is in an orphan: entries that no trim left behind are data. Pure."""

from __future__ import annotations

from dataclasses import replace

from offloader.lifecycle.ledgers.evidence import Fact, LedgerEvidence, LedgerVerdict, SeenLedger
from offloader.lifecycle.ledgers.kinds import RefereeKind
from offloader.lifecycle.ledgers.references import CursorNode, ListNode, LocatorNode, References

_REGISTRATION = 600_000  # ms: that long before its locator the first ledger of a schema may have been made


def with_contents(verdict: LedgerVerdict, stores: tuple[References, ...]) -> LedgerVerdict:
    """Adds what is in it, for a ledger of a list: entries that no trim left behind are data, and kept.

    A data ledger gets entries only after it was listed. So one that is not listed and has some was listed once: a trim
    drops from the front; what is behind the first one listed was rolled back or edited away. A list that is younger
    than the ledger never had it: whatever it begins with, it was not this one that was trimmed. Of an open one nobody
    knows: it is closed first, and then looked at again.
    """
    ledger, copied = verdict.ledger, any(one.fact is Fact.LEFT_BOOKKEEPER for one in verdict.evidence)
    if ledger.purpose.referee is not RefereeKind.LEDGER_LIST or copied:
        return replace(verdict, kept=any(one.fact is Fact.COPY_FAILS for one in verdict.evidence))
    if ledger.empty:
        return _also(verdict, LedgerEvidence(Fact.EMPTY))
    if ledger.last_entry is None:
        return _also(verdict, LedgerEvidence(Fact.ENTRIES_UNKNOWN))
    owners = [store.lists.get(ledger.purpose.managed_ledger) for store in stores]
    lists = [owner for owner in owners if isinstance(owner, ListNode)]
    first = min((node.ledgers[0].ledger for node in lists if node.ledgers), default=None)
    if not lists:
        return verdict  # the whole topic is gone, or nothing can be said
    former = not all(was_there(node, ledger) for node in lists)
    if first is not None and ledger.ledger < first and not former:
        return _also(verdict, LedgerEvidence(Fact.TRIMMED, other=first))
    if former:
        return replace(_also(verdict, LedgerEvidence(Fact.FORMER_DATA)), kept=True)
    return replace(_also(verdict, LedgerEvidence(Fact.NO_TRIMS_WORK, other=first)), kept=True)


def _also(verdict: LedgerVerdict, *more: LedgerEvidence) -> LedgerVerdict:
    return replace(verdict, evidence=(*verdict.evidence, *more))


def was_there(node: ListNode | CursorNode | LocatorNode, ledger: SeenLedger) -> bool:
    """Whether this very node was there when the ledger was created, as it is wherever brokers make both: but for the
    first ledgers of a schema, of which several may be under way before there is a locator. ZooKeeper numbers what it
    does, and no clock that is wrong, for as long as somebody leads, changes that order."""
    if node.born is not None and ledger.born is not None:
        if node.born <= ledger.born:
            return True
        if not isinstance(node, LocatorNode):
            return False
    ahead = _REGISTRATION if isinstance(node, LocatorNode) else 0
    if node.created_ms is None or ledger.created_ms is None:
        return False
    return node.created_ms <= ledger.created_ms + ahead
