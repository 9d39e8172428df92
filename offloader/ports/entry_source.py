"""A topic's entries, byte for byte: what workers read from. `pulsar/broker_source.py` and `bookkeeper/bookie_source.py`
have the real ones."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from offloader.model import EntryRange, Gap, LedgerList, TopicName


class RawEntry(NamedTuple):
    """An entry exactly as BookKeeper stores it (broker entry metadata included)."""

    ledger: int
    entry: int
    data: bytes


class Extent(NamedTuple):
    """How far a reader may go: through these ledgers of the topic, up to `last`, a confirmed (ledger, entry)."""

    ledgers: LedgerList
    last: tuple[int, int]


class EntryReader(Protocol):
    """Reads one topic's entries in order. Not thread safe; holds a bounded number of bytes."""

    def read(self, timeout: float) -> list[RawEntry]:
        """The entries that have arrived, at least one; empty after `timeout` seconds without any.

        Raises TopicMovedError (unload), BrokerUnavailableError, TopicNotFoundError, AuthorizationFailedError,
        IntegrityError.
        """
        ...

    def close(self) -> None:
        """Give back what the reader holds. Never raises."""
        ...


class EntrySource(Protocol):
    """The worker's way to entries. Safe to use from several threads."""

    def open(
        self, topic: TopicName, ledger: int, entry: int, *, max_bytes: int, extent: Extent | None = None
    ) -> EntryReader:
        """A reader that begins with the first entry at or after (ledger, entry) that Pulsar delivers or, from bookies,
        stores.

        `max_bytes` bounds what it holds; one entry may be larger. A broker knows how far one may read. From bookies a
        reader reads nothing beyond `extent`, and without an extent only closed ledgers.
        """
        ...

    def explain(self, topic: TopicName, missing: EntryRange, *, limit: int) -> tuple[tuple[Gap, ...], int | None]:
        """Find out why these entries were not delivered, in order, with at most `limit` look-ups.

        Returns the explained gaps, without a hole from the first entry on, and the first entry id that they do *not*
        explain; None: all are explained. An unexplained entry can be read and should have been delivered, or the limit
        was reached. A source that reads bookies delivers everything and explains nothing.
        """
        ...
