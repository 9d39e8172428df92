"""A simulated BookKeeper: bookies, metadata and the network between them and their clients, in virtual time.

Each message may be lost, late, duplicated or answered with an error, as the seed has it. `memory_bookie` and
`ledger_metadata` answer those that arrive.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from offloader.bookkeeper.api import LastConfirmed
from offloader.bookkeeper.metadata import MetadataTree
from offloader.bookkeeper.model import NO_ENTRY, Fragment, LedgerMetadata, LedgerState, Versioned
from offloader.bookkeeper.status import (
    Answer,
    BookieError,
    answer,
    status_error,
)
from offloader.bookkeeper.v3 import Availability
from offloader.errors import BookieUnavailableError, MetadataUnavailableError, OutcomeUnknownError, VersionConflictError
from tests.fakes.ledger_metadata import ADDRESS, MemoryMetadata
from tests.fakes.memory_bookie import MemoryBookie

_UNKNOWN = (501, 506, 507)  # its disk, too many requests, a ledger of which it may have lost entries


@dataclass
class Weather:
    """How likely each fault is for each message. Times are in seconds of virtual time."""

    lost: float = 0.0
    duplicated: float = 0.0
    slow: float = 0.0
    unknown: float = 0.0
    metadata: float = 0.0
    delay: float = 0.002
    slow_delay: float = 20.0


class Network:
    """Messages under way, in order of arrival. `now`: seconds. `prompt`: they arrive at once, by themselves."""

    def __init__(self, rng: random.Random, weather: Weather, *, prompt: bool = False) -> None:
        self.rng = rng
        self.weather = weather
        self._prompt = prompt
        self.now = 1_700_000_000.0
        self._numbers = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []

    def __len__(self) -> int:
        return len(self._due)

    def chance(self, likelihood: float) -> bool:
        """Whether it happens this time."""
        return self.rng.random() < likelihood

    def send(self, arrive: Callable[[], None]) -> None:
        """One message, which may be lost, late or doubled."""
        if self.chance(self.weather.lost):
            return
        if self._prompt:
            arrive()
            return
        for _ in range(2 if self.chance(self.weather.duplicated) else 1):
            mean = self.weather.slow_delay if self.chance(self.weather.slow) else self.weather.delay
            self.after(self.rng.expovariate(1 / mean), arrive)

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        """Something that happens later, surely."""
        heapq.heappush(self._due, (self.now + seconds, next(self._numbers), act))

    def deliver(self) -> None:
        """The next one: time passes until then."""
        when, _, act = heapq.heappop(self._due)
        self.now = max(self.now, when)
        act()


class SimulatedBookie:
    """A bookie that may be down; what it has taken survives, unless its disk is lost."""

    def __init__(self) -> None:
        self.memory = MemoryBookie()
        self.up = True
        self.lost = False

    def lose_disk(self, *, refuse: bool) -> None:
        """`refuse`: it does not start again (its cookie is missing); otherwise it starts empty."""
        self.memory = MemoryBookie()
        self.lost = True
        self.up = not refuse


class SimulatedCluster:
    """What a test does to the cluster. `client()` gives a client's view of it."""

    def __init__(self, seed: int, bookies: int, weather: Weather | None = None, *, prompt: bool = False) -> None:
        self.rng = random.Random(seed)
        self.network = Network(self.rng, weather or Weather(), prompt=prompt)
        self.metadata = MemoryMetadata(clock=lambda: self.network.now)
        self.bookies = {f"b{number}:3181": SimulatedBookie() for number in range(1, bookies + 1)}
        for bookie in self.bookies:
            self.metadata.cluster.register(bookie, None)
            self.metadata.cluster.put_cookie(bookie, b"cookie")

    def create(self, ledger: int, ensemble: int, write_quorum: int, ack_quorum: int, **more: Any) -> LedgerMetadata:
        """An open ledger on bookies of the seed's choice."""
        chosen = tuple(self.rng.sample(sorted(self.bookies), ensemble))
        created = int(self.network.now * 1000)
        metadata = LedgerMetadata(
            ensemble, write_quorum, ack_quorum, LedgerState.OPEN, (Fragment(0, chosen),), created_ms=created, **more
        )
        self.metadata.cluster.put_ledger(ledger, metadata)
        return metadata

    def client(self) -> tuple[SimulatedBookies, SimulatedStore]:
        """Connections of one more process."""
        return SimulatedBookies(self), SimulatedStore(self)

    def replace_disk(self, bookie: str) -> None:
        """The disk is lost, somebody removes the cookie, and the bookie starts again with an empty one."""
        self.bookies[bookie].lose_disk(refuse=False)
        self.metadata.cluster.delete_cookie(bookie)
        self.network.now += 1
        self.metadata.cluster.put_cookie(bookie, b"another cookie")


