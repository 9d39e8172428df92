"""A guarded deletion on nodes in memory and over a connection: what others do between our look and our transaction,
and answers that are lost before and after the effect."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from offloader.bookkeeper.layout import Layout
from offloader.bookkeeper.uri import MetadataUri
from offloader.bookkeeper.zookeeper import connect
from offloader.errors import AccessDeniedError, MetadataUnavailableError, OutcomeUnknownError
from offloader.lifecycle.deletion.guarded import GuardedOutcome
from tests.bookkeeper.metadata_contract import METADATA, World
from tests.bookkeeper.zookeeper_server import MULTI, Fault, ZooKeeperServer
from tests.fakes.ledger_metadata import ClusterMetadata, MemoryMetadata
from tests.fakes.memory_nodes import MemoryNodes

from .guard_contract import LEDGER, ON_DEMAND, Ground, GuardContract


def memory_world(layout: Layout) -> World:
    store = MemoryMetadata(layout)
    return World(store, store.cluster, lambda: None, lambda: None)


@contextmanager
def loopback_world(server):
    uri = MetadataUri((server.address,), "/a/root")
    cluster = ClusterMetadata(server.nodes, uri)
    cluster.format()
    store = connect(uri, timeout=10.0)
    yield World(store, cluster, server.stop, server.start)
    store.close()


@pytest.fixture
def server():
    with ZooKeeperServer(MemoryNodes(), session_seconds=4.0) as server:
        yield server


class TestGuardInMemory(GuardContract):
    @pytest.fixture(params=Layout)
    def world(self, request) -> World:
        return memory_world(request.param)


class TestGuardOverAConnection(GuardContract):
    @pytest.fixture
    def world(self, server):
        with loopback_world(server) as world:
            yield world


ROWS = {
    "passed by": lambda ground: ground.case(ground.list),
    "referee missing": lambda ground: ground.case(f"{ground.beside}/managed-ledgers/gone/ns/persistent/t"),
    "on demand": lambda ground: ground.case(ground.list, doubt=ON_DEMAND),
    "compacted": lambda ground: ground.case(ground.compaction),
}


@pytest.fixture(params=ROWS)
def row(request):
    return ROWS[request.param]


@pytest.fixture
def ground():
    return Ground(memory_world(Layout.HIERARCHICAL))


@pytest.fixture
def remote(server):
    with loopback_world(server) as world:
        yield Ground(world)


# Between our look and our transaction


def meanwhile(ground, done):
    """`done` right before our next write reaches the service."""

    def once():
        ground.nodes.before_write = lambda: None
        done()

    ground.nodes.before_write = once


@pytest.mark.parametrize("value", [b"ledgers", b"ledgers and this one"])
def test_a_referee_that_is_written_between_look_and_transaction_keeps_the_ledger(ground, row, value):
    case = row(ground)
    (referee,) = case.referees
    meanwhile(ground, lambda: ground.nodes.put(referee.path, value))
    done = ground.ledgers.delete(case)
    assert done.outcome is GuardedOutcome.REFEREE_CHANGED
    assert referee.path.startswith(done.why.partition(":")[0])
    assert ground.nodes.get(ground.path) is not None
    assert ground.nodes.get(referee.path).value == value


def test_a_ledger_that_is_written_between_look_and_transaction_stays(ground, row):
    case = row(ground)
    meanwhile(ground, lambda: ground.cluster.put_ledger(LEDGER, METADATA))
    before = ground.tree()
    assert ground.ledgers.delete(case).outcome is GuardedOutcome.LEDGER_CHANGED
    assert ground.tree().keys() == before.keys()


def test_a_ledger_that_goes_between_look_and_transaction_is_gone(ground, row):
    case = row(ground)
    meanwhile(ground, lambda: ground.cluster.delete_ledger(LEDGER))
    assert ground.ledgers.delete(case).outcome is GuardedOutcome.ALREADY_GONE


# Answers that are lost


def test_an_answer_lost_before_the_effect_deleted_nothing_and_the_next_try_does(ground, row):
    case, before = row(ground), ground.tree()
    ground.nodes.lost_requests = 1
    with pytest.raises(MetadataUnavailableError, match=rf"^{ground.path}: .* still there"):
        ground.ledgers.delete(case)
    assert ground.tree() == before
    assert ground.ledgers.delete(case).outcome is GuardedOutcome.DELETED


def test_an_answer_lost_after_the_effect_is_a_deletion(ground, row):
    case, before = row(ground), ground.tree()
    ground.nodes.lost_answers = 1
    assert ground.ledgers.delete(case).outcome is GuardedOutcome.DELETED
    assert before.keys() - ground.tree().keys() == {ground.path}
    assert ground.ledgers.delete(case).outcome is GuardedOutcome.ALREADY_GONE


@pytest.mark.parametrize("fault", ["lost_requests", "lost_answers"])
def test_an_answer_lost_by_a_service_that_then_is_gone_is_an_unknown_outcome(ground, row, fault):
    case = row(ground)
    setattr(ground.nodes, fault, 1)
    read = ground.nodes.get

    def get(path, *rest, **more):
        unanswered = getattr(ground.nodes, fault) == 0
        ground.nodes.gone = unanswered
        return read(path, *rest, **more)

    ground.nodes.get = get
    with pytest.raises(OutcomeUnknownError, match=rf"^{ground.path}: whether it was deleted is not known"):
        ground.ledgers.delete(case)
    ground.nodes.get, ground.nodes.gone = read, False
    expected = GuardedOutcome.DELETED if fault == "lost_requests" else GuardedOutcome.ALREADY_GONE
    assert ground.ledgers.delete(case).outcome is expected


def test_a_ledger_made_again_after_a_lost_answer_is_another_one(row):
    now = [1_000.0]
    store = MemoryMetadata(clock=lambda: now[0])
    ground = Ground(World(store, store.cluster, lambda: None, lambda: None))
    case, multi = row(ground), ground.nodes.multi

    def lost_and_undone(operations):
        multi(operations)
        now[0] += 1
        ground.cluster.put_ledger(LEDGER, METADATA)
        raise OutcomeUnknownError("lost")

    ground.nodes.multi = lost_and_undone
    assert ground.ledgers.delete(case).outcome is GuardedOutcome.LEDGER_CHANGED


@pytest.mark.parametrize("fault", [Fault.LOST_BEFORE, Fault.LOST_AFTER])
def test_over_a_connection_it_is_the_same(server, remote, row, fault):
    case, before = row(remote), remote.tree()
    server.fail(MULTI, fault)
    if fault is Fault.LOST_BEFORE:
        with pytest.raises(MetadataUnavailableError, match="still there"):
            remote.ledgers.delete(case)
        assert remote.tree() == before
    assert remote.ledgers.delete(case).outcome is GuardedOutcome.DELETED
    assert before.keys() - remote.tree().keys() == {remote.path}


def test_a_transaction_that_is_never_repeated(server, remote, row):
    case = row(remote)
    already = server.requests.count(MULTI)
    server.fail(MULTI, Fault.LOST_BEFORE)
    with pytest.raises(MetadataUnavailableError):
        remote.ledgers.delete(case)
    assert server.requests.count(MULTI) == already + 1


def test_a_deletion_that_is_not_allowed_is_said(server, remote, row):
    case, before = row(remote), remote.tree()
    server.fail(MULTI, Fault.REFUSED)
    with pytest.raises(AccessDeniedError):
        remote.ledgers.delete(case)
    assert remote.tree() == before


def test_a_service_that_is_gone_deletes_nothing(ground, row):
    case, before = row(ground), ground.tree()
    ground.nodes.gone = True
    with pytest.raises(MetadataUnavailableError):
        ground.ledgers.delete(case)
    ground.nodes.gone = False
    assert ground.tree() == before
