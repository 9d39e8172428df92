"""The steps of bridges that unload topics, in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from offloader.bridge.core.unload_rate import UnloadRate
from offloader.errors import OffloadError
from offloader.model import TopicName
from offloader.offload.driver import bridge_progress
from offloader.offload.driver.context import Context
from offloader.offload.driver.topic import Topic
from offloader.offload.driver.work import WorkKind

T = TypeVar("T")


class Unloading:
    """Posts as many as are set for a minute; each counts for as many unloads as it has made. `unloads`: what steps
    have made, by topic. In the driver's thread."""

    def __init__(self, context: Context, a_minute: int, unloads: Counter[TopicName]) -> None:
        self._context = context
        self._rate = UnloadRate(a_minute)
        self._unloads = unloads

    def post(
        self, topic: Topic, call: Callable[[], T], then: Callable[[T | OffloadError], None], now: int, *, again: bool
    ) -> bool:
        """Have it done, if its turn has come. `again`: something of the topic has failed before. Whether it was."""
        if not self._rate.take(now, again=again):
            return False
        ended = partial(self._ended, topic, now, then, again=again)
        self._context.work.post(WorkKind.BRIDGE_SWAP, topic.name, call, ended)
        return True

    def _ended(
        self,
        topic: Topic,
        began: int,
        then: Callable[[T | OffloadError], None],
        answer: T | OffloadError,
        *,
        again: bool,
    ) -> None:
        now = self._context.clock_ms()
        self._rate.made(began, now, self._unloads.pop(topic.name, 0), again=again)
        self._context.metrics.bridge_swapped((now - began) / 1000)
        bridge_progress.unloaded(topic, now)
        then(answer)
