"""An open ledger is fenced only where no broker can still write it, whatever it is for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offloader.bookkeeper.model import LedgerState
from offloader.errors import BrokerUnavailableError
from offloader.lifecycle.deletion.owners import still_written
from offloader.lifecycle.deletion.records import DeletionProof, DeletionState
from offloader.lifecycle.deletion.timing import DeletionBounds
from offloader.lifecycle.ledgers.references import cursor_path

from .cluster import NAMESPACE, OrphanCluster, list_node
from .support import EVIDENCE, candidate
from .test_service import DELETED, setting  # noqa: F401

ABSENT = replace(EVIDENCE, proof=DeletionProof.REFEREE_ABSENT, referee_version=None)
TOPIC = f"{NAMESPACE}/persistent/a-b"
ACKS = f"{TOPIC}-sub__transaction_pending_ack"


class Brokers:
    """What each topic that is loaded is called by brokers."""

    def __init__(self, *loaded: str) -> None:
        self.loaded = set(loaded)

    def __call__(self, topic) -> str | None:
        return "broker-1:8080" if str(topic) in self.loaded else None


def said(managed_ledger: str, brokers, cluster: OrphanCluster | None = None, evidence=ABSENT) -> str:
    """Why it may still be written; nothing: it is not."""
    record = candidate(5, topic_name=managed_ledger, evidence=evidence)
    return still_written(record, (cluster or OrphanCluster()).metadata.nodes, "", brokers) or ""


@pytest.mark.parametrize("owner", ["a-b", "a"])
def test_pending_acks_are_written_by_whoever_has_a_topic_loaded_whose_node_is_gone(owner):
    """Of each topic of which their name may be made: brokers list no topic of theirs."""
    assert "broker-1:8080" in said(ACKS, Brokers(f"persistent://{NAMESPACE}/{owner}"))
    assert said(ACKS, Brokers(f"persistent://{NAMESPACE}/a-b-sub-more")) == ""


def test_a_topic_that_is_there_writes_pending_acks_of_its_subscriptions_only():
    cluster, brokers = OrphanCluster(), Brokers(f"persistent://{NAMESPACE}/a-b")
    cluster.list_ledgers("a-b", 7)
    assert said(ACKS, brokers, cluster) == ""
    cluster.put(cursor_path(TOPIC, "sub"), b"")
    assert "broker-1:8080" in said(ACKS, brokers, cluster)


def test_a_health_check_is_asked_for_as_brokers_list_it():
    """Its name is of the old form, with a cluster."""
    name = "pulsar/main/10.0.0.1:8080/persistent/healthcheck"
    assert said(name, Brokers()) == ""
    assert "broker-1:8080" in said(name, Brokers("persistent://pulsar/main/10.0.0.1:8080/healthcheck"))


@pytest.mark.parametrize("name", ["pulsar/system/persistent/__transaction_log_3", "t/persistent/x", "t/a/b/c/d/x"])
def test_where_nobody_can_say_who_writes_it_is_left_alone(name):
    assert "cannot be found out" in said(name, Brokers())


def test_where_nobody_answers_it_is_left_alone():
    def fails(_topic):
        raise BrokerUnavailableError("broker-2 does not answer")

    assert "broker-2 does not answer" in said(TOPIC, fails)


@pytest.mark.parametrize("proof", [DeletionProof.PASSED_BY, DeletionProof.BOOKKEEPER_DELETED])
def test_what_was_passed_by_nobody_can_write(proof):
    brokers = Brokers(f"persistent://{NAMESPACE}/a-b")
    assert said(TOPIC, brokers)
    assert said(TOPIC, brokers, evidence=replace(EVIDENCE, proof=proof)) == ""


def test_all_brokers_are_asked_once_a_look_also_where_one_of_them_does_not_answer(setting):  # noqa: F811
    """100 open ledgers of topics that lost their nodes, each with its possible owners."""
    for ledger in range(1, 101):
        setting.cluster.ledger(ledger, f"a-{ledger}-sub__transaction_pending_ack", 0, is_open=True)
    setting.cluster.ledger(1000, "t")
    setting.cluster.list_ledgers("t", 1000)
    setting.bounds = DeletionBounds(percent=100, a_round=100)
    setting.later()
    setting.mark()
    setting.later()
    asked: list[int] = []

    def all_topics():
        asked.append(setting.cluster.now_ms)
        if len(asked) == 1:
            raise BrokerUnavailableError("broker-2 does not answer")
        return {}

    side = setting.cluster.side(loaded=all_topics)
    setting.service(side).round()
    assert len(asked) == 1
    assert "broker-2 does not answer" in setting.record(5).reason
    setting.later()
    setting.service(side).round()
    assert len(asked) == 3  # before they are closed, and after that
    assert {setting.end_of(ledger) for ledger in range(1, 101)} == {DELETED}


def test_what_brokers_have_loaded_is_asked_for_only_by_who_wants_to_know(setting):  # noqa: F811
    def all_topics():
        raise AssertionError("nobody wants to know")

    setting.passed_by(5)
    setting.cluster.ledger(6, "t", 0, is_open=True)
    setting.later()
    setting.mark()
    setting.later()
    setting.service(setting.cluster.side(loaded=all_topics)).round()
    assert setting.end_of(5) == setting.end_of(6) == DELETED


def test_open_pending_acks_of_a_topic_that_lost_its_nodes_under_a_broker_are_not_closed(setting):  # noqa: F811
    setting.cluster.ledger(5, "a-b-sub__transaction_pending_ack", 2, is_open=True)
    setting.later()
    setting.mark()
    setting.later()
    brokers = Brokers(f"persistent://{NAMESPACE}/a-b")
    setting.service(setting.cluster.side(loaded=lambda: dict.fromkeys(brokers.loaded, "broker-1:8080"))).round()
    assert setting.record(5).state is DeletionState.MARKED
    assert "broker-1:8080" in setting.record(5).reason
    assert setting.cluster.metadata.read(5).metadata.state is LedgerState.OPEN
    brokers.loaded.clear()
    setting.later()
    setting.service(setting.cluster.side(loaded=lambda: dict.fromkeys(brokers.loaded, "broker-1:8080"))).round()
    assert setting.end_of(5) == DELETED
    assert setting.cluster.metadata.nodes.get(list_node("a-b")) is None  # the proof of its absence left nothing
