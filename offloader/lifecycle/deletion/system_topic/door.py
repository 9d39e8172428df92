"""What is open of a client while the door is open: its consumer, and where letters go."""

from __future__ import annotations

from collections.abc import Callable

from offloader.lifecycle.deletion.system_topic.channel import (
    SystemTopicChannel,
    SystemTopicConsumer,
    SystemTopicName,
    SystemTopicProducer,
)
from offloader.lifecycle.deletion.system_topic.marks import OwnMark
from offloader.lifecycle.deletion.system_topic.topics import SystemTopics

RECONNECTS = 60.0  # seconds that a client may take by itself, before it is opened anew
LOOKS = 60.0  # seconds between two looks whether the topics are still those that were opened


class OpenDoor:
    """Opened when it is first used, and anew after it was shut. `new_name`: of a consumer, one that no other has.

    A topic may be deleted while it is consumed. Its consumer is then not connected any more; or it has made its
    partition anew, where nobody sends anything, and seems to be well. Both are opened anew, and the topics made.
    `clock`: seconds, only forward."""

    def __init__(
        self,
        topics: SystemTopics,
        open_channel: Callable[[], SystemTopicChannel],
        mark: OwnMark,
        new_name: Callable[[], str],
        clock: Callable[[], float],
    ) -> None:
        self._topics = topics
        self._open_channel = open_channel
        self._mark = mark
        self._new_name = new_name
        self._clock = clock
        self._channel: SystemTopicChannel | None = None
        self._consumer: SystemTopicConsumer | None = None
        self._letters: dict[SystemTopicName, SystemTopicProducer] = {}
        self._lost_at: float | None = None
        self._shape: tuple[int | None, ...] = ()
        self._looked_at = 0.0

    def consumer(self) -> SystemTopicConsumer:
        """The consumer. Raises OffloadError where it cannot be opened."""
        if self._consumer is None:
            self._topics.make()
            self._shape, self._looked_at = self._topics.shape(), self._clock()
            name = self._new_name()
            self._consumer = self._opened().consumer(name, self._mark.of_consumer(name))
            self._lost_at = None
        return self._consumer

    def renew(self) -> None:
        """Shut what has lost its topics for good."""
        if self._consumer is not None and (self._was_lost(self._consumer) or self._are_others()):
            self.shut()

    def letters(self, topic: SystemTopicName) -> SystemTopicProducer:
        """Where letters of one kind go. Raises OffloadError."""
        if topic not in self._letters:
            self._letters[topic] = self._opened().producer(topic)
        return self._letters[topic]

    def drop_letters(self, topic: SystemTopicName) -> None:
        """After a failure: the next letter needs a new producer."""
        producer = self._letters.pop(topic, None)
        if producer is not None:
            producer.close()

    def shut(self) -> None:
        """Close everything. What was not acknowledged comes again."""
        for topic in list(self._letters):
            self.drop_letters(topic)
        consumer, channel = self._consumer, self._channel
        self._consumer = self._channel = None
        self._lost_at = None
        if consumer is not None:
            consumer.close()
        if channel is not None:
            channel.close()

    def _opened(self) -> SystemTopicChannel:
        if self._channel is None:
            self._channel = self._open_channel()
        return self._channel

    def _are_others(self) -> bool:
        if self._clock() - self._looked_at < LOOKS:
            return False
        self._looked_at = self._clock()
        return self._topics.shape() != self._shape

    def _was_lost(self, consumer: SystemTopicConsumer) -> bool:
        if consumer.is_connected:
            self._lost_at = None
            return False
        if self._lost_at is None:
            self._lost_at = self._clock()
        return self._clock() - self._lost_at > RECONNECTS
