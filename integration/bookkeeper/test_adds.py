"""Adds go wrong while ledgers are written and while they are closed: nothing acknowledged is lost, whoever closes
them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from integration.bookkeeper.closers import Closer, Closers, close_at_last
from integration.bookkeeper.cluster import BookKeeperCluster
from integration.bookkeeper.official import OfficialClient, Shape
from integration.bookkeeper.orphans import Closed, Orphan, Witness, begin_writing
from integration.bookkeeper.rounds import DIGESTS, Spares
from integration.bookkeeper.troubled import KINDS, Troubled
from integration.soak import SOAK

pytestmark = [pytest.mark.pulsar, pytest.mark.timeout(7_200 if SOAK else 3_600)]

ROUNDS = 100 if SOAK else 5
QUORUMS = ((2, 2, 2), (3, 3, 2), (3, 3, 3), (3, 2, 2), (4, 2, 2), (4, 3, 2))
FIRST_CLOSERS = (Closers.ours, Closers.official, Closers.both, Closers.ours_twice, Closers.ours_crashes)


@dataclass(frozen=True)
class Left:
    """What a writer left behind. `copies`: how many each entry has, up to the one after the last acknowledged one.

    BookKeeper's own writer acknowledges some with too few copies, most often where the ensemble is wider than the write
    quorum: when it changes the ensemble, entries count as safe that only bookies have that just lost their places, and
    that the metadata do not name (https://github.com/apache/bookkeeper/issues/3005, 4097, 4651). Nobody can find these.
    """

    orphan: Orphan
    copies: list[int]

    @property
    def owed(self) -> int:
        """The ledger must not end before this entry."""
        acknowledged = self.copies[: self.orphan.acknowledged + 1]
        quorum = self.orphan.shape.ack_quorum
        return next((entry for entry, copies in enumerate(acknowledged) if copies < quorum), len(acknowledged)) - 1

    def due(self, entry: int) -> int:
        """How many copies an entry of the closed ledger must have: as many as it had, where nobody knew that it needs
        more."""
        quorum = self.orphan.shape.ack_quorum
        return min(quorum, self.copies[entry]) if entry < len(self.copies) else quorum


@pytest.fixture
def troubled(cluster: BookKeeperCluster) -> Iterator[Troubled]:
    with Troubled(cluster, bookies=6, seed=11) as troubled:
        yield troubled


@pytest.fixture
def closers(troubled: Troubled) -> Iterator[Closers]:
    """They know that no bookie has lost anything: what the official writer mislays looks as if one had."""
    with Closers(troubled, random.Random(11), troubled.bookies) as closers:
        yield closers


def test_adds_that_go_wrong_lose_nothing_whoever_closes_the_ledger(troubled: Troubled, closers: Closers) -> None:
    choice = random.Random(11)
    every: list[Left] = []
    with Spares(troubled, 1) as spares, ThreadPoolExecutor(len(FIRST_CLOSERS)) as pool:
        for _ in range(ROUNDS):
            left = written(troubled, closers, spares.take(), choice)
            first = choice.sample(FIRST_CLOSERS, len(FIRST_CLOSERS))
            list(pool.map(lambda one, way: close_and_check(troubled, closers, one, way), left, first))
            every += left
    assert set(troubled.happened) == set(KINDS)
    assert len(closers.closed_by_us) >= ROUNDS, "we closed hardly any"
    changed = [one for one in every if len(closers.reader.store.read(one.orphan.ledger).metadata.fragments) > 1]
    assert len(changed) >= len(every) / 3, "nearly all went well: the test is too easy"
    assert sum(one.owed == one.orphan.acknowledged for one in every) >= len(every) / 2, "hardly any is owed whole"


def written(troubled: Troubled, closers: Closers, writer: OfficialClient, choice: random.Random) -> list[Left]:
    """Ledgers, and what their writer, which is killed or fenced in the middle of them, has left."""
    orphans = begin_writing(
        writer, [shape(quorums, choice) for quorums in choice.sample(QUORUMS, len(FIRST_CLOSERS))], choice
    )
    writer.await_acknowledged([orphan.ledger for orphan in orphans], choice.randrange(200))
    if choice.random() < 0.5:
        for orphan in orphans:
            closers.ours_crashes(orphan)
    writer.kill()
    return [Left(orphan, copies_of(troubled, closers, orphan, orphan.acknowledged + 1)) for orphan in orphans]


def shape(quorums: tuple[int, int, int], choice: random.Random) -> Shape:
    return Shape(*quorums, choice.choice(DIGESTS), choice.choice(("", "secret")), choice.choice((2, 3)))


def copies_of(troubled: Troubled, closers: Closers, orphan: Orphan, last: int) -> list[int]:
    return troubled.copies(orphan, closers.reader.store.read(orphan.ledger).metadata, last)


def close_and_check(troubled: Troubled, closers: Closers, left: Left, first: Closer) -> None:
    orphan = left.orphan
    ends = {result for result in first(closers, orphan) if isinstance(result, Closed)}
    ends |= {close_at_last(close, orphan) for close in (closers.ours, closers.official)}
    assert len(ends) == 1, f"{orphan}: {ends}"
    check(troubled, closers, left, ends.pop())


def check(troubled: Troubled, closers: Closers, left: Left, end: Closed) -> None:
    orphan = left.orphan
    metadata = closers.reader.store.read(orphan.ledger).metadata
    what = f"{orphan}, {metadata}"
    assert (metadata.last_entry, metadata.length) == end, what
    assert end.last >= left.owed, f"{what}: {left.owed} of {orphan.acknowledged} entries are owed, closed at {end.last}"
    copies = copies_of(troubled, closers, orphan, end.last)
    striped = orphan.shape.ensemble > orphan.shape.write_quorum
    if (
        not striped or orphan.ledger in closers.closed_by_us
    ):  # BookKeeper's own recovery changes ensembles as its writer does
        short = [(entry, found, left.due(entry)) for entry, found in enumerate(copies) if found < left.due(entry)]
        assert not short, f"{what}: {short}"
    readable = copies.index(0) if 0 in copies else len(copies)
    if readable:
        expected = [orphan.contents.of(entry) for entry in range(readable)]
        Witness(troubled.official, closers.reader.store, closers.reader.bookies).check_readers(
            orphan, metadata, expected
        )
