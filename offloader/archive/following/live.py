"""Where an archived topic goes on: its cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Self

from offloader.ports.admin import Admin
from offloader.ports.entry_source import EntrySource
from offloader.pulsar.settings import PulsarSettings


@dataclass(frozen=True, slots=True)
class FollowLimits:
    """Seconds. `idle`: end after such a silence (None: never). `trouble`: give up after so long without an answer."""

    idle: float | None = None
    trouble: float = 60.0


FOR_EVER = FollowLimits()


@dataclass(frozen=True)
class Live:
    """A cluster whose topics are followed. `clock` and `pause` speak in seconds."""

    connect: Callable[[], AbstractContextManager[tuple[EntrySource, Admin]]]
    limits: FollowLimits = FOR_EVER
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep

    @classmethod
    def of(cls, settings: PulsarSettings) -> Self:
        """One that is reached like this; nothing is connected yet."""
        return cls(partial(_connected, settings))


@contextmanager
def _connected(settings: PulsarSettings) -> Iterator[tuple[EntrySource, Admin]]:
    from offloader.pulsar.admin import AdminClient  # httpx takes 0.1 s to import
    from offloader.pulsar.broker_source import BrokerSource

    with closing(BrokerSource(settings)) as source, closing(AdminClient(settings)) as admin:
        yield source, admin
