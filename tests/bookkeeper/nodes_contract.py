"""What every tree of nodes must do. Each one's test module runs all of it: `class TestX(NodesContract)` with a fixture
`world`, as for `MetadataContract`."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from offloader.bookkeeper.listing import LedgerListing
from offloader.bookkeeper.nodes import (
    AclEntry,
    CheckNode,
    CreateNode,
    DeleteNode,
    Nodes,
    SetNode,
)
from offloader.errors import MetadataUnavailableError, NodeRefusal, OperationRefusedError
from tests.fakes.memory_nodes import ANYONE

from .metadata_contract import BIG, METADATA, World

READ_ONLY = (AclEntry(1, "world", "anyone"),)


class NodesContract:
    """Nodes, see there."""

    @pytest.fixture
    def nodes(self, world: World) -> Nodes:
        return world.store.nodes

    @pytest.fixture
    def top(self, world: World) -> str:
        """A node that only this test knows."""
        top = f"{world.store.uri.root}/test"
        world.store.nodes.create(top, parents=True)
        return top

    def test_a_node_is_created_once(self, nodes, top):
        nodes.create(f"{top}/a", b"x")
        before = nodes.get(f"{top}/a")
        assert (before.value, before.version) == (b"x", 0)
        assert before.created_ms == before.modified_ms > 10**12
        assert _refusal(lambda: nodes.create(f"{top}/a", b"y")) == (0, NodeRefusal.NODE_EXISTS)
        assert nodes.get(f"{top}/a") == before

    def test_of_several_creators_one_wins(self, nodes, top):
        def create(value):
            try:
                nodes.create(f"{top}/a", value)
            except OperationRefusedError:
                return None
            return value

        with ThreadPoolExecutor(8) as pool:
            (winner,) = filter(None, pool.map(create, [b"%d" % n for n in range(8)]))
        assert nodes.get(f"{top}/a").value == winner

    def test_missing_parents_are_created_only_where_that_is_asked_for(self, nodes, top):
        assert _refusal(lambda: nodes.create(f"{top}/a/b/c", b"x")) == (0, NodeRefusal.NO_NODE)
        assert nodes.children(top) == []
        nodes.create(f"{top}/a/b/c", b"x", parents=True)
        nodes.create(f"{top}/a/b/d", b"y", parents=True)
        assert [nodes.get(f"{top}{path}").value for path in ("/a", "/a/b", "/a/b/c", "/a/b/d")] == [
            b"",
            b"",
            b"x",
            b"y",
        ]
        assert _refusal(lambda: nodes.create(f"{top}/a/b", parents=True)) == (0, NodeRefusal.NODE_EXISTS)

    def test_several_create_the_same_parents(self, nodes, top):
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: nodes.create(f"{top}/a/b/{n}", parents=True), range(8)))
        assert sorted(nodes.children(f"{top}/a/b")) == [str(n) for n in range(8)]

    def test_who_may_do_what_is_kept(self, nodes, top):
        entries = (AclEntry(31, "world", "anyone"), AclEntry(1, "ip", "127.0.0.1"))
        nodes.create(f"{top}/a/b", b"x", entries, parents=True)
        nodes.create(f"{top}/open")
        assert nodes.get(f"{top}/a/b", with_acl=True).acl == entries
        assert nodes.get(f"{top}/a", with_acl=True).acl == entries
        assert nodes.get(f"{top}/open", with_acl=True).acl == ANYONE
        assert nodes.get(f"{top}/open").acl is None
        assert nodes.get(f"{top}/none", with_acl=True) is None

    def test_a_node_that_is_created_with_the_same_bytes_again_is_another_one(self, nodes, top):
        nodes.create(f"{top}/a", b"x", READ_ONLY)
        nodes.create(f"{top}/b", b"x")
        first = nodes.get(f"{top}/a", with_acl=True)
        nodes.delete(f"{top}/a", 0)
        time.sleep(0.002)
        nodes.create(f"{top}/a", first.value, first.acl)
        again = nodes.get(f"{top}/a", with_acl=True)
        assert (again.value, again.version, again.acl) == (first.value, first.version, first.acl)
        assert again.created_ms > first.created_ms
        assert first.born < nodes.get(f"{top}/b").born < again.born
        nodes.set(f"{top}/b", b"y", 0)
        assert nodes.get(f"{top}/b").born == nodes.get(f"{top}/b", latest=True).born < again.born

    def test_only_the_version_that_was_read_is_deleted(self, nodes, top):
        nodes.create(f"{top}/a", b"x")
        nodes.set(f"{top}/a", b"y", 0)
        for wrong in (0, 2):
            assert _refusal(lambda version=wrong: nodes.delete(f"{top}/a", version)) == (0, NodeRefusal.BAD_VERSION)
        assert nodes.get(f"{top}/a").value == b"y"
        nodes.delete(f"{top}/a", 1)
        assert nodes.get(f"{top}/a") is None
        assert _refusal(lambda: nodes.delete(f"{top}/a", 1)) == (0, NodeRefusal.NO_NODE)

    def test_a_node_with_others_below_it_is_not_deleted(self, nodes, top):
        nodes.create(f"{top}/a/b", parents=True)
        assert _refusal(lambda: nodes.delete(f"{top}/a", 0)) == (0, NodeRefusal.NOT_EMPTY)
        assert nodes.children(f"{top}/a") == ["b"]

    @pytest.mark.parametrize("call", [CheckNode, DeleteNode, lambda path, version: SetNode(path, b"", version)])
    def test_no_operation_is_for_any_version(self, call):
        with pytest.raises(ValueError, match="no node's version"):
            call("/a", -1)

    def test_a_delete_of_any_version_is_refused(self, nodes, top):
        nodes.create(f"{top}/a")
        with pytest.raises(ValueError, match="no node's version"):
            nodes.delete(f"{top}/a", -1)
        assert nodes.get(f"{top}/a") is not None

    def test_a_transaction_does_all(self, nodes, top):
        for name in "abc":
            nodes.create(f"{top}/{name}", name.encode())
        nodes.multi(
            [
                CheckNode(f"{top}/a", 0),
                SetNode(f"{top}/b", b"new", 0),
                DeleteNode(f"{top}/c", 0),
                CreateNode(f"{top}/d", b"d", READ_ONLY),
            ]
        )
        assert nodes.get(f"{top}/a").version == 0
        assert nodes.get(f"{top}/b")[:2] == (b"new", 1)
        assert nodes.get(f"{top}/c") is None
        assert nodes.get(f"{top}/d", with_acl=True).acl == READ_ONLY
        assert sorted(nodes.children(top)) == ["a", "b", "d"]

    def test_an_operation_finds_what_those_before_it_left(self, nodes, top):
        nodes.multi(
            [
                CreateNode(f"{top}/a"),
                CreateNode(f"{top}/a/b", b"x"),
                SetNode(f"{top}/a/b", b"y", 0),
                CheckNode(f"{top}/a/b", 1),
                DeleteNode(f"{top}/a/b", 1),
                DeleteNode(f"{top}/a", 0),
                CreateNode(f"{top}/a", b"z"),
            ]
        )
        assert nodes.get(f"{top}/a")[:2] == (b"z", 0)
        assert nodes.children(f"{top}/a") == []

    @pytest.mark.parametrize(
        ("made", "refusal"),
        [
            (lambda top: CheckNode(f"{top}/a", 1), NodeRefusal.BAD_VERSION),
            (lambda top: CheckNode(f"{top}/none", 0), NodeRefusal.NO_NODE),
            (lambda top: SetNode(f"{top}/a", b"", 1), NodeRefusal.BAD_VERSION),
            (lambda top: SetNode(f"{top}/none", b"", 0), NodeRefusal.NO_NODE),
            (lambda top: CreateNode(f"{top}/a"), NodeRefusal.NODE_EXISTS),
            (lambda top: CreateNode(f"{top}/none/b"), NodeRefusal.NO_NODE),
            (lambda top: DeleteNode(f"{top}/a", 1), NodeRefusal.BAD_VERSION),
            (lambda top: DeleteNode(f"{top}/none", 0), NodeRefusal.NO_NODE),
            (lambda top: DeleteNode(f"{top}/full", 0), NodeRefusal.NOT_EMPTY),
            (
                lambda top: SetNode(f"{top}/before", b"", 0),
                NodeRefusal.BAD_VERSION,
            ),  # an operation before it changed it
            (lambda top: CreateNode(f"{top}/new"), NodeRefusal.NODE_EXISTS),
            (lambda top: CheckNode(f"{top}/old", 0), NodeRefusal.NO_NODE),
        ],
    )
    @pytest.mark.parametrize("behind", [False, True])
    def test_a_refused_transaction_does_nothing_and_names_the_operation(self, nodes, top, made, refusal, behind):
        for name in ("a", "before", "old", "full", "full/x"):
            nodes.create(f"{top}/{name}")
        found = {name: nodes.get(f"{top}/{name}") for name in ("a", "before", "old", "full")}
        operations = [
            CreateNode(f"{top}/new"),
            DeleteNode(f"{top}/old", 0),
            SetNode(f"{top}/before", b"x", 0),
            made(top),
        ]
        if behind:  # which cannot be done either
            operations += [CheckNode(f"{top}/a", 0), CheckNode(f"{top}/none", 5)]
        assert _refusal(lambda: nodes.multi(operations)) == (3, refusal)
        assert {name: nodes.get(f"{top}/{name}") for name in found} == found
        assert sorted(nodes.children(top)) == ["a", "before", "full", "old"]

    def test_a_refusal_names_the_node(self, nodes, top):
        nodes.create(f"{top}/a")
        with pytest.raises(OperationRefusedError, match=rf"^{top}/a: somebody else changed it after version 3$"):
            nodes.multi([CheckNode(top, 0), CheckNode(f"{top}/a", 3)])

    def test_of_transactions_that_exclude_each_other_one_is_done(self, nodes, top):
        nodes.create(f"{top}/guard")

        def change(n):
            try:
                nodes.multi([SetNode(f"{top}/guard", b"", 0), CreateNode(f"{top}/{n}")])
            except OperationRefusedError as error:
                return error.operation, error.refusal
            return None

        with ThreadPoolExecutor(8) as pool:
            refusals = list(pool.map(change, range(8)))
        assert sorted(nodes.children(top)) == [str(refusals.index(None)), "guard"]
        refusals.remove(None)
        assert refusals == [(0, NodeRefusal.BAD_VERSION)] * 7

    def test_nothing_is_a_transaction(self, nodes):
        nodes.multi([])

    def test_many_are_read_in_their_order(self, nodes, top):
        for n in range(20):
            nodes.create(f"{top}/{n}/{n}", b"%d" % n, parents=True)
        names = [str(n) for n in reversed(range(25))]
        found = list(nodes.get_each((f"{top}/{name}/{name}" for name in names), ahead=3))
        assert [path for path, _ in found] == [f"{top}/{name}/{name}" for name in names]
        assert [node and node.value for _, node in found] == [None] * 5 + [name.encode() for name in names[5:]]
        assert found[-1][1] == nodes.get(f"{top}/0/0")
        below = list(nodes.children_of_each((f"{top}/{name}" for name in names), ahead=3))
        assert below == [(f"{top}/{name}", None if int(name) > 19 else [name]) for name in names]

    def test_no_more_paths_are_taken_than_may_be_in_flight(self, nodes, top):
        taken = []

        def paths():
            for n in range(50):
                taken.append(n)
                yield f"{top}/{n}"

        for given, _ in enumerate(nodes.get_each(paths(), ahead=4), start=1):
            assert len(taken) <= given + 3

    @pytest.mark.parametrize("start", [0, 5, 6, BIG])
    def test_ledgers_are_listed_from_a_start_on_and_read(self, world, start):
        ledgers = [0, 5, 9_999, 10_000, BIG]
        for ledger in ledgers:
            world.cluster.put_ledger(ledger, METADATA)
        listing = LedgerListing(world.store.nodes, world.store.uri.root, world.store.layout)
        pages = list(listing.pages(start))
        assert [ledger for page in pages for ledger in page.ledgers] == [one for one in ledgers if one >= start]
        assert not any(page.strangers for page in pages)
        nodes = {ledger: node for page in pages for ledger, node in listing.read(page.ledgers)}
        assert nodes == {one: world.store.nodes.get(world.store.path_of(one)) for one in nodes}

    def test_what_was_written_shows_after_a_sync(self, nodes, top):
        nodes.create(f"{top}/a")
        nodes.sync(f"{top}/a")
        assert nodes.get(f"{top}/a") is not None
        nodes.sync(f"{top}/none")

    def test_a_tree_that_is_gone_is_unavailable(self, world, top):
        nodes = world.store.nodes
        world.goes()
        for call in (
            lambda: nodes.sync(top),
            lambda: nodes.create(f"{top}/a"),
            lambda: nodes.create(f"{top}/a/b", parents=True),
            lambda: nodes.delete(top, 0),
            lambda: nodes.multi([CheckNode(top, 0)]),
            lambda: nodes.get(top, with_acl=True),
            lambda: list(nodes.get_each([top])),
            lambda: list(nodes.children_of_each([top])),
        ):
            with pytest.raises(MetadataUnavailableError):
                call()
        world.comes()


def _refusal(call):
    with pytest.raises(OperationRefusedError) as caught:
        call()
    return caught.value.operation, caught.value.refusal
