"""Which stores are read: what brokers and the operator say, registrations, other ZooKeepers, and what is refused."""

from __future__ import annotations

import pytest

from offloader.bookkeeper.uri import MetadataUri
from offloader.errors import AuthorizationFailedError, BrokerUnavailableError, MetadataUnavailableError
from offloader.lifecycle.ledgers.evidence import Standing
from offloader.lifecycle.ledgers.objections import OperatorsWord
from offloader.lifecycle.ledgers.places import MetadataPlace
from offloader.lifecycle.ledgers.refusals import RefusalKind
from offloader.lifecycle.ledgers.scanner import ClusterScanner
from offloader.lifecycle.ledgers.stores import StoreFinder
from offloader.ports.admin import BrokerStores
from tests.fakes.ledger_metadata import ADDRESS, ClusterMetadata
from tests.fakes.memory_nodes import MemoryNodes

from .clusters import cluster, dies_between_create_and_list_update
from .world import World, data_of
from .written import NOW, Written

BROKER = "broker:8080"


class WithOrphan(Written):
    def __init__(self, world: World, orphan: int) -> None:
        super().__init__(world)
        self.orphan = orphan


@pytest.fixture
def written():
    """A cluster with one ledger that its topic passed by."""
    world = cluster(7, steps=5)
    for ledger in world.foreign:
        del world.ledgers[ledger]
    orphan = world.create(data_of(world.topics[0]), 0)
    world.roll(world.topics[0])
    return WithOrphan(world, orphan)


def scan_of(written, *others, nodes=None, uri=ADDRESS, clusters=()):
    """`nodes`: the ZooKeepers at other hosts."""
    opened = []

    def connect(hosts):
        opened.append(hosts)
        found = (nodes or {}).get(hosts)
        if found is None:
            raise MetadataUnavailableError(f"{hosts} does not answer")
        return found

    bookies, tree = written.bookkeeper.client()
    finder = StoreFinder(tree.nodes, uri, written.pulsar.admin, connect, others, tries=2)
    word = OperatorsWord(alone=True, clusters=frozenset(clusters))
    scanner = ClusterScanner(tree, bookies, finder, word, clock_ms=lambda: NOW, bookie_timeout=0.01)
    scan = scanner.scan()
    scanner.close()
    return scan


def kinds(scan):
    return [one.kind for one in scan.refusals]


def certain(scan):
    return {one.ledger.ledger for one in scan.verdicts if one.standing is Standing.CERTAIN}


def test_nothing_is_refused_where_all_agree(written):
    scan = scan_of(written)
    assert scan.refusals == ()
    assert written.orphan in certain(scan)
    assert (scan.store, scan.root) == ("zk:memory:1", "")


@pytest.mark.parametrize("text", ["memory:1", "zk:memory:1,memory:2", "zk:MEMORY:1"])
def test_other_ways_to_write_the_same_store(written, text):
    written.pulsar.admin.stores = (BrokerStores(BROKER, text, text),)
    assert scan_of(written).refusals == ()


def test_an_address_in_place_of_a_name_is_known_by_who_is_registered_there(written):
    written.pulsar.admin.stores = (BrokerStores(BROKER, "zk:10.0.0.1:2181"),)
    assert scan_of(written).refusals == ()


def test_brokers_that_are_not_registered_where_we_look(written):
    """Another chroot, a restored copy, or the same names in another network."""
    written.pulsar.admin.stores = (BrokerStores("other:8080", "zk:memory:1"),)
    scan = scan_of(written)
    assert RefusalKind.OTHER_METADATA in kinds(scan)
    assert "other:8080 says zk:memory:1, and is not registered" in scan.refusals[0].detail
    assert certain(scan) == set()


def test_one_broker_of_two_has_another_store(written):
    written.fill.put_cluster("memory", "second:8080")
    written.pulsar.admin.stores = (BrokerStores(BROKER, "zk:memory:1"), BrokerStores("second:8080", "zk:memory:1/east"))
    assert kinds(scan_of(written)) == [RefusalKind.OTHER_METADATA, RefusalKind.OTHER_BOOKKEEPER]


def test_one_broker_of_two_has_another_bookkeeper(written):
    written.fill.put_cluster("memory", "second:8080")
    other = BrokerStores("second:8080", "zk:memory:1", "", "zk+null://elsewhere:2181/ledgers")
    written.pulsar.admin.stores = (BrokerStores(BROKER, "zk:memory:1"), other)
    assert kinds(scan_of(written)) == [RefusalKind.OTHER_BOOKKEEPER]


def test_metadata_that_are_in_no_zookeeper(written):
    written.pulsar.admin.stores = (BrokerStores(BROKER, "rocksdb:///data"),)
    scan = scan_of(written)
    assert {RefusalKind.OTHER_METADATA, RefusalKind.LISTING_FAILED} <= {*kinds(scan)}
    assert certain(scan) == set()


@pytest.mark.parametrize("error", [AuthorizationFailedError("no"), BrokerUnavailableError("away")])
def test_brokers_that_do_not_say_stand_against_deletions_and_no_verdict(written, error):
    expected = certain(scan_of(written))
    written.pulsar.faults.add("admin.*", lambda: error, times=9)
    scan = scan_of(written)
    assert {*kinds(scan)} == {RefusalKind.LISTING_FAILED}
    assert certain(scan) == expected


