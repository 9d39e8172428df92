"""Posts seals, and journals what came of them; `seal_steps.py` is the work itself.

Nothing is journaled in between. A seal whose answer is lost counts as a failed attempt: the state stays Sealing with
`retry_at`, and the planner seals again from then on. After a crash the next process finds the state in the journal."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from offloader.errors import OffloadError
from offloader.metadata.state import Abandoned, CatalogHead, OpenTopic, TopicState
from offloader.model import SINGLE_PUT, FailureKind, OpenSegment, Segment, TopicName
from offloader.offload.core import segments
from offloader.offload.driver import committing
from offloader.offload.driver.context import Context
from offloader.offload.driver.receiving import tell_of_abandoned, wants_anything
from offloader.offload.driver.seal_steps import seal
from offloader.offload.driver.topic import Topic
from offloader.offload.driver.work import WorkKind

log = logging.getLogger(__name__)

Tell = Callable[[], None]


@dataclass
class _Done:
    """A seal that has ended. `sealed`: what it sealed. `tell` counts and logs it, once it is journaled."""

    topic: Topic
    sealed: OpenTopic
    answer: CatalogHead | OffloadError
    tell: Tell | None = None

    def concerns(self, state: TopicState) -> bool:
        """Whether the journal does not have its outcome yet: a record of it may have been written unseen."""
        known = isinstance(state, OpenTopic) and state.open == self.sealed.open
        return known and state.attempts <= self.sealed.attempts


class Sealing:
    """The seals under way, and those that have ended and are not journaled yet."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._done: list[_Done] = []

    def start(self, topic: Topic, state: OpenTopic) -> None:
        """Have a segment sealed, unless the topic's is being sealed."""

        def then(answer: CatalogHead | OffloadError) -> None:
            self._done.append(_Done(topic, state, answer))

        self._context.work.post(WorkKind.SEAL, topic.name, partial(self._seal, topic.catalog, state), then)

    def _seal(self, catalog: CatalogHead, state: OpenTopic) -> CatalogHead:
        """Not in the driver's thread."""
        context, began = self._context, self._context.clock_ms()
        try:
            return seal(context.store, context.catalogs, catalog, state)
        finally:
            context.metrics.seal((context.clock_ms() - began) / 1000)

    def collect(self) -> None:
        """Journal what came of all seals that have ended, in one record."""
        states = []
        for done in self._done:
            state = self._context.state(done.topic.name)
            if isinstance(state, OpenTopic) and done.concerns(state):
                after, done.tell = self._outcome(done.topic, state, done.answer)
                states.append(after)
        self._context.journal.record(states)
        for done in self._done:
            if done.tell is not None:
                done.tell()
        self._done.clear()

    def _outcome(self, topic: Topic, state: OpenTopic, answer: CatalogHead | OffloadError) -> tuple[TopicState, Tell]:
        segment = state.open
        if isinstance(answer, OffloadError):
            return self._failed(state, answer), partial(self._tell_failure, segment, state.topic, answer)
        committing.take(topic, answer)
        newest = topic.catalog.newest
        if newest is None or newest.uuid != segment.uuid:
            dropped = segments.dropped(state, "the catalog went on without it")
            return dropped, partial(_tell_dropped, segment.uuid, topic.name)
        wants_anything(topic)
        after = segments.offloaded(state)
        if not segment.parts and segment.upload not in (None, SINGLE_PUT):
            unused = Abandoned("", segment.upload, "the segment holds no entry")
            after = replace(after, abandoned=(*after.abandoned, unused))
        return after, partial(self._tell, segments.as_record(state, "", ()), topic.name)

    def _failed(self, state: OpenTopic, error: OffloadError) -> OpenTopic:
        if segments.must_abandon(error):
            state = segments.abandoned(state, self._context.new_uuid(), str(error))
        return self._context.failed(state, error)

    def _tell_failure(self, segment: OpenSegment, topic: TopicName, error: OffloadError) -> None:
        log.warning("seal failed topic=%s segment=%s: %s", topic, segment.uuid, error, extra={"see": "seal-failed"})
        self._context.metrics.failure(FailureKind.of(error), topic)
        if segments.must_abandon(error):
            tell_of_abandoned(self._context, topic, str(error))

    def _tell(self, s: Segment, topic: TopicName) -> None:
        self._context.metrics.segment(s.roll_reason, topic, s.size)
        log.info(
            "offloaded topic=%s segment=%s start=%s end=%s entries=%d bytes=%d reason=%s",
            topic, s.uuid, s.start, s.end, s.entries, s.size, s.roll_reason,
        )  # fmt: skip


def _tell_dropped(uuid: str, topic: TopicName) -> None:
    log.warning(
        "the catalog went on without segment=%s topic=%s: it is dropped", uuid, topic, extra={"see": "overtaken"}
    )
