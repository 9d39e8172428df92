"""Looking at the topics in Pulsar: ends often and together, ledger lists only where something moved."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import Future

from offloader.errors import OffloadError
from offloader.metadata.state import LedgerClosed
from offloader.model import TopicName
from offloader.pulsar.api import TopicEnd, TopicInfo
from offloader.streaming.context import Context
from offloader.streaming.topics import Topic

log = logging.getLogger(__name__)

RECREATED = "the topic was deleted and created again"
QUIETEST_MS = 60_000  # a quiet topic is looked at this often at least


def look(context: Context, topics: Iterable[Topic], *, all_of_them: bool = False) -> dict[TopicName, OffloadError]:
    """Refresh ends and, where they moved, ledger lists. A topic's failure is returned, its former view stays."""
    now = context.clock_ms()
    due = [t for t in topics if not t.gone and (all_of_them or t.look_again_at <= now)]
    ends = context.pins.ends([t.name for t in due])
    failures: dict[TopicName, OffloadError] = {}
    moved: list[tuple[Topic, TopicEnd]] = []
    for topic in due:
        end = ends[topic.name]
        if isinstance(end, OffloadError):
            failures[topic.name] = end
            topic.look_again_at = now + 1_000
            continue
        if isinstance(end, Exception):
            raise end
        topic.seen_at = now
        if end.mark_delete != topic.end.mark_delete:
            topic.acknowledged = None  # the broker knows better: it may have taken back what it had confirmed
        if _needs_ledgers(topic, end):
            moved.append((topic, end))
        else:
            _quiet(topic, end, now)
    failures.update(_refresh_ledgers(context, moved, now))
    return failures


def _needs_ledgers(topic: Topic, end: TopicEnd) -> bool:
    if end != topic.end:
        return True
    catalog_end = topic.catalog.end
    return catalog_end is not None and topic.last == catalog_end and topic.info.ledgers.closed_with(catalog_end.ledger) is None


def _quiet(topic: Topic, end: TopicEnd, now: int) -> None:
    quiet_for = now - topic.looked_at
    topic.end = end
    topic.look_again_at = now + min(quiet_for // 4, QUIETEST_MS, max(topic.rules.roll_ms // 10, 1_000))


def _refresh_ledgers(context: Context, moved: list[tuple[Topic, TopicEnd]], now: int) -> dict[TopicName, OffloadError]:
    asked: list[tuple[Topic, TopicEnd, Future[TopicInfo]]] = [
        (topic, end, context.pool.submit(context.admin.topic_info, topic.name)) for topic, end in moved
    ]
    failures: dict[TopicName, OffloadError] = {}
    for topic, end, answer in asked:
        try:
            info = answer.result()
        except OffloadError as error:
            failures[topic.name] = error
            topic.look_again_at = now + 1_000
            continue
        if topic.catalog.claim is not None and info.created != topic.catalog.claim.created:
            topic.gone = RECREATED
            continue
        topic.info_before, topic.info = topic.info, info
        if end.last != topic.end.last:
            topic.looked_at = now
        topic.end = end
        topic.last_seen = topic.last
        topic.look_again_at = now
    return failures


def record_closed_ledger(context: Context, topic: Topic) -> None:
    """Record the id that the ledger of the catalog's end was closed with, once Pulsar lists it: only then may the pin pass it."""
    end = topic.catalog.end
    if end is None or (end.incarnation, end.ledger) in topic.catalog.closed or end.entry < 0:
        return
    last = topic.info.ledgers.closed_with(end.ledger)
    if last is None or last != end.entry:
        return
    if any(r.ledger == end.ledger and r.closed_with is not None for s in topic.catalog.segments[-1:] for r in s.ledgers):
        return
    topic.catalog = context.catalogs.append(
        topic.catalog, LedgerClosed(end.incarnation, end.ledger, last), token=context.new_uuid()
    )
