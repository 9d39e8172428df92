"""Closes the last ledger of a topic that no broker can load: safely, as BookKeeper's own recovery does."""

from __future__ import annotations

from collections.abc import Callable

from offloader.bookkeeper.api import Bookies, LedgerMetadataStore
from offloader.bookkeeper.recovery.inspection import InspectionOptions, examine
from offloader.bookkeeper.recovery.ownership import objection
from offloader.errors import OffloadError
from offloader.model import TopicName


class TailCloser:
    """`ClosesTails`. `loaded_by`: as `Admin.loaded_by`. Refuses where a broker may still write the ledger."""

    def __init__(
        self,
        store: LedgerMetadataStore,
        bookies: Bookies,
        loaded_by: Callable[[TopicName], str | None],
        clock_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._bookies = bookies
        self._loaded_by = loaded_by
        self._clock_ms = clock_ms

    def __call__(self, topic: TopicName, ledger: int) -> str:
        """What fails is told, too: the topic has other data, and other topics wait."""
        try:
            metadata = self._store.read(ledger).metadata
            if metadata.closed:
                return f"ledger {ledger} is closed meanwhile"
            refused = objection(ledger, metadata, self._store, self._loaded_by, self._clock_ms())
            if refused:
                return f"not closed: {refused}"
            return examine(ledger, self._store, self._bookies, InspectionOptions(dry=False)).outcome.message
        except OffloadError as error:
            return f"ledger {ledger} of {topic} is not closed: {error}"
