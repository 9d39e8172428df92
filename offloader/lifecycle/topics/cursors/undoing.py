"""How a removed subscription is brought back, and what of it cannot be. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from offloader.lifecycle.topics.cursors.held import HeldLedger
from offloader.lifecycle.topics.cursors.kinds import REPLICATED
from offloader.model import PartlyAcknowledged, by_ledger
from offloader.ports.subscriptions import EARLIEST
from offloader.pulsar.cursor_standing import CursorStanding, Lengths, nearest
from offloader.state.subscription import CursorState

DELAYED = "#pulsar.internal.delayed"
INTERNAL = "#pulsar.internal."
NOT_REPLICATED = (
    "It was replicated to other clusters, and its broker did not take that (enableReplicatedSubscriptions): a consumer "
    "must ask for it again."
)


@dataclass(frozen=True, slots=True)
class CursorUndo(CursorStanding):
    """Where it shall stand. `says`: what will not be as it was, a sentence each; none: nothing that anybody could
    notice."""

    says: tuple[str, ...] = ()


def undo_of(state: CursorState, ledgers: Sequence[HeldLedger], *, replicated: bool) -> CursorUndo:
    """What brings a state back, where the topic has these ledgers now."""
    mark = nearest(state.mark_delete or EARLIEST, lengths_of(ledgers))
    listed = {one.ledger for one in ledgers}
    lengths = lengths_of(ledgers)
    whole = tuple(
        behind
        for one in by_ledger(state.ranges, lengths)
        if (behind := one.between(begin=(mark[0], mark[1] + 1)) if one.ledger == mark[0] else one) is not None
        and one.ledger >= mark[0]
    )
    parts = tuple(one for one in state.batches if one.ledger in listed and (one.ledger, one.entry) > mark)
    properties = tuple(one for one in state.subscription_properties if not one[0].startswith(INTERNAL))
    says = (*_trimmed(state, ledgers), *_lost(state, parts), *_never_stored())
    was_replicated = replicated or (REPLICATED, 1) in state.properties
    return CursorUndo(mark, whole, parts, properties, was_replicated, says)


def lengths_of(ledgers: Sequence[HeldLedger]) -> Lengths:
    """How many entries they have."""
    return [(one.ledger, one.entries) for one in ledgers]


def _trimmed(state: CursorState, ledgers: Sequence[HeldLedger]) -> Iterator[str]:
    mark = state.mark_delete
    if mark is None or not ledgers or mark[0] >= ledgers[0].ledger:
        return
    yield (
        f"The topic's ledgers before {ledgers[0].ledger} are gone, and it stood at {mark[0]}:{mark[1]}: it begins with "
        "the topic's first entry, and what was between cannot be delivered any more."
    )


def _lost(state: CursorState, parts: Sequence[PartlyAcknowledged]) -> Iterator[str]:
    if parts:
        yield (
            f"Of {len(parts)} batches some messages are acknowledged: brokers keep that only with "
            "acknowledgmentAtBatchIndexLevelEnabled=true, and many versions forget it when the topic is unloaded; such "
            "messages then come again."
        )
    yield from never_set(state.properties, state.subscription_properties)


def never_set(properties: Sequence[tuple[str, int]], of_subscription: Sequence[tuple[str, str]]) -> Iterator[str]:
    """What nobody can set from outside, a sentence each."""
    others = sorted(name for name, _ in properties if name != REPLICATED)
    if others:
        yield f"These properties of its position cannot be set from outside: {', '.join(others)}."
    if any(name.startswith(DELAYED) for name, _ in of_subscription):
        yield "The broker makes its index of delayed messages anew."


def _never_stored() -> Iterator[str]:
    yield "Its type is its next consumer's, and redelivery counts begin at 0: brokers store neither."
