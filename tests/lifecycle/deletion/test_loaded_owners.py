"""Nothing of a topic that a broker still serves is deleted, although its nodes are gone."""

from __future__ import annotations

import pytest

from offloader.errors import BrokerUnavailableError
from offloader.lifecycle.deletion.marking import MarkOutcome
from offloader.lifecycle.deletion.owners import LoadedTopics
from offloader.lifecycle.deletion.records import DeletionState
from offloader.lifecycle.deletion.timing import DeletionTiming

from .cluster import NAMESPACE, OrphanCluster
from .test_service import DELETED, setting  # noqa: F401

TOPIC = f"persistent://{NAMESPACE}/gone"
CURSOR = {"pulsar/cursor": b"sub"}
CLOSED = {
    "data": {},
    "empty": {"entries": 0},
    "cursor": CURSOR,
}


class Brokers:
    """What they have loaded, with the subscriptions of each topic; or nobody answers."""

    def __init__(self, **topics: set[str]) -> None:
        self.topics = {f"persistent://{NAMESPACE}/{name}": cursors for name, cursors in topics.items()}
        self.silent = False

    def loaded(self) -> dict[str, str]:
        if self.silent:
            raise BrokerUnavailableError("broker-2 does not answer")
        return dict.fromkeys(self.topics, "broker-1:8080")

    def subscriptions(self, topic) -> set[str]:
        return self.topics[str(topic)]

    def side(self, cluster: OrphanCluster):
        side = cluster.side()
        side.loaded = LoadedTopics(self.loaded, self.subscriptions)
        return side


def outcomes(setting, brokers: Brokers) -> dict[int, MarkOutcome]:  # noqa: F811
    return {one.id: one.outcome for one in setting.mark(side=brokers.side(setting.cluster)).marks}


@pytest.mark.parametrize("kind", ["data", "empty", "cursor"])
def test_closed_ledgers_of_a_topic_that_a_broker_serves_without_its_nodes_stay(setting, kind):  # noqa: F811
    """When they are marked, and at the second look; once the topic is unloaded they go."""
    brokers = Brokers(gone=set())
    setting.cluster.ledger(5, "gone", **CLOSED[kind])
    setting.later()
    assert outcomes(setting, brokers) == {5: MarkOutcome.NOT_DELETABLE}
    brokers.topics.clear()
    assert outcomes(setting, brokers) == {5: MarkOutcome.MARKED}
    brokers.topics[TOPIC] = set()
    setting.later()
    setting.service(brokers.side(setting.cluster)).round()
    assert 5 in setting.cluster.ledger_ids()
    assert "broker-1:8080" in setting.record(5).reason
    brokers.topics.clear()
    setting.later()
    setting.service(brokers.side(setting.cluster)).round()
    assert setting.end_of(5) == DELETED


def test_where_no_broker_can_be_asked_nothing_of_an_absent_owner_is_marked_or_deleted(setting):  # noqa: F811
    brokers = Brokers()
    setting.cluster.ledger(5, "gone")
    setting.later()
    brokers.silent = True
    assert outcomes(setting, brokers) == {5: MarkOutcome.NOT_DELETABLE}
    brokers.silent = False
    setting.mark(side=brokers.side(setting.cluster))
    brokers.silent = True
    setting.later()
    setting.service(brokers.side(setting.cluster)).round()
    assert 5 in setting.cluster.ledger_ids()
    assert "does not answer" in setting.record(5).reason


def test_a_cursor_that_a_broker_still_has_keeps_its_ledgers_although_its_node_is_gone(setting):  # noqa: F811
    """A subscription that was removed leaves its ledger to be deleted, also while its topic is loaded."""
    brokers = Brokers(t={"sub"})
    setting.cluster.ledger(1000, "t")
    setting.cluster.list_ledgers("t", 1000)
    setting.cluster.ledger(5, "t", **CURSOR)
    setting.later()
    assert outcomes(setting, brokers) == {5: MarkOutcome.NOT_DELETABLE}
    brokers.topics[f"persistent://{NAMESPACE}/t"] = {"another"}
    assert outcomes(setting, brokers) == {5: MarkOutcome.MARKED}
    brokers.topics[f"persistent://{NAMESPACE}/t"] = {"sub"}
    setting.later()
    setting.service(brokers.side(setting.cluster)).round()
    assert 5 in setting.cluster.ledger_ids()
    brokers.topics[f"persistent://{NAMESPACE}/t"] = set()
    setting.later()
    setting.service(brokers.side(setting.cluster)).round()
    assert setting.end_of(5) == DELETED


def test_a_topic_that_stays_loaded_is_given_up_and_not_deleted(setting):  # noqa: F811
    brokers = Brokers()
    setting.cluster.ledger(5, "gone")
    setting.later()
    setting.mark(side=brokers.side(setting.cluster))
    brokers.topics[TOPIC] = set()
    for _ in range(DeletionTiming().max_tries + 1):
        setting.later()
        setting.service(brokers.side(setting.cluster)).round()
    assert setting.record(5).state is DeletionState.GIVEN_UP
    assert 5 in setting.cluster.ledger_ids()
