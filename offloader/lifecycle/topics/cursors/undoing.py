"""How a removed subscription is brought back, and what of it cannot be. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from offloader.bookkeeper.cursor_state import CursorState
from offloader.cursors.copies import CopiedCursor, pieces_of
from offloader.cursors.putting import EARLIEST, never_put, parts_of
from offloader.errors import DamagedRecordError
from offloader.lifecycle.topics.cursors.held import HeldLedger
from offloader.model import Place


@dataclass(frozen=True, slots=True)
class CursorUndo:
    """`cursor`: as it will be. `says`: what will not be as it was, a sentence each; none: nothing that anybody could
    notice."""

    cursor: CopiedCursor
    says: tuple[str, ...] = ()


def undo_of(name: str, state: CursorState, ledgers: Sequence[HeldLedger], *, replicated: bool) -> CursorUndo:
    """What brings a state back, where the topic has these ledgers now. Raises DamagedRecordError."""
    mark = _mark(state.mark_delete or EARLIEST, ledgers)
    lengths = [(one.ledger, one.entries) for one in ledgers]
    try:
        pieces = pieces_of(mark, state.ranges, state.batches, lengths)
    except ValueError as error:
        raise DamagedRecordError(f"{name} has acknowledged what no topic has: {error}") from error
    cursor = CopiedCursor(name, mark, pieces, state.properties, state.subscription_properties, replicated)
    return CursorUndo(cursor, (*_trimmed(state, ledgers), *_lost(cursor), *never_put(cursor), *_never_stored()))


def _mark(mark: Place, ledgers: Sequence[HeldLedger]) -> Place:
    """A ledger that is not listed any more cannot be named: before it is the end of the one before, or nothing."""
    if any(one.ledger == mark[0] for one in ledgers):
        return mark
    before = [one for one in ledgers if one.ledger < mark[0] and one.entries]
    return (before[-1].ledger, (before[-1].entries or 0) - 1) if before else EARLIEST


def _trimmed(state: CursorState, ledgers: Sequence[HeldLedger]) -> Iterator[str]:
    mark = state.mark_delete
    if mark is None or not ledgers or mark[0] >= ledgers[0].ledger:
        return
    yield (
        f"The topic's ledgers before {ledgers[0].ledger} are gone, and it stood at {mark[0]}:{mark[1]}: it begins with "
        "the topic's first entry, and what was between cannot be delivered any more."
    )


def _lost(cursor: CopiedCursor) -> Iterator[str]:
    parts = sum(1 for _ in parts_of(cursor))
    if parts:
        yield (
            f"Of {parts} batches some messages are acknowledged: brokers keep that only with "
            "acknowledgmentAtBatchIndexLevelEnabled=true, and many versions forget it when the topic is unloaded; such "
            "messages then come again."
        )


def _never_stored() -> Iterator[str]:
    yield "Its type is its next consumer's, and redelivery counts begin at 0: brokers store neither."
