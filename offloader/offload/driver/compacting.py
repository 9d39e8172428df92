"""Has what is old in catalogs summed up in manifests: nothing waits for it, and nothing but time depends on it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial

from offloader.errors import OffloadError
from offloader.metadata.compaction import compact
from offloader.metadata.manifest import FAN
from offloader.model import TopicName
from offloader.offload.driver.context import Context
from offloader.offload.driver.topic import Topic
from offloader.offload.driver.work import WorkKind

log = logging.getLogger(__name__)

AGAIN_MS = 60_000


class Compacting:
    """Which topics' manifests are written, and when that is tried again."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._leaves: dict[TopicName, int] = {}
        self._again_at: dict[TopicName, int] = {}

    def look(self, topics: Iterable[Topic]) -> None:
        """Begin what is due."""
        now = self._context.clock_ms()
        for topic in topics:
            leaves = topic.catalog.next_slot // FAN
            if leaves > self._leaves.get(topic.name, 0) and now >= self._again_at.get(topic.name, 0):
                call = partial(compact, self._context.store, topic.catalog)
                self._context.work.post(WorkKind.COMPACT, topic.name, call, partial(self._taken, topic.name, leaves))

    def _taken(self, name: TopicName, leaves: int, answer: int | OffloadError) -> None:
        if isinstance(answer, OffloadError):
            self._again_at[name] = self._context.clock_ms() + AGAIN_MS
            log.warning(
                "cannot write manifests of topic=%s yet, readers read its records one by one: %s",
                name,
                answer,
                extra={"see": "manifests-wait"},
            )
            return
        self._leaves[name] = leaves
