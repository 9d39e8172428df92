"""What a topic has beyond everything that a broker delivers: markers, aborted entries, or a transaction that is still open."""

from __future__ import annotations

import logging

from offloader.errors import OffloadError
from offloader.model import Position, Source
from offloader.streaming.context import Context
from offloader.streaming.topics import Topic

log = logging.getLogger(__name__)

MAX_LOOKUPS = 1_000


def explain_tail(context: Context, topic: Topic) -> None:
    """Classify the hidden tail, one look-up an entry. What is explained counts as the topic's end; what is not is undecided: an open
    transaction is in the way. What bookies can deliver needs no explanation."""
    topic.undecided = False
    if topic.source is Source.FILLED:
        topic.hidden_end = topic.confirmed
    tail = topic.hidden_tail()
    while tail is not None:
        first, raw = tail
        last = raw.entry if first.ledger == raw.ledger else topic.info.ledgers.closed_with(first.ledger)
        if last is None:
            return
        gaps, unexplained = context.source.explain(topic.name, first.ledger, first.entry, last, limit=MAX_LOOKUPS)
        if gaps:
            topic.hidden_end = Position(first.incarnation, first.ledger, gaps[-1].last)
        topic.undecided = unexplained is not None
        tail = None if topic.undecided else topic.hidden_tail()


def explain_old_tails(context: Context, topics: list[Topic], now: int) -> None:
    """A tail that nothing readable has followed for a whole roll is accounted for by itself, or its ledger would stay pinned."""
    for topic in topics:
        waited = now - max(topic.looked_at, topic.tail_looked_at) >= topic.rules.roll_ms
        if topic.gone or not waited or topic.hidden_tail() is None:
            continue
        topic.tail_looked_at = now
        try:
            explain_tail(context, topic)
        except OffloadError as error:
            log.info("cannot look at the tail of topic=%s yet: %s", topic.name, error)
