"""All ledgers are listed, once, in order, in bounded memory, in each layout; what is no ledger's is a stranger."""

from __future__ import annotations

import tracemalloc
from collections import deque
from contextlib import suppress
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.bookkeeper.layout import Layout, ledger_path
from offloader.bookkeeper.listing import LedgerListing
from offloader.bookkeeper.uri import MetadataUri
from offloader.bookkeeper.zookeeper import connect
from offloader.errors import FatalError, MetadataUnavailableError
from tests.examples import few_rows
from tests.fakes.ledger_metadata import MemoryMetadata
from tests.fakes.memory_nodes import MemoryNodes

from .metadata_contract import METADATA
from .zookeeper_server import CHILDREN, GET, Fault, ZooKeeperServer

LISTS_AHEAD = 8
PAGE = 10_000
AHEAD = 64

ROOT = "/ledgers"
MILLION = 1_000_000
FIRST_LONG = 2**31 - 1
EDGES = [0, 1, 9_999, 10_000, FIRST_LONG - 1, FIRST_LONG, FIRST_LONG + 1, 10**10 - 1, 10**10, 2**63 - 1]

ids = st.one_of(st.integers(0, 30_000), st.sampled_from(EDGES), st.integers(0, 2**63 - 1))


def filled(layout: Layout, ledgers: set[int]) -> MemoryMetadata:
    store = MemoryMetadata(layout)
    store.cluster.put_cookie("b", b"")
    store.nodes.put(f"{ROOT}/idgen/ID-0000000000", b"")
    store.nodes.put(f"{ROOT}/underreplication/ledgers/0000/0000", b"")
    for ledger in ledgers:
        store.cluster.put_ledger(ledger, METADATA)
    return store


def listing(store: MemoryMetadata) -> LedgerListing:
    return LedgerListing(store.nodes, ROOT, store.layout)


def possible(layout: Layout, ledgers: set[int]) -> set[int]:
    return {one for one in ledgers if layout is not Layout.LEGACY_HIERARCHICAL or one < 10**10}


@given(st.sampled_from(Layout), st.sets(ids, max_size=30), st.one_of(st.just(0), ids))
def test_each_ledger_from_the_start_on_is_listed_once_in_order(layout, ledgers, start):
    ledgers = possible(layout, ledgers)
    pages = list(listing(filled(layout, ledgers)).pages(start))
    found = [ledger for page in pages for ledger in page.ledgers]
    assert found == sorted(ledger for ledger in ledgers if ledger >= start)
    assert all(page.ledgers and not page.strangers for page in pages)


@given(st.sampled_from(Layout), st.sets(ids, max_size=30), st.integers(0, 10))
def test_a_listing_that_broke_off_goes_on_behind_the_last_ledger(layout, ledgers, answers):
    ledgers = possible(layout, ledgers)
    store, found = filled(layout, ledgers), list[int]()
    pages = listing(store).pages()
    for page in islice(pages, answers):
        found += page.ledgers
    store.nodes.gone = True
    with suppress(MetadataUnavailableError):  # unless all is in memory
        for page in pages:
            found += page.ledgers
    store.nodes.gone = False
    for page in listing(store).pages(found[-1] + 1 if found else 0):
        found += page.ledgers
    assert found == sorted(ledgers)


@pytest.mark.parametrize("layout", Layout)
def test_nodes_are_read_with_what_they_hold(layout):
    store = filled(layout, {1, 5, 77_777})
    (first, *_) = pages = [page.ledgers for page in listing(store).pages()]
    assert 1 in first
    store.cluster.delete_ledger(5)
    found = {ledger: node for page in pages for ledger, node in listing(store).read(page)}
    assert found == {
        1: store.nodes.get(store.path_of(1)),
        5: None,
        77_777: store.nodes.get(store.path_of(77_777)),
    }


@pytest.mark.parametrize(
    ("layout", "paths"),
    [
        (
            Layout.HIERARCHICAL,
            ["/00/0000/x", "/00/0000/L00001", "/00/0000/L\u0660\u0660\u0660\u0661", "/000/0000/0000/0000/L0001"],
        ),
        (Layout.HIERARCHICAL, ["/99/9999/L9999"]),
        (Layout.LEGACY_HIERARCHICAL, ["/00/0000/0001"]),
        (Layout.LONG_HIERARCHICAL, ["/999/9999/9999/9999/L9999"]),
        (Layout.FLAT, ["/L00000000001", "/L9999999999999999999"]),
    ],
)
def test_what_is_no_ledgers_node_is_a_stranger(layout, paths):
    store = filled(layout, {3})
    for path in paths:
        store.nodes.put(ROOT + path, b"")
    pages = list(listing(store).pages())
    assert [ledger for page in pages for ledger in page.ledgers] == [3]
    assert sorted(one for page in pages for one in page.strangers) == sorted(ROOT + path for path in paths)


@pytest.mark.parametrize("layout", Layout)
def test_what_bookkeeper_keeps_beside_ledgers_is_neither(layout):
    store = filled(layout, set())
    store.nodes.put(f"{ROOT}/00/idgen", b"")  # no folder of digits
    store.nodes.put(f"{ROOT}/INSTANCEID", b"")
    assert list(listing(store).pages()) == []


def test_empty_parents_that_deletions_leave_are_no_matter():
    store = filled(Layout.HIERARCHICAL, {1, 20_000})
    store.cluster.delete_ledger(1)
    assert [page.ledgers for page in listing(store).pages()] == [(20_000,)]


