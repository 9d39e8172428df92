"""Making a subscription on a broker that stands where a copy says, and reading back whether it does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from offloader.cursors.copies import CopiedCursor, words_of
from offloader.cursors.core.ledger_acks import LedgerAcks
from offloader.errors import OutcomeUnknownError
from offloader.model import AcknowledgedRange, EntryRange, PartlyAcknowledged, Place, TopicName, by_ledger
from offloader.ports.subscriptions import SubscriptionLook, Subscriptions

REPLICATED = "pulsar.replicated.subscription"
INTERNAL = "#pulsar.internal."
DELAYED = f"{INTERNAL}delayed"
EARLIEST: Place = (-1, -1)


class Difference(NamedTuple):
    """Between what was wanted and what a broker says, in whole entries: it says nothing of batches. `again`: not
    acknowledged there, so they are delivered again. `unseen`: acknowledged only there, so nobody gets them. `first`:
    the lowest one of both; None: there is no difference."""

    again: int
    unseen: int
    first: Place | None


def put_cursor(brokers: Subscriptions, topic: TopicName, cursor: CopiedCursor) -> SubscriptionLook:
    """Make it where it is not there, and bring it where the copy says, while nobody uses it: `difference` tells from
    the look whether it is. Each step may be repeated, and so may the call.

    Raises DamagedRecordError, SubscriptionBusyError, OutcomeUnknownError, and what brokers raise."""
    brokers.create(topic, cursor.name, users_properties(cursor))
    brokers.move(topic, cursor.name, cursor.mark_delete)
    if cursor.pieces:
        brokers.acknowledge(topic, cursor.name, whole_of(cursor), parts_of(cursor))
    look = brokers.look(topic, cursor.name)
    if look is None:
        raise OutcomeUnknownError(f"{topic}: {cursor.name} was made, and is not there; call it again")
    return look


def difference(wanted: CopiedCursor, look: SubscriptionLook) -> Difference:
    """In the ledgers that the topic had at the look. Raises DamagedRecordError."""
    again = unseen = 0
    first: Place | None = None
    acks, found = wanted.acks(), _by_ledger(look)
    for ledger, entries in look.lengths:
        there = _bits(found.get(ledger), 0)
        here = _bits(acks.get(ledger), _below(wanted.mark_delete, ledger, entries))
        if entries is not None:
            here &= (1 << entries) - 1
        other = here ^ there
        again += (here & other).bit_count()
        unseen += (there & other).bit_count()
        if other and first is None:
            first = ledger, (other & -other).bit_length() - 1
    return Difference(again, unseen, first)


def whole_of(cursor: CopiedCursor) -> Iterator[EntryRange]:
    """The entries that are acknowledged behind the mark-delete position, in order. Raises DamagedRecordError."""
    for ledger, acks in sorted(cursor.acks().items()):
        for first, last in acks.runs():
            yield EntryRange.closed(ledger, first, last)


def parts_of(cursor: CopiedCursor) -> Iterator[PartlyAcknowledged]:
    """The batches of which a part is acknowledged, in order. Raises DamagedRecordError."""
    for ledger, acks in sorted(cursor.acks().items()):
        for entry, batch in sorted(acks.batches.items()):
            yield PartlyAcknowledged(ledger, entry, words_of(batch))


def users_properties(cursor: CopiedCursor) -> dict[str, str]:
    """Without those that a broker sets for itself."""
    return {name: text for name, text in cursor.subscription_properties if not name.startswith(INTERNAL)}


def never_put(cursor: CopiedCursor) -> Iterator[str]:
    """What cannot be set from outside, a sentence each."""
    if cursor.replicated or (REPLICATED, 1) in cursor.properties:
        yield "It was replicated to other clusters: a consumer must ask for that again."
    others = sorted(name for name, _ in cursor.properties if name != REPLICATED)
    if others:
        yield f"These properties of its position cannot be set from outside: {', '.join(others)}."
    if any(name.startswith(DELAYED) for name, _ in cursor.subscription_properties):
        yield "The broker makes its index of delayed messages anew."


def _by_ledger(look: SubscriptionLook) -> dict[int, LedgerAcks]:
    found: dict[int, LedgerAcks] = {}
    for one in by_ledger((AcknowledgedRange(EARLIEST, look.mark_delete), *look.ranges), look.lengths):
        found.setdefault(one.ledger, LedgerAcks()).acknowledge(one.first, one.last)
    return found


def _below(mark: Place, ledger: int, entries: int | None) -> int:
    """How many entries of a ledger are acknowledged by a mark-delete position."""
    if ledger == mark[0]:
        return mark[1] + 1
    return (entries or 0) if ledger < mark[0] else 0


def _bits(acks: LedgerAcks | None, below: int) -> int:
    """As one number: bit n is entry n."""
    bits = 0 if acks is None else int.from_bytes(acks.bits, "little") << acks.base
    return bits | (1 << below) - 1
