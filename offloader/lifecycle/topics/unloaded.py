"""Which topics that nobody has loaded are worth a visit, when, and why the others are not. Pure.

A visit has a broker load the topic and apply its retention: `trim` decides what goes, and this only guesses whether
there is something to decide. An unload leaves a list's last ledger without a date; the next load dates it with that
moment. So the data of the last ledger take two visits: one that dates it, and one a retention time later. The second
one is due by the list's own dates: nothing of the first one has to be remembered.

While a topic is loaded a cursor's position is in a ledger of its own, and its node says less; a clean unload writes it
into the node. So what a node says is a lower bound where it names a ledger: `KeptFrom.certain` tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from offloader.lifecycle.topics.broker_retention import BrokerRetention
from offloader.lifecycle.topics.cursors.kinds import SubscriptionKind, SubscriptionNames
from offloader.model import TopicName
from offloader.ports.admin import KnownTopics
from offloader.state.managed_ledger import ListedLedger
from offloader.state.subscription import CursorState
from offloader.state.topic import PulsarTopic

QUIET_MS = 600_000
"""What was just unloaded is left alone for so long: after a broker's restart clients come back by themselves."""
UNSEEN_MS = 120_000
"""A topic that was loaded within this may not show in its broker's statistics, which are a minute old."""


class VisitReason(StrEnum):
    """What a visit is for."""

    EXPIRED = "data that retention no longer keeps"
    UNDATED = "its last ledger has no date before the topic is loaded"
    OPEN = "its last ledger is open, and no broker has it loaded"


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Bytes that retention does not keep and this cursor does."""

    by: KeptFrom
    size: int


@dataclass(frozen=True, slots=True)
class UnloadedTopic:
    """What its nodes come to. `size`: of the whole list. `overdue`: bytes that would be gone had it stayed loaded.

    `reasons`: why a visit is worth it from `due_ms` on; `due_ms` None: never, as things stand. `open_ledger`: the last
    one, where it is not closed: its bytes are not known. `doubt`: why the retention may be another one.
    """

    topic: TopicName
    retention: BrokerRetention
    size: int
    version: int
    overdue: int = 0
    reasons: tuple[VisitReason, ...] = ()
    due_ms: int | None = None
    held: tuple[HeldBack, ...] = ()
    open_ledger: int | None = None
    terminated: bool = False
    undated: bool = False
    doubt: str = ""

    def due(self, now_ms: int) -> bool:
        return self.due_ms is not None and self.due_ms <= now_ms


def look_at(nodes: PulsarTopic, retention: BrokerRetention, now_ms: int, names: SubscriptionNames) -> UnloadedTopic:
    """`now_ms`: by the metadata service's clock as far as it is known."""
    ledgers, tail = nodes.ledgers, nodes.newest
    holders = [kept_from(name, cursor, ledgers, names) for name, cursor in nodes.cursors.items()]
    first_kept = slowest(holders)
    unkept = list(_unkept(nodes, retention, now_ms))
    free = [one for one in unkept if first_kept is None or one.ledger < first_kept]
    reasons, due_ms = _visit(nodes, retention, first_kept, unkept)
    return UnloadedTopic(
        topic=nodes.topic,
        retention=retention,
        size=sum(one.size for one in ledgers),
        version=nodes.list.version,
        overdue=sum(one.size for one in free),
        reasons=reasons,
        due_ms=max(due_ms, _quiet_until(nodes, retention)) if reasons else None,
        held=tuple(sorted(_held(holders, unkept), key=lambda one: -one.size)),
        open_ledger=ledgers[-1].ledger if ledgers and tail is not None and not tail.closed else None,
        terminated=nodes.list.terminated is not None,
        undated=_is_undated(nodes),
    )


def _unkept(nodes: PulsarTopic, retention: BrokerRetention, now_ms: int) -> Iterator[ListedLedger]:
    """What retention alone no longer keeps, oldest first, up to the first that it keeps: brokers stop there, too.

    The last ledger counts as if it had been dated when it was closed, as a broker that had the topic would have done.
    """
    ledgers, behind = nodes.ledgers, 0
    total = sum(one.size for one in ledgers)
    for one in ledgers:
        behind += one.size
        finished = _finished_ms(nodes, one)
        if finished is None or not (
            _is_expired(finished, retention, now_ms)
            or (retention.size is not None and total - behind >= retention.size)
        ):
            return
        yield one


def _visit(
    nodes: PulsarTopic, retention: BrokerRetention, first_kept: int | None, unkept: list[ListedLedger]
) -> tuple[tuple[VisitReason, ...], int]:
    """What the next visit is for, nothing where none is worth it, and from when on."""
    if retention.for_ever or not nodes.list.ledgers:
        return (), 0
    *former, last = nodes.ledgers
    end = last.ledger + 1 if first_kept is None else first_kept
    expiry_ms = _expiry_ms(nodes, retention, [one for one in former if one.ledger < end], unkept)
    if nodes.newest is not None and not nodes.newest.closed:
        return (VisitReason.OPEN,), nodes.newest.created_ms + UNSEEN_MS
    counts = retention.time_ms is not None or last in unkept
    undated = (VisitReason.UNDATED,) if counts and _is_undated(nodes) and last.ledger < end else ()
    return (undated, 0) if expiry_ms is None else ((VisitReason.EXPIRED, *undated), expiry_ms)


