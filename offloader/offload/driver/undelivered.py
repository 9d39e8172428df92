"""What a topic has beyond all that a broker delivers: markers, aborted entries, an open transaction."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from offloader.errors import OffloadError
from offloader.model import EntryRange, Gap, Position, Source
from offloader.offload.core.topic import Topic
from offloader.offload.driver import observed
from offloader.offload.driver.context import Context
from offloader.offload.driver.work import WorkKind

log = logging.getLogger(__name__)

MAX_LOOKUPS = 1_000

Explained = tuple[tuple[Gap, ...], int | None]


def explain_tail(context: Context, topic: Topic) -> None:
    """Classify the hidden tail, one look-up an entry, and wait for that. What is explained counts as the topic's end.
    Where something is not, an open transaction is in the way. What bookies deliver needs no explanation."""
    while (unexplained := _unexplained(topic)) is not None:
        _explained(topic, unexplained[0], _explain(context, topic, *unexplained))
        if topic.tail.undecided or _unexplained(topic) == unexplained:
            return


def have_tail_explained(context: Context, topic: Topic) -> None:
    """The same, as posted work. A long tail takes several turns."""
    unexplained = _unexplained(topic)
    if unexplained is not None:
        call = partial(_explain, context, topic, *unexplained)
        context.work.post(WorkKind.TAIL, topic.name, call, partial(_take_explained, context, topic, unexplained))


def explain_old_tails(context: Context, topics: Iterable[Topic], now: int) -> None:
    """Account for tails that nothing readable has followed for a whole roll, or their ledgers would stay pinned."""
    for topic in topics:
        at = None if topic.gone or topic.poll.error else explained_at(topic)
        if at is not None and at <= now:
            topic.tail = replace(topic.tail, asked_at=now)
            have_tail_explained(context, topic)


def explained_at(topic: Topic) -> int | None:
    """When its hidden tail is old; None: it has none."""
    if topic.hidden_tail() is None:
        return None
    return max(topic.observed.moved_at, topic.tail.asked_at) + topic.rules.roll_ms


def _unexplained(topic: Topic) -> tuple[Position, int] | None:
    """The first entry of the tail, and the last one of its ledger that is asked about."""
    explained = topic.confirmed if topic.source is Source.BROKER_WITH_BOOKIES else topic.tail.end
    topic.tail = replace(topic.tail, end=explained, undecided=False)
    tail = topic.hidden_tail()
    if tail is None:
        return None
    first, raw = tail
    last = raw.entry if first.ledger == raw.ledger else topic.info.ledgers.closed_with(first.ledger)
    return None if last is None else (first, last)


def _explain(context: Context, topic: Topic, first: Position, last: int) -> Explained:
    asked = EntryRange.closed(first.ledger, first.entry, last)
    return context.source.explain(topic.name, asked, limit=MAX_LOOKUPS)


def _explained(topic: Topic, first: Position, answer: Explained) -> None:
    gaps, unexplained = answer
    end = Position(first.incarnation, first.ledger, gaps[-1].last) if gaps else topic.tail.end
    undecided = unexplained is not None and unexplained < first.entry + MAX_LOOKUPS
    topic.tail = replace(topic.tail, end=end, undecided=undecided)


def _take_explained(
    context: Context, topic: Topic, asked: tuple[Position, int], answer: Explained | OffloadError
) -> None:
    if isinstance(answer, OffloadError):
        log.info("cannot look at the tail of topic=%s yet: %s", topic.name, answer)
        return
    _explained(topic, asked[0], answer)
    observed.remember(topic, topic.last)
    if not topic.tail.undecided and _unexplained(topic) != asked:
        have_tail_explained(context, topic)
