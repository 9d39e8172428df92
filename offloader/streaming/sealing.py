"""Seals, and the end of uploads that were given up: both beside the batches."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from offloader.errors import OffloadError
from offloader.metadata.state import Abandoned, CatalogHead, TopicState
from offloader.model import OpenSegment, Segment, TopicName
from offloader.streaming import segments
from offloader.streaming.context import Context
from offloader.streaming.receiving import abandon
from offloader.streaming.sealer import seal
from offloader.streaming.topics import Topic
from offloader.streaming.work import ADOPTIONS, Kind
from offloader.streaming.worker import failure_kind

log = logging.getLogger(__name__)


class Sealing:
    """Seals beside the batches; what is not done in time stays Sealing for the next round."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._done: list[tuple[Topic, Future[CatalogHead]]] = []

    def start(self, topic: Topic, state: TopicState) -> None:
        """Have a segment sealed, unless the topic's is being sealed."""
        call, then = partial(self._seal, topic.catalog, state), partial(self._take, topic)
        self._context.work.post(Kind.SEAL, topic.name, call, then)

    def _seal(self, catalog: CatalogHead, state: TopicState) -> CatalogHead:
        """Not in the driver's thread."""
        context, began = self._context, self._context.clock_ms()
        try:
            return seal(context.store, context.catalogs, catalog, state)
        finally:
            context.metrics.seal((context.clock_ms() - began) / 1000)

    def _take(self, topic: Topic, answer: Future[CatalogHead]) -> None:
        self._done.append((topic, answer))

    def collect(self) -> None:
        """Journal what came of all seals that have ended, in one record."""
        states = {topic.name: self._context.state(topic.name) for topic, _ in self._done}
        # A state without an open segment: the journal has it already, its answer had been lost.
        sealed = [self._sealed(topic, states[topic.name], answer) for topic, answer in self._done if states[topic.name].open]
        self._context.journal.record(sealed)
        self._done.clear()

    def _sealed(self, topic: Topic, state: TopicState, answer: Future[CatalogHead]) -> TopicState:
        segment = segments.opened(state)
        try:
            topic.catalog = answer.result()
        except OffloadError as error:
            return self._failed(state, segment, error)
        newest = topic.catalog.newest
        if newest is None or newest.uuid != segment.uuid:
            log.warning("the catalog went on without segment=%s topic=%s: it is dropped", segment.uuid, topic.name)
            return segments.dropped(state, "the catalog went on without it")
        self._tell(segments.as_record(state, "", ()), topic)
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

    def _tell(self, s: Segment, topic: Topic) -> None:
        self._context.metrics.segment(s.roll_reason, topic.name, s.size)
        log.info(
            "offloaded topic=%s segment=%s start=%s end=%s entries=%d bytes=%d reason=%s",
            topic.name, s.uuid, s.start, s.end, s.entries, s.size, s.roll_reason,
        )  # fmt: skip


class AbandonedUploads:
    """Has uploads aborted that must never be completed; one that cannot be aborted now is tried again later."""

    EVERY_MS = 5_000

    def __init__(self, context: Context) -> None:
        self._context = context
        self._again_at = 0

    def abort(self, now: int) -> None:
        """Have aborted what is due."""
        if now < self._again_at:
            return
        self._again_at = now + self.EVERY_MS
        for state in [s for s in self._context.journal.topics.values() if s.abandoned]:
            call = partial(self._ended, state.abandoned)
            self._context.work.post(Kind.ABORT, state.topic, call, partial(self._take, state.topic))

    def _ended(self, abandoned: tuple[Abandoned, ...]) -> frozenset[Abandoned]:
        """Those of which nothing is left to abort. An object that is already there is left alone: a scan reports it."""
        return frozenset(a for a in abandoned if a.upload is None or self._aborted(a.upload))

    def _aborted(self, upload: str) -> bool:
        try:
            self._context.store.abort(upload)
        except OffloadError as error:
            log.info("cannot abort the abandoned upload %s yet: %s", upload, error)
            return False
        return True

    def _take(self, topic: TopicName, answer: Future[frozenset[Abandoned]]) -> None:
        try:
            ended = answer.result()
        except OffloadError as error:
            log.info("cannot abort abandoned uploads of topic=%s yet: %s", topic, error)
            return
        if any(self._context.work.has(kind, topic) for kind in ADOPTIONS):
            return  # whoever adopts it journals, too, in another thread: what that has written must not be overwritten; tried again
        state = self._context.state(topic)
        self._context.record(replace(state, abandoned=tuple(a for a in state.abandoned if a not in ended)))
