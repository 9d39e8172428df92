"""Has the objects of bridged ledgers looked at, and tells of those that are not there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial

from offloader.errors import OffloadError
from offloader.offload.driver.bridge_steps import BridgeSteps
from offloader.offload.driver.bridge_told import tell_broken
from offloader.offload.driver.context import Context
from offloader.offload.driver.inspecting import InspectedPlace, InspectionTurn
from offloader.offload.driver.topic import Topic
from offloader.offload.driver.work import WorkKind

log = logging.getLogger(__name__)

TRIES = 5  # at one place


class Inspections:
    """In the driver's thread."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._turn = InspectionTurn()
        self._in_vain = 0

    def look(self, topics: list[Topic], steps: BridgeSteps, is_free: Callable[[Topic], bool], now: int) -> None:
        """Look whether some bridged ledgers' objects are there. A topic that is not free comes in the next turn."""
        due = self._turn.next(topics, now)
        if due is None:
            return
        topic, place = due
        self._turn.went_on(None)
        if is_free(topic):
            call = partial(steps.inspect, topic.name, topic.incarnation, topic.info.ledgers, place)
            self._context.work.post(WorkKind.BRIDGE, topic.name, call, partial(self._inspected, topic, place))

    def _inspected(
        self,
        topic: Topic,
        place: InspectedPlace,
        answer: tuple[InspectedPlace | None, Mapping[int, str]] | OffloadError,
    ) -> None:
        if isinstance(answer, OffloadError):
            self._in_vain += 1
            if self._in_vain < TRIES:
                self._turn.went_on(place)
            else:  # the others have their turn
                self._in_vain = 0
            self._context.metrics.bridge_failed("inspect")
            log.info("bridge topic=%s: its objects cannot be looked at now: %s", topic.name, answer)
            return
        self._in_vain = 0
        following, broken = answer
        self._turn.went_on(following)
        if broken:
            self._context.metrics.bridge_failed("objects")
            tell_broken(topic.name, broken)
