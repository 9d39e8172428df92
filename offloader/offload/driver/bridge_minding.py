"""Looks for ledgers that brokers were proven to read, and list no more: the facet `minded`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from offloader.bridge.core.schedule import suspects
from offloader.errors import OffloadError
from offloader.offload.driver import bridge_progress
from offloader.offload.driver.bridge_repairs import BridgeRepairs, Repaired
from offloader.offload.driver.bridge_unloading import Unloading
from offloader.offload.driver.context import Context
from offloader.offload.driver.topic import Topic

REPAIR_AGAIN_MS = 3_600_000  # after a repair that was taken back
MINDED_AGAIN_MS = 900_000  # after a look that failed


class Minding:
    """Once for each list, also while a round is under way. In the driver's thread."""

    def __init__(self, context: Context, unloading: Unloading) -> None:
        self._context = context
        self._unloading = unloading

    def look(self, topic: Topic, repairs: BridgeRepairs, now: int) -> bool:
        """Look at a topic whose list is new enough. Whether anything was asked for."""
        head, minded = topic.bridge.head, topic.minded
        if head is None or is_minded(topic) or now < minded.again_at:
            return False
        found = suspects(topic.bridge_view) - minded.sound
        if found:
            call = partial(repairs.repair, topic.name, head, found, wanted=topic.bridge_wanted)
            if not self._unloading.post(topic, call, partial(self._repaired, topic), now, again=True):
                return False
        topic.minded = replace(topic.minded, info=topic.info)
        return bool(found)

    def taken_back(self, topic: Topic) -> None:
        """A repair was: each try takes the ledgers from brokers' clients."""
        self._again(topic, REPAIR_AGAIN_MS)

    def _repaired(self, topic: Topic, answer: Repaired | OffloadError) -> None:
        if isinstance(answer, OffloadError):
            self._again(topic, MINDED_AGAIN_MS)
            self._context.metrics.bridge_repaired("failed")
            now = self._context.clock_ms()
            bridge_progress.failed(topic, "repair", answer, now, self._context.metrics)
            return
        if answer.loaded:  # a round counts once it is over
            self._context.metrics.bridge_repaired("repaired")
        topic.minded = replace(topic.minded, sound=topic.minded.sound | answer.sound)
        bridge_progress.repaired(topic, answer.head)

    def _again(self, topic: Topic, delay: int) -> None:
        """Its rounds go on meanwhile."""
        topic.minded = replace(topic.minded, info=None, again_at=self._context.clock_ms() + delay)


def is_minded(topic: Topic) -> bool:
    """Whether its list was looked through."""
    return topic.minded.info is topic.info
