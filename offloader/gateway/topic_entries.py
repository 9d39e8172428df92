"""A topic's entries as a server of consumers needs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from offloader.gateway.values import ServedEnd, ServedEntries, ServedEntry
from offloader.model import Place, TopicName


class TopicEntries(Protocol):
    """One topic, of one partition. Calls block: they are made from worker threads, from several at a time. All raise
    what the store raises, DamagedObjectError and DamagedRecordError."""

    @property
    def name(self) -> TopicName: ...

    def read(self, after: Place, most_entries: int, most_bytes: int) -> ServedEntries:
        """The next entries behind a place, which need not exist; at least one where there is one, else up to both
        bounds. Nothing and `covered` None: that was all, for now."""
        ...

    def again(self, places: Sequence[Place]) -> list[ServedEntry]:
        """These entries, in order; those that cannot be delivered (any more) are left out."""
        ...

    def end(self) -> ServedEnd:
        """As of the last `refresh`."""
        ...

    def refresh(self) -> bool:
        """Look for what was sealed since. Returns whether the end has moved."""
        ...

    def before_time(self, published_ms: int) -> Place:
        """The last entry that is older (the broker's time, where an entry has it, else the producer's): what a seek to
        that time acknowledges. BEFORE_ALL: none is."""
        ...

    def previous(self, place: Place) -> Place:
        """The mark-delete position from which this entry is the next to be delivered; for one that is not there, the
        nearest. Earliest (-1:-1) gives BEFORE_ALL, the largest place the end."""
        ...

    def ledgers(self) -> Sequence[tuple[int, int, int]]:
        """(incarnation, ledger, last entry) of each ledger that is served, in order: acknowledgements are kept by
        these."""
        ...
