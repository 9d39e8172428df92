"""Where an archived topic goes on: the cluster, and the archive's side of following."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Self

from offloader.archive.following.follower import Archived, Follower, Patience
from offloader.archive.items import ArchivedEntry, Item
from offloader.archive.stored import EntryRun, ReadItem
from offloader.metadata.state import TopicCatalog
from offloader.model import Position, TopicName
from offloader.pulsar.api import Admin, EntrySource
from offloader.pulsar.settings import PulsarSettings

FOR_EVER = Patience()
Connected = AbstractContextManager[tuple[EntrySource, Admin]]


@dataclass(frozen=True)
class Live:
    """A cluster whose topics are followed. `clock` and `pause` speak in seconds."""

    connect: Callable[[], Connected]
    patience: Patience = FOR_EVER
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep

    @classmethod
    def of(cls, settings: PulsarSettings) -> Self:
        """One that is reached like this; nothing is connected yet."""
        return cls(partial(_connected, settings))


@dataclass(frozen=True)
class Following:
    """How topics of an archive are followed. `refresh`: a catalog with the records that came since."""

    live: Live
    refresh: Callable[[TopicCatalog], TopicCatalog]

    def items(
        self,
        topic: TopicName,
        items_after: Callable[[TopicCatalog, Position | None], Iterator[Item]],
        after: Position | None,
    ) -> Iterator[Item]:
        """Everything after a position. Raises as Follower does."""
        catalog = TopicCatalog(topic)

        def current() -> TopicCatalog:
            nonlocal catalog
            catalog = self.refresh(catalog)
            return catalog

        live = self.live
        with live.connect() as (source, admin):
            archived = Archived(current, items_after)
            yield from Follower(topic, archived, source, admin, live.patience, live.clock, live.pause).items(after)


def as_run(item: Item) -> ReadItem:
    """An entry as a run of one."""
    if not isinstance(item, ArchivedEntry):
        return item
    place, data = item
    return EntryRun(place.ledger, place.entry, place.incarnation, memoryview(data), [0, len(data)], 0)


def item_start(item: Item) -> Position:
    """The first position that it accounts for."""
    return item.position if isinstance(item, ArchivedEntry) else item.start


def item_end(item: Item) -> Position:
    """The last position that it accounts for."""
    return item.position if isinstance(item, ArchivedEntry) else item.end


@contextmanager
def _connected(settings: PulsarSettings) -> Iterator[tuple[EntrySource, Admin]]:
    from offloader.pulsar.admin import AdminClient  # httpx takes 0.1 s to import
    from offloader.pulsar.source import BrokerSource

    with closing(BrokerSource(settings)) as source, closing(AdminClient(settings)) as admin:
        yield source, admin
