"""The service over connections to a ZooKeeper: two processes, each with its own session, and answers that are lost."""

from __future__ import annotations

import pytest

from offloader.bookkeeper.uri import MetadataUri
from offloader.bookkeeper.zookeeper import connect
from offloader.lifecycle.deletion.bookkeeper_side import BookKeeperSide
from offloader.lifecycle.deletion.owners import LoadedTopics
from offloader.lifecycle.deletion.records import DeletionState
from tests.bookkeeper.zookeeper_server import MULTI, Fault, ZooKeeperServer

from .cluster import JudgingScanner
from .test_service import DELETED, Setting


@pytest.fixture
def setting():
    it = Setting()
    it.on()
    it.passed_by(5, 6)
    it.cluster.ledger(7, "t", 0, is_open=True)
    it.later()
    return it


@pytest.fixture
def server(setting):
    with ZooKeeperServer(setting.cluster.metadata.nodes, session_seconds=4.0) as server:
        yield server


@pytest.fixture
def sides(setting, server):
    """Two processes' own."""
    trees = [connect(MetadataUri((server.address,)), timeout=5.0) for _ in range(2)]
    yield [
        BookKeeperSide(
            tree, setting.cluster.client()[0], JudgingScanner(tree.nodes, lambda: 0), LoadedTopics(dict, set)
        )
        for tree in trees
    ]
    for tree in trees:
        tree.close()


def test_what_is_marked_goes_and_what_was_open_is_closed_first(setting, sides):
    setting.mark(side=sides[0])
    setting.later()
    setting.service(sides[0]).round()
    assert {setting.end_of(one) for one in (5, 6, 7)} == {DELETED}, setting.record(7).reason
    assert setting.cluster.ledger_ids() == {1000}


@pytest.mark.parametrize("fault", [Fault.LOST_BEFORE, Fault.LOST_AFTER])
def test_a_lost_answer_is_looked_up_and_told_once(setting, server, sides, fault):
    setting.mark(5, side=sides[0])
    setting.later()
    sides[0].look([one.record for one in setting.queue.records()])  # the node of ours is there from now on
    server.fail(MULTI, fault)
    for _ in range(2):
        setting.service(sides[0]).round()
        setting.later()
    assert setting.end_of(5) == DELETED
    assert [ledger for ledger, *_ in setting.told.ends] == [5]


def test_a_process_that_goes_on_after_another_has_looked_deletes_nothing(setting, sides):
    setting.mark(side=sides[0])
    setting.later()
    due = [one.record for one in setting.queue.records()]
    sides[0].look(due)
    setting.service(sides[1]).round()
    again = [one for one in due if one.ledger_id == 5]
    assert sides[0].delete(again[0], lambda: True)[0].value in ("gone", "refused")
    assert setting.record(5).state is DeletionState.DELETED
    assert len(setting.told.ends) == 3
