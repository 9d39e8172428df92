"""Retention of one topic's archive: what is due is recorded, what is recorded is looked at again, and carried out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice

from offloader.errors import ClaimedByOtherError, IntegrityError, RetryableError
from offloader.lifecycle.retention.chunked import LOOK_BACK, begins_before
from offloader.lifecycle.retention.holdings import SegmentsOf, holdings
from offloader.lifecycle.retention.phases import ArchiveDeletion
from offloader.lifecycle.retention.plan import DueRange, Holding, all_of, due
from offloader.lifecycle.retention.policy import RetentionPolicy
from offloader.metadata.deletions import Deleting, DeletionReason
from offloader.metadata.history import History
from offloader.metadata.state import CatalogHead
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore

LOOKS = 5  # while a busy topic's catalog changes

GoneSince = Callable[[CatalogHead], int | None]
"""Since when Pulsar has no such topic, as its catalog records it and as Pulsar says now; None: it has, or may have."""


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """What goes of a topic by its policy now, and what is under way already. `why_not`: why nothing more goes."""

    topic: TopicName
    due: tuple[DueRange, ...]
    pending: Deleting | None = None
    why_not: str = ""


def planned(
    store: ObjectStore, head: CatalogHead, policy: RetentionPolicy, now: int, gone_since: int | None
) -> RetentionPlan:
    """What goes of a topic by its policy. Reads the catalog, and the first bytes of what is kept. Writes nothing."""
    removed = head.removed
    if removed.pending is not None:
        return RetentionPlan(head.topic, (), removed.pending, "a deletion is under way")
    if policy.hold:
        return RetentionPlan(head.topic, (), why_not=f"held by {policy.hold}")
    known = holdings(History(store, head), gone_since, removed.ranges)
    found = [due(each, policy, now, removed.trimmed) for each in known]
    return RetentionPlan(head.topic, _readable(store, head, found))


def requested(store: ObjectStore, head: CatalogHead, gone_since: int | None, words: str) -> tuple[DueRange, ...]:
    """What goes of a topic on request: all that is not protected."""
    known = holdings(History(store, head), gone_since, head.removed.told, released_goes=True)
    return _readable(store, head, [all_of(each, words) for each in known])


def _readable(store: ObjectStore, head: CatalogHead, found: list[DueRange | None]) -> tuple[DueRange, ...]:
    """Without the segments in which a message begins that is kept."""
    shortened = (each if each is None or not each.rest else _shortened(store, head, each) for each in found)
    return tuple(each for each in shortened if each is not None)


def _shortened(store: ObjectStore, head: CatalogHead, found: DueRange) -> DueRange | None:
    taken, stays = len(found.due), 0
    while taken and stays <= LOOK_BACK:
        records = found.holding.segments
        assert isinstance(records, SegmentsOf)
        if not begins_before(store, head.topic, islice(records.records(), taken, None)):
            break
        taken -= 1
        stays += found.due[taken].segment.size
    return replace(found, due=found.due[:taken]) if taken else None


@dataclass(frozen=True)
class ArchiveRetention:
    """`policy_of`, `gone_since`: what the file and Pulsar say of a topic now."""

    deletion: ArchiveDeletion
    policy_of: Callable[[TopicName], RetentionPolicy]
    gone_since: GoneSince
    grace_ms: int

    def visit(self, topic: TopicName, *, noted: bool = True) -> str:
        """Take the topic one phase further, if it is time. Returns in words what was done; "": nothing. `noted`: there
        is a note that something may be under way."""
        deletion = self.deletion
        head = deletion.catalogs.head(topic)
        if self._others(head):
            return ""
        if noted and head.removed.pending is None:
            deletion.forget(topic)
            head = deletion.catalogs.head(topic)
            if head.removed.pending is not None:  # another process has recorded one just now
                deletion.note(topic)
        pending = head.removed.pending
        if pending is None:
            return self.decide(head, "retention")
        if head.removed.begun is None:
            begun = self._look_again(head, pending)
            if not isinstance(begun, CatalogHead):
                return begun
            head = begun
        elif self.policy_of(topic).hold:
            return ""  # what is left of it stays for now
        deletion.carry_out(head, pending)
        return f"deletion {pending.number} is done"

    def _look_again(self, head: CatalogHead, pending: Deleting) -> CatalogHead | str:
        """The second look, until nothing has changed behind it: the head in which that is recorded. Else in words what
        became of it; "": it is not time yet."""
        deletion = self.deletion
        deletion.catalogs.keep_deleting(head)
        for _ in range(LOOKS):
            why = self._why_not(head, pending)
            if why:
                deletion.undo(head, "retention", why)
                return f"deletion {pending.number} is undone: {why}"
            if deletion.clock_ms() < pending.not_before:
                return ""
            try:
                return deletion.begin(head, pending)
            except RetryableError:
                head = deletion.catalogs.head(head.topic)
                if head.removed.pending != pending:
                    return ""  # somebody has changed their mind
        return ""

    def decide(self, head: CatalogHead, by: str) -> str:
        """Record what is due by the policy. In words; "": nothing is."""
        policy = self.policy_of(head.topic)
        if not policy.says_anything or head.claim is None:
            return ""
        found = planned(self.deletion.store, head, policy, self.deletion.clock_ms(), self.gone_since(head))
        return self._recorded(head, found.due, by) if found.due else ""

    def delete(self, topic: TopicName, by: str) -> str:
        """On request: everything but what must stay. Raises ClaimedByOtherError; IntegrityError where nothing goes."""
        head = self._ours(topic)
        policy = self.policy_of(topic)
        if policy.hold:
            raise IntegrityError(f"{topic} is held by {policy.hold}: nothing of it goes before that is lifted")
        if head.removed.pending is not None:
            raise IntegrityError(
                f"{topic}: deletion {head.removed.pending.number} is under way; `offloader archive undelete {topic}` "
                "takes it back, or wait until it is done"
            )
        found = requested(self.deletion.store, head, self.gone_since(head), f"request of {by}")
        if not found:
            raise IntegrityError(
                f"{topic}: there is nothing to delete; the newest segment stays as long as the topic is offloaded: "
                f"`offloader topics release {topic}` first"
            )
        return self._recorded(head, found, by)

    def undelete(self, topic: TopicName, by: str) -> str:
        """On request: take the deletion back that is under way. Raises IntegrityError where it cannot be."""
        head = self._ours(topic)
        pending = head.removed.pending
        if pending is None:
            raise IntegrityError(f"{topic}: no deletion is under way")
        self.deletion.undo(head, by, "asked for")
        return f"deletion {pending.number} is undone: all of it can be read again"

    def _ours(self, topic: TopicName) -> CatalogHead:
        head = self.deletion.catalogs.head(topic)
        if (other := self._others(head)) is not None:
            raise ClaimedByOtherError(f"{topic} is claimed by {other}: ask that application")
        return head

    def _others(self, head: CatalogHead) -> str | None:
        """Whose the topic is, where it is not ours and not nobody's."""
        owner = "" if head.claim is None else head.claim.application
        return owner if owner not in ("", self.deletion.by) else None

    def _recorded(self, head: CatalogHead, found: tuple[DueRange, ...], by: str) -> str:
        head = self.deletion.record(head, found, by, self.grace_ms)
        pending = head.removed.pending
        if pending is None:
            return ""
        segments, size = sum(len(each.due) for each in found), sum(each.bytes for each in found)
        return f"deletion {pending.number}: {segments} segments of {size} bytes go, not before {pending.not_before}"

    def _why_not(self, head: CatalogHead, pending: Deleting) -> str:
        """The second look: why what was to go does not; "": nothing is against it."""
        policy = self.policy_of(head.topic)
        if policy.hold:
            return f"held by {policy.hold}"
        by_policy = pending.reason is not DeletionReason.REQUEST
        history = History(self.deletion.store, head)
        gone = self.gone_since(head)
        known = holdings(history, gone, head.removed.ranges, released_goes=not by_policy)
        now = self.deletion.clock_ms()
        for each in pending.ranges:
            mine = next((holding for holding in known if holding.incarnation == each.start.incarnation), None)
            found = None if mine is None else self._still(mine, policy, now, head, by_policy=by_policy)
            if found is None or found.range.end < each.end:
                return "it does not go by any policy any more" if by_policy else "some of it must stay now"
        return ""

    @staticmethod
    def _still(
        holding: Holding, policy: RetentionPolicy, now: int, head: CatalogHead, *, by_policy: bool
    ) -> DueRange | None:
        return due(holding, policy, now, head.removed.trimmed) if by_policy else all_of(holding, "")
