"""What was seen of a topic in Pulsar, and when it is polled again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from offloader.model import Position
from offloader.offload.core.facets import Poll
from offloader.offload.core.topic import Topic
from offloader.ports.admin import TopicInfo
from offloader.ports.pins import TopicEnd


def asked(topics: Iterable[Topic]) -> None:
    """Their ends are being asked for."""
    for topic in topics:
        topic.poll = replace(topic.poll, under_way=True)


def answered(topic: Topic, end: TopicEnd | None) -> None:
    """Its end was asked for; `end`: what was answered, None: nothing."""
    topic.poll = replace(topic.poll, under_way=False)
    if end is not None and end.mark_delete != topic.end.mark_delete:
        # The broker knows better: it may have taken back what it had confirmed.
        topic.observed = replace(topic.observed, acknowledged=None)


def same(topic: Topic, at: int, again_at: int) -> None:
    """Its end is where it was: who rests goes on resting."""
    topic.observed = replace(topic.observed, seen_at=at)
    undecided = topic.rest is None
    topic.poll = Poll(again_at, topic.poll.under_way, undecided, retry=topic.poll.retry.succeeded())


def listed(topic: Topic, info: TopicInfo, end: TopicEnd, at: int) -> None:
    """Its end and, after that, its ledgers. Both change at once, for whoever waits for the end."""
    again_at = topic.poll.again_at if end == topic.end else at
    topic.poll = Poll(again_at, topic.poll.under_way, undecided=True, retry=topic.poll.retry.succeeded())
    topic.observed = replace(topic.observed, info=info, end=end, seen_at=at, listed_at=at, doubted=False)


def advanced(topic: Topic, end: TopicEnd, at: int) -> None:
    """Its end moved in the open ledger of the list, which is brought up to it by itself."""
    topic.poll = Poll(at, topic.poll.under_way, undecided=True, retry=topic.poll.retry.succeeded())
    info = topic.info if end.last is None else topic.info.advanced_to(*end.last)
    topic.observed = replace(topic.observed, info=info, end=end, seen_at=at)


def decided_on(topic: Topic) -> None:
    """Something was decided on what is known of it now."""
    topic.poll = replace(topic.poll, undecided=False)


def moved(topic: Topic, at: int) -> None:
    """It had moved when it was asked for then."""
    topic.observed = replace(topic.observed, moved_at=at)
    soon(topic, at)


def remember(topic: Topic, last: Position | None) -> None:
    """Should it be gone at the next look, this is what it had."""
    topic.observed = replace(topic.observed, last=last)


def doubt(topic: Topic) -> None:
    """Its ledgers may be others by now: they are listed again though its end has not moved."""
    topic.observed = replace(topic.observed, doubted=True)


def failed(topic: Topic, began: int, ended: int) -> None:
    """Nobody answered."""
    retry = topic.poll.retry.failed(began, ended)
    topic.poll = replace(topic.poll, retry=retry, again_at=retry.again_at)


def soon(topic: Topic, at: int = 0) -> None:
    """Poll it at once, or then."""
    topic.poll = replace(topic.poll, again_at=at)


def seen_after(topic: Topic, at: int) -> bool:
    """Whether its end was asked for after that time. In the same millisecond is perhaps before: it is asked for again,
    or one that is quiet would be waited for."""
    if topic.known_at == at:
        soon(topic)
    return topic.known_at > at


def explain(topic: Topic, why: str) -> None:
    """Why nothing could be seen of it; empty: that is over."""
    topic.poll = replace(topic.poll, error=why)


def confirmed(topic: Topic, position: Position) -> None:
    """The broker has taken an acknowledgement."""
    end = replace(topic.end, mark_delete=max(topic.end.mark_delete, (position.ledger, position.entry)))
    topic.observed = replace(topic.observed, end=end, acknowledged=position)
