"""Where each ledger of a topic can be read from. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from offloader.bridge.core.rounds import NOTHING_BRIDGED, BridgedLedgers
from offloader.metadata.deletions import DeletedRange, range_of
from offloader.metadata.state import CatalogHead
from offloader.model import Position
from offloader.state.managed_ledger import ListedLedger


class ReadFrom(StrEnum):
    """What has a ledger's entries, in words."""

    BOOKKEEPER = "BookKeeper"
    STOCK = "the copy of Pulsar's own offloader"
    BRIDGED = "brokers' copy, which is bridged"
    SEGMENTS = "the archive's segments"
    IN_PART = "the archive's segments, as far as they reach"


@dataclass(frozen=True, slots=True)
class LedgerPlaces:
    """A ledger of a topic's list, and what has it. `under_way`: it is being bridged. `let_go`: an operator has let it
    go as archive-only."""

    ledger: int
    places: tuple[ReadFrom, ...]
    under_way: bool = False
    let_go: bool = False


@dataclass(frozen=True, slots=True)
class TopicPlaces:
    """Of all ledgers of a topic. `archive_only`: from where on the archive has what is off Pulsar's list; None: no such
    thing."""

    ledgers: tuple[LedgerPlaces, ...] = ()
    archive_only: Position | None = None


def topic_places(
    listed: Sequence[ListedLedger], head: CatalogHead | None, bridged: BridgedLedgers = NOTHING_BRIDGED
) -> TopicPlaces:
    """`listed`: in order, as Pulsar's record has them. `head`: of the topic's catalog."""
    found = tuple(_of_ledger(one, head, bridged) for one in listed)
    first = listed[0].ledger if listed else None
    return TopicPlaces(found, None if head is None else _archive_only(head, first))


def places_told(found: TopicPlaces) -> Iterator[str]:
    """In sentences, ledgers that are alike together."""
    if found.archive_only is not None:
        at = found.archive_only
        yield f"What is off its list can be read from the archive only (archive-only), from {at.ledger}:{at.entry} on."
    for (places, under_way, let_go), each in groupby(
        found.ledgers, lambda one: (one.places, one.under_way, one.let_go)
    ):
        ids = [one.ledger for one in each]
        which = f"Ledger {ids[0]}" if len(ids) == 1 else f"Ledgers {ids[0]} to {ids[-1]} of its list"
        more = ", and being bridged" if under_way else ""
        more += ", and let go as archive-only" if let_go else ""
        yield f"{which} can be read from {' and '.join(places) or 'nowhere that we know'}{more}."


def _of_ledger(one: ListedLedger, head: CatalogHead | None, bridged: BridgedLedgers) -> LedgerPlaces:
    places: list[ReadFrom] = []
    if not one.copy.bookkeeper_deleted:
        places.append(ReadFrom.BOOKKEEPER)
    handed = bridged.ledgers.get(one.ledger)
    if one.copy.complete:
        ours = handed is not None and handed.ledger.uuid == one.copy.uuid
        places.append(ReadFrom.BRIDGED if ours else ReadFrom.STOCK)
    if head is not None and head.claim is not None:
        places += _archived(one, head, head.claim.incarnation)
    under_way = one.context is not None and one.copy.uuid in bridged.under_way
    state = bridged.state
    if state is not None and state.round is not None:
        under_way |= any(each.ledger == one.ledger for each in state.round.ledgers)
    return LedgerPlaces(one.ledger, tuple(places), under_way, one.ledger in bridged.let_go)


def _archived(one: ListedLedger, head: CatalogHead, incarnation: int) -> Iterable[ReadFrom]:
    """By positions alone: what is archived is one stretch of the incarnation, without what is deleted."""
    end, begin = head.end, head.begin
    first = Position(incarnation, one.ledger, 0)
    last = first.at(max(one.entries - 1, 0))
    if end is None or end < first or (begin is not None and begin > last):
        return ()
    if _within(head.removed.told, first, last):
        return ()
    whole = one.entries > 0 and end >= last and (begin is None or begin <= first)
    whole = whole and range_of(head.removed.told, first) is None
    return (ReadFrom.SEGMENTS if whole else ReadFrom.IN_PART,)


def _within(ranges: Iterable[DeletedRange], first: Position, last: Position) -> bool:
    return any(each.start <= first and last <= each.end for each in ranges)


def _archive_only(head: CatalogHead, first_listed: int | None) -> Position | None:
    """Where what only the archive has begins: behind what is deleted."""
    begin = head.begin
    if begin is None or head.end is None:
        return None
    gone = head.removed.up_to(begin.incarnation)
    start = begin if gone is None or gone < begin else gone.next_entry
    if first_listed is not None and start.ledger >= first_listed:
        return None
    return start if start <= head.end else None
