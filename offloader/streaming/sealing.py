"""Seals in a bounded pool beside the batches; what is not done in time stays Sealing for the next round."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import replace

from offloader.errors import OffloadError
from offloader.metadata.state import Abandoned, TopicCatalog, TopicState
from offloader.model import OpenSegment, Segment
from offloader.streaming import segments
from offloader.streaming.context import Context
from offloader.streaming.receiving import abandon
from offloader.streaming.sealer import seal
from offloader.streaming.topics import Topic
from offloader.streaming.worker import failure_kind

log = logging.getLogger(__name__)


class Sealing:
    """`wake` is called when a seal has ended, from its thread."""

    def __init__(self, context: Context, wake: Callable[[], None]) -> None:
        self._context = context
        self._wake = wake

    def start(self, topic: Topic, state: TopicState) -> None:
        """Begin a seal, unless the topic's is under way."""
        if topic.sealing is None:
            topic.sealing = self._context.pool.submit(self._seal, topic.catalog, state)
            topic.sealing.add_done_callback(lambda _: self._wake())

    def _seal(self, catalog: TopicCatalog, state: TopicState) -> TopicCatalog:
        """Runs in the pool."""
        context, began = self._context, self._context.clock_ms()
        try:
            return seal(context.store, context.catalogs, catalog, state)
        finally:
            context.metrics.seal((context.clock_ms() - began) / 1000)

    def collect(self, topics: Iterable[Topic]) -> None:
        """Journal what came of seals that have ended."""
        for topic in topics:
            if topic.sealing is not None and topic.sealing.done():
                state = self._context.state(topic.name)
                if state.open is not None:  # else the journal has it already: its answer had been lost
                    self._context.record(self._sealed(topic, state, topic.sealing))
                topic.sealing = None

    def _sealed(self, topic: Topic, state: TopicState, answer: Future[TopicCatalog]) -> TopicState:
        segment = segments.opened(state)
        try:
            topic.catalog = answer.result()
        except OffloadError as error:
            return self._failed(state, segment, error)
        offloaded = next((s for s in topic.catalog.segments if s.uuid == segment.uuid), None)
        if offloaded is None:
            log.warning("the catalog went on without segment=%s topic=%s: it is dropped", segment.uuid, topic.name)
            return segments.dropped(state, "the catalog went on without it")
        self._tell(topic, offloaded)
        topic.wanted_bytes = 0
        state = segments.offloaded(state)
        if not segment.parts and segment.upload is not None:
            state = replace(state, abandoned=(*state.abandoned, segments.unused(segment)))
        return state

    def _failed(self, state: TopicState, segment: OpenSegment, error: OffloadError) -> TopicState:
        context = self._context
        log.warning("seal failed topic=%s segment=%s: %s", state.topic, segment.uuid, error)
        context.metrics.failure(failure_kind(error), state.topic)
        if segments.must_abandon(error):
            state = abandon(context, state, str(error))
        return context.failed(state, error)

    def _tell(self, topic: Topic, s: Segment) -> None:
        self._context.metrics.segment(s.roll_reason, topic.name, s.size)
        log.info(
            "offloaded topic=%s segment=%s start=%s end=%s entries=%d bytes=%d reason=%s",
            topic.name, s.uuid, s.start, s.end, s.entries, s.size, s.roll_reason,
        )  # fmt: skip


class AbandonedUploads:
    """Aborts uploads that must never be completed; one that cannot be aborted now is tried again later."""

    EVERY_MS = 5_000

    def __init__(self, context: Context) -> None:
        self._context = context
        self._again_at = 0

    def abort(self, now: int) -> None:
        """Abort what is due."""
        if now < self._again_at:
            return
        self._again_at = now + self.EVERY_MS
        for state in [s for s in self._context.journal.topics.values() if s.abandoned]:
            self._context.record(replace(state, abandoned=tuple(a for a in state.abandoned if not self._ended(a))))

    def _ended(self, abandoned: Abandoned) -> bool:
        """Whether nothing is left to abort. An object that is already there is left alone: a scan reports it."""
        if abandoned.upload is None:
            return True
        try:
            self._context.store.abort(abandoned.upload)
        except OffloadError as error:
            log.info("cannot abort the abandoned upload of %s yet: %s", abandoned.uuid, error)
            return False
        return True
