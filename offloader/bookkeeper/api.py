"""What reading and recovery need of a BookKeeper cluster, as interfaces.

`zookeeper.py` and `bookies.py` have the real ones, `offloader.testing.bookkeeper` an in-memory cluster for tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from offloader.bookkeeper.model import LedgerMetadata, StoredEntry, Versioned
from offloader.model import TopicName


class HostPort(NamedTuple):
    """Where a bookie listens."""

    host: str
    port: int


class Listed(NamedTuple):
    """One ledger in a managed ledger's list; `entries` and `size` are 0 until it is closed there."""

    ledger: int
    entries: int
    size: int


@dataclass(frozen=True, slots=True)
class ManagedLedger:
    """A topic's own node: its ledgers in order. `version` names it in a compare-and-set; `raw` keeps what we do not know."""

    ledgers: tuple[Listed, ...]
    version: int
    raw: bytes
    terminated: tuple[int, int] | None = None


class LedgerMetadataStore(Protocol):
    """The metadata service. Safe to use from several threads. All calls raise MetadataUnavailableError where it does not answer."""

    def read(self, ledger: int) -> Versioned:
        """A ledger's metadata. Raises LedgerNotFoundError, DamagedRecordError."""
        ...

    def write(self, ledger: int, metadata: LedgerMetadata, version: int) -> int:
        """Compare-and-set: the new version. Raises VersionConflictError (somebody else wrote), LedgerNotFoundError, OutcomeUnknownError."""
        ...

    def address(self, bookie: str) -> HostPort:
        """Where a bookie id listens now. Raises BookieUnavailableError where it is not registered."""
        ...

    def available(self) -> Mapping[str, bool]:
        """Registered bookies, and whether each takes writes (False: read only)."""
        ...

    def cookie(self, bookie: str) -> bytes | None:
        """What identifies a bookie's disks; None where it has none."""
        ...

    def managed_ledger(self, topic: TopicName) -> ManagedLedger:
        """A topic's ledger list. Raises TopicNotFoundError, DamagedRecordError."""
        ...

    def close(self) -> None:
        """End the session."""
        ...


class Bookies(Protocol):
    """Requests to bookies by id, pipelined. Every future fails with a BookieError: see `offloader.bookkeeper.status`.

    A call never blocks for an answer; connecting happens behind the future, too.
    """

    def read(self, bookie: str, ledger: int, entry: int, *, fence: bytes | None = None) -> Future[bytes]:
        """The stored entry's bytes, digest not checked. `fence`: the ledger's master key; the bookie then takes no more adds of its writer."""
        ...

    def fence(self, bookie: str, ledger: int, master_key: bytes) -> Future[bytes | None]:
        """Fence, and the last stored entry (its header holds a LAC). None: the bookie has no entry of that ledger, and fenced it."""
        ...

    def recovery_add(self, bookie: str, ledger: int, entry: int, stored: bytes, master_key: bytes) -> Future[None]:
        """Write an entry back, also to a fenced ledger. Repeating it changes nothing."""
        ...

    def entries_of(self, bookie: str, ledger: int) -> Future[frozenset[int]]:
        """Which entries of a ledger the bookie says it holds."""
        ...

    def batch(self, bookie: str, ledger: int, first: int, *, count: int, size: int) -> Future[list[StoredEntry] | list[bytes]]:
        """Consecutive stored entries from `first` on, as many as fit (V2 only)."""
        ...

    def close(self) -> None:
        """End all connections."""
        ...
