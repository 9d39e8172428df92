"""What reading and recovery need of a BookKeeper cluster, as interfaces.

`zookeeper.py` and `bookies.py` have the real ones, `tests.fakes.bookkeeper` an in-memory cluster for tests.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from offloader.bookkeeper.model import LedgerMetadata, Versioned
from offloader.model import TopicName
from offloader.state.managed_ledger import ManagedLedger
from offloader.state.subscription import CursorState


class BookieAddress(NamedTuple):
    """Where a bookie listens."""

    host: str
    port: int


class Cookie(NamedTuple):
    """Identifies a bookie's disks; `created_ms` and `modified_ms` are the metadata service's clock.

    A bookie that lost its disks starts with empty ones once somebody removes its cookie. The new cookie is then younger
    than the ledgers that the bookie held.
    """

    data: bytes
    created_ms: int
    modified_ms: int


class LedgerMetadataStore(Protocol):
    """The metadata service. Thread safe. All calls raise MetadataUnavailableError where it does not answer."""

    def read(self, ledger: int) -> Versioned:
        """A ledger's metadata, as new as the call: what became of a write whose outcome was unknown shows. Raises
        LedgerNotFoundError, DamagedRecordError."""
        ...

    def write(self, ledger: int, metadata: LedgerMetadata, version: int) -> int:
        """Compare-and-set: the new version. Raises VersionConflictError (somebody else wrote), LedgerNotFoundError,
        OutcomeUnknownError."""
        ...

    def address(self, bookie: str) -> BookieAddress:
        """Where a bookie id listens now. Raises BookieUnavailableError where it is not registered."""
        ...

    def available(self) -> Mapping[str, bool]:
        """Registered bookies, and whether each takes writes (False: read only)."""
        ...

    def cookie(self, bookie: str) -> Cookie | None:
        """What identifies a bookie's disks; None where it has none."""
        ...

    def managed_ledger(self, topic: TopicName) -> ManagedLedger:
        """A topic's ledger list. Raises TopicNotFoundError, DamagedRecordError."""
        ...

    def cursors(self, topic: TopicName) -> Mapping[str, CursorState]:
        """A topic's cursors by the names of their subscriptions. Raises TopicNotFoundError, DamagedRecordError."""
        ...

    def close(self) -> None:
        """End the session."""
        ...


@dataclass(frozen=True, slots=True)
class LastConfirmed:
    """What one bookie knows of a ledger's end, None: nothing. No digest is checked (see `entry_codec`).

    `explicit`: what the writer last sent by WRITE_LAC (Pulsar never does). `last_entry`: the last stored entry.
    """

    explicit: bytes | None
    last_entry: bytes | None


class EntryBookies(Protocol):
    """What of bookies a reader of entries needs. `Bookies` says how calls end."""

    @property
    def batches(self) -> bool:
        """Whether `batch` may be used: not over TLS."""
        ...

    def read(self, bookie: str, ledger: int, entry: int, *, fence: bytes | None = None) -> Future[bytes]:
        """The stored entry's bytes, digest not checked. `fence`: the ledger's master key; the bookie then takes no more
        adds of its writer."""
        ...

    def batch(self, bookie: str, ledger: int, first: int, *, count: int, size: int) -> Future[list[bytes]]:
        """Consecutive stored entries from `first` on, digests not checked: at least one, at most `count`, and as many
        as fit into `size` bytes (the first one in any case)."""
        ...


class Bookies(EntryBookies, Protocol):
    """Requests to bookies by id, pipelined. Thread safe.

    A call never waits, not even to connect, and never raises. Its future fails with an OffloadError: a status other
    than ok has its own class (`offloader.bookkeeper.status`), no answer is BookieUnavailableError, and
    OutcomeUnknownError for an add that was sent. Cancelling a future drops its answer.
    """

    def fence(self, bookie: str, ledger: int, master_key: bytes) -> Future[bytes | None]:
        """Fence, and read the last stored entry (its header holds a LAC). None: fenced, and without an entry.

        BookKeeper 4.17.2 forgets the fence of a ledger without an entry when it restarts.
        """
        ...

    def recovery_add(self, bookie: str, ledger: int, entry: int, stored: bytes, master_key: bytes) -> Future[None]:
        """Write an entry back, also to a fenced ledger. Repeating it changes nothing."""
        ...

    def read_lac(self, bookie: str, ledger: int) -> Future[LastConfirmed]:
        """What the bookie knows of the ledger's end. Does not fence."""
        ...

    def entries_of(self, bookie: str, ledger: int) -> Future[Collection[int]]:
        """Which entries of a ledger the bookie says it holds (`in`, `len` and ascending iteration are cheap).

        A bookie that stores as Pulsar's do (DbLedgerStorage, 4.17.2) never answers this: expect the time-out.
        """
        ...

    def close(self) -> None:
        """End all connections. What still waits fails."""
        ...