def test_the_metadata_store_of_brokers_is_in_another_zookeeper():
    """References are read there; ledgers cannot be guarded, and are only reported."""
    world = World(cluster(7).random)
    name = world.topic()
    world.namespaces.add("t/n9")
    dies_between_create_and_list_update(world, name)
    orphans = {*world.orphans}
    world.roll(name)
    written = Written(world)
    theirs = written.nodes
    ledgers = MemoryNodes()
    _copy(theirs, ledgers, "/ledgers")
    for path in sorted(_paths(theirs, "/ledgers"), reverse=True):
        theirs.delete(path)
    written.bookkeeper.metadata.nodes = ledgers
    written.pulsar.admin.stores = (BrokerStores(BROKER, "zk:theirs:1", "", "zk+null://memory:1/ledgers"),)
    scan = scan_of(written, nodes={("theirs:1",): theirs})
    assert certain(scan) >= orphans
    assert kinds(scan) == [RefusalKind.NO_GUARD]


def test_a_chroot_of_brokers_is_where_references_are_read(written):
    _copy(written.nodes, written.nodes, "/managed-ledgers", "/pulsar-root")
    _copy(written.nodes, written.nodes, "/schemas", "/pulsar-root")
    _copy(written.nodes, written.nodes, "/admin", "/pulsar-root")
    _copy(written.nodes, written.nodes, "/loadbalance", "/pulsar-root")
    _copy(written.nodes, written.nodes, "/pulsar", "/pulsar-root")
    written.nodes.put(f"/managed-ledgers/{written.world.topics[0]}", b"")  # somebody else's, long ago
    written.fill.delete_ledger(written.orphan)  # it is younger than its list
    written.fill.put_ledger(written.orphan, written.world.ledgers[written.orphan])
    written.pulsar.admin.stores = (BrokerStores(BROKER, "zk:memory:1/pulsar-root", "", "zk+null://memory:1/ledgers"),)
    scan = scan_of(written)
    assert scan.refusals == ()
    assert scan.root == "/pulsar-root"
    assert written.orphan in certain(scan)
    assert scan.missing == ()


def test_policies_are_read_from_the_configuration_store(written):
    configuration = MemoryNodes()
    _copy(written.nodes, configuration, "/admin", "/global")
    for path in sorted(_paths(written.nodes, "/admin"), reverse=True):
        written.nodes.delete(path)
    stores = BrokerStores(BROKER, "zk:memory:1", "zk:config:1/global")
    written.pulsar.admin.stores = (stores,)
    assert written.orphan in certain(scan_of(written, nodes={("config:1",): configuration}))
    lost = scan_of(written)
    assert certain(lost) == set()
    assert RefusalKind.LISTING_FAILED in kinds(lost)


def test_another_clusters_ledgers_are_in_use_where_its_store_is_named(written):
    """They share a BookKeeper: without its store they are orphans of unknown namespaces."""
    world = World(cluster(7).random)
    world.next_id = 10**6
    name = world.topic("east/ns/persistent/t")
    theirs = MemoryNodes()
    other = ClusterMetadata(theirs, MetadataUri(("east:1",)))
    other.put_cluster("east")
    other.put_namespace("east/ns")
    theirs.put(f"/managed-ledgers/{name}", world.nodes[f"/managed-ledgers/{name}"][0])
    for ledger, metadata in world.ledgers.items():
        written.fill.put_ledger(ledger, metadata)
    suspects = {one.ledger.ledger: one for one in scan_of(written).verdicts}
    assert {suspects[ledger].standing for ledger in world.ledgers} == {Standing.SUSPECT}
    east = MetadataPlace(("east:1",))
    scan = scan_of(written, east, nodes={("east:1",): theirs})
    assert not {*world.ledgers} & {one.ledger.ledger for one in scan.verdicts}
    assert scan.refusals == ()
    assert written.orphan in certain(scan)


def test_a_named_store_that_is_away_makes_all_suspect(written):
    scan = scan_of(written, MetadataPlace(("east:1",)))
    assert certain(scan) == set()
    assert "zk:east:1: ('east:1',) does not answer" in [one.detail for one in scan.refusals]


@pytest.mark.parametrize("folder", ["/managed-ledgers", "/admin/clusters"])
def test_what_must_not_be_empty(written, folder):
    for path in sorted(_paths(written.nodes, folder), reverse=True):
        written.nodes.delete(path)
    refused = scan_of(written).refusals
    assert (RefusalKind.NOTHING_THERE, f"{folder} of zk:memory:1") in [(one.kind, one.detail) for one in refused]


def test_the_operators_names_of_clusters_are_ours(written):
    health = data_of("pulsar/east/b:8080/persistent/healthcheck")
    written.world.create(health, 1)
    written.sync()
    assert kinds(scan_of(written)) == [RefusalKind.ANOTHER_CLUSTER]
    assert scan_of(written, clusters=["east"]).refusals == ()


def _paths(nodes, root):
    if nodes.get(root) is not None:
        yield root
        for name in nodes.children(root):
            yield from _paths(nodes, f"{root}/{name}")


def _copy(nodes, to, root, below=""):
    for path in list(_paths(nodes, root)):
        to.put(below + path, nodes.get(path).value)
