"""A scan through the real client, over a server on loopback that loses answers, restarts, forgets sessions, refuses."""

from __future__ import annotations

import pytest

from offloader.bookkeeper.metadata import MetadataTree
from offloader.bookkeeper.uri import MetadataUri
from offloader.bookkeeper.zookeeper import ZooKeeper
from offloader.lifecycle.ledgers.evidence import Standing
from offloader.lifecycle.ledgers.objections import OperatorsWord
from offloader.lifecycle.ledgers.refusals import RefusalKind
from offloader.lifecycle.ledgers.scanner import ClusterScanner
from offloader.lifecycle.ledgers.stores import StoreFinder
from offloader.ports.admin import BrokerStores
from tests.bookkeeper.zookeeper_server import CHILDREN, GET, SYNC, Fault, ZooKeeperServer
from tests.examples import few

from .clusters import cluster
from .written import NOW, Written


@pytest.fixture
def written():
    world = cluster(11)
    for ledger in world.foreign:
        del world.ledgers[ledger]
    return Written(world)


@pytest.fixture
def server(written):
    with ZooKeeperServer(written.nodes, session_seconds=2.0) as server:
        written.pulsar.admin.stores = (BrokerStores("broker:8080", f"zk:{server.address}"),)
        yield server


@pytest.fixture
def session(server):
    session = ZooKeeper((server.address,), timeout=1.0)
    yield session
    session.close()


def scanner_over(written, session, server, said=lambda _what, _count: None) -> ClusterScanner:
    uri = MetadataUri((server.address,))
    bookies, _ = written.bookkeeper.client()
    finder = StoreFinder(session, uri, written.pulsar.admin, lambda hosts: pytest.fail(f"{hosts}"), tries=20)
    return ClusterScanner(
        *(MetadataTree(session, uri), bookies, finder, OperatorsWord(alone=True)),
        clock_ms=lambda: NOW,
        bookie_timeout=0.01,
        verify_copies=written.verify_copies,
        said=said,
    )


def found(scan):
    return {(one.ledger.ledger, one.standing) for one in scan.verdicts}


def test_it_finds_what_a_scan_in_memory_finds(written, session, server):
    scan = scanner_over(written, session, server).scan()
    assert found(scan) == found(written.scanner().scan())
    assert scan.refusals == ()


@pytest.mark.parametrize("fault", [Fault.LOST_BEFORE, Fault.LOST_AFTER])
@pytest.mark.parametrize("kind", few([GET, CHILDREN, SYNC], 1))
def test_connections_that_are_lost_change_no_verdict(written, session, server, kind, fault):
    expected = found(scanner_over(written, session, server).scan())
    server.fail(kind, fault, fault)
    assert found(scanner_over(written, session, server).scan()) == expected


@pytest.mark.parametrize("away", ["restart", "expire"])
def test_a_server_that_goes_and_comes_back_in_the_middle(written, session, server, away):
    def gone(what: str, _count: int) -> None:
        if what == "ids" and not happened:
            happened.append(what)
            if away == "restart":
                server.stop()
                server.start()
            else:
                server.expire_sessions()

    happened: list[str] = []
    expected = found(scanner_over(written, session, server).scan())
    assert found(scanner_over(written, session, server, gone).scan()) == expected
    assert happened


def test_a_node_that_may_not_be_read_makes_all_suspect(written, session, server):
    def refuse(what: str, _count: int) -> None:
        if what == "ids":
            server.fail(GET, *[Fault.REFUSED] * 200)

    scan = scanner_over(written, session, server, refuse).scan()
    assert {one.standing for one in scan.verdicts} <= {Standing.SUSPECT}
    assert RefusalKind.LISTING_FAILED in {one.kind for one in scan.refusals}
