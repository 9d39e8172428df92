"""The tree of nodes in memory does what every one must do, and transactions are what a simple model says."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.bookkeeper.nodes import CheckNode, CreateNode, DeleteNode, Node, NodeOperation, SetNode
from offloader.errors import NodeRefusal, OperationRefusedError, OutcomeUnknownError
from tests.fakes.ledger_metadata import MemoryMetadata
from tests.fakes.memory_nodes import MemoryNodes

from .metadata_contract import World
from .nodes_contract import NodesContract

PATHS = ["/a", "/b", "/a/x", "/a/y", "/a/x/deep"]


class TestMemoryNodes(NodesContract):
    @pytest.fixture
    def world(self) -> World:
        store = MemoryMetadata()

        def goes():
            store.nodes.gone = True

        def comes():
            store.nodes.gone = False

        return World(store, store.cluster, goes, comes)


@pytest.mark.parametrize("fault", ["lost_requests", "lost_answers"])
def test_a_transaction_whose_answer_is_lost_is_done_or_not(fault):
    nodes = MemoryNodes()
    setattr(nodes, fault, 1)
    with pytest.raises(OutcomeUnknownError):
        nodes.multi([CreateNode("/a"), CreateNode("/a/b")])
    assert (nodes.get("/a/b") is not None) == (fault == "lost_answers")
    nodes.create("/c")


def test_a_refused_transaction_has_an_answer_that_can_be_lost_later():
    nodes = MemoryNodes()
    nodes.lost_answers = 1
    with pytest.raises(OperationRefusedError):
        nodes.delete("/none", 0)
    with pytest.raises(OutcomeUnknownError):
        nodes.create("/a")


def test_watches_fire_for_what_a_transaction_changed_and_for_nothing_else():
    nodes, fired = MemoryNodes(), list[str]()
    for path in ("/a", "/b", "/b/c", "/d"):
        nodes.create(path)
    for path in ("/a", "/b", "/b/c", "/d"):
        nodes.get(path, partial(fired.append, path))
        nodes.children(path, partial(fired.append, f"{path}/*"))
    with pytest.raises(OperationRefusedError):
        nodes.multi([SetNode("/a", b"", 0), CheckNode("/none", 0)])
    assert fired == []
    nodes.multi([SetNode("/a", b"", 0), DeleteNode("/b/c", 0), CheckNode("/d", 0)])
    assert sorted(fired) == ["/a", "/b/*", "/b/c", "/b/c/*"]


def test_a_refusal_survives_the_way_to_another_process():
    error = OperationRefusedError("why", 3, NodeRefusal.NODE_EXISTS)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.operation, again.refusal) == ("why", 3, NodeRefusal.NODE_EXISTS)


Values = dict[str, tuple[bytes, int]]


def modelled(before: Values, operations: list[NodeOperation]) -> tuple[Values, tuple[int, NodeRefusal] | None]:
    """What a transaction leaves, and what was refused: the tree as a table of values and versions."""
    after = dict(before)
    for index, one in enumerate(operations):
        refusal = None
        if isinstance(one, CreateNode):
            parent = one.path.rpartition("/")[0]
            if one.path in after:
                refusal = NodeRefusal.NODE_EXISTS
            elif parent and parent not in after:
                refusal = NodeRefusal.NO_NODE
            else:
                after[one.path] = (one.value, 0)
        elif one.path not in after:
            refusal = NodeRefusal.NO_NODE
        elif after[one.path][1] != one.version:
            refusal = NodeRefusal.BAD_VERSION
        elif isinstance(one, SetNode):
            after[one.path] = (one.value, one.version + 1)
        elif isinstance(one, DeleteNode):
            if any(path.startswith(f"{one.path}/") for path in after):
                refusal = NodeRefusal.NOT_EMPTY
            else:
                del after[one.path]
        if refusal is not None:
            return before, (index, refusal)
    return after, None


versions = st.integers(0, 2)
operations = st.one_of(
    st.builds(CheckNode, st.sampled_from(PATHS), versions),
    st.builds(SetNode, st.sampled_from(PATHS), st.binary(max_size=1), versions),
    st.builds(CreateNode, st.sampled_from(PATHS), st.binary(max_size=1)),
    st.builds(DeleteNode, st.sampled_from(PATHS), versions),
)


def seen(nodes: MemoryNodes) -> Values:
    found: dict[str, Node | None] = dict(nodes.get_each(PATHS))
    return {path: (node.value, node.version) for path, node in found.items() if node is not None}


def births(nodes: MemoryNodes) -> dict[str, int]:
    return {path: node.born for path, node in nodes.get_each(PATHS) if node is not None}


def refusal_of(nodes: MemoryNodes, transaction: list[NodeOperation]) -> tuple[int, NodeRefusal] | None:
    try:
        nodes.multi(transaction)
    except OperationRefusedError as error:
        return error.operation, error.refusal
    return None


@given(st.lists(st.lists(operations, max_size=5), max_size=8))
def test_transactions_do_all_or_nothing_as_the_model_says(transactions):
    nodes, model = MemoryNodes(), dict[str, Any]()
    for transaction in transactions:
        before = births(nodes)
        model, expected = modelled(model, transaction)
        assert refusal_of(nodes, transaction) == expected
        assert expected is None or births(nodes) == before
        assert seen(nodes) == model
        for path in PATHS:
            below = nodes.children(path)
            assert (below is None) == (path not in model)
            assert set(below or ()) == {one.rpartition("/")[2] for one in model if one.rpartition("/")[0] == path}
