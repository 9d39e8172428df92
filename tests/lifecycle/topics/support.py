"""A cluster whose topics nobody has loaded, and who plans and makes visits there."""

from __future__ import annotations

from collections.abc import Iterable

from offloader.lifecycle.topics.cursors.kinds import SubscriptionNames
from offloader.lifecycle.topics.node_reader import TopicNodeReader
from offloader.lifecycle.topics.unloaded import PassedOver, UnloadedTopic
from offloader.lifecycle.topics.visit_outcome import VisitOutcome
from offloader.lifecycle.topics.visit_plan import VisitPlanner
from offloader.lifecycle.topics.visiting import TopicVisitor, VisitClock, VisitRate, VisitRound
from offloader.model import TopicName
from tests.fakes.idle_cluster import IdleCluster

NAMESPACE = "acme/orders"
PIN = "__offloader"
MINUTE = 60


def name(local: str) -> TopicName:
    return TopicName.parse(f"{NAMESPACE}/{local}")


class Idle(IdleCluster):
    """Retention of one minute, any size."""

    def __init__(self, *, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.retention[NAMESPACE] = (1, -1)
        self.slept = 0.0
        self.to_be_offloaded: set[TopicName] = set()

    def written(self, local: str, *sizes: int, shut: bool = True) -> TopicName:
        """A topic that nobody has loaded, with ledgers of these sizes and ten entries each; the last has no date."""
        topic = name(local)
        self.connect(topic)
        for number, size in enumerate(sizes):
            if number:
                self.roll(topic)
            self.produce(topic, 10, size)
        if shut:
            self.shut(topic)
        return topic

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.tick(seconds)

    @property
    def reader(self) -> TopicNodeReader:
        return TopicNodeReader(self.metadata)

    @property
    def planner(self) -> VisitPlanner:
        return VisitPlanner(
            self, SubscriptionNames(PIN), lambda: self.now_ms, lambda _: self.to_be_offloaded.__contains__
        )

    def plan(self, namespace: str = NAMESPACE) -> list[UnloadedTopic | PassedOver]:
        planner = self.planner
        return list(planner.plan(self.reader, namespace, planner.basis()))

    def looked(self, topic: TopicName) -> UnloadedTopic:
        (found,) = (one for one in self.plan(topic.namespace) if one.topic == topic)
        assert isinstance(found, UnloadedTopic), found
        return found

    def due(self) -> list[UnloadedTopic]:
        return [one for one in self.plan() if isinstance(one, UnloadedTopic) and one.due(self.now_ms)]

    def round(self, *, at_once: int = 1, a_minute: int = 6000, close=None) -> VisitRound:
        visitor = TopicVisitor(self.reader, self, SubscriptionNames(PIN), lambda: self.now_ms, close)
        return VisitRound(visitor, self, VisitClock(lambda: self.now_ms, self.sleep), VisitRate(at_once, a_minute))

    def visit(self, topics: Iterable[UnloadedTopic] | None = None) -> list[VisitOutcome]:
        return list(self.round().visit(self.due() if topics is None else topics))
