"""The transaction of each row of the reference's table, and what none of them may ever do."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.bookkeeper.layout import Layout, ledger_path
from offloader.bookkeeper.nodes import CheckNode, CreateNode, DeleteNode, SetNode
from offloader.errors import LedgerNotFoundError, VersionConflictError
from offloader.lifecycle.deletion.guard import (
    GuardCase,
    GuardDoubt,
    LedgerToGo,
    MissingReferee,
    StandingReferee,
    Unguarded,
    guard,
)
from offloader.lifecycle.deletion.guarded import GuardedLedgers, GuardedOutcome
from tests.fakes.memory_nodes import MemoryNodes

ROOT, LAYOUT = "/ledgers", Layout.HIERARCHICAL
LIST = "/managed-ledgers/t/ns/persistent/a"
TO_GO = LedgerToGo(5, 2, 1_000)
STANDING = StandingReferee(LIST, 7, 900, b"ledgers")
DELETE = DeleteNode("/ledgers/00/0000/L0005", 2)
ON_DEMAND = GuardDoubt(data=True, loaded=False, demanded=True)


def made(*referees, doubt=None, one_zookeeper=True, root=ROOT):
    return guard(GuardCase(TO_GO, referees, one_zookeeper, doubt), root, LAYOUT)


def test_certain_and_the_referee_is_there():
    assert made(STANDING) == (CheckNode(LIST, 7), DELETE)


def test_certain_and_the_referee_is_missing():
    assert made(MissingReferee(LIST)) == (CreateNode(LIST), DeleteNode(LIST, 0), DELETE)


def test_missing_parents_likewise():
    persistent, namespace = "/managed-ledgers/t/ns/persistent", "/managed-ledgers/t/ns"
    assert made(MissingReferee(LIST, (namespace, persistent))) == (
        *(CreateNode(namespace), CreateNode(persistent), CreateNode(LIST)),
        *(DeleteNode(LIST, 0), DeleteNode(persistent, 0), DeleteNode(namespace, 0)),
        DELETE,
    )


def test_suspect_data_on_demand_and_the_topic_is_not_loaded():
    assert made(STANDING, doubt=ON_DEMAND) == (SetNode(LIST, b"ledgers", 7), DELETE)


def test_compacted_and_passed_by():
    cursor = replace(STANDING, path=f"{LIST}/__compaction")
    assert made(cursor) == (CheckNode(cursor.path, 7), DELETE)


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (lambda: made(STANDING, one_zookeeper=False), "another ZooKeeper"),
        (lambda: made(), "no node is known"),
        (lambda: made(STANDING, doubt=replace(ON_DEMAND, data=False)), "suspect only, and no node"),
        (lambda: made(STANDING, doubt=replace(ON_DEMAND, demanded=False)), "nobody has asked"),
        (lambda: made(STANDING, doubt=replace(ON_DEMAND, loaded=True)), "a broker has its topic loaded"),
        (lambda: made(MissingReferee(LIST), doubt=ON_DEMAND), "no ledger list"),
        (lambda: made(STANDING, STANDING, doubt=ON_DEMAND), "no ledger list"),
    ],
)
def test_what_cannot_be_guarded_is_only_reported(case, why):
    unguarded = case()
    assert isinstance(unguarded, Unguarded)
    assert why in unguarded.why


@pytest.mark.parametrize("path", ["/ledgers/idgen", "/ledgers", "/ledgers/00/0000/L0005", "relative", "/a/", "/", ""])
def test_bookkeepers_own_nodes_are_no_referees(path):
    for referee in (replace(STANDING, path=path), MissingReferee(path)):
        with pytest.raises(ValueError, match="no node of Pulsar's"):
            made(referee)


def test_a_node_above_bookkeepers_is_no_referee():
    with pytest.raises(ValueError, match="no node of Pulsar's"):
        made(replace(STANDING, path="/chroot"), root="/chroot/ledgers")
    assert made(replace(STANDING, path="/ledgers-of-others"))[-1] == DELETE


@pytest.mark.parametrize("missing", [("/managed-ledgers/t",), ("/managed-ledgers/t/ns/persistent", "/managed-ledgers")])
def test_only_the_nodes_right_above_a_referee_are_missing_with_it(missing):
    with pytest.raises(ValueError, match="right above"):
        MissingReferee(LIST, missing)


def test_an_impossible_ledger_is_refused():
    with pytest.raises(LedgerNotFoundError):
        guard(GuardCase(LedgerToGo(-1, 0, 0), (STANDING,), True), ROOT, LAYOUT)


names = st.sampled_from(["a", "b", "managed-ledgers", "ledgersx", "idgen"])
paths = st.lists(names, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))


def missing_one(path: str, count: int) -> MissingReferee:
    parts = path.split("/")
    above = ["/".join(parts[:n]) for n in range(2, len(parts))]
    return MissingReferee(path, tuple(above[len(above) - min(count, len(above)) :]))


referees = st.one_of(
    st.builds(StandingReferee, paths, st.integers(0, 9), st.just(0), st.binary(max_size=3)),
    st.builds(missing_one, paths, st.integers(0, 4)),
)
cases = st.builds(
    GuardCase,
    st.builds(LedgerToGo, st.integers(0, 2**63 - 1), st.integers(0, 9), st.just(0)),
    st.lists(referees, max_size=3).map(tuple),
    st.booleans(),
    st.one_of(st.none(), st.builds(GuardDoubt, st.booleans(), st.booleans(), st.booleans())),
)


@given(cases)
def test_a_ledger_at_its_version_is_all_that_goes_and_never_without_a_proof(case):
    operations = guard(case, ROOT, LAYOUT)
    if isinstance(operations, Unguarded):
        return
    *proof, last = operations
    assert last == DeleteNode(ROOT + ledger_path(LAYOUT, case.ledger.ledger), case.ledger.version)
    assert proof
    assert not any(f"{one.path}/".startswith(f"{ROOT}/") for one in proof)
    created = [one.path for one in proof if isinstance(one, CreateNode)]
    assert [one.path for one in proof if isinstance(one, DeleteNode)] == created[::-1]
    proven = {one.path for one in proof if isinstance(one, (CheckNode, SetNode))} | set(created)
    assert {one.path for one in case.referees} <= proven
    if case.doubt:
        assert (case.doubt.demanded, case.doubt.loaded, case.doubt.data) == (True, False, True)
        assert not any(isinstance(one, CheckNode) for one in proof)
    else:
        assert not any(isinstance(one, SetNode) for one in proof)


# A broker that creates a ledger and lists it, step by step, beside ours

BEFORE, NEW = 1, 2


class Race:
    """One topic's list. The broker makes ledger NEW and lists it; we read ids, then the list, and delete."""

    def __init__(self, execute) -> None:
        self.nodes = MemoryNodes(clock=lambda: 1.0)
        self.ledgers = GuardedLedgers(self.nodes, ROOT, LAYOUT)
        self.nodes.create(LIST, b"\x01", parents=True)
        self.nodes.create(self.path(BEFORE), parents=True)
        self.execute = execute
        self.case: GuardCase | None = None
        self.seen = False

    def path(self, ledger: int) -> str:
        return ROOT + ledger_path(LAYOUT, ledger)

    def broker(self):
        """Yields between its steps, at any of which it may be paused."""
        version = self.nodes.get(LIST).version
        yield
        self.nodes.create(self.path(NEW))
        yield
        self.nodes.set(LIST, b"\x01\x02", version)  # fenced by a VersionConflictError
        yield

    def ours(self):
        """Ids first, then references; then the deletion."""
        node = self.nodes.get(self.path(NEW))
        yield
        referee = self.ledgers.referee(LIST)
        if node is not None and NEW not in referee.value:
            self.case = GuardCase(LedgerToGo(NEW, node.version, node.created_ms), (referee,), True, ON_DEMAND)
        yield
        if self.case is not None:
            self.execute(self)
        yield

    def lost(self) -> bool:
        """Whether a ledger is listed that is gone."""
        return any(self.nodes.get(self.path(one)) is None for one in self.nodes.get(LIST).value)


def losses(execute) -> int:
    """In how many orders of three steps each something is lost."""
    found = 0
    for turns in combinations(range(6), 3):
        race = Race(execute)
        broker, ours = race.broker(), race.ours()
        for turn in range(6):
            with suppress(VersionConflictError):  # the broker is fenced
                next(ours if turn in turns else broker, None)
        found += race.lost()
    return found


def guarded(race):
    done = race.ledgers.delete(race.case)
    assert done.outcome in (GuardedOutcome.DELETED, GuardedOutcome.REFEREE_CHANGED)


def test_no_order_of_a_brokers_steps_and_ours_loses_a_listed_ledger():
    assert losses(guarded) == 0


@pytest.mark.parametrize(
    "broken",
    [
        lambda race: race.nodes.delete(race.path(NEW)),  # a plain delete
        lambda race: race.nodes.delete(race.path(NEW), 0),  # at its version, without a proof
        lambda race: race.ledgers.delete(replace(race.case, doubt=None)),  # a suspect one taken for certain
    ],
)
def test_broken_variants_are_caught(broken):
    assert losses(broken) > 0
