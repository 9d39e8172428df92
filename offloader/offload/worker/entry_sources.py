"""Where workers read from: one source of each kind a process, made when a slice first needs it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from offloader.bookkeeper.connect import BookKeeperSettings, connect
from offloader.bookkeeper.filling import FilledSource
from offloader.errors import ConfigError, FatalError, OffloadError
from offloader.model import Slice, Source
from offloader.offload.worker.offloaded_source import OffloadedSource
from offloader.ports.entry_source import EntrySource
from offloader.ports.object_store import ObjectStore
from offloader.pulsar.broker_source import BrokerSource
from offloader.pulsar.settings import PulsarSettings

if TYPE_CHECKING:
    from offloader.bookkeeper.bookie_source import BookKeeperSource

REST = 5.0
"""Seconds in which nobody tries again to connect after it failed: slices that waited for it do not each wait for
another time-out."""

Clock = Callable[[], float]


@dataclass(frozen=True)
class Wrapper:
    """What tests put between a process and what it reaches; this puts nothing. It is pickled in Spark's plans: it may
    hold no secret."""

    def source(self, source: EntrySource) -> EntrySource:
        """What slices are read from."""
        return source

    def store(self, store: ObjectStore) -> ObjectStore:
        """The store that the process uses."""
        return store


UNWRAPPED = Wrapper()


class EntrySources:
    """A slice is read from the source that its segment was assigned with, whatever the configuration says by now."""

    def __init__(
        self,
        pulsar: PulsarSettings,
        bookkeeper: BookKeeperSettings | None,
        clock: Clock = time.monotonic,
        wrapper: Wrapper = UNWRAPPED,
        stock: Callable[[], ObjectStore] | None = None,
    ) -> None:
        """`stock` opens the bucket of Pulsar's own offloader: what BookKeeper has no more is read from there."""
        self._stock = stock
        self._pulsar = pulsar
        self._bookkeeper = bookkeeper
        self._kinds = {kind: _Kind(partial(self._make, kind), clock, wrapper) for kind in Source}

    def of(self, work: Slice) -> EntrySource:
        """Raises ConfigError where what it needs is not configured (any more), and what connecting raises."""
        if work.source.complete and self._bookkeeper is None:
            raise ConfigError(
                f"pulsar.metadataServiceUri: is not set any more, and segment {work.id.uuid} was begun with source "
                f"{work.source}; unless it is set again, the segment is soon begun anew from the source that is set"
            )
        return self._kinds[work.source].get().wrapped

    def _make(self, source: Source) -> EntrySource:
        match source:
            case Source.BROKER:
                return BrokerSource(self._pulsar)
            case Source.BROKER_WITH_BOOKIES:
                stored = self._kinds[Source.BOOKKEEPER].get().plain
                bookies = stored.stored if isinstance(stored, OffloadedSource) else cast("BookKeeperSource", stored)
                return FilledSource(self._kinds[Source.BROKER].get().plain, bookies)
            case Source.BOOKKEEPER:
                assert self._bookkeeper is not None
                found = connect(self._bookkeeper)
                return found if self._stock is None else OffloadedSource(found, self._stock())
            case Source.OFFLOADED:
                raise FatalError("what brokers offloaded is taken over whole by the driver; no worker reads it")


class _Made(NamedTuple):
    plain: EntrySource
    wrapped: EntrySource


class _Failed(NamedTuple):
    error: OffloadError
    until: float


class _Kind:
    """A source that is made once. Whoever needs another kind does not wait for it."""

    def __init__(self, make: Callable[[], EntrySource], clock: Clock, wrapper: Wrapper) -> None:
        self._make = make
        self._clock = clock
        self._wrapper = wrapper
        self._making = threading.Lock()
        self._made: _Made | None = None
        self._failed: _Failed | None = None

    def get(self) -> _Made:
        """Raises what making it raises, and for some seconds after that the same."""
        if self._made is not None:
            return self._made
        with self._making:
            if self._made is None:
                self._made = self._try()
            return self._made

    def _try(self) -> _Made:
        failed = self._failed
        if failed is not None and self._clock() < failed.until:
            raise type(failed.error)(*failed.error.args)
        try:
            plain = self._make()
        except OffloadError as error:
            self._failed = _Failed(error, self._clock() + REST)
            raise
        return _Made(plain, self._wrapper.source(plain))