class SimulatedBookies:
    """`Bookies`: each request and each answer is a message."""

    batches = True

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._network = cluster.network
        self._closed = False

    def read(self, bookie: str, ledger: int, entry: int, *, fence: bytes | None = None) -> Future[bytes]:
        return self._send(bookie, lambda memory: memory.read(ledger, entry, fence))

    def batch(self, bookie: str, ledger: int, first: int, *, count: int, size: int) -> Future[list[bytes]]:
        return self._send(bookie, lambda memory: memory.batch(ledger, first, count, size))

    def fence(self, bookie: str, ledger: int, master_key: bytes) -> Future[bytes | None]:
        return self._send(bookie, lambda memory: _last(memory, ledger, master_key))

    def add(self, bookie: str, ledger: int, entry: int, stored: bytes, master_key: bytes) -> Future[None]:
        return self._send(bookie, lambda memory: memory.add(ledger, entry, stored, master_key))

    def recovery_add(self, bookie: str, ledger: int, entry: int, stored: bytes, master_key: bytes) -> Future[None]:
        return self._send(bookie, lambda memory: memory.add(ledger, entry, stored, master_key, recovery=True))

    def read_lac(self, bookie: str, ledger: int) -> Future[LastConfirmed]:
        return self._send(bookie, lambda memory: LastConfirmed(*memory.read_lac(ledger)))

    def entries_of(self, bookie: str, ledger: int) -> Future[Collection[int]]:
        return self._send(bookie, lambda memory: Availability(memory.entries_of(ledger)))

    def close(self) -> None:
        """What is under way to bookies still arrives; no answer does."""
        self._closed = True

    def _send(self, bookie: str, work: Callable[[MemoryBookie], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self._network.send(lambda: self._arrive(bookie, work, future))
        return future

    def _arrive(self, bookie: str, work: Callable[[MemoryBookie], Any], future: Future[Any]) -> None:
        kept = self._cluster.bookies[bookie]
        result: Any = None
        error: Exception | None = None
        if not kept.up:
            error = BookieUnavailableError(f"{bookie}: refused the connection")
        elif self._network.chance(self._network.weather.unknown):
            error = status_error(self._network.rng.choice(_UNKNOWN), bookie)
        else:
            try:
                result = work(kept.memory)
            except BookieError as refusal:
                error = refusal
        self._network.send(lambda: self._answer(future, result, error))

    def _answer(self, future: Future[Any], result: Any, error: Exception | None) -> None:
        if self._closed or future.done():  # nobody waits any more, or the message is there twice
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


class SimulatedStore(MetadataTree):
    """`LedgerMetadataStore`: a write may be lost, its answer may be lost, or it may come late."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        super().__init__(cluster.metadata.nodes, ADDRESS)
        self._cluster = cluster
        self._network = cluster.network

    def read(self, ledger: int) -> Versioned:
        self._check()
        return super().read(ledger)

    def write(self, ledger: int, metadata: LedgerMetadata, version: int) -> int:
        self._check()
        if not self._network.chance(self._network.weather.metadata):
            return super().write(ledger, metadata, version)
        match self._network.rng.choice(("lost", "answer lost", "late")):
            case "answer lost":
                self._try(ledger, metadata, version)
            case "late":
                late = self._network.rng.expovariate(1 / self._network.weather.slow_delay)
                self._network.after(late, lambda: self._try(ledger, metadata, version))
        raise OutcomeUnknownError(f"ledger {ledger}: the answer to a write was lost")

    def available(self) -> Mapping[str, bool]:
        return {bookie: True for bookie, kept in self._cluster.bookies.items() if kept.up}

    def _check(self) -> None:
        if self._network.chance(self._network.weather.metadata / 4):
            raise MetadataUnavailableError("the metadata service does not answer")

    def _try(self, ledger: int, metadata: LedgerMetadata, version: int) -> None:
        with suppress(VersionConflictError):
            super().write(ledger, metadata, version)


def _last(memory: MemoryBookie, ledger: int, master_key: bytes) -> bytes | None:
    try:
        return memory.read(ledger, NO_ENTRY, master_key)
    except BookieError as error:
        if answer(error) is Answer.NEGATIVE:
            return None
        raise
