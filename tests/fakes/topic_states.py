"""What brokers in memory report of cursors and schemas, and what happens between two questions: a part of `Admin`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from offloader.errors import TopicNotFoundError
from offloader.model import TopicName
from offloader.ports.admin import SubscriptionTraits, TopicCursors, TopicSchema
from offloader.state.subscription import CursorState
from tests.fakes.cluster_subscriptions import HeldTopic, MemorySubscriptions
from tests.fakes.faults import Faults


@dataclass
class MemoryTopicStates:
    """Of the topics of `brokers`. A test changes the fields. `between` is called before each question for cursors but
    the first one of a topic; `faults`: of each call, by its name; `asked`: how often each was called."""

    brokers: MemorySubscriptions
    not_durable: set[str] = field(default_factory=set)
    replicated: set[str] = field(default_factory=set)
    partitioned: dict[str, int] = field(default_factory=dict)  # by the partitioned topic's full name
    known_schemas: dict[str, list[TopicSchema]] = field(default_factory=dict)
    between: Callable[[], None] = lambda: None
    faults: Faults = field(default_factory=lambda: Faults(Random(0)))
    asked: Counter[str] = field(default_factory=Counter)

    def cursors(self, topic: TopicName) -> TopicCursors:
        if self.asked["cursors"]:
            self.between()
        self._ask("cursors", topic)
        held = self._held(topic)
        *closed, last = sorted(held.ledgers)
        lengths = [(ledger, held.ledgers[ledger]) for ledger in closed]
        looks = {name: CursorState(one.mark, one.ranges) for name, one in held.cursors.items()}
        return TopicCursors((*lengths, (last, None)), looks)

    def subscription_traits(self, topic: TopicName) -> Mapping[str, SubscriptionTraits]:
        self._ask("subscriptions", topic)
        return {
            name: SubscriptionTraits(name in self.replicated, tuple(sorted(one.properties.items())))
            for name, one in self._held(topic).cursors.items()
            if name not in self.not_durable
        }

    def version(self) -> str:
        self.asked["version"] += 1
        return "4.0.7"

    def partitions(self, topic: TopicName) -> int | None:
        if topic.partition < 0:
            return None
        self._ask("partitions", topic)
        return self.partitioned.get(topic.partitioned_name)

    def schema_version(self, topic: TopicName) -> int | None:
        self._ask("schema_version", topic)
        found = self.known_schemas.get(topic.partitioned_name)
        return found[-1].version if found else None

    def schemas(self, topic: TopicName) -> tuple[TopicSchema, ...]:
        self._ask("schemas", topic)
        return tuple(self.known_schemas[topic.partitioned_name])

    def _ask(self, call: str, topic: TopicName) -> None:
        self.asked[call] += 1
        lost = self.faults.before(call, topic)
        if lost is not None:
            raise lost

    def _held(self, topic: TopicName) -> HeldTopic:
        if topic not in self.brokers.topics:
            raise TopicNotFoundError(f"{topic} does not exist")
        return self.brokers.topics[topic]
