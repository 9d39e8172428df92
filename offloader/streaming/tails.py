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
    while _explain_some(context, topic):
        pass


def _explain_some(context: Context, topic: Topic) -> bool:
    """At most `MAX_LOOKUPS` of them. Whether it can go on."""
    topic.undecided = False
    if topic.source is Source.FILLED:
        topic.hidden_end = topic.confirmed
    tail = topic.hidden_tail()
    if tail is None:
        return False
    first, raw = tail
    last = raw.entry if first.ledger == raw.ledger else topic.info.ledgers.closed_with(first.ledger)
    if last is None:
        return False
    gaps, unexplained = context.source.explain(topic.name, first.ledger, first.entry, last, limit=MAX_LOOKUPS)
    if gaps:
        topic.hidden_end = Position(first.incarnation, first.ledger, gaps[-1].last)
    topic.undecided = unexplained is not None and unexplained < first.entry + MAX_LOOKUPS
    return bool(gaps) and not topic.undecided and topic.hidden_tail() is not None


def explain_old_tails(context: Context, topics: list[Topic], now: int) -> None:
    """A tail that nothing readable has followed for a whole roll is accounted for by itself, or its ledger would stay pinned. A long one
    takes several rounds: other topics wait meanwhile."""
    for topic in topics:
        waited = now - max(topic.looked_at, topic.tail_looked_at) >= topic.rules.roll_ms
        if topic.gone or not waited or topic.hidden_tail() is None:
            continue
        before, topic.tail_looked_at = topic.tail_looked_at, now
        try:
            if _explain_some(context, topic):
                topic.tail_looked_at = before
        except OffloadError as error:
            log.info("cannot look at the tail of topic=%s yet: %s", topic.name, error)
