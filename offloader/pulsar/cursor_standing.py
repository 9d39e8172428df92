"""A subscription is made to stand where it shall: made, moved, acknowledged entry by entry, and read back.

Of what it is told a broker promises nothing, and drops some of it without a word: only the look at the end proves it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from offloader.errors import OutcomeUnknownError
from offloader.model import AcknowledgedRange, EntryRange, PartlyAcknowledged, Place, TopicName, by_ledger
from offloader.ports.subscriptions import SubscriptionLook, Subscriptions

EARLIEST: Place = (-1, -1)
Lengths = Sequence[tuple[int, int | None]]
"""The topic's ledgers in order, with their entries; None: not known yet."""


class Acknowledged(NamedTuple):
    """Up to a position, and beyond it."""

    mark_delete: Place
    ranges: tuple[AcknowledgedRange, ...]


@dataclass(frozen=True, slots=True)
class CursorStanding:
    """`mark_delete`: where it begins; before the topic's first entry: EARLIEST. `whole`, `parts`: what is acknowledged
    beyond. `properties`: those of users."""

    mark_delete: Place
    whole: tuple[EntryRange, ...] = ()
    parts: tuple[PartlyAcknowledged, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()

    @property
    def acknowledged(self) -> Acknowledged:
        """What a look must show; brokers do not show `parts`."""
        ranges = (AcknowledgedRange((one.ledger, one.first - 1), (one.ledger, one.last)) for one in self.whole)
        return Acknowledged(self.mark_delete, tuple(ranges))


def is_same(one: Acknowledged, other: Acknowledged, lengths: Lengths) -> bool:
    """Whether two states have acknowledged the same entries of these ledgers; how they are written may differ."""
    known = _known((one, other), lengths)
    return _left(one, known) == _left(other, known)


def bring(
    brokers: Subscriptions, topic: TopicName, subscription: str, standing: CursorStanding, lengths: Lengths
) -> SubscriptionLook:
    """Make it stand there, whether it is there or not. Each step may be repeated; nobody may use it meanwhile.

    Raises OutcomeUnknownError where it then does not stand there, what brokers raise, and SubscriptionBusyError."""
    brokers.create(topic, subscription, dict(standing.properties))
    brokers.move(topic, subscription, standing.mark_delete)
    if standing.whole or standing.parts:
        brokers.acknowledge(topic, subscription, standing.whole, standing.parts)
    look = brokers.look(topic, subscription)
    if look is None:
        raise OutcomeUnknownError(f"{topic}: {subscription} was made, and is not there: try once more")
    if not is_same(Acknowledged(look.mark_delete, look.ranges), standing.acknowledged, lengths):
        raise OutcomeUnknownError(
            f"{topic}: {subscription} was made, and does not stand where it shall: try once more, before anybody uses "
            "it"
        )
    return look


def _known(states: Sequence[Acknowledged], lengths: Lengths) -> list[tuple[int, int]]:
    """Of an open ledger as much as is spoken of."""
    spoken: dict[int, int] = {}
    for state in states:
        for ledger, entry in (state.mark_delete, *(one.last for one in state.ranges)):
            spoken[ledger] = max(spoken.get(ledger, 0), entry + 1)
    return [(ledger, spoken.get(ledger, 0) if entries is None else entries) for ledger, entries in lengths]


def _left(state: Acknowledged, lengths: Sequence[tuple[int, int]]) -> list[EntryRange]:
    done: dict[int, list[EntryRange]] = {}
    for one in by_ledger((AcknowledgedRange(EARLIEST, state.mark_delete), *state.ranges), lengths):
        done.setdefault(one.ledger, []).append(one)
    return [
        left
        for ledger, entries in lengths
        if entries
        for left in EntryRange(ledger, 0, entries).without(done.get(ledger, ()))
    ]
