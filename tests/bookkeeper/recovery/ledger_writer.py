"""A ledger's writer as BookKeeper's own client is one: pipelined adds, acknowledged in order, ensembles that change.

For the simulation only: the product writes no ledgers.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from offloader.bookkeeper.entry_codec import digest_for, encode, master_key
from offloader.bookkeeper.model import NO_ENTRY, Fragment, LedgerMetadata, LedgerState, StoredEntry
from offloader.errors import LedgerFencedError, MetadataUnavailableError, OutcomeUnknownError, VersionConflictError
from tests.fakes.bookkeeper import SimulatedBookies, SimulatedCluster

TIMEOUT = 5.0  # seconds of virtual time


@dataclass
class _Add:
    """An entry that is not acknowledged yet. `sent`: the bookies of its write set that have not answered, and since
    when."""

    entry: int
    stored: bytes
    taken: set[str] = field(default_factory=set)
    sent: dict[str, tuple[float, Future[None]]] = field(default_factory=dict)


class LedgerWriter:
    """`acknowledged`: the last entry that its user was told is safe. `payloads`: all that it ever wrote."""

    def __init__(self, cluster: SimulatedCluster, ledger: int) -> None:
        self._cluster = cluster
        self._bookies: SimulatedBookies
        self._bookies, self._store = cluster.client()
        self._ledger = ledger
        self._metadata, self._version = cluster.metadata.read(ledger)
        self._open: list[_Add] = []
        self.payloads: list[bytes] = []
        self.acknowledged = NO_ENTRY
        self.stopped = False

    @property
    def deadline(self) -> float | None:
        """When it next gives a bookie up."""
        return min((since + TIMEOUT for add in self._open for since, _ in add.sent.values()), default=None)

    def add(self, payload: bytes) -> None:
        """Send one entry more."""
        entry = len(self.payloads)
        self.payloads.append(payload)
        length = sum(map(len, self.payloads))
        stored = encode(
            StoredEntry(self._ledger, entry, self.acknowledged, length, payload), digest_for(self._metadata)
        )
        add = _Add(entry, stored)
        self._open.append(add)
        self._send(add)

    def turn(self) -> None:
        """Hear the answers that came, and change the ensemble where one did not."""
        failed = {bookie for add in self._open for bookie in self._hear(add)}
        while self._open and not self.stopped and len(self._open[0].taken) >= self._metadata.ack_quorum:
            self.acknowledged = self._open.pop(0).entry
        if failed and not self.stopped:
            self._replace(failed)

    def close(self) -> None:
        """Close the ledger at what is acknowledged."""
        self.stopped = True
        length = sum(map(len, self.payloads[: self.acknowledged + 1]))
        self._write(replace(self._metadata, state=LedgerState.CLOSED, last_entry=self.acknowledged, length=length))

    def _hear(self, add: _Add) -> list[str]:
        """Bookies that failed, or did not answer in time."""
        failed = []
        for bookie, (since, future) in list(add.sent.items()):
            if future.done():
                del add.sent[bookie]
                error = future.exception()
                if error is None:
                    add.taken.add(bookie)
                elif isinstance(error, LedgerFencedError):
                    self.stopped = True
                else:
                    failed.append(bookie)
            elif self._cluster.network.now >= since + TIMEOUT:
                del add.sent[bookie]
                failed.append(bookie)
        return failed

    def _replace(self, failed: set[str]) -> None:
        """From the first entry on that is not acknowledged, other bookies take the place of those that failed."""
        last = self._metadata.fragments[-1]
        spare = sorted(set(self._cluster.bookies) - set(last.ensemble))
        self._cluster.rng.shuffle(spare)
        failed &= set(last.ensemble)
        if not failed:
            return
        if len(spare) < len(failed):
            self.stopped = True
            return
        ensemble = tuple(spare.pop() if bookie in failed else bookie for bookie in last.ensemble)
        first = self.acknowledged + 1
        kept = tuple(fragment for fragment in self._metadata.fragments if fragment.first_entry < first)
        if self._write(replace(self._metadata, fragments=(*kept, Fragment(first, ensemble)))):
            for add in self._open:
                self._send(add)

    def _write(self, metadata: LedgerMetadata) -> bool:
        """Whether it is written. Whatever else happens, somebody else may close the ledger now: no entry more is
        acknowledged."""
        try:
            self._version = self._store.write(self._ledger, metadata, self._version)
        except (VersionConflictError, OutcomeUnknownError, MetadataUnavailableError):
            self.stopped = True
            return False
        self._metadata = metadata
        return True

    def _send(self, add: _Add) -> None:
        """To those of its write set that do not have it. What others took counts no more."""
        write_set = set(self._metadata.write_set(add.entry))
        add.taken &= write_set
        add.sent = {bookie: sent for bookie, sent in add.sent.items() if bookie in write_set}
        key = master_key(self._metadata.password)
        for bookie in sorted(write_set - add.taken - set(add.sent)):
            future = self._bookies.add(bookie, self._ledger, add.entry, add.stored, key)
            add.sent[bookie] = (self._cluster.network.now, future)
