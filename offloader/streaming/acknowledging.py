"""The pin follows the catalog: acknowledged only after the commit, never past it, and checked against it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import replace

from offloader.errors import OffloadError, PinMovedError
from offloader.model import Position
from offloader.streaming.context import Context
from offloader.streaming.topics import Topic, accounted, acknowledgeable, normalised

log = logging.getLogger(__name__)


def acknowledge_all(context: Context, topics: Iterable[Topic]) -> None:
    """Acknowledge every topic's catalog end that the pin has not confirmed yet, many at once. Where the last look failed, an acknowledgement
    would only be waited for, too."""
    began = context.clock_ms()
    sent: list[tuple[Topic, Position, Future[None]]] = []
    for topic in topics:
        target = _target(topic)
        if target is not None and not topic.gone and not topic.unseen and began >= topic.acknowledging.again_at:
            sent.append((topic, target, context.pool.submit(context.pins.acknowledge, topic.name, _sent_as(topic, target))))
    for item in sent:
        _confirmed(context, began, *item)


def acknowledged(topic: Topic) -> bool:
    """Whether the pin is where it may be: at the catalog's end, or one entry before it while its ledger is open."""
    return _target(topic) is None


def _target(topic: Topic) -> Position | None:
    end = topic.catalog.end
    if end is None or end.entry < 0:
        return None
    target = acknowledgeable(topic.catalog, end, topic.info.ledgers)
    if target is None or topic.acknowledged == target:
        return None
    if topic.acknowledged is None and normalised(target, topic.info.ledgers) <= normalised(topic.mark_delete, topic.info.ledgers):
        return None
    return target


def _sent_as(topic: Topic, target: Position) -> Position:
    """A closed ledger's last entry is acknowledged as "before the next ledger's first", where that has entries: the broker then frees
    the ledger at once and not at its next periodic check (seen with 4.0.7)."""
    before_next = normalised(target, topic.info.ledgers)
    entries, _ = topic.info.sizes.get(before_next.ledger, (0, 0))
    return before_next if before_next.entry < 0 and entries > 0 else target


def _confirmed(context: Context, began: int, topic: Topic, target: Position, answer: Future[None]) -> None:
    try:
        answer.result()
    except OffloadError as error:
        topic.acknowledging.failed(began, context.clock_ms())
        log.info("cannot acknowledge topic=%s position=%s yet: %s", topic.name, target, error)
        return
    topic.acknowledging.succeeded()
    topic.acknowledged = target
    topic.end = replace(topic.end, mark_delete=max(topic.end.mark_delete, (target.ledger, target.entry)))


def check_pin(topic: Topic) -> None:
    """Raises PinMovedError where the mark-delete is past what is offloaded: someone or something else moved it."""
    if topic.catalog.claim is None:
        return
    end = topic.catalog.end
    ledgers = topic.info.ledgers
    if end is None:
        begin = topic.begin() or topic.catalog.claim.begin
        end = Position(begin.incarnation, begin.ledger, begin.entry - 1)
    mark = normalised(topic.mark_delete, ledgers)
    moved = mark > normalised(end, ledgers) and (mark.ledger, mark.entry) != _first_of(topic)
    if moved or _at_what_is_gone(topic):
        raise PinMovedError(
            f"{topic.name}: the subscription stands at {topic.mark_delete}, past the last offloaded position {end}: message TTL, a backlog "
            "quota with consumer_backlog_eviction, or somebody moved it; remove that policy, data may be lost"
        )


def _at_what_is_gone(topic: Topic) -> bool:
    """The pin stands at an entry, not before a ledger, past all that is accounted for, and that entry's ledger is trimmed: it held data that
    is not offloaded."""
    mark, after = topic.mark_delete, accounted(topic.catalog)
    return after is not None and mark.entry >= 0 and mark > after and mark.ledger not in topic.info.ledgers


def _first_of(topic: Topic) -> tuple[int, int] | None:
    """Before the first listed ledger: where the broker itself puts a cursor whose ledger was empty and is gone."""
    spans = topic.info.ledgers.spans
    return (spans[0].ledger, -1) if spans else None
