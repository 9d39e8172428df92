"""Mirror and door of one application: made with Pulsar's own client, and with this machine's clocks."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass

from offloader.lifecycle.deletion.system_topic.acceptor import SystemTopicAcceptor
from offloader.lifecycle.deletion.system_topic.answers import ExamineAll
from offloader.lifecycle.deletion.system_topic.door import OpenDoor
from offloader.lifecycle.deletion.system_topic.events import SystemTopicEvents
from offloader.lifecycle.deletion.system_topic.marks import OwnMark
from offloader.lifecycle.deletion.system_topic.publisher import SystemTopicPublisher
from offloader.lifecycle.deletion.system_topic.pulsar_channel import PulsarChannel, check_library
from offloader.lifecycle.deletion.system_topic.topics import SystemTopics
from offloader.lifecycle.deletion.timing import DeletionTiming
from offloader.pulsar.rest import RestClient
from offloader.pulsar.settings import PulsarSettings


@dataclass(frozen=True)
class SystemTopicOpening:
    """`mark`: see `open_mark`. `partitions`: of the topic, where it is still to be made. Raises ConfigError where the
    package is not installed; the cluster is asked when something is sent or received."""

    settings: PulsarSettings
    rest: RestClient
    mark: OwnMark
    events: SystemTopicEvents
    partitions: int

    def __post_init__(self) -> None:
        check_library()

    def publisher(self) -> SystemTopicPublisher:
        """The mirror."""
        return SystemTopicPublisher(self._topics(), self._channel, self.mark, self.events, time.monotonic)

    def acceptor(self, examine: ExamineAll, timing: DeletionTiming, interval: float) -> SystemTopicAcceptor:
        """The door. `interval`: seconds between two runs while nothing comes."""
        topics = self._topics()
        door = OpenDoor(topics, self._channel, self.mark, self._new_name, time.monotonic)
        return SystemTopicAcceptor(
            door, topics, self.mark, examine, self.events, timing, interval, _now_ms, time.monotonic
        )

    def _topics(self) -> SystemTopics:
        return SystemTopics(self.rest, self.partitions)

    def _channel(self) -> PulsarChannel:
        return PulsarChannel(self.settings)

    def _new_name(self) -> str:
        return f"{self.settings.application or 'offloader'}-{secrets.token_hex(8)}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
