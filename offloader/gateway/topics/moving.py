"""A durable subscription's way to the brokers, step by step: each is in its log before the next one begins.

1. begun: nobody is given anything of it here any more, and no acknowledgement is taken.
2. It is made at the brokers with the number of this hand-over as a property, acknowledged, and read back.
3. done: it is locked here. Consumers are led to the brokers only now.

Whoever opens a subscription that is begun goes on with step 2, which may be repeated. Only one that the brokers have
not got may go back. Blocking.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import NamedTuple

from offloader.cursors.copies import words_of
from offloader.cursors.core.records import HANDED_OVER
from offloader.cursors.durable import DurableCursor
from offloader.errors import TopicNotFoundError
from offloader.gateway.live import Archived, LiveLook, LiveTopic
from offloader.gateway.values import ErrorCode, RefusedError
from offloader.model import EntryRange, PartlyAcknowledged
from offloader.ports.subscriptions import SubscriptionLook
from offloader.pulsar.cursor_standing import CursorStanding, bring_beside, nearest

BEGUN = "offloader.hand-over"
"""The property of a subscription's log: the number of the hand-over that has begun."""
DONE = HANDED_OVER
NUMBER = "offloader-hand-over"
"""The property of the subscription at the brokers: the same number."""

Properties = tuple[tuple[str, int], ...]


class HandOverState(NamedTuple):
    """What a log says of it. `done_at`: ms; None: it has only begun."""

    number: int
    done_at: int | None

    @classmethod
    def of(cls, properties: Properties) -> HandOverState | None:
        """None: the subscription is served here."""
        known = dict(properties)
        return cls(known[BEGUN], known.get(DONE)) if BEGUN in known else None

    @property
    def note(self) -> str:
        """In few words."""
        if self.done_at is None:
            return "is being handed over to the brokers"
        at = datetime.fromtimestamp(self.done_at // 1000, UTC).isoformat(timespec="seconds")
        return f"was handed over to the brokers at {at}"

    def sentence(self, subscription: str) -> str:
        """For whoever wants it here."""
        return f"subscription {subscription} {self.note}" + (": its state is there" if self.done_at is not None else "")


class Outcome(Enum):
    """Where the subscription is now."""

    THERE = "at the brokers"
    HERE = "here"


@dataclass(frozen=True)
class SubscriptionMove:
    """`archived`: what there is of the topic. Raises what brokers and the store raise: to be called again."""

    name: str
    live: LiveTopic
    archived: Archived

    def refusal(self) -> str:
        """Why it is not begun, beside what the topic says; empty: nothing stands against it."""
        if self._there() is None:
            return ""
        return f"the brokers have a subscription {self.name} of their own: delete it there, or choose another name here"

    def begin(self, cursor: DurableCursor, number: int) -> None:
        """Step 1. Whoever owns the subscription meanwhile makes this fail with OvertakenError."""
        cursor.describe((*_others(cursor.properties), (BEGUN, number)))
        cursor.flush()

    def go_on(self, cursor: DurableCursor, now_ms: int) -> tuple[Outcome, str]:
        """From wherever it stands; with a reason where that is here. Raises RefusedError where it is at the brokers,
        and they have not got its topic any more."""
        state = HandOverState.of(cursor.properties)
        if state is None:
            return Outcome.HERE, ""
        try:
            look, there = self.live.look(self.archived), self._there()
        except TopicNotFoundError as error:
            return self._gone(cursor, state, str(error))
        if not look.created:
            return self._gone(cursor, state, "the brokers' topic was made anew")
        if state.done_at is not None:
            return self._was_done(cursor, there)
        is_ours = there is not None and dict(there.properties).get(NUMBER) == str(state.number)
        why = "" if is_ours else self._objection(cursor, look, there)
        if why:
            return self._back(cursor, why)
        bring_beside(self.live.brokers.subscriptions, self.live.name, self.name, *self._standing(cursor, look, state))
        cursor.describe((*cursor.properties, (DONE, now_ms)))
        cursor.flush()
        return Outcome.THERE, ""

    def _objection(self, cursor: DurableCursor, look: LiveLook, there: SubscriptionLook | None) -> str:
        return look.objection(cursor.mark_delete.place, durable=True) if there is None else self.refusal()

    def _was_done(self, cursor: DurableCursor, there: SubscriptionLook | None) -> tuple[Outcome, str]:
        if there is not None:
            return Outcome.THERE, ""
        cursor.forget()
        cursor.flush()
        return Outcome.HERE, "it was deleted at the brokers, and begins anew here"

    def _gone(self, cursor: DurableCursor, state: HandOverState, why: str) -> tuple[Outcome, str]:
        if state.done_at is not None:
            raise RefusedError(ErrorCode.NOT_ALLOWED, f"{state.sentence(self.name)}; {why}")
        return self._back(cursor, why)

    def _back(self, cursor: DurableCursor, why: str) -> tuple[Outcome, str]:
        unlock(cursor)
        return Outcome.HERE, why

    def _there(self) -> SubscriptionLook | None:
        return self.live.brokers.subscriptions.look(self.live.name, self.name)

    def _standing(
        self, cursor: DurableCursor, look: LiveLook, state: HandOverState
    ) -> tuple[CursorStanding, list[tuple[int, int | None]]]:
        listed, mark = {ledger for ledger, _ in look.lengths}, cursor.mark_delete.place
        whole: list[EntryRange] = []
        parts: list[PartlyAcknowledged] = []
        for incarnation, ledger, last in self.archived.served:
            if ledger not in listed or (ledger, last) <= mark:
                continue
            runs, batches = cursor.acknowledged((incarnation, ledger))
            whole += (EntryRange.closed(ledger, first, end) for first, end in runs)
            parts += (PartlyAcknowledged(ledger, entry, words_of(left)) for entry, left in sorted(batches.items()))
        properties = ((NUMBER, str(state.number)),)
        return CursorStanding(nearest(mark, look.lengths), tuple(whole), tuple(parts), properties), look.lengths


def unlock(cursor: DurableCursor) -> None:
    """It is served here again, as it stands. Raises OvertakenError where somebody else owns it meanwhile."""
    cursor.describe(_others(cursor.properties))
    cursor.flush()


def _others(properties: Properties) -> Properties:
    return tuple(one for one in properties if one[0] not in (BEGUN, DONE))
