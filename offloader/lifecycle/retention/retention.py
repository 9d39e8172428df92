"""Retention of one topic's archive: what is due is recorded, what is recorded is looked at again, and carried out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from offloader.errors import ClaimedByOtherError, FatalError, IntegrityError, RetryableError
from offloader.lifecycle.retention.due_now import planned, requested
from offloader.lifecycle.retention.holdings import begins_before, holdings, kept_behind, with_waiting
from offloader.lifecycle.retention.holds import PlacedHolds
from offloader.lifecycle.retention.phases import ArchiveDeletion
from offloader.lifecycle.retention.plan import DAY_MS, DueRange, all_of, due, who_waits
from offloader.lifecycle.retention.policy import RetentionPolicy
from offloader.metadata.beside import decides, last_owner
from offloader.metadata.deletions import Deleting, DeletionReason, day
from offloader.metadata.history import History
from offloader.metadata.state import CatalogHead
from offloader.model import TopicName

LOOKS = 5  # while a busy topic's catalog changes


class GoneDoubt(Enum):
    """Why nobody can say whether a topic is gone."""

    NOT_KNOWN_YET = "it is recorded as gone, and since the start it was not looked for long enough"


GoneSince = Callable[[CatalogHead], int | GoneDoubt | None]
"""Since when Pulsar has no such topic, as its catalog records it and as Pulsar says now; None: it has, or may have."""


class Seen(NamedTuple):
    """All that a decision depends on, but the time."""

    generation: int
    next_slot: int
    policy: RetentionPolicy
    gone: int | GoneDoubt | None


@dataclass(frozen=True)
class ArchiveRetention:
    """`policy_of`, `gone_since`: what the file and Pulsar say of a topic now. `quiet`: what was looked at, when, and
    until when nothing else can come of it: a catalog that is as it was is not read again. `kept`: why nothing goes
    that is due, as long as it is quiet. `refused`: which deletion by policy the store has refused without showing why;
    it is not recorded again before it is asked for, or a restart."""

    deletion: ArchiveDeletion
    policy_of: Callable[[TopicName], RetentionPolicy]
    gone_since: GoneSince
    grace_ms: int
    quiet: dict[TopicName, tuple[Seen, int, int]] = field(default_factory=dict)
    kept: dict[TopicName, str] = field(default_factory=dict)
    refused: dict[TopicName, str] = field(default_factory=dict)

    def visit(self, topic: TopicName, *, noted: bool = True) -> str:
        """Take the topic one phase further, if it is time. Returns in words what was done; "": nothing. `noted`: there
        is a note that something may be under way."""
        deletion = self.deletion
        head = deletion.catalogs.head(topic)
        if self._is_others(head):
            return ""
        if noted and head.removed.pending is None:
            head = deletion.forget(topic)
            if self._is_others(head):
                return ""
        pending = head.removed.pending
        if pending is None:  # whose policy would it be, where nobody knows who had the topic?
            return self.decide(head, "retention") if last_owner(deletion.store, head) else ""
        if head.removed.begun is None:
            begun = self._look_again(head, pending)
            if not isinstance(begun, CatalogHead):
                return begun
            head = begun
        elif self.policy_of(topic).hold:
            return ""  # what is left of it stays for now
        try:
            deletion.carry_out(head, pending)
        except FatalError as error:  # the store has refused, and did nothing of it
            self._undo_refused(head, pending, error)
            raise
        return f"deletion {pending.number} is done"

    def _undo_refused(self, head: CatalogHead, pending: Deleting, error: FatalError) -> None:
        """As long as every object is there, readers may have them, and another deletion would end the same way."""
        if self.deletion.why_not_undone(head, pending):
            return
        self.deletion.undo(head, "retention", f"the store refuses it: {error}")
        if pending.reason is not DeletionReason.REQUEST:
            self.refused[head.topic] = (
                f"the store refused deletion {pending.number}, which is undone: {error}; `offloader archive retention "
                f"run {head.topic} --yes` tries it again"
            )

    def asked(self, topic: TopicName) -> str:
        """`visit` on request: it is answered in any case. Raises ClaimedByOtherError."""
        self._ours(topic)
        self.quiet.pop(topic, None)
        self.refused.pop(topic, None)
        said = self.visit(topic, noted=False)
        if said:
            return said
        policy = self.policy_of(topic)
        pending, hold = self.deletion.catalogs.head(topic).removed.pending, policy.hold
        if pending is None:
            nothing = f"nothing is due but by age: {policy.age_doubt}" if policy.age_doubt else "nothing is due"
            return f"nothing goes: held by {hold}" if hold else nothing
        if hold:
            return f"deletion {pending.number} has begun: what is left of it is held by {hold}"
        return f"deletion {pending.number} is under way: it goes not before {day(pending.not_before)}"

    def _look_again(self, head: CatalogHead, pending: Deleting) -> CatalogHead | str:
        """The second look, until nothing has changed behind it: the head in which that is recorded. Else in words what
        became of it; "": it is not time yet."""
        deletion = self.deletion
        deletion.check()
        deletion.catalogs.keep_deleting(head)
        held: str | None = None
        for _ in range(LOOKS):
            ready = deletion.is_time(head.topic, pending)
            if ready:  # by the store's clock: whatever ours says, everything is looked at
                self.quiet.pop(head.topic, None)
            why = self._why_not(head, pending)
            if why is None:
                doubt = self.policy_of(head.topic).age_doubt or "what Pulsar has of the topic is not known yet"
                return f"deletion {pending.number} waits: {doubt}"
            if ready and not why:
                deletion.prove_right(head.topic)
                if held is None:  # once: it may take long, and does not depend on the catalog
                    held = deletion.why_held(head, pending)
                why = held or self._why_not_readable(head, pending)
            if why:
                deletion.undo(head, "retention", why)
                return f"deletion {pending.number} is undone: {why}"
            if not ready:
                return ""
            try:
                return deletion.begin(head, pending)
            except RetryableError:
                head = deletion.catalogs.head(head.topic)
                now = head.removed.pending
                if now is None or now.number != pending.number or head.removed.begun is not None:
                    return ""  # somebody has changed their mind, or was faster
                if self._is_others(head):
                    return ""
        return ""

    def decide(self, head: CatalogHead, by: str) -> str:
        """Record what is due by the policy. In words; "": nothing is. Raises FatalError where the store keeps it."""
        policy = self.policy_of(head.topic).without_doubt
        if not policy.says_anything or head.claim is None:
            return ""
        if head.topic in self.refused:
            raise FatalError(self.refused[head.topic])
        seen = self._seen(head)
        if not self._is_quiet(head, seen):
            now, gone = self.deletion.clock_ms(), _known(seen.gone)
            found = planned(self.deletion.store, head, policy, now, gone)
            if found.due:
                return self._recorded(head, found.due, by)
            self._be_quiet(head, seen, found.again_at)
            self.kept[head.topic] = found.held
        if self.kept.get(head.topic):
            raise FatalError(f"what is due stays: {self.kept[head.topic]}")
        return ""

    def _seen(self, head: CatalogHead) -> Seen:
        return Seen(head.generation, head.next_slot, self.policy_of(head.topic), self.gone_since(head))

    def _is_quiet(self, head: CatalogHead, seen: Seen) -> bool:
        known, since, until = self.quiet.get(head.topic, (None, 0, 0))
        return known == seen and since <= self.deletion.clock_ms() < until

    def _be_quiet(self, head: CatalogHead, seen: Seen, until: int | None) -> None:
        now = self.deletion.clock_ms()
        longest = now + DAY_MS
        self.quiet[head.topic] = seen, now, longest if until is None else min(until, longest)

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
        now, gone = self.deletion.clock_ms(), _known(self.gone_since(head))
        found, held = requested(self.deletion.store, head, gone, f"request of {by}", now)
        if held and not found:
            raise IntegrityError(f"{topic}: nothing goes: {held}")
        if not found:
            raise IntegrityError(
                f"{topic}: there is nothing to delete; the newest segment stays as long as the topic is "
                f"offloaded: `offloader topics release {topic}` first"
            )
        stays = f"; what is behind it stays: {held}" if held else ""
        return self._recorded(head, found, by) + stays

    @property
    def placed(self) -> PlacedHolds:
        """The holds that were placed by command."""
        return PlacedHolds(self.deletion.store, self.deletion.cluster)

    def undelete(self, topic: TopicName, by: str) -> str:
        """On request: take the deletion back that is under way. Raises IntegrityError where it cannot be."""
        head = self._ours(topic)
        pending = head.removed.pending
        if pending is None:
            raise IntegrityError(f"{topic}: no deletion is under way")
        head = self.deletion.undo(head, by, "asked for")
        return f"deletion {pending.number} is undone: all of it can be read again{self._until(head)}"

    def _until(self, head: CatalogHead) -> str:
        """In words what the policy makes of what was taken back; "": nothing."""
        topic, policy = head.topic, self.policy_of(head.topic)
        now, gone = self.deletion.clock_ms(), _known(self.gone_since(head))
        found = planned(self.deletion.store, head, policy, now, gone)
        if not found.due:
            return f"; it is held by {policy.hold}" if policy.hold else ""
        words = ", ".join(dict.fromkeys(each.words for one in found.due for each in one.due))
        return (
            f", until its policy deletes it again ({words}), which begins at the next look; `offloader archive "
            f"undelete {topic} --hold NAME` keeps it, or another policy"
        )

    def hold(self, topic: TopicName, by: str, name: str) -> str:
        """On request: place a hold, and take the deletion back that is under way, if there is one. Raises
        IntegrityError where it cannot be; the hold is placed all the same."""
        head = self._ours(topic)
        self.placed.place(topic, name)
        pending = head.removed.pending
        if pending is None:
            return f"nothing of it goes any more: held by {name}"
        try:
            self.deletion.undo(head, by, f"held by {name}")
        except IntegrityError as error:
            raise IntegrityError(f"{error}; what is left of it is held by {name}") from error
        return f"deletion {pending.number} is undone: all of it can be read again, and is held by {name}"

    def lift_hold(self, topic: TopicName) -> str:
        """On request: lift the hold that was placed by command. Raises IntegrityError where there is none."""
        self._ours(topic)
        name = self.placed.lift(topic)
        if name is None:
            raise IntegrityError(f"{topic}: no hold was placed by command; lift one of the configuration there")
        return f"the hold {name} is lifted: its policies say again what goes"

    def _is_others(self, head: CatalogHead) -> str:
        """Who decides of the topic, where that is not we. Each head is asked: a claim may come before any of them."""
        owner = last_owner(self.deletion.store, head)
        return "" if decides(head, owner, self.deletion.by) else owner

    def _ours(self, topic: TopicName) -> CatalogHead:
        head = self.deletion.catalogs.head(topic)
        owner = self._is_others(head)
        if owner:
            did = "is claimed by" if head.claim is not None and head.claim.application else "was released by"
            raise ClaimedByOtherError(f"{topic} {did} {owner}: ask that application, or `offloader takeover` it")
        return head

    def _recorded(self, head: CatalogHead, found: tuple[DueRange, ...], by: str) -> str:
        head = self.deletion.record(head, found, by, self.grace_ms)
        pending = head.removed.pending
        if pending is None:
            return ""
        segments, size = sum(len(each.due) for each in found), sum(each.bytes for each in found)
        return f"deletion {pending.number}: {segments} segments of {size} bytes go, not before {pending.not_before}"

    def _why_not(self, head: CatalogHead, pending: Deleting) -> str | None:
        """The second look: why what was to go does not; "": nothing is against it; None: that is not known yet."""
        seen = self._seen(head)
        if self._is_quiet(head, seen):  # until it is time
            return ""
        gone, policy = seen.gone, seen.policy
        why = self._disproof(head, pending, _known(gone), policy.without_doubt)
        if not why:
            self._be_quiet(head, seen, pending.not_before)
            return ""
        if policy.age_doubt and not policy.hold and pending.reason is not DeletionReason.REQUEST:
            return None
        at, assumed, recorded = _known(gone), policy, head.removed.gone
        if recorded is not None and isinstance(gone, GoneDoubt):
            at = recorded.at
        elif policy.follow_doubt and gone is None and head.claim is not None and head.claim.application:
            assumed = replace(policy, follow_pulsar=True)
        else:
            return why
        return self._disproof(head, pending, at, assumed) or None

    def _why_not_readable(self, head: CatalogHead, pending: Deleting) -> str:
        """The same of messages: one that was sealed in the grace may begin in what goes. Only once it is time: this
        reads up to 64 MiB."""
        store = self.deletion.store
        history = History(store, head)
        split = any(begins_before(store, head.topic, kept_behind(history, each.end)) for each in pending.ranges)
        return "a message begins in it that is kept" if split else ""

    def _disproof(self, head: CatalogHead, pending: Deleting, gone: int | None, policy: RetentionPolicy) -> str:
        if policy.hold:
            return f"held by {policy.hold}"
        by_policy = pending.reason is not DeletionReason.REQUEST
        trimmed = head.removed.trimmed
        history = History(self.deletion.store, head)
        known, now = holdings(history, gone, head.removed.ranges, released_goes=not by_policy), self.deletion.clock_ms()
        if by_policy:
            known = with_waiting(self.deletion.store, head.topic, known, policy, now, trimmed)
        for each in pending.ranges:
            mine = next((holding for holding in known if holding.incarnation == each.start.incarnation), None)
            still = None if mine is None else due(mine, policy, now, trimmed) if by_policy else all_of(mine, "")
            if still is None or still.range.end < each.end:
                if by_policy and mine is not None and (waits := mine.waits(each.end)):
                    return who_waits(waits)
                return "it does not go by any policy any more" if by_policy else "some of it must stay now"
        return ""


def _known(gone: int | GoneDoubt | None) -> int | None:
    return None if isinstance(gone, GoneDoubt) else gone
