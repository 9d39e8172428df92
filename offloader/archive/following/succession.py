"""Whether what a broker delivers follows on what has been read. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from offloader.metadata.state import CatalogHead
from offloader.model import LedgerList, Position


class Turn(Enum):
    """What to do besides reading on."""

    ARCHIVE = auto()  # the archive holds what comes next
    WAIT = auto()  # nothing says yet what comes next
    LOST = auto()  # neither the archive nor Pulsar has it


@dataclass(frozen=True, slots=True)
class Undelivered:
    """Entries `first`..`last` of a ledger that were not delivered."""

    ledger: int
    first: int
    last: int


def next_position(after: Position | None, catalog: CatalogHead, ledgers: LedgerList) -> Position | Turn:
    """The position to read next from Pulsar, whose ledgers are `ledgers` now; `after` is the last one accounted for."""
    if catalog.end is not None and (after is None or catalog.end > after):
        return Turn.ARCHIVE
    if after is None:
        return _begin(catalog, ledgers)
    if after.ledger not in ledgers:
        if catalog.closed_with(*after[:2]) != after.entry:
            return Turn.LOST
        following = ledgers.next_ledger(after.ledger)
        return Turn.WAIT if following is None else Position(after.incarnation, following, 0)
    return ledgers.successor(after) or Turn.WAIT


def hole_before(expected: Position, found: tuple[int, int], ledgers: LedgerList) -> Undelivered | Turn | None:
    """What was passed over in the expected position's ledger before `found`, which lies at or after it; None: nothing.

    Turn.WAIT where the list still takes that ledger for open although a later one has entries.
    """
    if found == (expected.ledger, expected.entry):
        return None
    if found[0] == expected.ledger:
        return Undelivered(expected.ledger, expected.entry, found[1] - 1)
    last = ledgers.closed_with(expected.ledger)
    return Turn.WAIT if last is None else Undelivered(expected.ledger, expected.entry, last)


def _begin(catalog: CatalogHead, ledgers: LedgerList) -> Position | Turn:
    """Nothing has been read: where the topic's claim begins, or, where nobody claims it, with the first ledger there
    is.

    A ledger that nothing was written to vanishes when its topic is unloaded: the claim then begins with the one after
    it.
    """
    begin = Position(0, -1, 0) if catalog.claim is None else catalog.claim.begin
    if begin.ledger in ledgers:
        return begin
    first = ledgers.next_ledger(begin.ledger)
    return Turn.WAIT if first is None else Position(begin.incarnation, first, 0)
