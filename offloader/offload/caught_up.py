"""`offloader run --until-caught-up`: each topic is to reach the end that it has at the start."""

from __future__ import annotations

from enum import Enum

from offloader.model import Failure, FailureKind, TopicName
from offloader.offload.core.evidence import CONFIRM_MS
from offloader.offload.core.topic import Topic
from offloader.offload.driver.acknowledging import acknowledged
from offloader.offload.driver.driver import Driver
from offloader.offload.driver.feature import hopeless

GIVE_UP_ATTEMPTS = 5  # failures in a row of every topic that is left
ACCEPTED_WITHIN_MS = 30_000  # a loss does not go away; but a request that accepts it may have waited for the start

FOUND_OUT_WITHIN_MS = 3 * CONFIRM_MS  # what became of a topic, where that can be found out at all


class CaughtUpState(Enum):
    """Where the run stands."""

    NOT_YET = 0
    CAUGHT_UP = 1
    CANNOT = 2
    TIMED_OUT = 3


class CaughtUp:
    """Watches a driver from another thread, by its journal and catalogs: topics come and go while it looks."""

    def __init__(self, driver: Driver, now: int, timeout: float | None) -> None:
        self._driver = driver
        self._features = driver.context.features
        self._deadline = None if timeout is None else now + int(timeout * 1000)
        self._found: dict[TopicName, Failure | None] = {}  # failures of an earlier run: each gets another try
        self._lost: dict[TopicName, int] = {}  # since when a topic waits for somebody to accept a loss

    def look(self, now: int) -> CaughtUpState:
        """Whether every topic got there, or none of the others will."""
        registry = self._driver.registry
        if registry.settled:
            left = self.left()
            if not left:
                return CaughtUpState.CANNOT if registry.refused or registry.found.unread else CaughtUpState.CAUGHT_UP
            hopeless = [self._hopeless(name, now) for name in left]  # each is timed from when it was first seen
            if all(hopeless):
                return CaughtUpState.CANNOT
        timed_out = self._deadline is not None and now >= self._deadline
        return CaughtUpState.TIMED_OUT if timed_out else CaughtUpState.NOT_YET

    def left(self) -> list[TopicName]:
        """Topics that have not reached their goal."""
        return [name for name, topic in list(self._driver.registry.topics.items()) if not self._there(name, topic)]

    def _there(self, name: TopicName, topic: Topic) -> bool:
        goal, begin, end = topic.retire_at, topic.begin(), topic.catalog.end
        if goal is None or topic.inquiry is not None:
            # Released: the next look says where it ends. To be taken in anew: that look does.
            return False
        nothing_to_do = goal.ledger < 0 or (begin is not None and goal < begin)
        reached = nothing_to_do or (end is not None and end >= goal)
        if topic.committed.failure is not None:
            return False  # something is still to be recorded, and that fails
        if not reached or (topic.tail.undecided and not topic.paused) or self._driver.state(name).unfinished:
            return False
        return acknowledged(self._driver.context, topic) and all(
            feature.is_done(topic, goal) for feature in self._features
        )

    def _hopeless(self, name: TopicName, now: int) -> bool:
        state, topic = self._driver.state(name), self._driver.registry.topics.get(name)
        if topic is not None and topic.tail.undecided and not state.unfinished:
            return True
        if topic is not None and topic.in_question:
            return now - self._lost.setdefault(name, now) >= FOUND_OUT_WITHIN_MS
        if topic is not None and state.failure is None and hopeless(self._features, topic):
            return True
        found, failure = self._found.setdefault(name, state.failure), state.failure
        if failure is None or failure.kind is not FailureKind.DATA_LOST:
            self._lost.pop(name, None)
            return failure is not None and failure != found and failure.attempts >= GIVE_UP_ATTEMPTS
        return now - self._lost.setdefault(name, now) >= ACCEPTED_WITHIN_MS

    def unfinished(self) -> list[str]:
        """One line for each topic that did not get there, and each namespace that could not be read; and why."""
        registry = self._driver.registry
        left = [f"not caught up: {name}: {self._why(name)}" for name in self.left()]
        refused = [f"not offloaded: {name}: {reason}" for name, reason in list(registry.refused.items())]
        unread = [f"not looked at: {namespace}: {error}" for namespace, error in registry.found.unread.items()]
        return left + refused + unread

    def _why(self, name: TopicName) -> str:
        failure = self._driver.state(name).failure
        if failure is not None:
            return failure.reason
        topic = self._driver.registry.topics.get(name)
        if topic is not None and topic.in_question:
            return topic.poll.error
        if topic is not None and hopeless(self._features, topic):
            return hopeless(self._features, topic)
        return "an open transaction is in the way" if topic is not None and topic.tail.undecided else "not there yet"
