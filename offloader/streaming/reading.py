"""Where workers read from: one source of each kind a process, made when a slice first needs it."""

from __future__ import annotations

import threading

from offloader.bookkeeper.connect import BookKeeperSettings, connect
from offloader.bookkeeper.filling import FilledSource
from offloader.errors import ConfigError
from offloader.model import Slice, Source
from offloader.pulsar.api import EntrySource
from offloader.pulsar.settings import PulsarSettings
from offloader.pulsar.source import BrokerSource
from offloader.streaming.wrapping import wrapped_source


class Sources:
    """A slice is read from the source that its segment was assigned with, whatever the configuration says by now."""

    def __init__(self, pulsar: PulsarSettings, bookkeeper: BookKeeperSettings | None) -> None:
        self._pulsar = pulsar
        self._bookkeeper = bookkeeper
        self._made: dict[Source, EntrySource] = {}
        self._wrapped: dict[Source, EntrySource] = {}
        self._making = threading.Lock()

    def of(self, work: Slice) -> EntrySource:
        """Raises ConfigError where what it needs is not configured (any more), and what connecting raises."""
        if work.source.complete and self._bookkeeper is None:
            raise ConfigError(
                f"pulsar.metadataServiceUri: is not set any more, and segment {work.uuid} was begun with source {work.source}; unless it is "
                "set again, the segment is soon begun anew from the source that is set"
            )
        with self._making:
            if work.source not in self._wrapped:
                self._wrapped[work.source] = wrapped_source(self._of(work.source))
            return self._wrapped[work.source]

    def _of(self, source: Source) -> EntrySource:
        if source not in self._made:
            self._made[source] = self._make(source)
        return self._made[source]

    def _make(self, source: Source) -> EntrySource:
        match source:
            case Source.BROKER:
                return BrokerSource(self._pulsar)
            case Source.FILLED:
                return FilledSource(self._of(Source.BROKER), self._of(Source.BOOKKEEPER))
            case Source.BOOKKEEPER:
                assert self._bookkeeper is not None
                return connect(self._bookkeeper)
