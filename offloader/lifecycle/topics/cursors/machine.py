"""The two phases of a subscription's removal: pure, no I/O. Whoever runs them looks, records what is ruled, and only
then acts.

The evidence is the broker's own at both looks: no consumer, and nothing acknowledged, consumed or asked for between.
What a node says of the last activity may be old: that it is not newer proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from offloader.bookkeeper.cursor_state import CursorState
from offloader.errors import FatalError
from offloader.lifecycle.deletion.timing import DeletionTiming
from offloader.lifecycle.topics.cursors.kinds import SubscriptionKind, why_never_removed
from offloader.lifecycle.topics.cursors.records import CursorRemoval, RemovalState, SavedCursor, as_looked_at
from offloader.lifecycle.topics.cursors.stored import StoredCursor
from offloader.ports.subscriptions import SubscriptionLook

CLOCKS_MS = 600_000  # so much a broker's clock may differ from ours


@dataclass(frozen=True, slots=True)
class SubscriptionSeen:
    """One look: what the broker says, and what is stored. `look` None: there is no such subscription."""

    look: SubscriptionLook | None
    stored: StoredCursor | None = None

    @property
    def state(self) -> CursorState | None:
        """All that there is of it; None: not all of it was read or understood."""
        if self.look is None or self.stored is None or not self.stored.complete or self.stored.state is None:
            return None
        return as_looked_at(self.stored.state, self.look)

    def save(self, now: int) -> SavedCursor:
        """What an undo needs. Raises FatalError where it is not all there."""
        if self.look is None or self.stored is None or self.state is None:
            raise FatalError(f"it cannot be saved: {self.doubt or 'it is gone'}")
        return SavedCursor(self.look, self.stored.node, self.stored.entry, now)

    @property
    def doubt(self) -> str:
        """Why its state is not complete; empty: it is."""
        if self.stored is None:
            return "the metadata service has no such subscription"
        unknown = self.stored.state.unknown if self.stored.state is not None else ()
        return self.stored.problem or "; ".join(unknown) or ("" if self.stored.complete else "it has no position")


class RemovalOutcome(Enum):
    """What came of a deletion."""

    DONE = "done"
    BUSY = "busy"  # a consumer was connected: the broker refused
    FAILED = "failed"  # refused: nothing was done
    UNKNOWN = "unknown"  # its answer is lost


@dataclass(frozen=True, slots=True)
class RemovalRuling:
    """The record as it is to be written; whether the subscription is then to be deleted, and saved before."""

    record: CursorRemoval
    remove: bool = False


def objection(kind: SubscriptionKind, seen: SubscriptionSeen) -> str:
    """Why a subscription is not marked; empty: it may be."""
    if why := why_never_removed(kind):
        return why
    if seen.look is None:
        return "there is no such durable subscription"
    if seen.look.consumers:
        return f"{seen.look.consumers} of its consumers are connected"
    if seen.doubt:
        return f"its state cannot be saved whole: {seen.doubt}"
    return ""


def due_at(record: CursorRemoval, timing: DeletionTiming) -> int:
    """When its second phase, or its next try, comes."""
    return max(record.marked_at + timing.effective_delay, record.next_at)


def is_due(record: CursorRemoval, now: int, timing: DeletionTiming) -> bool:
    """Whether it has come."""
    return record.is_in_flight and now >= due_at(record, timing)


def is_forgotten(record: CursorRemoval, now: int, timing: DeletionTiming) -> bool:
    """Whether it ended so long ago that its record goes."""
    return record.has_ended and now > record.ended_at + timing.kept


def rule(
    record: CursorRemoval, saved: SavedCursor, seen: SubscriptionSeen, now: int, timing: DeletionTiming
) -> RemovalRuling:
    """Second phase: what follows from a second look."""
    look = seen.look
    if look is None:
        return RemovalRuling(_gone(record, now))
    if why := _change(saved, look):
        return RemovalRuling(_ended(record, RemovalState.KEPT, why, now))
    if seen.stored is not None and seen.stored.problem:
        return RemovalRuling(failed(record, seen.doubt, now, timing))
    if seen.state is None:
        return RemovalRuling(_ended(record, RemovalState.KEPT, f"it cannot be saved whole: {seen.doubt}", now))
    if why := _stored_change(saved, seen.state):
        return RemovalRuling(_ended(record, RemovalState.KEPT, why, now))
    if record.tries >= timing.max_tries:
        return RemovalRuling(failed(record, record.reason or "its last try was cut short", now, timing))
    tries = record.tries + 1
    begun = replace(record, state=RemovalState.REMOVING, tries=tries, next_at=now + timing.wait_after(tries))
    return RemovalRuling(begun, remove=True)


def failed(record: CursorRemoval, why: str, now: int, timing: DeletionTiming) -> CursorRemoval:
    """Nobody could say: one more look later; after the last one, none."""
    tries = record.tries + 1
    if tries > timing.max_tries:
        return replace(record, state=RemovalState.GIVEN_UP, reason=why)
    return replace(record, tries=tries, next_at=now + timing.wait_after(tries), reason=why)


def tried(record: CursorRemoval, outcome: RemovalOutcome, why: str, now: int) -> CursorRemoval:
    """What follows from a deletion. Where its answer is lost, the next look decides."""
    match outcome:
        case RemovalOutcome.DONE:
            return _ended(record, RemovalState.REMOVED, "", now)
        case RemovalOutcome.BUSY:
            return _ended(record, RemovalState.KEPT, f"a consumer has connected: {why}", now)
        case _:
            return replace(record, reason=why)


def undone(record: CursorRemoval, why: str, now: int) -> CursorRemoval:
    """It is as it was, or as near as it can be."""
    return _ended(record, RemovalState.UNDONE, why, now)


def _change(saved: SavedCursor, look: SubscriptionLook) -> str:
    """What has happened between the two looks; empty: nothing."""
    if look.created != saved.look.created:
        return "the topic was deleted and made again: this is another subscription"
    if look.consumers:
        return f"it is in use: {look.consumers} of its consumers are connected"
    if not look.stands_where(saved.look):
        return "it is in use: something was acknowledged since, or it was moved or made anew"
    if look.last_active_ms > saved.look.last_active_ms:
        return "it is in use: a consumer was there since"
    return ""


def _stored_change(saved: SavedCursor, after: CursorState) -> str:
    """The same of what a broker does not tell, or has forgotten since it loaded the topic anew. A node may only now say
    of a use that was long before the mark."""
    before = saved.state
    if after.batches != before.batches:
        return "it is in use: messages of batches were acknowledged since"
    if (after.last_active_ms or 0) > max(before.last_active_ms or 0, saved.taken_at - CLOCKS_MS):
        return "it is in use: a consumer was there since, by its node"
    return ""


def _gone(record: CursorRemoval, now: int) -> CursorRemoval:
    """By our own try, if one was on its way: its answer was lost, or we were."""
    if record.state is RemovalState.REMOVING:
        return _ended(record, RemovalState.REMOVED, "", now)
    return _ended(record, RemovalState.KEPT, "it is gone: somebody else has deleted it, or its topic", now)


def _ended(record: CursorRemoval, state: RemovalState, why: str, now: int) -> CursorRemoval:
    return replace(record, state=state, reason=why, ended_at=now)
