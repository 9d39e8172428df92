"""The session with ZooKeeper: what is lost on the way, what hangs, what ends. Against a server on loopback."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

from offloader.bookkeeper.api import BookieAddress
from offloader.bookkeeper.layout import Layout
from offloader.bookkeeper.metadata import MetadataTree
from offloader.bookkeeper.nodes import CreateNode
from offloader.bookkeeper.uri import MetadataUri
from offloader.bookkeeper.zookeeper import ZooKeeper, connect
from offloader.errors import AccessDeniedError, ConfigError, FatalError, MetadataUnavailableError, OutcomeUnknownError
from tests.fakes.ledger_metadata import ClusterMetadata
from tests.fakes.memory_nodes import MemoryNodes

from .metadata_contract import METADATA, MetadataContract, World, closed, soon
from .nodes_contract import NodesContract
from .zookeeper_server import CHILDREN, GET, GET_ACL, MULTI, SET, SYNC, Fault, ZooKeeperServer

TIMEOUT = 0.3
IN_TIME = 30.0  # seconds, on a busy machine: who did not give up would wait without end
PATIENT = 10.0


@pytest.fixture
def server():
    with ZooKeeperServer(MemoryNodes(), session_seconds=2.0) as server:
        yield server


@pytest.fixture
def cluster(server):
    cluster = ClusterMetadata(server.nodes, MetadataUri((server.address,)))
    cluster.format()
    return cluster


@pytest.fixture
def store(server, cluster):
    cluster.put_ledger(1, METADATA)
    store = connect(f"zk://{server.address}/ledgers", timeout=PATIENT)
    yield store
    store.close()


@pytest.fixture
def hasty(server, cluster):
    """The same for what must time out."""
    cluster.put_ledger(1, METADATA)
    store = connect(f"zk://{server.address}/ledgers", timeout=TIMEOUT)
    yield store
    server.resume()
    store.close()


@contextmanager
def world_of(server, timeout):
    uri = MetadataUri((server.address,), "/a/root", Layout.HIERARCHICAL)
    cluster = ClusterMetadata(server.nodes, uri)
    cluster.format()
    store = connect(uri, timeout=timeout)
    yield World(store, cluster, server.stop, server.start)
    store.close()


@pytest.fixture
def hasty_world(server):
    with world_of(server, TIMEOUT) as world:
        yield world


class TestLoopback(MetadataContract):
    @pytest.fixture
    def world(self, hasty_world) -> World:
        return hasty_world


class TestLoopbackNodes(NodesContract):
    @pytest.fixture
    def world(self, request, server):
        hasty = request.node.originalname == "test_a_tree_that_is_gone_is_unavailable"
        with world_of(server, TIMEOUT if hasty else PATIENT) as world:
            yield world


@pytest.mark.parametrize("fault", [Fault.LOST_BEFORE, Fault.LOST_AFTER])
def test_a_transaction_whose_answer_is_lost_has_an_unknown_outcome(server, store, fault):
    server.fail(MULTI, fault)
    with pytest.raises(OutcomeUnknownError, match="answer"):
        store.nodes.multi([CreateNode("/ledgers/new"), CreateNode("/ledgers/new/x")])
    done = store.nodes.get("/ledgers/new/x", latest=True) is not None
    assert done == (fault is Fault.LOST_AFTER)
    assert server.requests.count(MULTI) == 1


def test_a_transaction_that_is_not_answered_in_time_has_an_unknown_outcome(server, hasty):
    hasty.read(1)
    server.hang()
    with pytest.raises(OutcomeUnknownError):
        hasty.nodes.delete("/ledgers/00/0000/L0001", 0)


def test_what_timed_out_may_be_done_later(server, store, monkeypatch):
    """The call gives up; the session, which lasts longer, does not: what was sent arrives."""
    store.read(1)
    monkeypatch.setattr(store.nodes, "_timeout", TIMEOUT)
    server.hang()
    with pytest.raises(OutcomeUnknownError):
        store.nodes.create("/ledgers/late")
    server.resume()
    monkeypatch.undo()
    soon(lambda: _is_there(store, "/ledgers/late"))
    assert server.nodes.get("/ledgers/late") is not None


def test_parents_that_are_made_by_a_lost_answer_are_no_ones_trouble(server, store):
    server.fail(MULTI, Fault.LOST_AFTER)
    with pytest.raises(OutcomeUnknownError):
        store.nodes.create("/new", parents=True)
    store.nodes.create("/new/b/c", parents=True)
    assert server.nodes.get("/new/b/c") is not None


def test_a_refused_transaction_is_said(server, store):
    server.fail(MULTI, Fault.REFUSED)
    with pytest.raises(AccessDeniedError, match="refuses access to /ledgers/a"):
        store.nodes.create("/ledgers/a")


def test_an_acl_is_of_the_node_that_was_read(server, cluster, store):
    """Between the two requests it was deleted and created again."""
    cluster.put_cookie("b", b"first")
    server.before[GET_ACL] = lambda: (cluster.delete_cookie("b"), cluster.put_cookie("b", b"second"))
    node = store.nodes.get("/ledgers/cookies/b", with_acl=True)
    assert node == server.nodes.get("/ledgers/cookies/b", with_acl=True)
    assert node.value == b"second"


def test_many_reads_are_in_flight_at_once_and_no_more_than_said(server, cluster, store):
    for n in range(40):
        cluster.put_cookie(f"b-{n}", b"%d" % n)
    server.hold(GET, 8)  # nothing is answered before so many are there
    before = len(server.requests)
    found = store.nodes.get_each((f"/ledgers/cookies/b-{n}" for n in range(40)), ahead=8)
    assert next(found)[1].value == b"0"
    assert server.requests[before:].count(GET) == 8
    assert [node.value for _, node in found] == [b"%d" % n for n in range(1, 40)]


@pytest.mark.parametrize("fault", [Fault.LOST_BEFORE, Fault.LOST_AFTER])
def test_reads_in_flight_are_repeated_where_the_connection_is_lost(server, cluster, store, fault):
    for n in range(20):
        cluster.put_cookie(f"b-{n}", b"%d" % n)
    server.fail(GET, fault)
    found = store.nodes.get_each((f"/ledgers/cookies/b-{n}" for n in range(20)), ahead=8)
    assert [node.value for _, node in found] == [b"%d" % n for n in range(20)]
    assert [path for path, _ in store.nodes.children_of_each(["/ledgers", "/none"])] == ["/ledgers", "/none"]


def test_many_reads_end_with_the_session(server, cluster, store):
    found = store.nodes.get_each(f"/ledgers/cookies/b-{n}" for n in range(1000))
    next(found)
    store.close()
    with pytest.raises(MetadataUnavailableError, match="closed"):
        list(found)


def _is_there(store, path):
    try:
        return store.nodes.get(path, latest=True) is not None
    except MetadataUnavailableError:
        return False


def test_a_write_whose_answer_is_lost_has_an_unknown_outcome(server, store):
    metadata, version = store.read(1)
    server.fail(SET, Fault.LOST_AFTER)
    with pytest.raises(OutcomeUnknownError, match="answer"):
        store.write(1, closed(metadata, 1), version)
    assert store.read(1) == (closed(metadata, 1), version + 1)


def test_a_write_that_is_lost_has_an_unknown_outcome(server, store):
    metadata, version = store.read(1)
    server.fail(SET, Fault.LOST_BEFORE)
    with pytest.raises(OutcomeUnknownError):
        store.write(1, closed(metadata, 1), version)
    assert store.read(1) == (metadata, version)
    assert server.requests.count(SET) == 1


def test_a_write_that_is_not_answered_in_time_has_an_unknown_outcome(server, hasty):
    metadata, version = hasty.read(1)
    server.hang()
    with pytest.raises(OutcomeUnknownError):
        hasty.write(1, closed(metadata, 1), version)


@pytest.mark.parametrize("fault", [Fault.LOST_BEFORE, Fault.LOST_AFTER])
@pytest.mark.parametrize("kind", [GET, SYNC])
def test_a_read_is_repeated(server, store, kind, fault):
    server.fail(kind, fault, fault)
    assert store.read(1).metadata.ensemble_size == 3


def test_a_read_is_as_new_as_its_call(server, store):
    store.read(1)
    before = len(server.requests)
    store.read(1)
    assert server.requests[before:] == [SYNC, GET]


def test_bookies_are_asked_for_once(server, cluster, store):
    cluster.register("b", BookieAddress("b", 1))
    assert store.available() == {"b": True}
    assert store.address("b") == ("b", 1)
    before = len(server.requests)
    for _ in range(10):
        store.available()
        store.address("b")
    assert server.requests[before:] == []


def test_what_changed_while_the_connection_was_lost_is_seen(server, cluster, store):
    cluster.register("b", BookieAddress("b", 1))
    store.available()
    store.address("b")
    server.stop()
    cluster.register("b", BookieAddress("moved", 2))
    cluster.register("c", BookieAddress("c", 1))
    server.start()
    soon(lambda: store.address("b") == ("moved", 2))
    soon(lambda: store.available() == {"b": True, "c": True})


def test_an_expired_session_is_begun_anew(server, cluster, store):
    cluster.register("b", BookieAddress("b", 1))
    assert store.address("b") == ("b", 1)
    server.expire_sessions()
    assert store.read(1).version == 0
    cluster.register("b", BookieAddress("moved", 2))
    soon(lambda: store.address("b") == ("moved", 2))


def test_a_write_waits_for_a_connection(server, store, caplog):
    metadata, version = store.read(1)
    server.stop()
    soon(lambda: "was lost" in caplog.text)
    starter = threading.Timer(0.2, server.start)
    starter.start()
    assert store.write(1, closed(metadata, 4), version) == version + 1
    starter.join()


@pytest.mark.parametrize("kind", [GET, CHILDREN])
def test_what_is_refused_is_said(server, cluster, store, kind):
    server.fail(kind, Fault.REFUSED)
    with pytest.raises(AccessDeniedError, match=r"refuses access to /ledgers"):
        store.available() if kind == CHILDREN else store.cookie("b")


def test_a_refused_write_is_said(server, store):
    metadata, version = store.read(1)
    server.fail(SET, Fault.REFUSED)
    with pytest.raises(AccessDeniedError):
        store.write(1, closed(metadata, 1), version)


def test_a_server_that_hangs_is_unavailable_in_time(server, hasty):
    hasty.read(1)
    server.hang()
    begun = time.monotonic()
    with pytest.raises(MetadataUnavailableError, match=r"did not answer within 0\.3 s"):
        hasty.read(1)
    assert time.monotonic() - begun < IN_TIME


def test_no_server_at_all_is_unavailable_in_time(server):
    server.stop()
    begun = time.monotonic()
    with pytest.raises(MetadataUnavailableError, match=server.address):
        connect(f"zk:{server.address}", timeout=TIMEOUT)
    assert time.monotonic() - begun < IN_TIME


def test_a_server_that_hangs_from_the_beginning_is_unavailable_in_time(server):
    server.hang()
    begun = time.monotonic()
    with pytest.raises(MetadataUnavailableError):
        connect(f"zk:{server.address}", timeout=TIMEOUT)
    assert time.monotonic() - begun < IN_TIME


def test_of_several_servers_one_that_answers_is_enough(server, cluster):
    cluster.put_ledger(1, METADATA)
    with ZooKeeperServer(server.nodes, session_seconds=TIMEOUT) as other:
        server.hang()
        store = connect(f"zk://{server.address},{other.address}/ledgers", timeout=PATIENT / 4)
        other.hang()
        server.resume()
        assert store.read(1).metadata.ensemble_size == 3
        other.resume()
        store.close()


def test_a_name_that_does_not_resolve_is_unavailable():
    with pytest.raises(MetadataUnavailableError, match=r"nowhere\.invalid"):
        connect("zk:nowhere.invalid:1", timeout=TIMEOUT)


@pytest.mark.parametrize("hangs", [False, True])
def test_nothing_is_left_after_closing(server, cluster, hangs):
    cluster.register("b", BookieAddress("b", 1))
    before = set(threading.enumerate())
    store = connect(f"zk:{server.address}", timeout=TIMEOUT)
    store.address("b")
    if hangs:
        server.hang()
    begun = time.monotonic()
    store.close()
    assert time.monotonic() - begun < IN_TIME
    server.resume()
    server.drop()
    assert set(threading.enumerate()) <= before
    with pytest.raises(MetadataUnavailableError, match="closed"):
        store.read(1)
    store.close()


def test_a_call_under_way_ends_with_the_session(server, store):
    store.read(1)
    server.stop()
    errors = []

    def read():
        try:
            store.read(1)
        except MetadataUnavailableError as error:
            errors.append(str(error))

    reader = threading.Thread(target=read)
    reader.start()
    store.close()
    reader.join()
    assert len(errors) == 1
    assert "closed" in errors[0]


def test_the_log_tells_a_loss_once(server, store, caplog):
    caplog.set_level(logging.INFO)
    store.read(1)
    server.stop()
    soon(lambda: "was lost" in caplog.text)
    server.start()
    store.read(1)
    soon(lambda: "answers again" in caplog.text)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_another_layout_than_the_uri_asks_for_is_refused(server, cluster):
    store = MetadataTree(
        ZooKeeper((server.address,), timeout=PATIENT), MetadataUri((server.address,), layout=Layout.FLAT)
    )
    with pytest.raises(FatalError, match=r"another layout than its cluster has \(hierarchical\): write zk://"):
        store.read(1)
    store.close()


def test_a_root_without_a_cluster_is_refused(server):
    store = connect(f"zk://{server.address}/elsewhere")
    for call in (lambda: store.read(1), store.available):
        with pytest.raises(FatalError, match="there is no BookKeeper cluster at zk://127"):
            call()
    store.close()


def test_a_wrong_uri_is_refused():
    with pytest.raises(ConfigError, match=r"^pulsar\.metadataServiceUri: "):
        connect("etcd:http://localhost:2379")


def test_without_kazoo_the_error_says_what_to_install():
    program = (
        "import sys; sys.modules['kazoo'] = sys.modules['kazoo.client'] = None\n"
        "from offloader.errors import FatalError\n"
        "try:\n    import offloader.bookkeeper.zookeeper\n"
        "except FatalError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "reading ZooKeeper needs kazoo: pip install 'pulsar-streaming-offloader[bookkeeper]'\n"
