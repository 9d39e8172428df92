"""A ledger of which too little is known is not closed: who must come back is said, and then it is closed. A bookie that
is only to hold what is known is replaced."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from integration.bookkeeper.bookie import Bookie
from integration.bookkeeper.closers import TIMEOUT, Closers, Ours, Refused, Result, at_last, close_at_last, result_of
from integration.bookkeeper.cluster import BookKeeperCluster
from integration.bookkeeper.contents import Contents
from integration.bookkeeper.official import Shape
from integration.bookkeeper.orphans import Closed, Orphan, Witness
from integration.processes import HANGS
from offloader.bookkeeper.model import LedgerState
from offloader.bookkeeper.recovery.dangers import DangerKind
from offloader.bookkeeper.recovery.inspection import InspectionOptions, examine
from offloader.bookkeeper.recovery.machine import Done, HowClosed
from offloader.bookkeeper.recovery.outcome import Inspection, RecoveryOutcome

Away = Callable[[Bookie], None]

pytestmark = pytest.mark.pulsar


@pytest.fixture
def closers(cluster: BookKeeperCluster) -> Iterator[Closers]:
    with Closers(cluster, random.Random(3)) as closers:
        yield closers


@pytest.fixture
def ours(closers: Closers) -> Ours:
    return closers.first


def orphan_of(cluster: BookKeeperCluster, shape: Shape, entries: int = 30) -> Orphan:
    """A ledger with so many acknowledged entries, which its writer never closes."""
    contents = Contents(seed=21)
    ledger = cluster.official.create(shape)
    adding = cluster.official.add(ledger, entries, contents)
    adding.result(HANGS)
    return Orphan(ledger, shape, contents, cluster.official, adding)


def ensemble(cluster: BookKeeperCluster, orphan: Orphan) -> list[Bookie]:
    """The bookies of its last fragment, those that hold its last entry first."""
    members = cluster.official.metadata(orphan.ledger)["fragments"][-1][1]
    first = orphan.acknowledged % len(members)
    return [cluster.bookie(member) for member in members[first:] + members[:first]]


def inspected(orphan: Orphan, ours: Ours) -> Inspection:
    return examine(orphan.ledger, ours.store, ours.bookies, InspectionOptions(timeout=TIMEOUT))


def refused_for(orphan: Orphan, close: Callable[[Orphan], Result], gone: list[Bookie]) -> Refused:
    """The refusal that names nobody but these, who are away. One that names others comes again: they live, and were
    slow."""

    def names_only_these(result: Result) -> bool:
        assert isinstance(result, Refused), result
        return {bookie.id for bookie in gone}.issuperset(result.bookies or ())

    refused = at_last(lambda: close(orphan), names_only_these)
    assert isinstance(refused, Refused)
    return refused


def check(cluster: BookKeeperCluster, closers: Closers, orphan: Orphan, closed: Closed) -> None:
    witness(cluster, closers).check(orphan, closed, by_us=True)


def witness(cluster: BookKeeperCluster, closers: Closers) -> Witness:
    return Witness(cluster.official, closers.reader.store, closers.reader.bookies)


@pytest.mark.parametrize(
    ("quorums", "away", "how", "enough"),
    [
        ((3, 3, 2), 2, Bookie.kill, 1),  # the two could form an ack quorum
        ((4, 3, 2), 2, Bookie.pause, 1),
        ((5, 5, 5), 1, Bookie.kill, 1),  # there is no sixth one to take the last entry
        ((2, 2, 1), 1, Bookie.kill, 1),  # it may have the only copy of one entry more
        ((3, 1, 1), 1, Bookie.pause, 1),
        ((5, 4, 2), 3, Bookie.kill, 2),
        ((5, 5, 2), 4, Bookie.pause, 3),
    ],
)
def test_it_is_said_who_must_come_back(
    cluster: BookKeeperCluster,
    closers: Closers,
    ours: Ours,
    quorums: tuple[int, int, int],
    away: int,
    how: Away,
    enough: int,
) -> None:
    orphan = orphan_of(cluster, Shape(*quorums))
    gone = ensemble(cluster, orphan)[:away]
    for bookie in gone:
        how(bookie)
    refused = refused_for(orphan, ours.close, gone)
    assert set(refused.bookies or ()) == {bookie.id for bookie in gone}
    assert refused.need == enough
    assert all(bookie.id in refused.reason for bookie in gone)
    assert ours.store.read(orphan.ledger).metadata.state is LedgerState.IN_RECOVERY
    for bookie in gone[:enough]:
        bookie.back()
    closed = close_at_last(closers.ours, orphan)
    assert closed.last == 29
    cluster.all_back()
    check(cluster, closers, orphan, closed)


class OneGone(NamedTuple):
    """A ledger one of whose bookies has gone away, what a look foresaw, and what its closing found."""

    orphan: Orphan
    gone: Bookie
    others: list[Bookie]
    foreseen: RecoveryOutcome
    found: RecoveryOutcome


def closed_without_one(cluster: BookKeeperCluster, ours: Ours, shape: Shape, how: Away) -> OneGone:
    """Tried with another ledger where another bookie, which lives, was slow: that one counts as away, too."""

    def attempt() -> OneGone:
        cluster.all_back()
        orphan = orphan_of(cluster, shape)
        gone, *others = ensemble(cluster, orphan)
        how(gone)
        foreseen = inspected(orphan, ours).outcome
        found = examine(orphan.ledger, ours.store, ours.bookies, InspectionOptions(dry=False, timeout=TIMEOUT)).outcome
        return OneGone(orphan, gone, others, foreseen, found)

    def all_others_answered(one: OneGone) -> bool:
        living = [bookie.id for bookie in cluster.bookies if bookie is not one.gone]
        return not any(outcome.evidence.problems(bookie) for outcome in (one.foreseen, one.found) for bookie in living)

    return at_last(attempt, all_others_answered)


@pytest.mark.parametrize("how", [Bookie.kill, Bookie.pause])
@pytest.mark.parametrize("quorums", [(2, 2, 2), (3, 3, 3), (4, 2, 2)], ids=str)
def test_a_bookie_that_is_gone_is_replaced(
    cluster: BookKeeperCluster, closers: Closers, ours: Ours, quorums: tuple[int, int, int], how: Away
) -> None:
    """Before it comes back, BookKeeper's own client finds the ledger closed, and reads all of it; so it does
    afterwards."""
    orphan, gone, others, foreseen, found = closed_without_one(cluster, ours, Shape(*quorums), how)
    ((first, replaced, by),) = found.replaced
    assert [change[:2] for change in foreseen.replaced] == [(first, replaced)] == [(first, gone.id)]
    assert by not in {gone.id, *(bookie.id for bookie in others)}
    closed = Closed(found.metadata.last_entry, found.metadata.length)
    assert closed == (foreseen.metadata.last_entry, foreseen.metadata.length)
    assert closed.last == 29
    seen = cluster.official.metadata(orphan.ledger)
    assert (seen["state"], seen["last"], seen["length"]) == ("CLOSED", *closed)
    assert [begin for begin, _ in seen["fragments"]] == sorted({0, first})
    assert sorted(seen["fragments"][-1][1]) == sorted([by, *(bookie.id for bookie in others)])
    expected = [orphan.contents.of(entry) for entry in range(30)]
    witness(cluster, closers).check_readers(orphan, found.metadata, expected)
    assert cluster.official.recover(orphan.ledger, orphan.shape).result(HANGS)["last"] == 29
    cluster.all_back()
    check(cluster, closers, orphan, closed)


def test_what_can_do_without_a_bookie_is_closed_without_it(cluster: BookKeeperCluster, closers: Closers) -> None:
    orphan = orphan_of(cluster, Shape(3, 3, 2))
    ensemble(cluster, orphan)[0].kill()
    closed = close_at_last(closers.ours, orphan)
    cluster.all_back()
    check(cluster, closers, orphan, closed)


def test_a_look_says_who_must_come_back_and_disturbs_nobody(
    cluster: BookKeeperCluster, closers: Closers, ours: Ours
) -> None:
    orphan = orphan_of(cluster, Shape(3, 3, 2))
    before = ours.store.read(orphan.ledger)
    found = at_last(lambda: inspected(orphan, ours), lambda found: isinstance(found.outcome.phase, Done))
    assert isinstance(found.outcome.phase, Done)
    assert (found.outcome.phase.ending, found.outcome.metadata.last_entry) == (HowClosed.WOULD_CLOSE, 29)
    gone = ensemble(cluster, orphan)[:2]
    for bookie in gone:
        bookie.pause()
    refused = refused_for(orphan, lambda orphan: result_of(inspected(orphan, ours).outcome), gone)
    assert set(refused.bookies or ()) == {bookie.id for bookie in gone}
    cluster.all_back()
    assert ours.store.read(orphan.ledger) == before
    cluster.official.add(orphan.ledger, 10, orphan.contents).result(HANGS)  # its writer is not fenced
    closed = cluster.official.close_ledger(orphan.ledger)
    check(cluster, closers, orphan, Closed(closed["last"], closed["length"]))


@pytest.mark.parametrize("quorums", [(2, 2, 2), (4, 3, 2)], ids=str)
def test_a_bookie_that_lost_its_disk_is_not_believed(
    cluster: BookKeeperCluster, closers: Closers, ours: Ours, quorums: tuple[int, int, int]
) -> None:
    orphan = orphan_of(cluster, Shape(*quorums))
    liar = ensemble(cluster, orphan)[0]
    liar.kill()
    liar.lose_disk()
    liar.start()
    found = inspected(orphan, ours)
    assert liar.id in {
        bookie for danger in found.dangers if danger.kind is DangerKind.YOUNG_COOKIE for bookie in danger.bookies
    }
    assert found.distrusted == {liar.id}
    assert close_at_last(closers.ours, orphan).last == 29
    assert cluster.official.recover(orphan.ledger, orphan.shape).result(HANGS)["last"] == 29


def test_what_only_bookies_without_their_disks_would_know_is_not_ruled_out(
    cluster: BookKeeperCluster, ours: Ours
) -> None:
    """Two of three: an entry more may have been on these alone."""
    orphan = orphan_of(cluster, Shape(3, 3, 2))
    witness, *liars = ensemble(cluster, orphan)
    for liar in liars:
        liar.kill()
        liar.lose_disk()
        liar.start()
    for end in (witness.kill, witness.start):
        end()
        refused = ours.close(orphan)
        assert isinstance(refused, Refused), refused
        assert all(liar.id in refused.reason for liar in liars)
        assert ours.store.read(orphan.ledger).metadata.state is LedgerState.IN_RECOVERY
