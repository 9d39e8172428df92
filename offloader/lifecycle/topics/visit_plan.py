"""Plans visits, a namespace at a time: which topics nobody has loaded, what brokers keep of them, what is due."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from offloader.errors import (
    AbsentError,
    AuthenticationFailedError,
    AuthorizationFailedError,
    FatalError,
    IntegrityError,
    ProtocolError,
    RetryableError,
)
from offloader.lifecycle.topics.broker_retention import (
    BrokerRetention,
    RetentionLevel,
    default_retention,
    read_retention,
)
from offloader.lifecycle.topics.cursors.kinds import SubscriptionNames
from offloader.lifecycle.topics.node_reader import TopicNodeReader, UnreadableTopic
from offloader.lifecycle.topics.unloaded import PassedOver, UnloadedTopic, WhyPassedOver, look_at, passed_over
from offloader.model import TopicName
from offloader.ports.admin import Admin, KnownTopics
from offloader.state.topic import PulsarTopic

FIRST_WITH_TRIM = (3, 0)
TOPIC_POLICIES = "__change_events"
"""The topic in which a namespace keeps the policies of its topics; its partitions have longer names."""
NOTHING_KEPT = BrokerRetention(0, 0, RetentionLevel.TOPIC)


@dataclass(frozen=True, slots=True)
class VisitBasis:
    """What a plan of all namespaces rests on. `loaded`: brokers' topics; `default`: the brokers' retention."""

    loaded: Mapping[str, str]
    default: BrokerRetention


class _Namespace(NamedTuple):
    """`retention`: the namespace's policy; None: it has none. `enabled`: which of its topics are to be offloaded."""

    known: KnownTopics
    retention: BrokerRetention | None
    enabled: Callable[[TopicName], bool]


class VisitPlanner:
    """Loads nothing. `enabled`: of a namespace, which of its topics are to be offloaded. All calls raise
    OffloadError."""

    def __init__(
        self,
        brokers: Admin,
        names: SubscriptionNames,
        clock_ms: Callable[[], int],
        enabled: Callable[[str], Callable[[TopicName], bool]],
    ) -> None:
        self._brokers = brokers
        self._names = names
        self._clock_ms = clock_ms
        self._enabled = enabled

    def basis(self) -> VisitBasis:
        """Raises FatalError where the brokers cannot do it, AuthorizationFailedError."""
        check_version(self._brokers.version())
        try:
            return VisitBasis(self._brokers.loaded_topics(), default_retention(self._brokers.runtime_configuration()))
        except AuthorizationFailedError as error:
            raise AuthorizationFailedError(
                f"which topics brokers have loaded, and what they keep by default, only super users may ask ({error}): "
                "give the offloader's role that right"
            ) from error

    def plan(self, reader: TopicNodeReader, namespace: str, basis: VisitBasis) -> Iterator[UnloadedTopic | PassedOver]:
        """Every topic with a ledger list: what is to be said of it, due or not."""
        names = reader.topics(namespace)
        answer = self._ask(namespace)
        if not isinstance(answer, _Namespace):
            yield from (PassedOver(topic, *answer) for topic in names)
            return
        retentions = _Retentions(self._brokers, answer.retention or basis.default, _has_topic_policies(names))
        asked = []
        for topic in names:
            why = passed_over(topic, answer.known, basis.loaded)
            if why is None and retentions.for_ever:
                why = WhyPassedOver.KEPT_FOR_EVER
            if why is None:
                asked.append(topic)
            else:
                yield PassedOver(topic, why)
        for nodes in reader.read(asked):
            yield self._judge(nodes, retentions, answer.enabled)

    def about(
        self,
        topic: TopicName,
        read: Callable[[], PulsarTopic | UnreadableTopic | None],
        names: Callable[[], Sequence[TopicName]],
        default: Callable[[], BrokerRetention | None],
    ) -> UnloadedTopic | PassedOver | None:
        """One topic, by whomever it is loaded. `read`: it as it is now; None: it is gone. `names`: all topics of its
        namespace. `default`: what brokers keep; None: nobody could say. None: it is gone, or nobody can say what is
        kept of it."""
        answer = self._ask(topic.namespace)
        if not isinstance(answer, _Namespace):
            return PassedOver(topic, *answer)
        why = passed_over(topic, answer.known, {})
        if why is not None:
            return PassedOver(topic, why)
        found, level = read(), answer.retention or default()
        if found is None or level is None:
            return None
        return self._judge(found, _Retentions(self._brokers, level, _has_topic_policies(names())), answer.enabled)

    def _ask(self, namespace: str) -> _Namespace | tuple[WhyPassedOver, str]:
        """What brokers say of it, or why its topics are passed over."""
        try:
            known = self._brokers.known_topics(namespace)
            policy = read_retention(
                self._brokers.namespace_policies(namespace).get("retention_policies"), RetentionLevel.NAMESPACE
            )
            enabled = self._enabled(namespace)
        except AbsentError:
            return WhyPassedOver.NO_NAMESPACE, ""
        except AuthenticationFailedError:
            raise
        except (RetryableError, FatalError, IntegrityError) as error:  # other namespaces do not wait for this one
            return WhyPassedOver.UNASKED, str(error)
        return _Namespace(known, policy, enabled)

    def _judge(
        self, nodes: PulsarTopic | UnreadableTopic, retentions: _Retentions, enabled: Callable[[TopicName], bool]
    ) -> UnloadedTopic | PassedOver:
        """One topic that nobody has loaded."""
        if isinstance(nodes, UnreadableTopic):
            return PassedOver(nodes.topic, WhyPassedOver.DAMAGED, nodes.why)
        if nodes.list.shadow_of:
            return PassedOver(nodes.topic, WhyPassedOver.SHADOW, nodes.list.shadow_of)
        if self._names.pin not in nodes.cursors and enabled(nodes.topic):
            return PassedOver(nodes.topic, WhyPassedOver.NOT_OFFLOADED)
        if nodes.newest is None and nodes.list.ledgers:  # a load would drop it from the list without a word
            return PassedOver(nodes.topic, WhyPassedOver.MISSING, f"ledger {nodes.list.greatest}")
        now = self._clock_ms()
        if look_at(nodes, NOTHING_KEPT, now, self._names).due_ms is None:  # no retention could make a visit worth it
            return look_at(nodes, retentions.level, now, self._names)
        retention, doubt = retentions.of(nodes.topic)
        return replace(look_at(nodes, retention, now, self._names), doubt=doubt)


