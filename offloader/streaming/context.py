"""What the driver reaches, passed in: stores, Pulsar, time, randomness."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from offloader.config.policies import Policies
from offloader.metadata.catalog import Catalogs
from offloader.metadata.journal import Journal
from offloader.metadata.state import TopicState
from offloader.metrics import Metrics
from offloader.model import TopicName
from offloader.pulsar.api import Admin, EntrySource, Pins
from offloader.storage.base import ObjectStore


@dataclass(frozen=True)
class Context:
    """One application's world. `pool` runs what must not hold up the driver's thread: seals, look-ups, acknowledgements."""

    application: str
    subscription: str
    store: ObjectStore
    journal: Journal
    catalogs: Catalogs
    admin: Admin
    pins: Pins
    source: EntrySource
    policies: Policies
    metrics: Metrics
    pool: Executor
    clock_ms: Callable[[], int]
    new_uuid: Callable[[], str]
    jitter: Callable[[], float]

    def state(self, topic: TopicName) -> TopicState:
        """The topic's journal state."""
        return self.journal.topics.get(topic) or TopicState(topic)

    def record(self, state: TopicState) -> None:
        """Journal one topic's state, where it differs."""
        if state != self.state(state.topic):
            self.journal.record([state])
