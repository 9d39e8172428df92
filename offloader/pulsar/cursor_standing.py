"""A subscription is made to stand where it shall: made, moved, acknowledged entry by entry, and read back.

Of what it is told a broker promises nothing, and drops some of it without a word: only the look at the end proves it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from offloader.errors import OutcomeUnknownError
from offloader.model import AcknowledgedRange, EntryRange, PartlyAcknowledged, Place, TopicName, by_ledger
from offloader.ports.subscriptions import EARLIEST, SubscriptionLook, Subscriptions

TRIES = 3  # to have a position copied to other clusters
Lengths = Sequence[tuple[int, int | None]]
"""The topic's ledgers in order, with their entries; None: not known yet."""


class Acknowledged(NamedTuple):
    """Up to a position, and beyond it."""

    mark_delete: Place
    ranges: tuple[AcknowledgedRange, ...]


@dataclass(frozen=True, slots=True)
class CursorStanding:
    """`mark_delete`: where it begins; before the topic's first entry: EARLIEST. `whole`, `parts`: what is acknowledged
    beyond. `properties`: those of users. `replicated`: its position is copied to other clusters."""

    mark_delete: Place
    whole: tuple[EntryRange, ...] = ()
    parts: tuple[PartlyAcknowledged, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    replicated: bool = False

    @property
    def acknowledged(self) -> Acknowledged:
        """What a look must show; brokers do not show `parts`."""
        ranges = (AcknowledgedRange((one.ledger, one.first - 1), (one.ledger, one.last)) for one in self.whole)
        return Acknowledged(self.mark_delete, tuple(ranges))


class Difference(NamedTuple):
    """Between what was wanted and what is there, in whole entries. `again`: not acknowledged there, so they are
    delivered again. `unseen`: acknowledged only there, so nobody gets them. `first`: the lowest one of both; None:
    there is no difference."""

    again: int
    unseen: int
    first: Place | None


def difference(wanted: Acknowledged, there: Acknowledged, lengths: Lengths) -> Difference:
    """In these ledgers; how the states are written may differ. Takes memory for the largest one of them."""
    again = unseen = 0
    first: Place | None = None
    known = _known((wanted, there), lengths)
    mine, theirs = _ledgers(wanted, known), _ledgers(there, known)
    for ledger, entries in known:
        if mine.get(ledger) == theirs.get(ledger):
            continue
        here, other = _bits(mine.get(ledger, ()), entries), _bits(theirs.get(ledger, ()), entries)
        again += (here & ~other).bit_count()
        unseen += (other & ~here).bit_count()
        if here != other and first is None:
            first = ledger, _lowest(here ^ other)
    return Difference(again, unseen, first)


def is_same(one: Acknowledged, other: Acknowledged, lengths: Lengths) -> bool:
    """Whether two states have acknowledged the same entries of these ledgers; how they are written may differ."""
    return difference(one, other, lengths).first is None


def bring(
    brokers: Subscriptions,
    topic: TopicName,
    subscription: str,
    standing: CursorStanding,
    lengths: Lengths | None = None,
) -> SubscriptionLook:
    """Make it stand there, whether it is there or not. Each step may be repeated; nobody may use it meanwhile.
    `lengths`: by default what the broker says at the end. Whether it is `replicated` the answer says.

    Raises OutcomeUnknownError where it then does not stand there, what brokers raise, and SubscriptionBusyError."""
    brokers.create(topic, subscription, dict(standing.properties))
    brokers.move(topic, subscription, standing.mark_delete)
    if standing.replicated:
        _replicate(brokers, topic, subscription)
    if standing.whole or standing.parts:
        brokers.acknowledge(topic, subscription, standing.whole, standing.parts)
    look = brokers.look(topic, subscription)
    if look is None:
        raise OutcomeUnknownError(f"{topic}: {subscription} was made, and is not there: try once more")
    there = Acknowledged(look.mark_delete, look.ranges)
    found = difference(standing.acknowledged, there, look.lengths if lengths is None else lengths)
    if found.first is not None:
        raise OutcomeUnknownError(
            f"{topic}: {subscription} was made, and does not stand where it shall (from {found.first[0]}:"
            f"{found.first[1]} on: {found.again} entries are not acknowledged that should be, {found.unseen} are that "
            "should not be): try once more, before anybody uses it"
        )
    return look


def _replicate(brokers: Subscriptions, topic: TopicName, subscription: str) -> None:
    """Not all brokers do that: the look says whether it is so."""
    for _ in range(TRIES):
        with suppress(OutcomeUnknownError):
            brokers.replicate(topic, subscription)
            return


def nearest(mark: Place, lengths: Lengths) -> Place:
    """A mark-delete position that can be named: before a ledger that is not listed any more is the end of the one
    before, or nothing."""
    if any(ledger == mark[0] for ledger, _ in lengths):
        return mark
    before = [(ledger, entries) for ledger, entries in lengths if ledger < mark[0] and entries]
    return (before[-1][0], (before[-1][1] or 0) - 1) if before else EARLIEST


def _whole(state: Acknowledged, lengths: Lengths) -> Iterator[EntryRange]:
    """All that is acknowledged, from the first ledger on."""
    return by_ledger((AcknowledgedRange(EARLIEST, state.mark_delete), *state.ranges), lengths)


def _known(states: Sequence[Acknowledged], lengths: Lengths) -> list[tuple[int, int]]:
    """Of an open ledger as much as is spoken of."""
    spoken: dict[int, int] = {}
    for state in states:
        for ledger, entry in (state.mark_delete, *(one.last for one in state.ranges)):
            spoken[ledger] = max(spoken.get(ledger, 0), entry + 1)
    return [(ledger, spoken.get(ledger, 0) if entries is None else entries) for ledger, entries in lengths]


def _ledgers(state: Acknowledged, lengths: Sequence[tuple[int, int]]) -> dict[int, list[EntryRange]]:
    """What is acknowledged, by ledger."""
    done: dict[int, list[EntryRange]] = {}
    for one in _whole(state, lengths):
        done.setdefault(one.ledger, []).append(one)
    return done


def _bits(done: Iterable[EntryRange], entries: int) -> int:
    """Of one ledger, as one number: bit n is entry n."""
    digits = bytearray(b"0" * entries)
    for one in done:
        after = min(one.after, entries)
        digits[one.first : after] = b"1" * (after - one.first)
    return int(digits[::-1] or b"0", 2)


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1
