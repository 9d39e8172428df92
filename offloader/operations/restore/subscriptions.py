"""A restored topic's subscriptions: each is made, brought where it stood, and read back.

Until that is proven it has a property that says so, by which a call that is made again knows it: one without it is
somebody's, who may have used it since, and is never moved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from offloader.cursors.copies import CopiedCursor, left_of, parts_of, whole_of
from offloader.errors import OffloadError, OutcomeUnknownError, RetryableError
from offloader.lifecycle.topics.cursors.stored import StoredCursor
from offloader.lifecycle.topics.cursors.undoing import NOT_REPLICATED
from offloader.model import TopicName
from offloader.operations.restore.numbering import MappedCursor
from offloader.ports.subscriptions import SubscriptionLook, Subscriptions
from offloader.pulsar.cursor_standing import Acknowledged, CursorStanding, bring, difference

UNFINISHED = "offloader.restore.unfinished"
INTERNAL = "#pulsar.internal."
IN_USE = "it is not whole yet, and a consumer is connected: end the consumer, and make this call again"
TRIES, PAUSE = 5, 1.0  # of one subscription; seconds between them


class RestoreStanding(StrEnum):
    """How a subscription of the target stands."""

    PLANNED = "to be restored"
    RESTORED = "restored"
    THERE = "there already"  # and where it shall stand
    NOT_TOUCHED = "not touched"  # somebody's, and elsewhere
    FAILED = "failed"

    @property
    def is_as_wanted(self) -> bool:
        """Whether nothing is left to be done about it."""
        return self in (RestoreStanding.PLANNED, RestoreStanding.RESTORED, RestoreStanding.THERE)


@dataclass(frozen=True, slots=True)
class RestoredSubscription:
    """`why`: it is not as wanted, or what of it could not be read back; empty: nothing."""

    standing: RestoreStanding
    why: str = ""


@dataclass(frozen=True)
class SubscriptionRestorer:
    """`stored`: what is stored of a subscription in the target's cluster; None: that cannot be read. `sleep`: for
    seconds."""

    brokers: Subscriptions
    stored: Callable[[TopicName, str], StoredCursor | None] | None
    sleep: Callable[[float], None]

    def restore(self, topic: TopicName, mapped: MappedCursor) -> RestoredSubscription:
        """Can be repeated."""
        began = False
        for left in reversed(range(TRIES)):
            try:
                look = self.brokers.look(topic, mapped.cursor.name)
                if look is not None and UNFINISHED not in dict(look.properties):
                    return self._found(topic, mapped.cursor, look, began=began)
                if look is not None and look.consumers:
                    return RestoredSubscription(RestoreStanding.NOT_TOUCHED, IN_USE)
                standing = standing_of(mapped.cursor, UNFINISHED)
                if look is None and not self.brokers.create(topic, mapped.cursor.name, dict(standing.properties)):
                    continue  # it was made meanwhile: another look says whose it is
                began = True
                made = bring(self.brokers, topic, mapped.cursor.name, standing)
                self.brokers.describe(topic, mapped.cursor.name, users_properties(mapped.cursor))
                return RestoredSubscription(RestoreStanding.RESTORED, self._unproven(topic, mapped.cursor, made))
            except (RetryableError, OutcomeUnknownError) as error:
                if not left:
                    return RestoredSubscription(RestoreStanding.FAILED, str(error))
                self.sleep(PAUSE)
            except OffloadError as error:
                return RestoredSubscription(RestoreStanding.FAILED, str(error))
        return RestoredSubscription(RestoreStanding.FAILED, "it changes all the time")

    def _found(
        self, topic: TopicName, wanted: CopiedCursor, look: SubscriptionLook, *, began: bool
    ) -> RestoredSubscription:
        """One that has no mark: of an earlier call, of this one whose last answer was lost, or somebody's."""
        there = Acknowledged(look.mark_delete, look.ranges)
        other = difference(standing_of(wanted).acknowledged, there, look.lengths)
        if other.first is not None:
            why = (
                f"there is one of that name, which differs from {other.first[0]}:{other.first[1]} on ({other.again} "
                f"entries more are to be delivered, {other.unseen} fewer): delete it first, if the copy shall take its "
                "place"
            )
            return RestoredSubscription(RestoreStanding.NOT_TOUCHED, why)
        return RestoredSubscription(
            RestoreStanding.RESTORED if began else RestoreStanding.THERE, self._unproven(topic, wanted, look)
        )

    def _unproven(self, topic: TopicName, wanted: CopiedCursor, look: SubscriptionLook) -> str:
        """What is not as wanted of one that stands where it shall, or could not be read back."""
        batches = self._batches(topic, wanted)
        if not wanted.replicated or look.replicated:
            return batches
        return f"{NOT_REPLICATED} {batches[:1].upper()}{batches[1:]}" if batches else NOT_REPLICATED.removesuffix(".")

    def _batches(self, topic: TopicName, wanted: CopiedCursor) -> str:
        """What does not prove that parts of batches are as wanted: of these a broker's REST says nothing."""
        parts = {(one.ledger, one.entry): left_of(one.words) for one in parts_of(wanted)}
        if not parts:
            return ""
        unproven = f"whether parts of {len(parts)} batches are acknowledged could not be read back"
        if self.stored is None:
            return f"{unproven}: the target's configuration has no pulsar.metadataServiceUri"
        missing = 0
        for left in reversed(range(TRIES)):  # a broker answers before it stores
            try:
                found = self.stored(topic, wanted.name)
            except OffloadError as error:
                return f"{unproven}: {error}"
            if found is None or found.state is None or not found.complete:
                return f"{unproven}: {found.problem if found is not None else 'it is not stored yet'}"
            stored = {(one.ledger, one.entry): left_of(one.words) for one in found.state.batches}
            missing = sum(stored.get(place) != bits for place, bits in parts.items())
            if not missing:
                return ""
            if left:
                self.sleep(PAUSE)
        return f"of {missing} of {len(parts)} batches the target has not stored which messages are acknowledged"


def standing_of(cursor: CopiedCursor, mark: str = "") -> CursorStanding:
    """Where it shall stand. `mark`: a property that it has besides its own. Raises DamagedRecordError."""
    properties = users_properties(cursor) | ({mark: "true"} if mark else {})
    parts, theirs = tuple(parts_of(cursor)), tuple(sorted(properties.items()))
    return CursorStanding(cursor.mark_delete, tuple(whole_of(cursor)), parts, theirs, cursor.replicated)


def users_properties(cursor: CopiedCursor) -> dict[str, str]:
    """Without those that a broker sets for itself, and without our mark: the copy may be of a restored topic."""
    own = (one for one in cursor.subscription_properties if one[0] != UNFINISHED)
    return {name: text for name, text in own if not name.startswith(INTERNAL)}
