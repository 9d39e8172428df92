"""What goes of a topic now: by its policy, or on request. Reads, and writes nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice

from offloader.lifecycle.retention.chunked import begins_before
from offloader.lifecycle.retention.handing_over import NOTHING_HANDED_OVER, HandingOver, off_list
from offloader.lifecycle.retention.holdings import SegmentsOf, holdings
from offloader.lifecycle.retention.own_copies import NOTHING_READABLE, ReadableLedgers
from offloader.lifecycle.retention.plan import DAY_MS, DueRange, Holding, PulsarSide, all_of, due, next_due
from offloader.lifecycle.retention.policy import RetentionPolicy
from offloader.lifecycle.retention.waiting import with_waiting
from offloader.metadata.bridged import HandedLedger
from offloader.metadata.deletions import Deleting
from offloader.metadata.history import History
from offloader.metadata.state import CatalogHead
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore

MOST_ENDS = 100  # of segments, behind which a topic's decision reads what is kept
MOST_OWN = 1000  # ledgers that brokers have offloaded by themselves, in one deletion: some 100 bytes each in its record


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """What goes of a topic by its policy now, and what is under way already. `why_not`: why nothing more goes.
    `again_at`: where nothing goes, when something may that nothing new is recorded of (None: no time says it)."""

    topic: TopicName
    due: tuple[DueRange, ...]
    pending: Deleting | None = None
    why_not: str = ""
    again_at: int | None = None


def planned(
    store: ObjectStore,
    head: CatalogHead,
    policy: RetentionPolicy,
    now: int,
    gone_since: int | None,
    handing_over: HandingOver = NOTHING_HANDED_OVER,
) -> RetentionPlan:
    """What goes of a topic by its policy. Reads the catalog, the first bytes of what is kept, and whether brokers have
    what they are to get. Writes nothing."""
    removed = head.removed
    if removed.pending is not None:
        return RetentionPlan(head.topic, (), removed.pending, "a deletion is under way")
    if policy.hold:
        return RetentionPlan(head.topic, (), why_not=f"held by {policy.hold}")
    theirs = readable_for(handing_over, head, policy)
    pulsar = pulsar_side(head, theirs)
    all_kept = holdings(History(store, head), gone_since, removed.ranges)
    known = with_waiting(store, head.topic, all_kept, policy, now, pulsar)
    found = _alike([due(each, policy, now, pulsar) for each in known])
    goes, why_not = _sound(handing_over, head.topic, theirs, _readable(store, head, found))
    again_at = None if goes else _again_at(known, found, policy, now, pulsar)
    return RetentionPlan(head.topic, goes, why_not="" if goes else why_not, again_at=again_at)


def readable_for(handing_over: HandingOver, head: CatalogHead, policy: RetentionPolicy) -> ReadableLedgers:
    """What brokers have of a topic, where that matters."""
    return handing_over.readable(head.topic) if policy.hands_over else NOTHING_READABLE


def pulsar_side(head: CatalogHead, theirs: ReadableLedgers) -> PulsarSide:
    """What decisions need of it."""
    return PulsarSide(head.removed.trimmed, theirs.ledgers, theirs.unfit)


def _alike(found: list[DueRange | None]) -> list[DueRange | None]:
    """What goes for one reason goes together: what brokers get is no deletion for readers."""
    first = next((each for each in found if each is not None), None)
    return [each if each is None or each.is_handed_over == first.is_handed_over else None for each in found if first]


def _sound(
    handing_over: HandingOver, topic: TopicName, theirs: ReadableLedgers, found: tuple[DueRange, ...]
) -> tuple[tuple[DueRange, ...], str]:
    """Without the segments that would be the only copy, and from the first of these on; and why. What brokers have
    offloaded by themselves goes some at a time: the record of its second look names each copy."""
    goes, why, own = list[DueRange](), "", set[int]()
    listing = handing_over.listing(topic) if any(each.is_handed_over for each in found) else None
    for each in found:
        if not each.is_handed_over:
            goes.append(each)
            continue
        records = each.holding.segments
        assert isinstance(records, SegmentsOf)
        taken = 0
        for record in islice(records.records(), len(each.due)):
            why = off_list(listing, [record]) or handing_over.why_not(theirs, [record])
            if why:
                break
            own |= {held.ledger for held in record.ledgers if _is_own(theirs.ledgers.get(held.ledger))}
            if len(own) > MOST_OWN and (taken or goes):
                break
            taken += 1
        if taken:
            goes.append(replace(each, due=each.due[:taken], rest=each.rest or taken < len(each.due)))
    return tuple(goes), why


def _is_own(handed: HandedLedger | None) -> bool:
    return handed is not None and handed.by_brokers


def _again_at(
    known: list[Holding], found: list[DueRange | None], policy: RetentionPolicy, now: int, pulsar: PulsarSide
) -> int | None:
    if any(found) or any(each.waiting for each in known):  # but for what is kept behind it, or who waits for it
        return now + DAY_MS // 24
    following = (next_due(each, None, policy, now, pulsar) for each in known)
    return min((each.at for each in following if each is not None and each.at is not None), default=None)


def requested(store: ObjectStore, head: CatalogHead, gone_since: int | None, words: str) -> tuple[DueRange, ...]:
    """What goes of a topic on request: all that is not protected."""
    known = holdings(History(store, head), gone_since, head.removed.told, released_goes=True)
    return _readable(store, head, [all_of(each, words) for each in known])


def _readable(store: ObjectStore, head: CatalogHead, found: list[DueRange | None]) -> tuple[DueRange, ...]:
    """Without the segments in which a message begins that is kept."""
    shortened = (each if each is None or not each.rest else _shortened(store, head, each) for each in found)
    return tuple(each for each in shortened if each is not None)


def _shortened(store: ObjectStore, head: CatalogHead, found: DueRange) -> DueRange | None:
    """Up to the last end across which no kept message reaches, as the second look asks for it, too."""
    records = found.holding.segments
    assert isinstance(records, SegmentsOf)
    for taken in islice(range(len(found.due), 0, -1), MOST_ENDS):
        if not begins_before(store, head.topic, islice(records.records(), taken, None)):
            return replace(found, due=found.due[:taken])
    return None
