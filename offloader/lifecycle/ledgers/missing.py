"""The other way round: ledgers that are referenced, and are not in BookKeeper. Pure.

The ids are listed before the references are read, so a ledger that was created in between is not among them. Hence two
looks: the nodes of those that were not listed are read, and `still_missing` compares with references read later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from offloader.lifecycle.ledgers.named import NamedLedgers
from offloader.lifecycle.ledgers.references import Referee


@dataclass(frozen=True, slots=True)
class MissingLedger:
    """A ledger that a node names, and that has no metadata: readers of what names it stop there, or lose it."""

    ledger: int
    referee: Referee


def named_again(missing: Iterable[MissingLedger], named: NamedLedgers) -> Iterator[MissingLedger]:
    """The same ledgers, by who names them at the second look."""
    for ledger in dict.fromkeys(one.ledger for one in missing):
        yield from (MissingLedger(ledger, referee) for referee in named.referees(ledger))


def still_missing(first: Iterable[MissingLedger], second: Iterable[MissingLedger]) -> tuple[MissingLedger, ...]:
    """Those that the second look misses, too, and that the same node still names."""
    before = {_without_version(one) for one in first}
    return tuple(one for one in second if _without_version(one) in before)


def _without_version(one: MissingLedger) -> tuple[int, tuple[str, str, str]]:
    return one.ledger, (one.referee.store, one.referee.kind, one.referee.node)
