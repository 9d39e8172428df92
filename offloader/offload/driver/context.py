"""What the driver reaches, passed in: stores, Pulsar, time, randomness."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from offloader.config.policies import Policies
from offloader.errors import OffloadError
from offloader.metadata.catalog import Catalogs
from offloader.metadata.deal import ALONE, Deal
from offloader.metadata.journal import Journal
from offloader.metadata.state import TopicState
from offloader.metrics import Metrics
from offloader.model import FailureKind, TopicName
from offloader.offload.core import segments
from offloader.offload.core.changes import TopicChanges
from offloader.offload.core.segments import State
from offloader.offload.core.topic import Topic
from offloader.offload.driver.feature import TopicFeature
from offloader.offload.driver.work import Work
from offloader.ports.admin import Admin
from offloader.ports.entry_source import EntrySource
from offloader.ports.object_store import ObjectStore
from offloader.ports.pins import Pins

log = logging.getLogger(__name__)


class SteadyClock:
    """Milliseconds since the epoch. The wall clock is read once: whoever sets it afterwards changes no wait."""

    def __init__(self) -> None:
        self._epoch_ns = time.time_ns() - time.monotonic_ns()

    def __call__(self) -> int:
        return (self._epoch_ns + time.monotonic_ns()) // 1_000_000


class Drafts(threading.local):
    """States that this thread is about to journal together; None: each is journaled at once."""

    states: dict[TopicName, TopicState] | None = None


@dataclass(frozen=True)
class Context:
    """All that one application reaches. Whatever may have to be waited for is posted as `work`, but for the journal.
    `stock`: the bucket of Pulsar's own offloader, where it is known. `deal`: which topics are this shard's."""

    application: str
    cluster: str
    subscription: str
    store: ObjectStore
    journal: Journal
    catalogs: Catalogs
    admin: Admin
    pins: Pins
    source: EntrySource
    policies: Policies
    metrics: Metrics
    work: Work
    clock_ms: Callable[[], int]
    new_uuid: Callable[[], str]
    jitter: Callable[[], float]
    stock: ObjectStore | None = None
    deal: Deal = ALONE
    drafts: Drafts = field(default_factory=Drafts)
    changes: TopicChanges = field(default_factory=TopicChanges)
    features: list[TopicFeature] = field(default_factory=list)  # what is done for topics besides; begun with the driver

    def state(self, topic: TopicName) -> TopicState:
        """The topic's journal state."""
        draft = self.drafts.states.get(topic) if self.drafts.states is not None else None
        return draft or self.journal.topics.get(topic) or TopicState(topic)

    def busy(self, topic: Topic) -> bool:
        """Whether something under way will change what is known of the topic: nothing is decided meanwhile."""
        return topic.planned.travels or topic.poll.under_way or self.work.concerns(topic.name)

    def record(self, state: TopicState) -> None:
        """Journal one topic's state, where it differs."""
        if state == self.state(state.topic):
            return
        if self.drafts.states is None:
            self.journal.record([state])
        else:
            self.drafts.states[state.topic] = state

    @contextmanager
    def as_one_record(self) -> Iterator[None]:
        """What is recorded in this block is durable at its end: 10,000 topics wait for one call to the store. Nobody is
        told of it before, and no work is posted. An error, of the block or of the journal, records nothing of it, or
        its outcome is not known: the same block may be tried again."""
        drafts: dict[TopicName, TopicState] = {}
        self.drafts.states = drafts
        try:
            yield
        finally:
            self.drafts.states = None
        self.journal.record(drafts.values())

    def failed(self, state: State, error: OffloadError) -> State:
        """The topic's state after a failure, to be journaled."""
        state = segments.failed(state, FailureKind.of(error), str(error), self.clock_ms(), self.jitter())
        tell_back_off(state)
        return state


def tell_back_off(state: TopicState) -> None:
    """Log until when a failing topic waits, in milliseconds since the epoch."""
    if state.failure is not None:
        log.debug("back-off topic=%s attempts=%d until=%d", state.topic, state.failure.attempts, state.failure.retry_at)
