"""Looks at topics that do not answer as the ones that we know, until it is proven what became of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from offloader.errors import OffloadError
from offloader.metadata.state import CatalogHead
from offloader.offload.core.evidence import Being, Look, being
from offloader.offload.driver import observed
from offloader.offload.driver.admin_queries import WITNESSES, look_for
from offloader.offload.driver.context import Context
from offloader.offload.driver.facets import Inquiry
from offloader.offload.driver.topic import Topic
from offloader.offload.driver.work import WorkKind

log = logging.getLogger(__name__)

LOOK_EVERY_MS = 10_000
KEPT = 100  # looks: enough for any conclusion


def pursue(context: Context, topics: Iterable[Topic]) -> None:
    """Ask again where it is time, and the former look is over."""
    everything, now = list(topics), context.clock_ms()
    due = [(t, t.inquiry) for t in everything if t.inquiry and t.in_question and now >= t.inquiry.look_at]
    witnesses = _witnesses(everything) if due else []
    for topic, inquiry in due:
        if not context.work.has(WorkKind.INQUIRE, topic.name):
            topic.inquiry = replace(inquiry, look_at=now + LOOK_EVERY_MS)
            call = partial(
                look_for, context.admin, topic.catalog, _others(witnesses, topic, len(inquiry.looks)), context.clock_ms
            )
            context.work.post(WorkKind.INQUIRE, topic.name, call, partial(_answered, context, topic))


def _answered(context: Context, topic: Topic, look: Look | OffloadError) -> None:
    if isinstance(look, OffloadError):
        log.info("cannot look for topic=%s: %s", topic.name, look)
        return
    if topic.inquiry is not None and topic.in_question:
        topic.inquiry = replace(topic.inquiry, looks=(*topic.inquiry.looks[-KEPT:], look))
        _conclude(context, topic, topic.inquiry)


def inquire(topic: Topic, *, adopted: bool = True) -> None:
    """The topic was not found, or another one in its place: find out."""
    if topic.inquiry is None:
        topic.inquiry = Inquiry(adopted)


def vouch(topic: Topic) -> None:
    """Somebody says that the topic was deleted."""
    if topic.inquiry is not None:
        topic.inquiry = replace(topic.inquiry, vouched=True)


def _witnesses(topics: list[Topic]) -> list[Topic]:
    """Topics that we hold: only those that answer as ever, where there are any."""
    there = sorted((t for t in topics if not t.gone), key=lambda t: (t.in_question, t.poll.error != ""))
    return [t for t in there if not t.in_question] or there


def _others(witnesses: list[Topic], topic: Topic, turn: int) -> list[CatalogHead]:
    """As many as one look asks for, others each time."""
    following = (witnesses[(turn + n) % len(witnesses)] for n in range(min(WITNESSES + 1, len(witnesses))))
    return [other.catalog for other in following if other is not topic][:WITNESSES]


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
