"""What goes of a topic now: by its policy, or on request. Reads, and writes nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice

from offloader.lifecycle.retention.holdings import SegmentsOf, begins_before, holdings, with_waiting
from offloader.lifecycle.retention.holds import first_held
from offloader.lifecycle.retention.plan import DAY_MS, DueRange, Holding, all_of, due, next_due
from offloader.lifecycle.retention.policy import RetentionPolicy
from offloader.metadata.deletions import Deleting, PulsarTrimmed
from offloader.metadata.history import History
from offloader.metadata.state import CatalogHead
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore

AGAIN_MS = DAY_MS // 24
MOST_ENDS = 100  # of segments, behind which a topic's decision reads what is kept


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """What goes of a topic by its policy now, and what is under way already. `why_not`: why nothing more goes.
    `again_at`: where nothing goes, when something may that nothing new is recorded of (None: no time says it).
    `held`: the object that the store keeps, because of which less goes than is due."""

    topic: TopicName
    due: tuple[DueRange, ...]
    pending: Deleting | None = None
    why_not: str = ""
    again_at: int | None = None
    held: str = ""


def planned(
    store: ObjectStore,
    head: CatalogHead,
    policy: RetentionPolicy,
    now: int,
    gone_since: int | None,
) -> RetentionPlan:
    """What goes of a topic by its policy. Reads the catalog, and the first bytes of what is kept. Writes nothing."""
    removed = head.removed
    if removed.pending is not None:
        return RetentionPlan(head.topic, (), removed.pending, "a deletion is under way")
    if policy.hold:
        return RetentionPlan(head.topic, (), why_not=f"held by {policy.hold}")
    all_kept = holdings(History(store, head), gone_since, removed.ranges)
    known = with_waiting(store, head.topic, all_kept, policy, now, removed.trimmed)
    found, held = _unheld(store, head.topic, [due(each, policy, now, removed.trimmed) for each in known], now)
    goes = _readable(store, head, found)
    again_at = None if goes else now + AGAIN_MS if held else _again_at(known, found, policy, now, removed.trimmed)
    return RetentionPlan(head.topic, goes, why_not="" if goes else held, again_at=again_at, held=held)


def _again_at(
    known: list[Holding],
    found: list[DueRange | None],
    policy: RetentionPolicy,
    now: int,
    trimmed: PulsarTrimmed | None,
) -> int | None:
    if any(found) or any(each.waiting for each in known):  # but for what is kept behind it, or who waits for it
        return now + AGAIN_MS
    following = (next_due(each, None, policy, now, trimmed) for each in known)
    return min((each.at for each in following if each is not None and each.at is not None), default=None)


def requested(
    store: ObjectStore, head: CatalogHead, gone_since: int | None, words: str, now: int
) -> tuple[tuple[DueRange, ...], str]:
    """What goes of a topic on request: all that is not protected. And the object that the store keeps, because of
    which less goes; empty: there is none."""
    known = holdings(History(store, head), gone_since, head.removed.told, released_goes=True)
    found, held = _unheld(store, head.topic, [all_of(each, words) for each in known], now)
    return _readable(store, head, found), held


def _unheld(
    store: ObjectStore, topic: TopicName, found: list[DueRange | None], now: int
) -> tuple[list[DueRange | None], str]:
    """Up to the first segment of each incarnation of which the store keeps an object; and the first such object."""
    goes, why = list[DueRange | None](), ""
    for each in found:
        records = None if each is None else each.holding.segments
        if each is None or not isinstance(records, SegmentsOf):
            goes.append(each)
            continue
        held = first_held(store, topic, islice(records.records(), len(each.due)), now)
        if held is not None:
            place, words = held
            why = why or words
            each = replace(each, due=each.due[:place], rest=True) if place else None
        goes.append(each)
    return goes, why


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
