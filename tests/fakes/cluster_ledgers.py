"""The BookKeeper below the in-memory Pulsar: its ledgers' metadata, and one bookie with everything. Read only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from offloader.bookkeeper.api import BookieAddress, LastConfirmed
from offloader.bookkeeper.entry_codec import digest_for, encode
from offloader.bookkeeper.model import NO_ENTRY, Fragment, LedgerMetadata, LedgerState, StoredEntry, Versioned
from offloader.bookkeeper.status import NoEntryError, NoLedgerError
from offloader.errors import (
    BookieUnavailableError,
    FatalError,
    LedgerFencedError,
    LedgerNotFoundError,
    OffloadError,
)
from offloader.model import TopicName
from offloader.state.managed_ledger import ListedLedger, ManagedLedger
from offloader.state.subscription import CursorState
from tests.fakes.cluster_state import ClusterCore, Ledger

T = TypeVar("T")

BOOKIE = "bookie-1:3181"


class MemoryLedgers:
    """`LedgerMetadataStore` of the in-memory cluster."""

    def __init__(self, cluster: ClusterCore) -> None:
        self._cluster = cluster

    def read(self, ledger: int) -> Versioned:
        self._cluster.faults.before("ledgers.read")
        with self._cluster.lock:
            return Versioned(_metadata(_find(self._cluster, ledger)), 0)

    def write(self, ledger: int, metadata: LedgerMetadata, version: int) -> int:
        raise FatalError(f"ledger {ledger}: nobody may change ledgers here")

    def address(self, bookie: str) -> BookieAddress:
        if bookie != BOOKIE:
            raise BookieUnavailableError(f"{bookie} is not registered")
        return BookieAddress("127.0.0.1", 0)

    def available(self) -> Mapping[str, bool]:
        return {BOOKIE: True}

    def cookie(self, bookie: str) -> None:
        return None

    def managed_ledger(self, topic: TopicName) -> ManagedLedger:
        """As Pulsar writes it: the open ledger without a count."""
        self._cluster.faults.before("ledgers.managed_ledger", topic)
        with self._cluster.lock:
            listed = [(x.id, x.entries if x.closed else []) for x in self._cluster.state.topic(topic).ledgers]
        ledgers = (ListedLedger(ledger, len(entries), sum(len(e.data) for e in entries)) for ledger, entries in listed)
        return ManagedLedger(tuple(ledgers))

    def cursors(self, topic: TopicName) -> Mapping[str, CursorState]:
        return {}

    def close(self) -> None:
        """Nothing to end."""


class MemoryBookies:
    """`Bookies` of the in-memory cluster: answers at once. Who copies must neither fence nor write."""

    def __init__(self, cluster: ClusterCore) -> None:
        self._cluster = cluster

    @property
    def batches(self) -> bool:
        return True

    def read(self, bookie: str, ledger: int, entry: int, *, fence: bytes | None = None) -> Future[bytes]:
        if fence is not None:
            return _failed(LedgerFencedError(f"ledger {ledger}: a copy must never fence"))
        return self._answer(lambda: self._stored(ledger, entry))

    def batch(self, bookie: str, ledger: int, first: int, *, count: int, size: int) -> Future[list[bytes]]:
        return self._answer(lambda: list(self._fitting(ledger, first, count, size)))

    def fence(self, bookie: str, ledger: int, master_key: bytes) -> Future[bytes | None]:
        return _failed(LedgerFencedError(f"ledger {ledger}: a copy must never fence"))

    def recovery_add(
        self,
        bookie: str,
        ledger: int,
        entry: int,
        stored: bytes,
        master_key: bytes,
    ) -> Future[None]:
        return _failed(LedgerFencedError(f"ledger {ledger}: a copy must never write"))

    def read_lac(self, bookie: str, ledger: int) -> Future[LastConfirmed]:
        return self._answer(lambda: LastConfirmed(None, self._stored(ledger, len(self._entries(ledger)) - 1)))

    def entries_of(self, bookie: str, ledger: int) -> Future[Collection[int]]:
        return self._answer(lambda: range(len(self._entries(ledger))))

    def close(self) -> None:
        """Nothing to end."""

    def _fitting(self, ledger: int, first: int, count: int, size: int) -> Iterator[bytes]:
        for entry in range(first, min(first + count, max(len(self._entries(ledger)), first + 1))):
            stored = self._stored(ledger, entry)
            size -= len(stored)
            if entry > first and size < 0:
                return
            yield stored

    def _stored(self, ledger: int, entry: int) -> bytes:
        entries = self._entries(ledger)
        if not 0 <= entry < len(entries):
            raise NoEntryError(f"no entry {ledger}:{entry}")
        found = _find(self._cluster, ledger)
        data = entries[entry]
        return encode(StoredEntry(ledger, entry, entry - 1, 0, data), digest_for(_metadata(found)))

    def _entries(self, ledger: int) -> list[bytes]:
        try:
            return [e.data for e in _find(self._cluster, ledger).entries]
        except LedgerNotFoundError as error:
            raise NoLedgerError(str(error)) from error

    def _answer(self, work: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        try:
            lost = self._cluster.faults.before("bookies.read")
            with self._cluster.lock:
                found = work()
            if lost is not None:
                raise lost
            future.set_result(found)
        except OffloadError as error:
            future.set_exception(error)
        return future


def _failed(error: OffloadError) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


def _find(cluster: ClusterCore, ledger: int) -> Ledger:
    found = next(
        (x for topic in cluster.state.topics.values() for x in topic.ledgers if x.id == ledger and not x.vanished), None
    )
    if found is None:
        raise LedgerNotFoundError(f"ledger {ledger} does not exist")
    return found


def _metadata(ledger: Ledger) -> LedgerMetadata:
    return LedgerMetadata(
        ensemble_size=1,
        write_quorum=1,
        ack_quorum=1,
        state=LedgerState.CLOSED if ledger.closed else LedgerState.OPEN,
        fragments=(Fragment(0, (BOOKIE,)),),
        last_entry=len(ledger.entries) - 1 if ledger.closed else NO_ENTRY,
        length=sum(len(e.data) for e in ledger.entries) if ledger.closed else 0,
    )
