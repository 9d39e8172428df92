"""Runs the two phases of removals, and undoes them: looks, records what is ruled, and only then acts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from offloader.errors import (
    FatalError,
    OffloadError,
    OutcomeUnknownError,
    OvertakenError,
    SubscriptionBusyError,
    TopicNotFoundError,
    VersionConflictError,
)
from offloader.lifecycle.deletion.timing import DeletionTiming
from offloader.lifecycle.topics.cursors.held import held_back
from offloader.lifecycle.topics.cursors.kinds import SubscriptionNames
from offloader.lifecycle.topics.cursors.machine import (
    RemovalOutcome,
    SubscriptionSeen,
    failed,
    is_due,
    objection,
    rule,
    tried,
    undone,
)
from offloader.lifecycle.topics.cursors.nodes import StoredTopics
from offloader.lifecycle.topics.cursors.records import CursorRemoval, RemovalState, SavedCursor
from offloader.lifecycle.topics.cursors.removals import CursorRemovals, StoredRemoval
from offloader.lifecycle.topics.cursors.stored import StoredTopic
from offloader.lifecycle.topics.cursors.undoing import NOT_REPLICATED, CursorUndo, lengths_of, undo_of
from offloader.model import TopicName
from offloader.ports.subscriptions import SubscriptionLook, Subscriptions
from offloader.pulsar.cursor_standing import bring


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    """What a removal would come to. `objection`: why it is refused; empty: it is not. `undo`: what an undo now would
    bring back; None where it is refused."""

    seen: SubscriptionSeen
    held: int
    objection: str
    undo: CursorUndo | None


@dataclass(frozen=True, slots=True)
class CursorRemover:
    """`clock_ms`: for what is recorded; between looks only what brokers say counts."""

    removals: CursorRemovals
    stored: StoredTopics
    brokers: Subscriptions
    names: SubscriptionNames
    timing: DeletionTiming
    clock_ms: Callable[[], int]

    def plan(self, topic: TopicName, subscription: str) -> RemovalPlan:
        """Look, and change nothing. The topic is loaded for it. Raises TopicNotFoundError and what looking raises."""
        stored = self.stored.read(topic)
        seen = self._see(topic, subscription)
        why = objection(self.names.kind(subscription), seen)
        states = {name: one.state for name, one in stored.cursors.items() if one.state is not None}
        if seen.state is not None:
            states[subscription] = seen.state
        held = held_back(stored.ledgers, states).get(subscription)
        undo = None
        if not why and seen.state is not None and seen.look is not None:
            undo = undo_of(seen.state, stored.ledgers, replicated=seen.look.replicated)
        return RemovalPlan(seen, held.size if held else 0, why, undo)

    def mark(self, topic: TopicName, subscription: str, by: str) -> CursorRemoval:
        """First phase: its state is saved, then its record written; nothing else changes. One that is pending stays as
        it is. Raises FatalError: why not; OutcomeUnknownError, VersionConflictError: read what is there."""
        former = self.removals.read((topic, subscription))
        if former is not None and not former.record.has_ended:
            return former.record
        plan = self.plan(topic, subscription)
        if plan.objection:
            raise FatalError(f"{topic}: {subscription} is not removed: {plan.objection}")
        now = self.clock_ms()
        number = self.removals.save((topic, subscription), plan.seen.save(now))
        record = CursorRemoval(topic, subscription, RemovalState.MARKED, now, by, number, plan.held)
        return self._write(record, former).record

    def go_on(self, stored: StoredRemoval) -> CursorRemoval:
        """Second phase, where it is due: as far as it goes now. Raises OutcomeUnknownError, VersionConflictError: read
        what is there; DamagedRecordError: what was saved cannot be read, so nothing goes."""
        record, now = stored.record, self.clock_ms()
        if not is_due(record, now, self.timing):
            return record
        saved = self.removals.saved(record)
        try:
            seen = self._see(record.topic, record.subscription)
        except TopicNotFoundError:
            seen = SubscriptionSeen(None)
        except OvertakenError:
            raise
        except OffloadError as error:
            return self._write(failed(record, str(error), now, self.timing), stored).record
        ruling = rule(record, saved, seen, now, self.timing)
        if not ruling.remove:
            return self._write(ruling.record, stored).record
        number = self.removals.save(record.name, seen.save(now))
        begun = self._write(replace(ruling.record, saved=number), stored)
        return self._write(self._delete(begun.record), begun).record

    def undo_plan(self, record: CursorRemoval) -> CursorUndo:
        """What an undo would bring back now. Raises FatalError where it is none of a removal."""
        saved, stored = self.removals.saved(record), self._living(record)
        return undo_of(saved.state, stored.ledgers, replicated=saved.look.replicated)

    def undo(self, stored: StoredRemoval) -> CursorRemoval:
        """Take a mark back, or bring the subscription back. Can be repeated. Raises FatalError: why it cannot be;
        OutcomeUnknownError: begun, and to be called again."""
        record = stored.record
        if record.state is RemovalState.MARKED or (record.state is RemovalState.GIVEN_UP and self._is_there(record)):
            return self._write(undone(record, "", self.clock_ms()), stored).record
        if record.state in (RemovalState.KEPT, RemovalState.UNDONE):
            raise FatalError(f"{record.topic}: {record.subscription} is {record.state}: there is nothing to undo")
        saved, topic = self.removals.saved(record), self._living(record)
        if topic.created_ms != saved.look.created:
            raise FatalError(f"{record.topic} was deleted and made again: {record.subscription} was another topic's")
        there = self.brokers.look(record.topic, record.subscription)
        if there is not None and record.state is not RemovalState.UNDOING:
            return self._still_there(stored, saved, there)
        if there is not None and there.consumers:
            raise FatalError(
                f"{record.topic}: {record.subscription} has consumers already: it cannot be moved any more"
            )
        plan = undo_of(saved.state, topic.ledgers, replicated=saved.look.replicated)
        begun = self._write(replace(record, state=RemovalState.UNDOING), stored)
        look = bring(self.brokers, *record.name, plan, lengths_of(topic.ledgers))
        says = (*plan.says, NOT_REPLICATED) if plan.replicated and not look.replicated else plan.says
        return self._write(undone(begun.record, " ".join(says), self.clock_ms()), begun).record

    def _still_there(self, stored: StoredRemoval, saved: SavedCursor, there: SubscriptionLook) -> CursorRemoval:
        """Either our deletion was never done, or somebody has made another one of that name."""
        record = stored.record
        if record.state is RemovalState.REMOVING and there.stands_where(saved.look):
            return self._write(undone(record, "it was not deleted", self.clock_ms()), stored).record
        raise FatalError(
            f"{record.topic}: there is a subscription {record.subscription} again, which is not the one that was "
            "removed: delete it first, if what was saved shall take its place"
        )

    def _delete(self, record: CursorRemoval) -> CursorRemoval:
        outcome, why = RemovalOutcome.DONE, ""
        try:
            self.brokers.delete(record.topic, record.subscription)
        except SubscriptionBusyError as error:
            outcome, why = RemovalOutcome.BUSY, str(error)
        except (OutcomeUnknownError, TopicNotFoundError) as error:  # the next look says whether it is gone
            outcome, why = RemovalOutcome.UNKNOWN, str(error)
        except OffloadError as error:
            outcome, why = RemovalOutcome.FAILED, str(error)
        return tried(record, outcome, why, self.clock_ms())

    def _see(self, topic: TopicName, subscription: str) -> SubscriptionSeen:
        """The broker first: what is stored after it is not older."""
        look = self.brokers.look(topic, subscription)
        return SubscriptionSeen(look, None if look is None else self.stored.cursor(topic, subscription))

    def _is_there(self, record: CursorRemoval) -> bool:
        return self.brokers.look(record.topic, record.subscription) is not None

    def _living(self, record: CursorRemoval) -> StoredTopic:
        try:
            return self.stored.read(record.topic)
        except TopicNotFoundError as error:
            raise FatalError(f"{record.topic} is gone, and {record.subscription} with it") from error

    def _write(self, record: CursorRemoval, former: StoredRemoval | None) -> StoredRemoval:
        if former is not None and record == former.record:
            return former
        written = self.removals.write(record, former)
        if written is None:
            raise VersionConflictError(
                f"{record.topic}: somebody else has changed what is recorded of {record.subscription}: look again"
            )
        return written
