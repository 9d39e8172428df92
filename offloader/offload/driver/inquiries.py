"""Looks at topics that do not answer as the ones that we know, until it is proven what became of them. A topic that was
created in such a one's place gets our subscription at once: it keeps what is written until then."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from heapq import nsmallest

from offloader.errors import BrokerUnavailableError, OffloadError
from offloader.metadata.state import CatalogHead
from offloader.model import TopicName
from offloader.offload.core.evidence import Being, Look, being
from offloader.offload.core.facets import Inquiry
from offloader.offload.core.retry_schedule import RetrySchedule
from offloader.offload.core.topic import Topic
from offloader.offload.driver import observed
from offloader.offload.driver.admin_queries import look_for, possible_witnesses, some_witnesses
from offloader.offload.driver.context import Context
from offloader.offload.driver.work import WorkKind
from offloader.ports.pins import TopicEnd

log = logging.getLogger(__name__)

LOOK_EVERY_MS = 10_000
KEPT = 100  # looks: enough for any conclusion
SUBSCRIBE_MS = 1_000  # between two attempts for a topic that is in question, at first


def pursue(context: Context, topics: Collection[Topic], adopted: Mapping[TopicName, Topic]) -> None:
    """Ask about these topics again where it is time, and the former look is over. `adopted`: these and their
    witnesses."""
    now = context.clock_ms()
    due = [(t, t.inquiry) for t in topics if t.inquiry and t.in_question and now >= t.inquiry.look_at]
    witnesses = _witnesses(adopted.values()) if due else []
    for topic, inquiry in due:
        if not context.work.has(WorkKind.INQUIRE, topic.name):
            seen_at = _seen_at(context, topic, inquiry)
            topic.inquiry = replace(inquiry, look_at=now + LOOK_EVERY_MS, seen_at=seen_at)
            others = some_witnesses(witnesses, topic.name, seen_at, len(inquiry.looks))
            call = partial(look_for, context.admin, topic.catalog, others, context.clock_ms)
            context.work.post(WorkKind.INQUIRE, topic.name, call, partial(_answered, context, topic))
    for topic in topics:
        asked = topic.inquiry if topic.in_question else None
        if asked is None or now < asked.subscription.again_at or context.work.concerns(topic.name):
            continue
        topic.inquiry = replace(asked, subscription=replace(asked.subscription, again_at=now + LOOK_EVERY_MS))
        if context.state(topic.name).releasing is None:
            subscribe, then = partial(_subscribe, context, topic.name), partial(_subscribed, context, topic, now)
            context.work.post(WorkKind.SUBSCRIBE, topic.name, subscribe, then)


def _subscribe(context: Context, name: TopicName) -> TopicEnd:
    """Not in the driver's thread. In another cluster nobody would ever delete the subscription."""
    cluster = context.admin.identity().cluster
    if cluster != context.cluster:
        raise BrokerUnavailableError(f"{name}: the cluster {cluster} answers in place of {context.cluster}")
    return context.pins.open(name)


def _subscribed(context: Context, topic: Topic, began: int, end: TopicEnd | OffloadError) -> None:
    """While there is no topic, the next attempt is a second later at first, and as seldom as looks in the end."""
    inquiry = topic.inquiry
    if inquiry is None or not isinstance(end, OffloadError):
        return
    now = context.clock_ms()
    absent_ms = now - inquiry.looks[0].at if inquiry.looks else 0
    schedule = inquiry.subscription.failed(began, now)
    wait = min(max(SUBSCRIBE_MS, absent_ms // 10), LOOK_EVERY_MS)
    schedule = replace(schedule, again_at=max(schedule.again_at, now + wait))
    topic.inquiry = replace(inquiry, subscription=schedule)


def subscribe_soon(topic: Topic) -> None:
    """The consumer of a topic in question was closed: the topic may have been deleted once more."""
    if topic.inquiry is not None:
        topic.inquiry = replace(topic.inquiry, subscription=RetrySchedule())


def _answered(context: Context, topic: Topic, look: Look | OffloadError) -> None:
    if isinstance(look, OffloadError):
        log.info("cannot look for topic=%s: %s", topic.name, look)
        return
    if topic.inquiry is not None and topic.in_question:
        topic.inquiry = replace(topic.inquiry, looks=(*topic.inquiry.looks[-KEPT:], look))
        _conclude(context, topic, topic.inquiry)


def inquire(topic: Topic, *, adopted: bool = True, seen_at: int = 0) -> None:
    """The topic was not found, or another one in its place: find out. `seen_at`: a time at which Pulsar had it."""
    if topic.inquiry is None:
        topic.inquiry = Inquiry(adopted, seen_at=seen_at)


def have_first_seen(topics: Iterable[Topic]) -> None:
    """Of two topics each that was claimed before the other one was last seen can be its witness. So the one that was
    claimed first would have none while it is quiet: its list is read once more after another one was claimed."""
    well = [topic for topic in topics if not topic.gone and not topic.in_question]
    two = nsmallest(2, (topic for topic in well if topic.catalog.witnesses_since is not None), key=_claimed_at)
    if len(two) > 1 and _listed_at(two[0]) < _claimed_at(two[1]):
        observed.doubt(two[0])


def vouch(topic: Topic) -> None:
    """Somebody says that the topic was deleted."""
    if topic.inquiry is not None:
        topic.inquiry = replace(topic.inquiry, vouched=True)


def _witnesses(topics: Iterable[Topic]) -> list[CatalogHead]:
    """Topics that we hold: only those that answer as ever, where there are any."""
    there = [topic for topic in topics if not topic.gone]
    well = [topic for topic in there if not topic.in_question]
    return possible_witnesses(topic.catalog for topic in well or there)


def _seen_at(context: Context, topic: Topic, inquiry: Inquiry) -> int:
    """When Pulsar had the topic for the last time that we know of."""
    times = [inquiry.seen_at, topic.catalog.last_seen]
    times += [segment.assigned_at for segment in context.state(topic.name).unfinished]
    if inquiry.adopted:
        times.append(_listed_at(topic))
    return max(times)


def _claimed_at(topic: Topic) -> int:
    return topic.catalog.witnesses_since or 0


def _listed_at(topic: Topic) -> int:
    """When its list was read, and was that of the topic that is claimed."""
    return max(topic.observed.adopted_at, topic.observed.listed_at)


def _conclude(context: Context, topic: Topic, inquiry: Inquiry) -> None:
    found = being(context.cluster, inquiry.looks, vouched=inquiry.vouched)
    match found:
        case Being.SAME:
            log.info("topic=%s is there after all", topic.name)
            topic.inquiry = None if inquiry.adopted else replace(inquiry, found=found)
            observed.explain(topic, "")
            observed.soon(topic)
        case Being.DELETED | Being.ANOTHER:
            log.warning("deleted topic=%s: %s", topic.name, found, extra={"see": "deleted"})
            topic.inquiry = replace(inquiry, found=found)
        case Being.UNKNOWN:
            _tell(topic, inquiry)


def _tell(topic: Topic, inquiry: Inquiry) -> None:
    """Why the topic waits."""
    look = inquiry.looks[-1]
    why = look.why or f"{'not there' if look.absent else 'another topic of that name'}, says {look.cluster}"
    if not look.why and not look.witness and not inquiry.vouched:
        why += (
            "; but no other topic of ours that is there proves that this is our cluster. If the topic was deleted, "
            f"say so: offloader topics accept-loss {topic.name} --deleted"
        )
    if topic.poll.error != why:
        observed.explain(topic, why)
        log.warning("perhaps deleted topic=%s: %s", topic.name, why, extra={"see": "perhaps-deleted"})