def test_a_root_that_is_not_there_is_refused():
    with pytest.raises(FatalError, match="no BookKeeper cluster at /elsewhere"):
        LedgerListing(MemoryNodes(), "/elsewhere", Layout.FLAT).pages()


def test_no_page_is_larger_than_said():
    for layout in (Layout.FLAT, Layout.HIERARCHICAL):
        sizes = [len(page.ledgers) for page in LedgerListing(Synthetic(layout, 25_000), ROOT, layout).pages()]
        assert sizes == [PAGE, PAGE, 5_000]


class Synthetic(MemoryNodes):
    """Ledgers 0 to `count`, of which no node is kept; `shift`: added to each id."""

    def __init__(self, layout: Layout, count: int, shift: int = 0) -> None:
        super().__init__()
        self.layout, self.count, self.shift = layout, count, shift
        self.asked = self.most = 0

    def children_of_each(self, paths, ahead=AHEAD):
        left, begun = iter(paths), deque[tuple[str, Any]]()
        while begun := deque([*begun, *((path, self.children(path)) for path in islice(left, ahead - len(begun)))]):
            self.most = max(self.most, len(begun))
            yield begun.popleft()

    def children(self, path, fired=None):
        self.asked += 1
        if self.layout is Layout.FLAT:
            return [f"L{n + self.shift:010d}" for n in range(self.count)]
        first, last = (ledger_path(self.layout, n + self.shift) for n in (0, self.count - 1))
        depth = path.removeprefix(ROOT).count("/") + 1
        width = len(first.split("/")[depth].removeprefix("L"))
        prefix = "L" if depth == first.count("/") else ""
        digits, low, high = (one.replace("/", "").replace("L", "") for one in (path.removeprefix(ROOT), first, last))
        end = len(digits) + width
        if not low[: len(digits)] <= digits <= high[: len(digits)]:
            return None
        begin = int(low[len(digits) : end]) if low.startswith(digits) else 0
        stop = int(high[len(digits) : end]) if high.startswith(digits) else 10**width - 1
        return [f"{prefix}{n:0{width}d}" for n in range(begin, stop + 1)]


@pytest.mark.parametrize("layout", [Layout.HIERARCHICAL, Layout.LONG_HIERARCHICAL])
def test_what_is_before_the_start_is_not_asked_for(layout):
    nodes = Synthetic(layout, MILLION)
    found = [ledger for page in LedgerListing(nodes, ROOT, layout).pages(MILLION - 5) for ledger in page.ledgers]
    assert found == list(range(MILLION - 5, MILLION))
    assert nodes.asked <= 5  # the root, and one node of each level


TREES = [(Layout.HIERARCHICAL, 0), (Layout.HIERARCHICAL, FIRST_LONG + 5), (Layout.LONG_HIERARCHICAL, 0)]


def test_a_million_ledgers_are_listed_with_few_requests():
    nodes, seen = Synthetic(Layout.HIERARCHICAL, MILLION), 0
    for page in LedgerListing(nodes, ROOT, Layout.HIERARCHICAL).pages():
        assert page.ledgers == tuple(range(seen, seen + PAGE))
        seen += PAGE
    assert seen == MILLION
    assert nodes.asked < 120


@pytest.mark.parametrize(("layout", "shift"), few_rows(TREES, 1))
def test_what_is_in_memory_is_bounded_by_pages(layout, shift):
    nodes = Synthetic(layout, 20 * PAGE, shift)
    tracemalloc.start()
    seen = sum(len(page.ledgers) for page in LedgerListing(nodes, ROOT, layout).pages())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seen == 20 * PAGE
    assert nodes.most == LISTS_AHEAD
    assert peak < (LISTS_AHEAD + 2) * PAGE * 80


# Over a connection


@pytest.fixture
def server():
    with ZooKeeperServer(MemoryNodes(), session_seconds=2.0) as server:
        yield server


@pytest.fixture
def remote(server):
    store = filled(Layout.HIERARCHICAL, set(range(0, 300_000, 5_000)) | {FIRST_LONG + 7})
    server.nodes = store.nodes
    tree = connect(MetadataUri((server.address,)), timeout=10.0)
    yield LedgerListing(tree.nodes, ROOT, tree.layout, ahead=16)
    tree.close()


def test_over_a_connection_it_is_the_same(remote):
    found = [ledger for page in remote.pages() for ledger in page.ledgers]
    assert found == [*range(0, 300_000, 5_000), FIRST_LONG + 7]
    assert all(node is not None for _, node in remote.read(found))


@pytest.mark.parametrize("fault", [Fault.LOST_BEFORE, Fault.LOST_AFTER])
def test_a_lost_connection_loses_no_ledger(server, remote, fault):
    server.fail(CHILDREN, *[fault] * 3)
    server.fail(GET, *[fault] * 3)
    found = [ledger for page in remote.pages() for ledger in page.ledgers]
    assert found == [*range(0, 300_000, 5_000), FIRST_LONG + 7]
    assert [ledger for ledger, node in remote.read(found) if node is not None] == found


def test_requests_in_flight_are_bounded(server, remote):
    pages = remote.pages()
    next(pages)
    before = server.requests.count(CHILDREN)
    assert before <= 1 + 3 * LISTS_AHEAD  # the root, and each level of the short tree
    server.hold(GET, 16)
    found = remote.read(range(0, 300_000, 5_000))
    next(found)
    assert server.requests.count(GET) <= 16 + 1  # and LAYOUT
