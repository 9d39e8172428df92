"""How much of a topic each subscription holds back. Pure.

A broker drops whole ledgers, oldest first, and by mark-delete alone: a ledger stays while any subscription has
something to read in it or before it. What is acknowledged beyond the mark-delete frees nothing, and counts only for the
backlog.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from offloader.model import Place, by_ledger
from offloader.state.subscription import CursorState


class HeldLedger(NamedTuple):
    """A ledger of a topic's list. `entries` and `size` None: it is not closed, and nobody has counted it. `is_open`:
    its broker has counted it, and goes on writing."""

    ledger: int
    entries: int | None
    size: int | None
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class CursorHold:
    """`size`: bytes of the ledgers that it keeps. `alone`: of those that no other subscription keeps, and that would
    go without it (never the last one). `entries` and `backlog`: not acknowledged, counted and estimated in bytes.

    `uncounted`: it keeps a ledger of which nobody has counted the bytes, too.
    """

    size: int
    alone: int
    entries: int
    backlog: int
    uncounted: bool


def held_back(ledgers: Sequence[HeldLedger], states: Mapping[str, CursorState]) -> dict[str, CursorHold]:
    """By subscription. `ledgers`: the topic's, in order."""
    firsts = {name: first_needed(ledgers, state.mark_delete) for name, state in states.items()}
    return {
        name: _held(ledgers, state, firsts[name], min((at for one, at in firsts.items() if one != name), default=None))
        for name, state in states.items()
    }


def with_counts(ledgers: Sequence[HeldLedger], counts: Mapping[int, tuple[int, int]]) -> tuple[HeldLedger, ...]:
    """The ledgers with the entries and bytes that the topic's broker counts in those that are not counted."""
    return tuple(
        HeldLedger(one.ledger, *counts[one.ledger], is_open=True) if one.size is None and one.ledger in counts else one
        for one in ledgers
    )


def first_needed(ledgers: Sequence[HeldLedger], mark_delete: Place | None) -> int:
    """The index of the first ledger that has something behind the mark-delete; of the last one at the most."""
    return min(_behind(ledgers, mark_delete), max(len(ledgers) - 1, 0))


def needs_any(ledgers: Sequence[HeldLedger], mark_delete: Place | None) -> bool:
    """Whether some ledger has something behind the mark-delete, or is open and may have. The last one, which counts as
    kept by everybody, stays also where nobody needs it."""
    return _behind(ledgers, mark_delete) < len(ledgers)


def _behind(ledgers: Sequence[HeldLedger], mark_delete: Place | None) -> int:
    if mark_delete is None:
        return 0
    at = bisect_left([one.ledger for one in ledgers], mark_delete[0])
    if at < len(ledgers) and ledgers[at].ledger == mark_delete[0]:
        entries = ledgers[at].entries
        at += entries is not None and mark_delete[1] >= entries - 1
    return at


def _held(ledgers: Sequence[HeldLedger], state: CursorState, first: int, others: int | None) -> CursorHold:
    kept = ledgers[first:]
    until = len(ledgers) - 1 if others is None else others
    alone = ledgers[first : max(until, first)]
    pending = _pending(kept, state)
    return CursorHold(
        size=_bytes(kept),
        alone=_bytes(alone),
        entries=sum(pending),
        backlog=sum(_share(one, left) for one, left in zip(kept, pending, strict=True)),
        uncounted=any(one.size is None for one in kept),
    )


def _pending(kept: Sequence[HeldLedger], state: CursorState) -> list[int]:
    """Entries of each ledger that are not acknowledged. What is acknowledged behind a ledger's end is none of its."""
    mark = state.mark_delete or (-1, -1)
    lengths = {one.ledger: one.entries or 0 for one in kept}
    acknowledged = dict.fromkeys(lengths, 0)
    for done in by_ledger(state.ranges, [(one.ledger, one.entries) for one in kept]):
        begin = (mark[0], mark[1] + 1) if done.ledger == mark[0] else None
        behind = done.between(begin, after=(done.ledger, lengths[done.ledger]))
        acknowledged[done.ledger] += behind.span if behind else 0
    left = []
    for one in kept:
        entries = 0 if one.ledger < mark[0] else one.entries or 0
        until_mark = mark[1] + 1 if one.ledger == mark[0] else 0
        left.append(max(entries - until_mark - acknowledged[one.ledger], 0))
    return left


def _share(ledger: HeldLedger, left: int) -> int:
    return (ledger.size or 0) * left // ledger.entries if ledger.entries else 0


def _bytes(ledgers: Iterable[HeldLedger]) -> int:
    return sum(one.size or 0 for one in ledgers)
