"""Looking at the topics in Pulsar: ends often and together, ledger lists only where something moved."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import Future

from offloader.errors import OffloadError
from offloader.metadata.state import LedgerClosed
from offloader.model import Position, TopicName
from offloader.pulsar.api import TopicEnd, TopicInfo
from offloader.streaming.context import Context
from offloader.streaming.tails import explain_tail
from offloader.streaming.topics import Topic

log = logging.getLogger(__name__)

DELETED = "the topic was deleted"
RECREATED = "the topic was deleted and created again"
QUIETEST_MS = 60_000  # a quiet topic is looked at this often at least
# A ledger may be closed while the end stays where it is: soon after its last entry, or much later (roll-over by age, unload).
CLOSED_SOON_MS = 2_000
CLOSED_LATER_MS = 30_000
LIST_CHECKS = 8  # ledger lists read in one look though no consumer's end moved: two REST calls each


def look(context: Context, topics: Iterable[Topic]) -> dict[TopicName, OffloadError]:
    """Refresh ends and, where they moved, ledger lists. A topic's failure is returned, its former view stays."""
    now = context.clock_ms()
    due = [t for t in topics if not t.gone and t.look_again_at <= now]
    ends = context.pins.ends([t.name for t in due])
    failures: dict[TopicName, OffloadError] = {}
    moved: list[tuple[Topic, TopicEnd]] = []
    waiting: list[tuple[Topic, TopicEnd]] = []
    for topic in due:
        end = ends[topic.name]
        if isinstance(end, OffloadError):
            failures[topic.name] = end
            _failed(context, topic, now)
            continue
        if isinstance(end, Exception):
            raise end
        topic.seen_at, topic.unseen = now, ""
        if end.mark_delete != topic.end.mark_delete:
            topic.acknowledged = None  # the broker knows better: it may have taken back what it had confirmed
        if end != topic.end or _end_is_awaited(context, topic):
            moved.append((topic, end))
            continue
        topic.looks.succeeded()
        _quiet(topic, now)
        if _close_not_seen(topic, now) or _may_have_hidden(topic, now):
            waiting.append((topic, end))
    waiting.sort(key=lambda pair: pair[0].ledgers_at)
    failures.update(_refresh_ledgers(context, moved + waiting[:LIST_CHECKS], now))
    return failures


def _failed(context: Context, topic: Topic, began: int) -> None:
    topic.looks.failed(began, context.clock_ms())
    topic.look_again_at = topic.looks.again_at


def _end_is_awaited(context: Context, topic: Topic) -> bool:
    """Somebody asked for everything up to the very end, also what consumers do not get."""
    asked = topic.retire is not None and topic.retire_at is None
    return topic.source.complete and (asked or bool(context.state(topic.name).requests))


def _may_have_hidden(topic: Topic, now: int) -> bool:
    """Markers and entries of open or aborted transactions move the ledger's end and not the consumers': asked for now and then."""
    quiet_for = now - topic.looked_at
    often = max(min(quiet_for // 4, topic.rules.roll_ms // 4), 1_000)
    return topic.source.complete and now - topic.ledgers_at >= often


def _close_not_seen(topic: Topic, now: int) -> bool:
    """Everything is offloaded, but the end of its last ledger is not known to be closed: whether it is time to ask again."""
    end, ledgers = topic.catalog.end, topic.info.ledgers
    if end is None or (topic.last is not None and topic.last > end):
        return False
    # A tail that was explained before a restart is past what can be read: `last` is then before the catalog's end.
    if end.ledger not in ledgers or ledgers.closed_with(end.ledger) is not None:
        return False
    asked_soon_after = topic.ledgers_at - topic.looked_at >= CLOSED_SOON_MS
    return now - topic.ledgers_at >= (CLOSED_LATER_MS if asked_soon_after else CLOSED_SOON_MS)


def _quiet(topic: Topic, now: int) -> None:
    quiet_for = now - topic.looked_at
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
            _failed(context, topic, now)
            continue
        if topic.catalog.claim is not None and info.created != topic.catalog.claim.created:
            topic.gone = RECREATED
            continue
        topic.looks.succeeded()
        before = topic.last
        topic.info_before, topic.info = topic.info, info
        topic.ledgers_at = now
        moved_on = end.last != topic.end.last
        if end != topic.end:
            topic.look_again_at = now
        topic.end = end
        if _end_is_awaited(context, topic):
            explain_tail(context, topic)
        if moved_on or topic.last != before:
            topic.looked_at = topic.look_again_at = now
        topic.last_seen = topic.last
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
    _record_end(context, topic, end)


def record_replaced_ledger(context: Context, topic: Topic) -> None:
    """A loss ended right before a ledger that nobody has written to, and that was replaced when the topic was loaded again: it ended empty.
    Only where nothing of it is lost: else it may have held something."""
    end, ledgers = topic.catalog.end, topic.info.ledgers
    if end is None or end.entry >= 0 or (end.incarnation, end.ledger) in topic.catalog.closed:
        return
    if end.ledger in ledgers and ledgers.closed_with(end.ledger) != end.entry:
        return
    _record_end(context, topic, end)


def _record_end(context: Context, topic: Topic, end: Position) -> None:
    """The catalog says where a ledger ended."""
    topic.catalog = context.catalogs.append(
        topic.catalog, LedgerClosed(end.incarnation, end.ledger, end.entry), token=context.new_uuid()
    )
