"""Subscriptions as a side of deletion: their brokers' word at each look, and a way back from what was saved.

A broker deletes a subscription without force: it refuses while a consumer is connected. Whether one was connected, or
anything was acknowledged, since the look is looked at once more right before: that is the guard."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import BoundedSemaphore

from offloader.ahead import map_ahead, unawaited_pool
from offloader.errors import (
    DamagedRecordError,
    FatalError,
    OffloadError,
    OutcomeUnknownError,
    OvertakenError,
    SubscriptionBusyError,
    TopicNotFoundError,
)
from offloader.lifecycle.deletion.machine import (
    DeletionTry,
    FailedLook,
    GoneLedger,
    PostponedLook,
    ReferencedLedger,
    SecondLook,
    UnprovenLedger,
    UnreferencedLedger,
)
from offloader.lifecycle.deletion.marking import Mark, Marker
from offloader.lifecycle.deletion.records import (
    DeletionState,
    LedgerNode,
    PendingDeleteLedgerInfo,
    subscription_record_name,
)
from offloader.lifecycle.deletion.side import TOO_LATE, SideLooks
from offloader.lifecycle.deletion.undo import LONGEST_CALL, check_not_on_its_way
from offloader.lifecycle.explaining.words import size_text
from offloader.lifecycle.topics.cursors.held import held_back, with_counts
from offloader.lifecycle.topics.cursors.kinds import SubscriptionNames, why_by_name_only
from offloader.lifecycle.topics.cursors.nodes import StoredTopics
from offloader.lifecycle.topics.cursors.removal import (
    BY_POLICY,
    SubscriptionSeen,
    objection,
    second_look,
    subscription_candidate,
)
from offloader.lifecycle.topics.cursors.stored import StoredTopic
from offloader.lifecycle.topics.cursors.undoing import NOT_REPLICATED, CursorUndo, lengths_of, undo_of
from offloader.model import TopicName
from offloader.ports.subscriptions import Subscriptions
from offloader.pulsar.cursor_standing import bring

FAILED_IN_A_ROW = 3
"""Looks; the rest waits for the next pass: a broker that is away answers after its timeout, and holds up all sides."""
NO_PROPERTIES = "its broker stores no properties of subscriptions: it may be another archive's offload subscription"


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    """What a deletion would come to. `held`: bytes that it holds back. `objection`: why it is refused; empty: it is
    not. `undo`: what an undo now would bring back; None where it is refused."""

    topic: TopicName
    subscription: str
    seen: SubscriptionSeen
    held: int
    objection: str
    undo: CursorUndo | None

    @property
    def by_name_only(self) -> str:
        """Why no policy marks it; empty: one may, or it is refused anyway."""
        return "" if self.objection else self.seen.by_name_only


@dataclass
class SubscriptionSide:
    """See `DeletionSide`. `now_ms`: for what is recorded; between looks only what brokers say counts. `at_once`:
    subscriptions that are looked at at a time. `pace`: called before a topic is loaded for a second look. `stopping`:
    whether to look at nothing more."""

    stored: StoredTopics
    brokers: Subscriptions
    names: SubscriptionNames
    now_ms: Callable[[], int]
    at_once: int = 1
    pace: Callable[[], None] = lambda: None
    stopping: Callable[[], bool] = lambda: False
    _turns: BoundedSemaphore = field(init=False)

    def __post_init__(self) -> None:
        self._turns = BoundedSemaphore(self.at_once)

    def look(self, records: Sequence[PendingDeleteLedgerInfo], *, goes_on: bool = False) -> SideLooks:
        """Each by itself: its broker first, and what is stored after it, which is not older. Topics are loaded. Those
        that fail cost a try each, so that others come first the next time; the rest costs none."""
        del goes_on  # nothing is read of all others
        looks, failed, cut_short = dict[str, SecondLook](), 0, ""

        def ends() -> bool:
            return bool(cut_short) or self.stopping()

        def look_unless_it_ends(record: PendingDeleteLedgerInfo) -> SecondLook:
            return PostponedLook() if ends() else self._look_at(record)

        with unawaited_pool(self.at_once, "subscription-look") as pool:
            found = map_ahead(pool, look_unless_it_ends, self._paced(records, ends), self.at_once)
            for record, look in zip(_by_topic(records), found, strict=True):
                looks[record.name] = look
                failed = failed + 1 if isinstance(look, FailedLook) else 0
                if isinstance(look, FailedLook) and failed == FAILED_IN_A_ROW:
                    cut_short = f"{failed} looks in a row failed, and the others wait; the last one: {look.why}"
        return SideLooks(looks, None, cut_short=cut_short)

    def close(self, record: PendingDeleteLedgerInfo) -> LedgerNode:
        """There is nothing to close."""
        raise FatalError(f"{record.thing} is no ledger: there is nothing to close")

    def delete(self, record: PendingDeleteLedgerInfo, in_time: Callable[[], bool]) -> tuple[DeletionTry, str]:
        """If it stands where the record says that it stood."""
        # Of an earlier try the request may still be on its way: nothing outdates it.
        refused = DeletionTry.REFUSED if record.tries <= 1 else DeletionTry.UNKNOWN
        match self._look_at(record):
            case UnreferencedLedger():
                pass
            case ReferencedLedger(by):
                return DeletionTry.IN_USE, by
            case UnprovenLedger(why) | FailedLook(why):
                return refused, why
            case _:
                return DeletionTry.UNKNOWN, "it went while it was looked at"
        if not in_time():
            return refused, TOO_LATE
        try:
            self.brokers.delete(*name_of(record))
        except SubscriptionBusyError as error:
            return DeletionTry.IN_USE, f"a consumer has connected: {error}"
        except (OutcomeUnknownError, TopicNotFoundError) as error:  # the next look says whether it is gone
            return DeletionTry.UNKNOWN, str(error)
        except OffloadError as error:
            return refused, str(error)
        return DeletionTry.DONE, ""

    def plan(self, topic: TopicName, subscription: str) -> RemovalPlan:
        """Look, and change nothing. The topic is loaded for it. Raises TopicNotFoundError and what looking raises."""
        stored, seen = self.stored.read(topic), self._see(topic, subscription, by_policy=True)
        why = objection(self.names.kind(subscription), seen)
        states = {name: one.state for name, one in stored.cursors.items() if one.state is not None}
        if seen.state is not None:
            states[subscription] = seen.state
        ledgers = stored.ledgers if seen.look is None else with_counts(stored.ledgers, seen.look.sizes)
        held = held_back(ledgers, states).get(subscription)
        undo = None
        if not why and seen.state is not None and seen.look is not None:
            undo = undo_of(seen.state, stored.ledgers, replicated=seen.look.replicated)
        return RemovalPlan(topic, subscription, seen, held.size if held else 0, why, undo)

    def mark(self, plan: RemovalPlan, marker: Marker, by: str) -> Mark[str, RemovalPlan]:
        """The first phase: the record has its whole state; nothing else changes. One that is pending stays as it is."""

        def candidate() -> PendingDeleteLedgerInfo | UnprovenLedger:
            by_name_only = plan.by_name_only if by == BY_POLICY else ""
            if why := plan.objection or (by_name_only and f"not by policy: {by_name_only}"):
                return UnprovenLedger(why)
            says = (f"It holds back {size_text(plan.held)}.", plan.by_name_only and f"Warning: {plan.by_name_only}.")
            return subscription_candidate(plan.topic, plan.subscription, plan.seen, self.now_ms(), by, says)

        name = subscription_record_name(str(plan.topic), plan.subscription)
        return marker.mark(f"{plan.topic}: {plan.subscription}", plan, name, candidate)

    def is_there(self, record: PendingDeleteLedgerInfo, now: int, *, same: bool = True) -> bool:
        """See `WayBack`."""
        try:
            look = self.brokers.look(*name_of(record))
        except TopicNotFoundError:
            return False
        if look is None:
            return False
        if same and (record.subscription is None or not look.stands_where(record.subscription.look)):
            raise FatalError(_another(record))
        check_not_on_its_way(record, now, LONGEST_CALL)
        return True

    def says(self, record: PendingDeleteLedgerInfo) -> tuple[str, ...]:
        """What an undo now would not bring back as it was, a sentence each. Raises FatalError where it is refused."""
        return self._standing(record)[0].says

    def put_back(self, record: PendingDeleteLedgerInfo, begin: Callable[[], object]) -> str:
        """See `WayBack`. Refused where there is one that we did not begin to make, or another topic."""
        if record.state is DeletionState.UNDONE:
            raise FatalError(f"{record.thing} is undone: there is nothing to undo")
        standing, stored = self._standing(record)
        there = self.brokers.look(*name_of(record))
        if there is not None and record.state is not DeletionState.UNDOING:
            raise FatalError(_another(record))
        if there is not None and there.consumers:
            raise FatalError(f"{record.thing} has consumers already: it cannot be moved any more")
        begin()
        look = bring(self.brokers, *name_of(record), standing, lengths_of(stored.ledgers))
        lost = (NOT_REPLICATED,) if standing.replicated and not look.replicated else ()
        return " ".join((*standing.says, *lost))

    def _paced(
        self, records: Sequence[PendingDeleteLedgerInfo], ends: Callable[[], bool]
    ) -> Iterator[PendingDeleteLedgerInfo]:
        """A topic is loaded once for all of its subscriptions."""
        last = ""
        for record in _by_topic(records):
            if record.topic_name != last and not ends():
                self.pace()
                last = record.topic_name
            yield record

    def _look_at(self, record: PendingDeleteLedgerInfo) -> SecondLook:
        with self._turns:
            try:
                seen = self._see(*name_of(record), by_policy=record.marked_by == BY_POLICY)
                return second_look(record, seen, self.now_ms())
            except TopicNotFoundError:
                return GoneLedger()
            except OvertakenError:
                raise
            except OffloadError as error:
                return FailedLook(str(error))

    def _see(self, topic: TopicName, subscription: str, *, by_policy: bool) -> SubscriptionSeen:
        """The broker first: what is stored after it is not older. `by_policy`: whether a policy may remove it, too."""
        look = self.brokers.look(topic, subscription)
        if look is None:
            return SubscriptionSeen(None)
        stored = self.stored.cursor(topic, subscription)
        if not by_policy:
            return SubscriptionSeen(look, stored)
        why = why_by_name_only(subscription, stored.state if stored is not None else None, look)
        return SubscriptionSeen(look, stored, why or ("" if self.brokers.keeps_properties(topic) else NO_PROPERTIES))

    def _standing(self, record: PendingDeleteLedgerInfo) -> tuple[CursorUndo, StoredTopic]:
        """Where it shall stand, in its topic as it is now. Raises FatalError: the topic is gone, or another one."""
        saved, (topic, _) = record.subscription, name_of(record)
        if saved is None:
            raise FatalError(f"{record.thing}: nothing was saved of it")
        try:
            stored = self.stored.read(topic)
        except TopicNotFoundError as error:
            raise FatalError(f"{topic} is gone, and {record.cursor_name} with it") from error
        if stored.created_ms != saved.look.created:
            raise FatalError(f"{topic} was deleted and made again: {record.cursor_name} was another topic's")
        return undo_of(saved.state, stored.ledgers, replicated=saved.look.replicated), stored


def name_of(record: PendingDeleteLedgerInfo) -> tuple[TopicName, str]:
    """Topic and subscription of a record. Raises DamagedRecordError."""
    try:
        return TopicName.parse(record.topic_name), record.cursor_name
    except ValueError as error:
        raise DamagedRecordError(f"{record.name}: {error}") from error


def _by_topic(records: Sequence[PendingDeleteLedgerInfo]) -> list[PendingDeleteLedgerInfo]:
    return sorted(records, key=lambda record: record.topic_name)


def _another(record: PendingDeleteLedgerInfo) -> str:
    return (
        f"{record.topic_name}: there is a subscription {record.cursor_name} again, which is not the one that was "
        "deleted: delete it first, if what was saved shall take its place"
    )