class _Retentions:
    """Of a namespace's topics. Only where one of them may have a policy of its own is a broker asked."""

    def __init__(self, brokers: Admin, level: BrokerRetention, topics_have_policies: bool) -> None:  # noqa: FBT001
        self._brokers = brokers
        self.level = level
        self._ask = topics_have_policies
        self._silent = ""
        self._known: dict[str, tuple[BrokerRetention, str]] = {}

    @property
    def for_ever(self) -> bool:
        """Whether no topic of the namespace can have less."""
        return self.level.for_ever and not self._ask

    def of(self, topic: TopicName) -> tuple[BrokerRetention, str]:
        """With why it may be another one. A partition has what its topic has."""
        if not self._ask:
            return self.level, self._silent
        name = topic.partitioned_name
        if name not in self._known:
            self._known[name] = self._asked(TopicName.parse(name))
        return self._known[name]

    def _asked(self, topic: TopicName) -> tuple[BrokerRetention, str]:
        try:
            found = read_retention(self._brokers.applied_retention(topic), RetentionLevel.TOPIC)
        except AuthenticationFailedError:
            raise
        except (AbsentError, RetryableError, FatalError, IntegrityError) as error:
            self._silent = f"whether the topic has a policy of its own could not be asked ({error})"
            self._ask = isinstance(error, AbsentError)  # of the others, each would take as long
            return self.level, self._silent
        if found is None:
            return self.level, ""
        same = (found.minutes, found.megabytes) == (self.level.minutes, self.level.megabytes)
        return (self.level if same else found), ""


def check_version(version: str) -> None:
    """Raises FatalError for brokers that cannot trim on demand; ProtocolError for what is no version."""
    found = re.match(r"(\d+)\.(\d+)", version.strip())
    if found is None:
        raise ProtocolError("the brokers' version: the broker answered what is none")
    if (int(found[1]), int(found[2])) < FIRST_WITH_TRIM:
        raise FatalError(
            f"the brokers' version is {version.strip()[:40]}, and only from 3.0 on can they be told to trim a topic: "
            "upgrade them, or have clients connect to the topics"
        )


def _has_topic_policies(names: Sequence[TopicName]) -> bool:
    return any(topic.name.startswith(TOPIC_POLICIES) for topic in names)
