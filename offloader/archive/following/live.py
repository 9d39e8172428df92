"""Where an archived topic goes on: the cluster, and the archive's side of following."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Self

from offloader.archive.following.follower import Archived, Follower, FollowLimits, RunsAfter
from offloader.archive.read_model import ReadItem
from offloader.archive.records import TopicRecords
from offloader.model import Position, TopicName
from offloader.ports.admin import Admin
from offloader.ports.entry_source import EntrySource
from offloader.pulsar.settings import PulsarSettings

FOR_EVER = FollowLimits()
Connected = AbstractContextManager[tuple[EntrySource, Admin]]


@dataclass(frozen=True)
class Live:
    """A cluster whose topics are followed. `clock` and `pause` speak in seconds."""

    connect: Callable[[], Connected]
    patience: FollowLimits = FOR_EVER
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep

    @classmethod
    def of(cls, settings: PulsarSettings) -> Self:
        """One that is reached like this; nothing is connected yet."""
        return cls(partial(_connected, settings))


@dataclass(frozen=True)
class Following:
    """How topics of an archive are followed. `current`: a topic's records as they are now."""

    live: Live
    current: Callable[[TopicName], TopicRecords]

    def runs(self, topic: TopicName, runs_after: RunsAfter, after: Position | None) -> Iterator[ReadItem]:
        """Everything after a position. Raises as Follower does."""
        live = self.live
        with live.connect() as (source, admin):
            archived = Archived(partial(self.current, topic), runs_after)
            yield from Follower(topic, archived, source, admin, live.patience, live.clock, live.pause).runs(after)


@contextmanager
def _connected(settings: PulsarSettings) -> Iterator[tuple[EntrySource, Admin]]:
    from offloader.pulsar.admin import AdminClient  # httpx takes 0.1 s to import
    from offloader.pulsar.broker_source import BrokerSource

    with closing(BrokerSource(settings)) as source, closing(AdminClient(settings)) as admin:
        yield source, admin
