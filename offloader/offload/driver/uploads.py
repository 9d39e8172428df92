"""The uploads of segments' objects, beside the batches: begun, and aborted where they were given up."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from offloader.errors import OffloadError, OutcomeUnknownError
from offloader.format.index import OBJECT_META
from offloader.metadata import layout
from offloader.metadata.state import Abandoned, TopicState
from offloader.model import SINGLE_PUT, Source, TopicName
from offloader.offload.core import segments
from offloader.offload.core.check import attempt
from offloader.offload.core.history import on_segment
from offloader.offload.driver.context import Context
from offloader.offload.driver.work import ADOPTIONS, WorkKind

log = logging.getLogger(__name__)


class UploadStarter:
    """Has uploads begun. What has begun meanwhile is journaled before a slice is planned for it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._begun: list[tuple[TopicName, str, str | OffloadError]] = []

    def start(self, topic: TopicName, uuids: Sequence[str]) -> None:
        """Have the uploads of segments' objects begun, unless some of the topic are."""
        opened = self._context.state(topic).open
        copied = opened.uuid if opened is not None and opened.source is Source.OFFLOADED else ""
        call = partial(self._begin, topic, uuids, copied)
        self._context.work.post(WorkKind.BEGIN, topic, call, partial(self._take, topic, uuids))

    def _begin(self, topic: TopicName, uuids: Sequence[str], copied: str) -> list[str | OffloadError]:
        """Not in the driver's thread. One that fails keeps none of the others."""
        begin = partial(self._context.store.begin, meta=OBJECT_META)
        return [attempt(partial(begin, layout.data_key(topic, uuid), copies=uuid == copied)) for uuid in uuids]

    def _take(self, topic: TopicName, uuids: Sequence[str], answers: list[str | OffloadError] | OffloadError) -> None:
        each = [answers] * len(uuids) if isinstance(answers, OffloadError) else answers
        self._begun += [(topic, uuid, answer) for uuid, answer in zip(uuids, each, strict=True)]

    def collect(self) -> None:
        """Journal all uploads that have begun meanwhile, in one record."""
        states: dict[TopicName, TopicState] = {}
        for topic, uuid, answer in self._begun:
            states[topic] = self._uploading(states.get(topic) or self._context.state(topic), uuid, answer)
        self._context.journal.record(states.values())
        self._begun.clear()

    def _uploading(self, state: TopicState, uuid: str, answer: str | OffloadError) -> TopicState:
        """The upload is for the object `uuid`: where no segment has that uuid any more, it is abandoned."""
        return on_segment(state, uuid, partial(self._uploading_one, uuid, answer))

    def _uploading_one(self, uuid: str, answer: str | OffloadError, state: TopicState) -> TopicState:
        if not isinstance(answer, OffloadError):
            return segments.uploading(state, uuid, answer)
        log.warning("cannot begin an upload topic=%s: %s", state.topic, answer, extra={"see": "upload-refused"})
        if not segments.awaits_upload(state, uuid):
            return state
        if isinstance(answer, OutcomeUnknownError):
            state = segments.abandoned(state, self._context.new_uuid(), str(answer))
        return self._context.failed(state, answer)


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
            self._context.work.post(WorkKind.ABORT, state.topic, call, partial(self._take, state.topic))

    def _ended(self, abandoned: tuple[Abandoned, ...]) -> frozenset[Abandoned]:
        """Those of which nothing is left to abort. An object that is already there is left alone: a scan reports it."""
        return frozenset(a for a in abandoned if a.upload in (None, SINGLE_PUT) or self._aborted(a.upload))

    def _aborted(self, upload: str) -> bool:
        try:
            self._context.store.abort(upload)
        except OffloadError as error:
            log.info("cannot abort the abandoned upload %s yet: %s", upload, error)
            return False
        return True

    def _take(self, topic: TopicName, ended: frozenset[Abandoned] | OffloadError) -> None:
        if isinstance(ended, OffloadError):
            log.info("cannot abort abandoned uploads of topic=%s yet: %s", topic, ended)
            return
        if any(self._context.work.has(kind, topic) for kind in ADOPTIONS):
            # Whoever adopts it journals, too, in another thread. We do not overwrite what that writes, and try again.
            return
        state = self._context.state(topic)
        self._context.record(replace(state, abandoned=tuple(a for a in state.abandoned if a not in ended)))
