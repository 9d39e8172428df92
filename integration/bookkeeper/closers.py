"""Who closes an orphaned ledger: our client, the official one, both at once, one that crashes on its way."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple, Protocol, Self, TypeVar

from integration.bookkeeper.cluster import PATIENT
from integration.bookkeeper.official import HURRIED, OfficialClient, OfficialError
from integration.bookkeeper.orphans import Closed, Orphan
from integration.processes import HANGS
from offloader.bookkeeper.bookies import BookieClient
from offloader.bookkeeper.metadata import MetadataTree
from offloader.bookkeeper.recovery.inspection import InspectionOptions, examine
from offloader.bookkeeper.recovery.machine import Aborted, Done, HowClosed
from offloader.bookkeeper.recovery.outcome import RecoveryOutcome
from offloader.bookkeeper.recovery.runner import Recoverer
from offloader.bookkeeper.settings import BookieSettings
from offloader.bookkeeper.zookeeper import connect

TIMEOUT = 1.5  # seconds for a bookie's answer: a slow one counts as away, and then it must be asked again
_HURRIED = BookieSettings(connect_timeout=TIMEOUT, request_timeout=TIMEOUT)


class Refused(NamedTuple):
    """A ledger was not closed. `need` of `bookies` must come back; None: the official client does not name them."""

    reason: str
    bookies: tuple[str, ...] | None = None
    need: int = 0


Result = Closed | Refused
Closer = Callable[["Closers", Orphan], list[Result]]
T = TypeVar("T")


def at_last(attempt: Callable[[], T], good: Callable[[T], bool]) -> T:
    """What an attempt gives once it is good. A bookie that lives may be slow, or a client may hear late that it is
    back."""
    deadline = time.monotonic() + HANGS
    while not good(found := attempt()):
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


def close_at_last(close: Callable[[Orphan], list[Result]], orphan: Orphan) -> Closed:
    """Try until it is closed: one attempt may meet with more trouble than there are bookies to take others' places."""
    (result,) = at_last(lambda: close(orphan), lambda results: isinstance(results[0], Closed))
    assert isinstance(result, Closed)
    return result


def result_of(outcome: RecoveryOutcome) -> Result:
    """What came of a closing, or would come of it."""
    if isinstance(outcome.phase, Aborted):
        return Refused(outcome.message, outcome.phase.missing.bookies, outcome.phase.missing.need)
    return Closed(outcome.metadata.last_entry, outcome.metadata.length)


@dataclass
class Ours:
    """A client of ours. `trusted`: bookies that it believes, whatever speaks against it. `closed`: ledgers that it has
    closed itself, and not found closed."""

    store: MetadataTree
    bookies: BookieClient
    trusted: Collection[str] = ()
    closed: set[int] = field(default_factory=set)

    def close(self, orphan: Orphan) -> Result:
        """As `offloader ledgers close` does it."""
        outcome = examine(
            orphan.ledger, self.store, self.bookies, InspectionOptions(dry=False, trusted=self.trusted, timeout=TIMEOUT)
        ).outcome
        if isinstance(outcome.phase, Done) and outcome.phase.ending is HowClosed.CLOSED:
            self.closed.add(orphan.ledger)
        return result_of(outcome)

    def begin(self, orphan: Orphan, turns: int) -> None:
        """Only so many steps of it, as one that crashes then."""
        recoverer = Recoverer(orphan.ledger, self.store, self.bookies, timeout=TIMEOUT)
        deadline = time.monotonic() + 2 * TIMEOUT
        while turns and not recoverer.state.over and time.monotonic() < deadline:
            if recoverer.busy:
                recoverer.turn()
                turns -= 1
            else:
                time.sleep(0.001)


class Cluster(Protocol):
    """Where they close: BookKeeper's own client there, and where its metadata is."""

    official: OfficialClient
    metadata_uri: str


class Closers:
    """Three clients of ours (the last one only reads), and the official ones: the cluster's, and one that is killed."""

    def __init__(self, cluster: Cluster, choice: random.Random, trusted: Collection[str] = ()) -> None:
        self._stack = ExitStack()
        self._official = cluster.official
        self._choice = choice
        self.first, self.second = (self._client(cluster, trusted, _HURRIED) for _ in range(2))
        self.reader = self._client(cluster, trusted, PATIENT)
        self.victim: OfficialClient | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _client(self, cluster: Cluster, trusted: Collection[str], settings: BookieSettings) -> Ours:
        store = self._stack.enter_context(closing(connect(cluster.metadata_uri, timeout=HANGS)))
        return Ours(store, self._stack.enter_context(closing(BookieClient(settings, store.address))), trusted)

    @property
    def closed_by_us(self) -> set[int]:
        return self.first.closed | self.second.closed

    def ours(self, orphan: Orphan) -> list[Result]:
        return [self.first.close(orphan)]

    def official(self, orphan: Orphan) -> list[Result]:
        try:
            closed = self._official.recover(orphan.ledger, orphan.shape, timeout=HURRIED).result(HANGS)
        except OfficialError as error:
            return [Refused(str(error))]
        return [Closed(closed["last"], closed["length"])]

    def both(self, orphan: Orphan) -> list[Result]:
        return self._at_once(orphan, self.ours, self.official)

    def ours_twice(self, orphan: Orphan) -> list[Result]:
        return self._at_once(orphan, self.ours, lambda orphan: [self.second.close(orphan)])

    def ours_crashes(self, orphan: Orphan) -> list[Result]:
        self.second.begin(orphan, self._choice.randrange(1, 60))
        return []

    def official_crashes(self, orphan: Orphan) -> list[Result]:
        assert self.victim is not None
        self.victim.recover(orphan.ledger, orphan.shape, timeout=HURRIED)
        time.sleep(self._choice.uniform(0, 0.5))
        self.victim.kill()
        return []

    def _at_once(self, orphan: Orphan, *closers: Callable[[Orphan], list[Result]]) -> list[Result]:
        with ThreadPoolExecutor(len(closers)) as pool:
            return [result for results in pool.map(lambda close: close(orphan), closers) for result in results]
