"""What the driver knows of a feature: something that is done for topics besides offloading them, and may hold a topic
back. Today there is one, the bridge (`offloader/bridge/driver/feature.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from offloader.model import Position, TopicName
from offloader.offload.core.topic import Topic
from offloader.offload.live.status import Trouble


class TopicFeature(Protocol):
    """One for each shard. All calls are made in the driver's thread, unless they say otherwise, and wait for nothing:
    what takes long is posted as work. What a feature remembers of a topic is a value of its own: `remember`."""

    # A round

    def look(self, topics: Mapping[TopicName, Topic]) -> None:
        """Begin everything that is due, for the topics of which something changed."""
        ...

    def seen(self, topic: Topic) -> None:
        """The place of the topic's offload subscription was checked: it may have moved."""
        ...

    # What holds a topic back

    def limit(self, topic: Topic) -> Position | None:
        """How far the offload subscription may be acknowledged; None: as far as the catalog reaches. From any
        thread."""
        ...

    def needs_list(self, topic: Topic) -> bool:
        """Whether the topic's ledger list has to be read now and then, although its end does not move."""
        ...

    def is_open(self, topic: Topic) -> bool:
        """Whether something has to be ended before the topic is forgotten."""
        ...

    def is_done(self, topic: Topic, goal: Position | None) -> bool:
        """Whether nothing is left to do for the topic up to there. From any thread."""
        ...

    def finish(self, topic: Topic, end: Position | None) -> str | None:
        """Do what is left for the topic up to there, before it is let go of. Returns what is in the way; empty:
        nothing, it is done; None: it is under way."""
        ...

    def hopeless(self, topic: Topic) -> str:
        """Why it will not be done without an operator; empty: it may. From any thread."""
        ...

    # For people

    def word(self, topic: Topic) -> str:
        """Where the topic stands, in a word; empty: the feature is not wanted for it."""
        ...

    def troubles(self, topic: Topic) -> Iterable[Trouble]:
        """What is wrong, the worst first."""
        ...

    # Topics that the driver does not have (yet). Not in the driver's thread: these read the store and raise as it does

    def has_open_record(self, name: TopicName) -> bool:
        """Whether the store says that something has to be ended for the topic."""
        ...

    def offloaded_by_us(self, name: TopicName) -> frozenset[int]:
        """The ledgers that brokers list as offloaded because of this feature."""
        ...


def remember(topic: Topic, value: object) -> None:
    """Put a feature's frozen value in the place of the former one of its type."""
    topic.features = {**topic.features, type(value): value}


def hopeless(features: Iterable[TopicFeature], topic: Topic) -> str:
    """Why some feature will not be done; empty: each may. From any thread."""
    return next((why for feature in features if (why := feature.hopeless(topic))), "")


def troubles(features: Iterable[TopicFeature], topic: Topic, *, endanger_data: bool) -> Iterator[Trouble]:
    """What is wrong with all features of a topic: what endangers data, or all else."""
    for feature in features:
        yield from (one for one in feature.troubles(topic) if one.endangers_data == endanger_data)