def _expiry_ms(
    nodes: PulsarTopic, retention: BrokerRetention, free: list[ListedLedger], unkept: list[ListedLedger]
) -> int | None:
    """When enough of the dated ledgers has expired: all of them, or the first one and half a retention time has passed
    since the last load. A visit for each of them would be many."""
    if not free:
        return None
    if retention.time_ms is None:
        return 0 if free[0] in unkept else None
    expiries = [
        0 if one in unkept else (one.timestamp_ms or nodes.list.modified_ms) + retention.time_ms + 1 for one in free
    ]
    return max(expiries[0], min(max(expiries), nodes.list.modified_ms + retention.time_ms // 2))


def _is_undated(nodes: PulsarTopic) -> bool:
    """Whether the last ledger has data, is closed, and will be dated by the next load. One of a terminated topic never
    is for good: no ledger follows it."""
    return (
        nodes.newest is not None and nodes.newest.closed and nodes.newest.entries > 0 and nodes.list.terminated is None
    )


def _finished_ms(nodes: PulsarTopic, ledger: ListedLedger) -> int | None:
    if ledger.ledger != nodes.list.ledgers[-1].ledger:
        return ledger.timestamp_ms or nodes.list.modified_ms
    return nodes.newest.changed_ms if nodes.newest is not None and _is_undated(nodes) else None


def _is_expired(finished_ms: int, retention: BrokerRetention, now_ms: int) -> bool:
    return retention.time_ms is not None and now_ms - finished_ms > retention.time_ms


def _held(holders: list[KeptFrom], unkept: list[ListedLedger]) -> Iterator[HeldBack]:
    for holder in holders:
        size = sum(one.size for one in unkept if holder.keeps(one.ledger))
        if size:
            yield HeldBack(holder, size)


def _quiet_until(nodes: PulsarTopic, retention: BrokerRetention) -> int:
    """Nobody needs to be quicker than retention itself."""
    quiet = QUIET_MS if retention.time_ms is None else min(retention.time_ms, QUIET_MS)
    changed = [nodes.list.modified_ms, *([nodes.newest.changed_ms] if nodes.newest is not None else [])]
    return max(changed) + quiet + 1


@dataclass(frozen=True, slots=True)
class KeptFrom:
    """A cursor keeps this ledger and all after it; `ledger` None: nothing that is written yet. `certain`: its node has
    its position; else it may have come further."""

    cursor: str
    kind: SubscriptionKind
    ledger: int | None
    certain: bool

    def keeps(self, ledger: int) -> bool:
        return self.ledger is not None and ledger >= self.ledger


def kept_from(name: str, cursor: CursorState, ledgers: Sequence[ListedLedger], names: SubscriptionNames) -> KeptFrom:
    """As brokers count: a ledger whose last entry is acknowledged is done with; a cursor in a ledger that is gone goes
    on at the first one that is left. `ledgers`: sizes of the last one included."""
    kind, certain = names.kind(name), cursor.cursor_ledger is None and cursor.mark_delete is not None
    if cursor.mark_delete is None:
        return KeptFrom(name, kind, ledgers[0].ledger if ledgers else None, certain)
    at, entry = cursor.mark_delete
    left = (one.ledger for one in ledgers if one.ledger > at or (one.ledger == at and not _done(one, entry)))
    return KeptFrom(name, kind, next(left, None), certain)


def slowest(holders: Iterable[KeptFrom]) -> int | None:
    """The first ledger that some cursor certainly keeps."""
    return min((one.ledger for one in holders if one.certain and one.ledger is not None), default=None)


def _done(ledger: ListedLedger, entry: int) -> bool:
    return 0 < ledger.entries <= entry + 1


class WhyPassedOver(StrEnum):
    """Why a topic is never visited, or not now."""

    LOADED = "loaded"
    KEPT_FOR_EVER = "kept for ever"
    SYSTEM = "Pulsar's own"
    SHADOW = "shadow of another topic"
    SAME_NAME = "a partitioned topic has the same name"
    UNKNOWN = "brokers do not know it"
    NO_NAMESPACE = "its namespace is gone"
    DAMAGED = "a node of it is damaged"
    MISSING = "BookKeeper does not have its last ledger"
    NOT_OFFLOADED = "it is to be offloaded, and has no subscription of ours yet"
    UNASKED = "its namespace could not be asked about"


OF_NO_INTEREST = (WhyPassedOver.LOADED, WhyPassedOver.KEPT_FOR_EVER, WhyPassedOver.SYSTEM, WhyPassedOver.SHADOW)
"""As it should be: these are only counted."""
CANNOT_BE_VISITED = (WhyPassedOver.DAMAGED, WhyPassedOver.MISSING, WhyPassedOver.UNASKED, WhyPassedOver.SAME_NAME)
"""An operator has to do something before retention counts for these."""


@dataclass(frozen=True, slots=True)
class PassedOver:
    """One topic. `detail`: what is damaged, whose shadow it is."""

    topic: TopicName
    why: WhyPassedOver
    detail: str = ""


def passed_over(topic: TopicName, known: KnownTopics, loaded: Mapping[str, str]) -> WhyPassedOver | None:
    """By names alone. A call about a name that partitions share would go to all of them."""
    if str(topic) in loaded:
        return WhyPassedOver.LOADED
    if topic.is_system:  # brokers load these by themselves, some of them not as topics at all
        return WhyPassedOver.SYSTEM
    if str(topic) in known.partitioned:
        return WhyPassedOver.SAME_NAME
    return None if topic in known.topics else WhyPassedOver.UNKNOWN
