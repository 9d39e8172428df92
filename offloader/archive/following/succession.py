"""Whether what a broker delivers follows on what has been read. Pure."""

from __future__ import annotations

from enum import Enum, auto

from offloader.metadata.state import CatalogHead
from offloader.model import LedgerList, Position


class NextStep(Enum):
    """What to do besides reading on."""

    ARCHIVE = auto()  # the archive holds what comes next
    WAIT = auto()  # nothing says yet what comes next
    LOST = auto()  # neither the archive nor Pulsar has it


def next_position(after: Position | None, catalog: CatalogHead, ledgers: LedgerList) -> Position | NextStep:
    """The position to read next from Pulsar, whose ledgers are `ledgers` now; `after` is the last one accounted for."""
    if catalog.end is not None and (after is None or catalog.end > after):
        return NextStep.ARCHIVE
    if after is None:
        return _begin(catalog, ledgers)
    if after.ledger not in ledgers:
        if catalog.closed_with(*after[:2]) != after.entry:
            return NextStep.LOST
        following = ledgers.next_ledger(after.ledger)
        return NextStep.WAIT if following is None else Position(after.incarnation, following, 0)
    return ledgers.successor(after) or NextStep.WAIT


def _begin(catalog: CatalogHead, ledgers: LedgerList) -> Position | NextStep:
    """Nothing has been read: where the topic's claim begins, or, where nobody claims it, with the first ledger there
    is.

    A ledger that nothing was written to vanishes when its topic is unloaded: the claim then begins with the one after
    it.
    """
    begin = Position(0, -1, 0) if catalog.claim is None else catalog.claim.begin
    if begin.ledger in ledgers:
        return begin
    first = ledgers.next_ledger(begin.ledger)
    return NextStep.WAIT if first is None else Position(begin.incarnation, first, 0)
