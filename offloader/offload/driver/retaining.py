"""Retention of the archive as part of the application: when it is looked at, what was asked for, and what became of
topics. Everything of it is done in a thread of its own, one thing after the other."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from offloader.errors import OffloadError, OvertakenError
from offloader.lifecycle.clocks import Clocks
from offloader.lifecycle.retention.phases import ArchiveDeletion
from offloader.lifecycle.retention.policy import NOT_FOLLOWED, RetentionPolicy, may_follow
from offloader.lifecycle.retention.retention import ArchiveRetention, GoneDoubt
from offloader.metadata.catalog import Catalogs
from offloader.metadata.deletions import PulsarTrimmed, SegmentRange, TopicGone
from offloader.metadata.requests import Request, RequestKind
from offloader.metadata.state import CatalogHead
from offloader.model import TopicName
from offloader.offload.core.evidence import Being, Look, being
from offloader.offload.core.topic import Topic
from offloader.offload.driver.admin_queries import look_for, possible_witnesses, some_witnesses
from offloader.offload.driver.committing import append_record, there_again
from offloader.offload.driver.context import Context
from offloader.offload.driver.work import WorkKind
from offloader.offload.settings import retention

log = logging.getLogger(__name__)

RETENTION_FIELDS = (
    "archive_retention_minutes",
    "archive_retention_mb",
    "deleted_topic_retention_minutes",
    "follow_pulsar_retention",
)
LOOKS = 100  # kept of each topic that may be gone
AT_A_TIME = 100  # topics


class Retaining:
    """`interval_ms`: how often everything is looked at. `clocks`: what ages are computed with.

    Where no policy says that anything goes, and nothing is under way, there is one look, a listing, at the start. The
    catalogs are its own: an outcome that is not known here holds up nobody else."""

    def __init__(self, context: Context, grace_ms: int, interval_ms: int, clocks: Clocks) -> None:
        self._context = context
        self._clocks = clocks
        self._doubt = ""  # about ages, in this round
        self._interval_ms = interval_ms
        self._look_at = 0
        self._there: frozenset[TopicName] = frozenset()  # topics that we offload, and nothing speaks against it
        self._witnesses: list[CatalogHead] = []
        self._followed: set[TopicName] = set()  # whose retention in Pulsar was seen, and is not 0
        self._not_followed: set[TopicName] = set()  # it was seen, and is 0
        self._noted: frozenset[TopicName] = frozenset()
        self._looks: dict[TopicName, list[Look]] = {}
        self._by_policy = context.policies.any_says(*RETENTION_FIELDS)
        self._placed: Mapping[TopicName, str] | None = None  # holds, as they were read in this round
        self._served = 0  # requests, each of which may begin something
        self._at_rest: int | None = None  # after how many of them nothing was under way
        started = context.clock_ms()
        catalogs = Catalogs(context.store, context.application)
        self._catalogs = catalogs
        deletion = ArchiveDeletion(
            context.store,
            catalogs,
            partial(append_record, catalogs),
            context.journal.check_not_overtaken,
            clocks.now_ms,
            context.cluster,
            context.application,
            alone_ms=lambda: context.clock_ms() - started,
        )
        self._retention = ArchiveRetention(deletion, self.policy_of, self.gone_since, grace_ms)

    def look(self, topics: Iterable[Topic]) -> None:
        """Have everything looked at that is due, in the driver's thread: it only posts."""
        now = self._context.clock_ms()
        if now < self._look_at:
            return
        if self._by_policy or self._at_rest != self._served:
            self._look_at = now + self._interval_ms
            self.see(topics)
            self._context.work.post(WorkKind.RETENTION, "", self.visit_all, self._taken)

    def see(self, topics: Iterable[Topic]) -> None:
        """Which topics are there. In the driver's thread, before anything is decided of them."""
        there = [topic for topic in topics if not topic.in_question and not topic.gone]
        self._there = frozenset(topic.name for topic in there)
        self._witnesses = possible_witnesses(topic.catalog for topic in there)

    def serve(self, request: Request) -> str:
        """Do what was asked for, up to a record that says so; what came of it in words. Not in the driver's thread."""
        topic, by = request.topic, request.by or "a request"
        self._served += 1
        match request.kind:
            case RequestKind.ARCHIVE_DELETE:
                return self._retention.delete(topic, by)
            case RequestKind.ARCHIVE_UNDELETE:
                return self._retention.undelete(topic, by)
            case RequestKind.ARCHIVE_HOLD | RequestKind.ARCHIVE_LIFT_HOLD:
                self._placed = None
                lifted = request.kind is RequestKind.ARCHIVE_LIFT_HOLD
                return self._retention.lift_hold(topic) if lifted else self._retention.hold(topic, by, request.hold)
            case _:
                self._follow(topic)
                return self._retention.asked(topic)

    def visit_all(self, left: Sequence[TopicName] | None = None) -> Sequence[TopicName]:
        """Every topic of which something may be due or under way, some at a time: requests need not wait for all of
        them. Returns those that are left. One that fails stops no other."""
        if left is None:
            self._doubt = ""
            left = self._to_visit()
        known = self._doubt
        for topic in left[:AT_A_TIME]:
            try:
                self._follow(topic)
                self._retention.visit(topic, noted=topic in self._noted)
            except OvertakenError:
                raise
            except OffloadError as error:
                log.warning("retention of topic=%s waits: %s", topic, error, extra={"see": "retention-waits"})
        if self._doubt and not known:
            log.warning("policies of time wait: %s", self._doubt, extra={"see": "clocks-in-doubt"})
        return left[AT_A_TIME:]

    def _to_visit(self) -> Sequence[TopicName]:
        served = self._served
        self._placed = None
        self._noted = frozenset(self._retention.deletion.marked())
        self._at_rest = None if self._noted else served
        policed = self._catalogs.topics() if self._by_policy else ()
        says = (topic for topic in policed if self._concerns(topic) and self._said_of(topic).says_anything)
        return sorted(topic for topic in {*self._noted, *says} if self._concerns(topic))

    def _concerns(self, topic: TopicName) -> bool:
        """Whether no other shard does it."""
        return topic in self._there or self._context.deal.is_dealt(topic)

    def policy_of(self, topic: TopicName) -> RetentionPolicy:
        """What the file says of a topic's archive."""
        policy = self._said_of(topic)
        followed = topic in self._followed
        doubt = policy.follow_pulsar and not followed and topic not in self._not_followed
        age_doubt = self._clocks.compare().doubt if policy.has_ages else ""
        self._doubt = self._doubt or age_doubt
        following = policy.follow_pulsar and followed
        return replace(policy, follow_pulsar=following, follow_doubt=doubt, age_doubt=age_doubt)

    def _said_of(self, topic: TopicName) -> RetentionPolicy:
        """The same, before anybody has asked Pulsar."""
        policy = retention(self._context.policies.of(topic))
        return replace(policy, hold=policy.hold or self._holds().get(topic, ""))

    def _holds(self) -> Mapping[TopicName, str]:
        """Those that were placed by command. Only this thread places any."""
        if self._placed is None:
            self._placed = self._retention.placed.read()
        return self._placed

    def _follow(self, topic: TopicName) -> None:
        """Mark which ledgers Pulsar has deleted, where the policy follows that. Only of topics that we offload: others
        would have to be loaded. Where its retention is 0, acknowledging deletes, and that is not followed."""
        self._followed.discard(topic)
        self._not_followed.discard(topic)
        if topic not in self._there or not self._said_of(topic).follow_pulsar:
            return
        if may_follow(self._context.admin.retention(topic)):
            self._mark_trimmed(topic)
            return
        self._not_followed.add(topic)
        log.warning("retention of topic=%s waits: %s", topic, NOT_FOLLOWED, extra={"see": "retention-waits"})

    def _mark_trimmed(self, topic: TopicName) -> None:
        head = self._catalogs.head(topic)
        info = self._context.admin.topic_info(topic)
        spans = info.ledgers.spans
        same = head.is_of(info.created, info.ledgers) and head.has_ledger_in(info.ledgers)
        if head.claim is None or not same or not spans:
            return  # another topic of that name, or nothing that proves which
        self._followed.add(topic)
        trimmed = PulsarTrimmed(head.claim.incarnation, spans[0].ledger, self._context.clock_ms())
        known = head.removed.trimmed
        if known is None or (known.incarnation, known.first) < (trimmed.incarnation, trimmed.first):
            append_record(self._catalogs, head, trimmed)

    def gone_since(self, head: CatalogHead) -> int | GoneDoubt | None:
        """As `GoneSince`. What looks prove that a topic is gone is recorded: its time counts from there. Looks are
        forgotten at each start: that is no proof that it is back. As long as a segment of it is open, more may follow.
        """
        if head.claim is None:
            return None
        if head.topic in self._there:
            there_again(self._catalogs, head, self._context.clock_ms())
            return None
        removed = head.removed
        if removed.gone is None and removed.pending is None and self.policy_of(head.topic).gone_ms is None:
            return None  # nothing depends on it: nobody is asked
        context, topic = self._context, head.topic
        looks = self._looks.setdefault(topic, [])
        witnesses = some_witnesses(self._witnesses, topic, self._last_seen(head), len(looks))
        looks.append(look_for(context.admin, head, witnesses, context.clock_ms))
        del looks[:-LOOKS]
        found = being(context.cluster, looks)
        if found is Being.SAME:
            looks.clear()
            there_again(self._catalogs, head, self._context.clock_ms())
            return None
        gone = removed.gone
        if found is Being.UNKNOWN or context.state(topic).unfinished:
            return None if gone is None else GoneDoubt.NOT_KNOWN_YET
        if gone is None:
            compared = self._clocks.compare()
            if compared.differ:  # its time would count from a wrong one
                self._doubt = compared.doubt
                return None
            # A claim by a clock that was ahead would make a record from before it void.
            gone = TopicGone(head.claim.incarnation, max(compared.now_ms, head.claim.at))
            append_record(self._catalogs, head, gone)
            log.info("gone topic=%s: %s", topic, found)
        return gone.at

    def _last_seen(self, head: CatalogHead) -> int:
        """As the head says, or, where an earlier build wrote it, the record of its newest segment."""
        newest = head.newest
        if head.last_seen or newest is None:
            return head.last_seen
        segments = self._retention.deletion.segments(head, SegmentRange(newest.start, newest.end))
        return next((segment.assigned_at for segment in segments), 0)

    def _taken(self, answer: Sequence[TopicName] | OffloadError) -> None:
        if isinstance(answer, OvertakenError):
            raise answer
        if isinstance(answer, OffloadError):
            log.warning("retention waits: %s", answer, extra={"see": "retention-waits"})
        elif answer:
            self._context.work.post(WorkKind.RETENTION, "", partial(self.visit_all, answer), self._taken)
