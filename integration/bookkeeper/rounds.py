"""Rounds of the closing test: one writer, a ledger for each way to close it first, and what happens to bookies
meanwhile."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol, Self

import pytest

from integration.bookkeeper.bookie import Bookie
from integration.bookkeeper.closers import Closer, Closers, Refused, Result, at_last, close_at_last
from integration.bookkeeper.cluster import BookKeeperCluster
from integration.bookkeeper.official import HURRIED, OfficialClient, OfficialError, Shape
from integration.bookkeeper.orphans import Closed, Orphan, Witness, begin_writing
from offloader.bookkeeper.model import LedgerState

DIGESTS = ("MAC", "CRC32", "CRC32C", "DUMMY")
QUORUMS = ((3, 3, 2), (4, 3, 2), (5, 3, 2), (3, 3, 3), (4, 4, 3), (2, 2, 2), (3, 2, 2), (4, 2, 2), (3, 2, 1), (3, 1, 1))
_NOTICE_SECONDS = 10.0


class Moment(Enum):
    """When something happens to bookies."""

    NEVER = auto()
    WHILE_WRITING = auto()
    BEFORE_CLOSING = auto()
    WHILE_CLOSING = auto()
    AFTER_CLOSING = auto()


class Writer(Enum):
    """What becomes of the writer before its ledgers are closed."""

    KILLED = auto()
    PAUSED = auto()  # it goes on when they are closed
    GOES_ON = auto()


@dataclass(frozen=True)
class Plan:
    """What is to happen in a round. `how`: to so many `bookies`."""

    moment: Moment = Moment.NEVER
    how: Callable[[Bookie], None] = Bookie.kill
    bookies: int = 1
    writer: Writer = Writer.KILLED


class Clients(Protocol):
    """A cluster that has clients."""

    def client(self) -> OfficialClient: ...


class Spares:
    """Processes of the official client, started beside what else is going on, each ready to be killed."""

    def __init__(self, cluster: Clients, count: int) -> None:
        self._cluster = cluster
        self._pool = ThreadPoolExecutor(1)
        self._ready = [self._pool.submit(self._start) for _ in range(count)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        for spare in self._ready:
            if not spare.cancelled():
                spare.result().kill()

    def take(self) -> OfficialClient:
        """One of them; another one is started."""
        self._ready.append(self._pool.submit(self._start))
        return self._ready.pop(0).result()

    def _start(self) -> OfficialClient:
        client = self._cluster.client()
        with pytest.raises(OfficialError, match="NoSuchLedger"):
            client.call("metadata", ledger=1 << 40, timeout=HURRIED)  # now it has its sessions and its classes
        return client


@dataclass
class Round:
    """`hit`: bookies to which something happened. `refusals`: how often our client knew too little to close a
    ledger."""

    cluster: BookKeeperCluster
    closers: Closers
    plan: Plan
    choice: random.Random
    hit: set[str] = field(default_factory=set)
    refusals: int = 0

    def run(self, writer: OfficialClient, first_closers: Sequence[Closer]) -> None:
        """From the writer's first entry to the last look at each closed ledger."""
        orphans = self._write(writer, len(first_closers))
        self._happens(Moment.BEFORE_CLOSING)
        results = self._close_first(orphans, first_closers)
        for orphan, found in zip(orphans, results, strict=True):
            found += self._asked_again(orphan, found)
            self._check_first(orphan, found)
        self._happens(Moment.AFTER_CLOSING)
        with ThreadPoolExecutor(len(orphans)) as pool:
            if self.plan.moment is Moment.AFTER_CLOSING:
                list(pool.map(self._check_readable, orphans))
            self.cluster.all_back()
            ends = list(pool.map(self._close_again, orphans, results))
            self._end(writer, orphans)
            list(pool.map(self._check_last, orphans, ends))

    @property
    def _witness(self) -> Witness:
        return Witness(self.cluster.official, self.closers.reader.store, self.closers.reader.bookies)

    def _check_last(self, orphan: Orphan, end: Closed) -> None:
        self._witness.check(orphan, end, by_us=orphan.ledger in self.closers.closed_by_us)

    # The writer

    def _write(self, writer: OfficialClient, count: int) -> list[Orphan]:
        shapes = [self._shape(*quorums) for quorums in self.choice.sample(QUORUMS, count)]
        orphans = begin_writing(writer, shapes, self.choice)
        ledgers = [orphan.ledger for orphan in orphans]
        writer.await_acknowledged(ledgers, self.choice.randrange(200))
        if self.plan.moment is Moment.WHILE_WRITING:
            self._happens(Moment.WHILE_WRITING)
            writer.await_acknowledged(ledgers, max(o.acknowledged for o in orphans) + self.choice.randrange(1, 100))
        if self.plan.writer is Writer.KILLED:
            writer.kill()
        elif self.plan.writer is Writer.PAUSED:
            writer.pause()
        return orphans

    def _shape(self, ensemble: int, write_quorum: int, ack_quorum: int) -> Shape:
        digest, password = self.choice.choice(DIGESTS), self.choice.choice(("", "secret"))
        versions = {"format": self.choice.choice((2, 3)), "wire": self.choice.choice((2, 3))}
        return Shape(ensemble, write_quorum, ack_quorum, digest, password, **versions)

    def _end(self, writer: OfficialClient, orphans: list[Orphan]) -> None:
        """It may have gone on until now; whatever it is told from now on, it must not be told that an entry is safe."""
        if self.plan.writer is Writer.PAUSED:
            writer.resume()
        wait([orphan.adding for orphan in orphans], _NOTICE_SECONDS)
        writer.kill()

    # The bookies

    def _happens(self, moment: Moment) -> None:
        if self.plan.moment is moment:
            for bookie in self.choice.sample(self.cluster.bookies, self.plan.bookies):
                self.hit.add(bookie.id)
                self.plan.how(bookie)

    # The closers

    def _close_first(self, orphans: list[Orphan], first_closers: Sequence[Closer]) -> list[list[Result]]:
        with ThreadPoolExecutor(len(orphans)) as pool:
            closing: list[Future[list[Result]]] = [
                pool.submit(close, self.closers, orphan) for close, orphan in zip(first_closers, orphans, strict=True)
            ]
            if self.plan.moment is Moment.WHILE_CLOSING:
                time.sleep(self.choice.uniform(0, 0.3))
                self._happens(Moment.WHILE_CLOSING)
            return [future.result() for future in closing]

    def _asked_again(self, orphan: Orphan, results: list[Result]) -> list[Result]:
        """In place of refusals, which are taken out, that name bookies to which nothing happened: these live, and were
        slow."""
        slow = [result for result in results if not self._excused(result)]
        for result in slow:
            results.remove(result)
        return at_last(lambda: self.closers.ours(orphan), lambda found: all(map(self._excused, found))) if slow else []

    def _excused(self, result: Result) -> bool:
        return isinstance(result, Closed) or self.hit.issuperset(result.bookies or ())

    def _check_first(self, orphan: Orphan, results: list[Result]) -> None:
        ends = {result for result in results if isinstance(result, Closed)}
        assert len(ends) <= 1, f"{orphan}: {results}"
        for refused in results:
            if isinstance(refused, Refused) and refused.bookies is not None:
                self.refusals += 1
                assert refused.bookies, f"{orphan}: {refused}"
                state = self.closers.reader.store.read(orphan.ledger).metadata.state
                others = bool(ends) or self.plan.writer is not Writer.KILLED  # which may have closed it
                assert state is LedgerState.IN_RECOVERY or (others and state is LedgerState.CLOSED), (
                    f"{orphan}: {refused}"
                )

    def _check_readable(self, orphan: Orphan) -> None:
        """With a bookie less, what more than one has acknowledged can still be read."""
        metadata = self.closers.reader.store.read(orphan.ledger).metadata
        if metadata.closed and metadata.last_entry >= 0 and metadata.ack_quorum > self.plan.bookies:
            expected = [orphan.contents.of(entry) for entry in range(metadata.last_entry + 1)]
            self._witness.check_readers(orphan, metadata, expected)

    def _close_again(self, orphan: Orphan, results: list[Result]) -> Closed:
        """Now that all bookies are back, both clients close it, the second one as the first one did, and as it was
        closed before."""
        ends = {result for result in results if isinstance(result, Closed)}
        closers = [self.closers.ours, self.closers.official]
        for close in self.choice.sample(closers, 2):
            ends.add(close_at_last(close, orphan))
        assert len(ends) == 1, f"{orphan}: {ends}"
        return ends.pop()
