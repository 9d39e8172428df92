"""The uploads of segments' objects, begun beside the batches."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from functools import partial

from offloader.errors import OffloadError, OutcomeUnknownError
from offloader.metadata import layout
from offloader.metadata.state import TopicState
from offloader.model import TopicName
from offloader.offload.core import segments
from offloader.offload.driver.context import Context
from offloader.offload.driver.sealer import OBJECT_META
from offloader.offload.driver.work import WorkKind

log = logging.getLogger(__name__)


class SegmentUploads:
    """Has uploads begun. What has begun meanwhile is journaled before a slice is planned for it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._begun: list[tuple[TopicName, str, Future[str]]] = []

    def start(self, topic: TopicName, uuid: str) -> None:
        """Have the upload of a segment's object begun, unless one of the topic is."""
        context = self._context
        call = partial(context.store.begin, layout.data_key(topic, uuid), meta=OBJECT_META)
        context.work.post(WorkKind.BEGIN, topic, call, partial(self._take, topic, uuid))

    def _take(self, topic: TopicName, uuid: str, answer: Future[str]) -> None:
        self._begun.append((topic, uuid, answer))

    def collect(self) -> None:
        """Journal all uploads that have begun meanwhile, in one record."""
        states: dict[TopicName, TopicState] = {}
        for topic, uuid, answer in self._begun:
            states[topic] = self._uploading(states.get(topic) or self._context.state(topic), uuid, answer)
        self._context.journal.record(states.values())
        self._begun.clear()

    def _uploading(self, state: TopicState, uuid: str, answer: Future[str]) -> TopicState:
        """An upload is its uuid's: a segment that has another one by now does not get it."""
        try:
            return segments.uploading(state, uuid, answer.result())
        except OffloadError as error:
            log.warning("cannot begin an upload topic=%s: %s", state.topic, error, extra={"see": "upload-refused"})
            if not segments.awaits_upload(state, uuid):
                return state
            if isinstance(error, OutcomeUnknownError):
                state = segments.abandoned(state, self._context.new_uuid(), str(error))
            return self._context.failed(state, error)
