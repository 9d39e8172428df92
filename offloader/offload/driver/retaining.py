"""Retention of the archive as part of the application: when it is looked at, what was asked for, and what became of
topics. Everything of it is done in a thread of its own, one thing after the other."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from offloader.errors import OffloadError, OvertakenError
from offloader.lifecycle.retention.handing_over import NOTHING_HANDED_OVER, HandingOver
from offloader.lifecycle.retention.phases import ArchiveDeletion
from offloader.lifecycle.retention.policy import NOT_FOLLOWED, RetentionPolicy, may_follow
from offloader.lifecycle.retention.retention import ArchiveRetention, GoneDoubt
from offloader.metadata.catalog import Catalogs
from offloader.metadata.deletions import PulsarTrimmed, TopicGone
from offloader.metadata.requests import Request, RequestKind
from offloader.metadata.state import CatalogHead
from offloader.model import Taking, TopicName
from offloader.offload.core.evidence import Being, Look, being
from offloader.offload.driver.admin_queries import WITNESSES, look_for
from offloader.offload.driver.committing import append_record, there_again
from offloader.offload.driver.context import Context
from offloader.offload.driver.topic import Topic
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
    """`interval_ms`: how often everything is looked at. `handing_over`: segments go once brokers have them.

    Where no policy says that anything goes, nothing is under way, and brokers have the only copy of nothing, there is
    one look, a listing, at the start. The catalogs are its own: an outcome that is not known here holds up nobody else.
    """

    def __init__(
        self, context: Context, grace_ms: int, interval_ms: int, handing_over: HandingOver | None = None
    ) -> None:
        self._context = context
        self._interval_ms = interval_ms
        self._look_at = 0
        self._brokers_at = 0
        self._there: frozenset[TopicName] = frozenset()  # topics that we offload, and nothing speaks against it
        self._of_brokers: frozenset[TopicName] = frozenset()  # of these, of which they may delete the only copy
        self._witnesses: tuple[CatalogHead, ...] = ()
        self._followed: set[TopicName] = set()  # whose retention in Pulsar was seen, and is not 0
        self._not_followed: set[TopicName] = set()  # it was seen, and is 0
        self._noted: frozenset[TopicName] = frozenset()
        self._looks: dict[TopicName, list[Look]] = {}
        self._hands_over = handing_over is not None
        fields = (*RETENTION_FIELDS, "broker_readable") if self._hands_over else RETENTION_FIELDS
        self._by_policy = context.policies.any_says(*fields)
        self._served = 0  # requests, each of which may begin something
        self._at_rest: int | None = None  # after how many of them nothing was under way
        catalogs = Catalogs(context.store, context.application)
        self._catalogs = catalogs
        deletion = ArchiveDeletion(
            context.store,
            catalogs,
            partial(append_record, catalogs),
            context.journal.check_not_overtaken,
            context.clock_ms,
            context.cluster,
            context.application,
        )
        self._retention = ArchiveRetention(
            deletion,
            self.policy_of,
            self.gone_since,
            grace_ms,
            handing_over=handing_over or NOTHING_HANDED_OVER,
        )

    def look(self, topics: Iterable[Topic]) -> None:
        """Have everything looked at that is due, in the driver's thread: it only posts."""
        now = self._context.clock_ms()
        if now < self._look_at:
            return
        due = self._by_policy or self._at_rest != self._served
        if not due and now >= self._brokers_at:
            self._brokers_at = now + self._interval_ms
            due = any(_is_of_brokers(topic.catalog) for topic in topics)
        if due:
            self._look_at = now + self._interval_ms
            self.see(topics)
            self._context.work.post(WorkKind.RETENTION, "", self.visit_all, self._taken)

    def see(self, topics: Iterable[Topic]) -> None:
        """Which topics are there. In the driver's thread, before anything is decided of them."""
        there = [topic for topic in topics if not topic.in_question and not topic.gone]
        self._there = frozenset(topic.name for topic in there)
        self._of_brokers = frozenset(topic.name for topic in there if _is_of_brokers(topic.catalog))
        self._witnesses = tuple(topic.catalog for topic in there)

    def serve(self, request: Request) -> str:
        """Do what was asked for, up to a record that says so; what came of it in words. Not in the driver's thread."""
        topic, by = request.topic, request.by or "a request"
        self._served += 1
        match request.kind:
            case RequestKind.ARCHIVE_DELETE:
                return self._retention.delete(topic, by)
            case RequestKind.ARCHIVE_UNDELETE:
                return self._retention.undelete(topic, by)
            case _:
                self._follow(topic)
                return self._retention.asked(topic)

    def visit_all(self, left: Sequence[TopicName] | None = None) -> Sequence[TopicName]:
        """Every topic of which something may be due or under way, some at a time: requests need not wait for all of
        them. Returns those that are left. One that fails stops no other."""
        if left is None:
            left = self._to_visit()
        for topic in left[:AT_A_TIME]:
            try:
                self._follow(topic)
                self._retention.visit(topic, noted=topic in self._noted)
            except OvertakenError:
                raise
            except OffloadError as error:
                log.warning("retention of topic=%s waits: %s", topic, error, extra={"see": "retention-waits"})
        return left[AT_A_TIME:]

    def _to_visit(self) -> Sequence[TopicName]:
        served = self._served
        self._noted = frozenset(self._retention.deletion.marked())
        self._at_rest = None if self._noted else served
        policed = self._catalogs.topics() if self._by_policy else ()
        says = (topic for topic in policed if self._concerns(topic) and self._said_of(topic).says_anything)
        return sorted(topic for topic in {*self._noted, *says, *self._of_brokers} if self._concerns(topic))

    def _concerns(self, topic: TopicName) -> bool:
        """Whether no other shard does it."""
        return topic in self._there or self._context.deal.is_dealt(topic)

    def policy_of(self, topic: TopicName) -> RetentionPolicy:
        """What the file says of a topic's archive."""
        policy = self._said_of(topic)
        followed = topic in self._followed
        doubt = policy.follow_pulsar and not followed and topic not in self._not_followed
        return replace(policy, follow_pulsar=policy.follow_pulsar and followed, follow_doubt=doubt)

    def _said_of(self, topic: TopicName) -> RetentionPolicy:
        """The same, before anybody has asked Pulsar."""
        return retention(self._context.policies.of(topic), keep_segments=not self._hands_over)

    def _follow(self, topic: TopicName) -> None:
        """Mark which ledgers Pulsar has deleted, where the policy follows that, or Pulsar has the only copy. Only of
        topics that we offload: others would have to be loaded. Where its retention is 0, acknowledging deletes, and
        that is not followed."""
        self._followed.discard(topic)
        self._not_followed.discard(topic)
        if topic not in self._there:
            return
        follows = self._said_of(topic).follow_pulsar
        if follows and not may_follow(self._context.admin.retention(topic)):
            self._not_followed.add(topic)
            follows = False
            log.warning("retention of topic=%s waits: %s", topic, NOT_FOLLOWED, extra={"see": "retention-waits"})
        if follows or self._brokers_may_delete(topic):
            self._mark_trimmed(topic, follows=follows)

    def _brokers_may_delete(self, topic: TopicName) -> bool:
        """Whether readers read what brokers own: handed over to them, or referenced where they have it."""
        return topic in self._of_brokers or (self._hands_over and _is_of_brokers(self._catalogs.head(topic)))

    def _mark_trimmed(self, topic: TopicName, *, follows: bool) -> None:
        head = self._catalogs.head(topic)
        info = self._context.admin.topic_info(topic)
        spans = info.ledgers.spans
        if head.claim is None or not head.has_ledger_in(info.ledgers) or not spans:
            return  # another topic of that name, or nothing that proves which
        if follows:
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
        others = (other for other in self._witnesses[:WITNESSES] if other.topic != topic)
        looks = self._looks.setdefault(topic, [])
        looks.append(look_for(context.admin, head, others, context.clock_ms))
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
            gone = TopicGone(head.claim.incarnation, context.clock_ms())
            append_record(self._catalogs, head, gone)
            log.info("gone topic=%s: %s", topic, found)
        return gone.at

    def _taken(self, answer: Sequence[TopicName] | OffloadError) -> None:
        if isinstance(answer, OvertakenError):
            raise answer
        if isinstance(answer, OffloadError):
            log.warning("retention waits: %s", answer, extra={"see": "retention-waits"})
        elif answer:
            self._context.work.post(WorkKind.RETENTION, "", partial(self.visit_all, answer), self._taken)


def _is_of_brokers(head: CatalogHead) -> bool:
    """Whether readers read what brokers own: handed over to them, or referenced where they have it."""
    referenced = head.claim is not None and head.claim.taking is Taking.REFERENCE
    return referenced or bool(head.removed.handed_over)
