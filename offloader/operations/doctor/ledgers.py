"""The metadata service and its bookies, as the doctor asks them."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from offloader.bookkeeper.bookie_source import BookKeeperSource
from offloader.bookkeeper.connect import BookKeeperSettings, clients
from offloader.bookkeeper.status import Answer, answer
from offloader.errors import BookieUnavailableError, OffloadError
from offloader.model import MIB, TopicName
from offloader.ports.admin import TopicInfo
from offloader.ports.entry_source import Extent


class LedgerProbes:
    """Connects as workers do. Raises as `offloader.bookkeeper.connect.connect`."""

    def __init__(self, settings: BookKeeperSettings) -> None:
        self._timeout = settings.bookies.connect_timeout + settings.bookies.request_timeout
        self._metadata, self._bookies = clients(settings)
        self._source = BookKeeperSource(self._metadata, self._bookies)

    def bookies(self) -> Mapping[str, OffloadError | None]:
        """What came of asking each registered bookie something; None: it answered."""
        asked = {name: self._bookies.read_lac(name, 0) for name in sorted(self._metadata.available())}
        return {name: self._trouble(name, future) for name, future in asked.items()}

    def read(self, topic: TopicName, info: TopicInfo) -> str:
        """Read the topic's first entry of which bookies must have copies; says which."""
        if info.last_confirmed is None or not info.ledgers.spans:
            return f"{topic} has no entry yet"
        kept = [span.ledger for span in info.ledgers.spans if span.ledger not in info.offloaded]
        if not kept or kept[0] > info.last_confirmed[0]:
            return f"{topic} has only entries that Pulsar itself has offloaded: none was read"
        extent = Extent(info.ledgers, info.last_confirmed)
        reader = self._source.open(topic, kept[0], 0, max_bytes=MIB, extent=extent)
        try:
            entries = reader.read(self._timeout)
        finally:
            reader.close()
        if not entries:
            raise BookieUnavailableError(f"{topic}: no bookie sent an entry within {self._timeout:g} s")
        return f"{topic}: entry {entries[0].ledger}:{entries[0].entry} was read from its bookies"

    def close(self) -> None:
        """End the connections."""
        self._source.close()

    def _trouble(self, name: str, future: Future[Any]) -> OffloadError | None:
        try:
            future.result(self._timeout)
        except OffloadError as error:  # no such ledger is an answer, too
            return None if answer(error) is Answer.NEGATIVE else error
        except TimeoutError:
            return BookieUnavailableError(f"{name} did not answer within {self._timeout:g} s")
        return None
