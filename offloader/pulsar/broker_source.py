"""`EntrySource` through brokers."""

from __future__ import annotations

from offloader.model import EntryRange, Gap, TopicName
from offloader.ports.entry_source import Extent
from offloader.pulsar import gaps
from offloader.pulsar.lookup import TopicLookup
from offloader.pulsar.pool import ConnectionPool
from offloader.pulsar.reader import BrokerEntryReader
from offloader.pulsar.rest import RestClient
from offloader.pulsar.settings import PulsarSettings


class BrokerSource:
    """An `EntrySource`, one a process. Its readers share connections: permits keep a slow one from blocking others."""

    def __init__(self, settings: PulsarSettings) -> None:
        self._pool = ConnectionPool(settings)
        self._lookup = TopicLookup(self._pool)
        self._rest = RestClient(settings)

    def open(
        self, topic: TopicName, ledger: int, entry: int, *, max_bytes: int, extent: Extent | None = None
    ) -> BrokerEntryReader:
        del extent  # the dispatcher stops by itself
        return BrokerEntryReader(self._lookup, topic, (ledger, entry), max_bytes)

    def explain(self, topic: TopicName, missing: EntryRange, *, limit: int) -> tuple[tuple[Gap, ...], int | None]:
        """See `EntrySource.explain`."""
        return gaps.explain(self._rest, topic, missing, limit=limit)

    def close(self) -> None:
        """End the connections."""
        self._pool.close()
        self._rest.close()
