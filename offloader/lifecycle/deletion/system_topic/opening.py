"""Mirror and door of one application: made with Pulsar's own client, with this machine's clocks, and with the secret of
our marks: one a cluster, in the bucket, made once."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from offloader._proto import metadata_pb2 as pb
from offloader.errors import DamagedRecordError, ObjectNotFoundError
from offloader.lifecycle.clocks import host_ms
from offloader.lifecycle.deletion.system_topic.acceptor import OpenDoor, SystemTopicAcceptor
from offloader.lifecycle.deletion.system_topic.answers import ExamineAll
from offloader.lifecycle.deletion.system_topic.interfaces import SystemTopicEvents
from offloader.lifecycle.deletion.system_topic.marks import OwnMark
from offloader.lifecycle.deletion.system_topic.publisher import SystemTopicPublisher
from offloader.lifecycle.deletion.system_topic.pulsar_channel import PulsarChannel, check_library
from offloader.lifecycle.deletion.system_topic.topics import SystemTopics
from offloader.lifecycle.deletion.timing import DeletionTiming
from offloader.metadata.envelope import unwrap, wrap
from offloader.metadata.layout import deletion_secret_key
from offloader.metadata.log import read_record
from offloader.ports.object_store import ObjectStore
from offloader.pulsar.rest import RestClient
from offloader.pulsar.settings import PulsarSettings

LEAST_SECRET_BYTES = 16


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
            door, topics, self.mark, examine, self.events, timing, interval, host_ms, time.monotonic
        )

    def _topics(self) -> SystemTopics:
        return SystemTopics(self.rest, self.partitions)

    def _channel(self) -> PulsarChannel:
        return PulsarChannel(self.settings)

    def _new_name(self) -> str:
        return f"{self.settings.application or 'offloader'}-{secrets.token_hex(8)}"


def open_mark(
    store: ObjectStore, cluster: str, new_token: Callable[[], str], new_secret: Callable[[], bytes]
) -> OwnMark:
    """The cluster's mark; of several who make its secret at once, one does. `new_secret`: 32 bytes that nobody can
    guess.

    Raises DamagedRecordError; OutcomeUnknownError: call it again."""
    key = deletion_secret_key(cluster)
    try:
        return _read_mark(store, key)
    except ObjectNotFoundError:
        body = pb.Body(system_topic_secret=pb.SystemTopicSecret(secret=new_secret()))
        store.put(key, wrap(new_token(), body), if_absent=True)
        return _read_mark(store, key)


def _read_mark(store: ObjectStore, key: str) -> OwnMark:
    opened = unwrap(key, read_record(store, key))
    if opened.kind != "system_topic_secret":
        raise DamagedRecordError(f"{key}: a {opened.kind} record is no secret of the system topic")
    secret = opened.body.system_topic_secret.secret
    if len(secret) < LEAST_SECRET_BYTES:
        raise DamagedRecordError(f"{key}: a secret of {len(secret)} bytes")
    return OwnMark(secret)
