"""A topic's entries, byte for byte: what workers read from. `pulsar/broker_source.py` and `bookkeeper/bookie_source.py` have the real ones."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from offloader.model import Gap, LedgerList, TopicName


class RawEntry(NamedTuple):
    """An entry exactly as BookKeeper stores it (broker entry metadata included)."""

    ledger: int
    entry: int
    data: bytes


class Extent(NamedTuple):
    """How far a reader may go: through these ledgers of the topic, up to `last`, (ledger, entry), which is confirmed."""

    ledgers: LedgerList
    last: tuple[int, int]


class EntryReader(Protocol):
    """Reads one topic's entries in order. Not thread safe; holds a bounded number of bytes."""

    def read(self, timeout: float) -> list[RawEntry]:
        """The entries that have arrived, at least one; empty after `timeout` seconds without any.

        Raises TopicMovedError (unload), BrokerUnavailableError, TopicNotFoundError, AuthorizationFailedError, IntegrityError.
        """
        ...

    def close(self) -> None:
        """Give back what the reader holds. Never raises."""
        ...


class EntrySource(Protocol):
    """The worker's way to entries. Safe to use from several threads."""

    def open(self, topic: TopicName, ledger: int, entry: int, *, max_bytes: int, extent: Extent | None = None) -> EntryReader:
        """A reader whose first entry is the first one at or after (ledger, entry) that Pulsar delivers or, from bookies, that is stored.

        `max_bytes` bounds what it holds, but for one entry that is larger by itself. A broker knows by itself how far one may read;
        from bookies nothing beyond `extent` is read, and without one only closed ledgers.
        """
        ...

    def explain(self, topic: TopicName, ledger: int, first: int, last: int, *, limit: int) -> tuple[tuple[Gap, ...], int | None]:
        """Why entries `first`..`last` of a ledger were not delivered, in order, at most `limit` look-ups.

        Returns the gaps that are explained, without a hole from `first` on, and the first entry id that is *not* explained
        by them (it can be read, so it should have been delivered, or the limit was reached), None when all are. Where bookies
        deliver everything, nothing is explained.
        """
        ...
