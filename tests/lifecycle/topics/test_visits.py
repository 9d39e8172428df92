"""Retention holds for topics that nobody has loaded, and what is loaded is never touched."""

from __future__ import annotations

import threading

import pytest

from offloader._proto.managed_ledger_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from offloader.errors import (
    AuthorizationFailedError,
    BrokerUnavailableError,
    FatalError,
    ProtocolError,
    TopicNotFoundError,
)
from offloader.lifecycle.topics.unloaded import PassedOver, WhyPassedOver
from offloader.lifecycle.topics.visit_outcome import VisitEnd
from offloader.lifecycle.topics.why_not import why_not
from offloader.model import TopicName
from tests.lifecycle.topics.support import NAMESPACE, PIN, Idle, name

EXPIRED = "data that retention no longer keeps"
UNDATED = "its last ledger has no date before the topic is loaded"
OPEN = "its last ledger is open, and no broker has it loaded"


@pytest.fixture
def cluster() -> Idle:
    return Idle()


def test_two_visits_free_everything_without_any_client(cluster: Idle) -> None:
    topic = cluster.written("t", 100, 200, 30)
    cluster.tick(61)
    first = cluster.looked(topic)
    assert (first.overdue, first.reasons) == (330, (EXPIRED, UNDATED))
    (outcome,) = cluster.visit()
    assert (outcome.end, outcome.freed, outcome.left, cluster.size(topic)) == (VisitEnd.TRIMMED, 300, "", 30)
    assert outcome.now is not None
    assert outcome.now.due_ms is not None
    assert "the next visit is due at" in " ".join(why_not(outcome.now, cluster.now_ms))
    assert cluster.due() == []
    cluster.tick((outcome.now.due_ms - cluster.now_ms) / 1000)
    (second,) = cluster.visit()
    assert (second.freed, cluster.size(topic), cluster.topics[topic].loaded) == (30, 0, False)
    cluster.tick(3600)
    assert cluster.due() == []


def test_the_second_visit_is_known_from_the_nodes_alone(cluster: Idle) -> None:
    """Another process makes it, or ours after a restart: nothing is kept between the two."""
    topic = cluster.written("t", 100)
    cluster.tick(61)
    (outcome,) = cluster.visit()
    assert outcome.now == cluster.looked(topic)


def test_what_was_just_unloaded_is_left_alone(cluster: Idle) -> None:
    cluster.retention[NAMESPACE] = (600, -1)
    cluster.written("t", 100)
    cluster.tick(9 * 60)
    assert cluster.due() == []
    cluster.tick(2 * 60)
    assert len(cluster.due()) == 1


def test_a_loaded_topic_is_never_visited(cluster: Idle) -> None:
    topic = cluster.written("t", 100, 20, shut=False)
    cluster.leave(topic)
    cluster.tick(3600)
    assert cluster.plan() == [PassedOver(topic, WhyPassedOver.LOADED)]


def test_a_topic_that_somebody_loads_after_the_plan_is_not_touched(cluster: Idle) -> None:
    topic = cluster.written("t", 100, 20)
    cluster.renew()  # statistics of brokers are old
    cluster.tick(3600)
    planned = cluster.due()
    cluster.connect(topic)
    (outcome,) = cluster.visit(planned)
    assert (outcome.end, cluster.trimmed, cluster.unloaded) == (VisitEnd.LOADED, [], [])


def test_a_terminated_topic_that_is_loaded_shows_in_statistics_alone(cluster: Idle) -> None:
    topic = cluster.written("t", 100, 20, shut=False)
    cluster.terminate(topic)
    cluster.shut(topic)
    cluster.tick(3600)
    planned = cluster.due()
    cluster.connect(topic)
    (outcome,) = cluster.visit(planned)
    assert (outcome.end, cluster.trimmed) == (VisitEnd.LOADED, [])


def test_a_terminated_topic_keeps_its_last_ledger(cluster: Idle) -> None:
    topic = cluster.written("t", 100, 20, shut=False)
    cluster.terminate(topic)
    cluster.shut(topic)
    cluster.tick(3600)
    (outcome,) = cluster.visit()
    assert (outcome.freed, cluster.size(topic)) == (100, 20)
    assert "it is terminated" in " ".join(why_not(cluster.looked(topic), cluster.now_ms))
    cluster.tick(3600)
    assert cluster.due() == []


def test_who_comes_during_the_visit_keeps_the_topic_loaded(cluster: Idle) -> None:
    topic = cluster.written("t", 100, 20)
    cluster.tick(3600)
    cluster.on_use = cluster.connect
    (outcome,) = cluster.visit()
    assert (outcome.left, cluster.topics[topic].loaded) == ("1 producers and consumers have come", True)
    assert cluster.unloaded == []


def test_an_open_ledger_of_a_dead_broker_is_closed_by_the_visit_and_then_counts(cluster: Idle) -> None:
    topic = cluster.written("t", 100, shut=False)
    cluster.crash(topic)
    cluster.tick(61)
    assert cluster.due() == []  # a broker that has it since a minute may not show it yet
    cluster.tick(60)
    found = cluster.looked(topic)
    assert (found.reasons, found.open_ledger) == ((OPEN,), 11)
    cluster.visit()
    assert cluster.size(topic) == 100
    cluster.tick(61)
    cluster.visit()
    assert cluster.size(topic) == 0


def test_an_open_ledger_that_no_broker_can_load_is_closed_safely(cluster: Idle) -> None:
    topic = cluster.written("t", 100, shut=False)
    cluster.crash(topic)
    cluster.tick(121)
    cluster.faults.add("visits.trim", lambda: BrokerUnavailableError("500"))
    closed: list[tuple[TopicName, int]] = []

    def close(topic: TopicName, ledger: int) -> str:
        closed.append((topic, ledger))
        return "closed at entry 9"

    (outcome,) = cluster.round(close=close).visit(cluster.due())
    assert (outcome.end, outcome.why, closed) == (VisitEnd.UNANSWERED, "500; closed at entry 9", [(topic, 11)])


def test_what_a_cursor_holds_stays_and_its_holder_is_named(cluster: Idle) -> None:
    topic = cluster.written("t", 100, 200, 30)
    first, second, _ = (one.id for one in cluster.topics[topic].ledgers)
    cluster.subscribe(topic, "slow", (second, 4))
    cluster.subscribe(topic, PIN, (first, 9))
    cluster.tick(3600)
    (outcome,) = cluster.visit()
    assert (outcome.freed, cluster.size(topic)) == (100, 230)
    found = cluster.looked(topic)
    assert found.due_ms is None  # no visit changes anything
    assert {(one.by.cursor, one.size) for one in found.held} == {("slow", 200), (PIN, 200)}
    said = " ".join(why_not(found, cluster.now_ms))
    assert "held by slow (subscription) with 200 bytes" in said
    assert "our pin: it holds data until they are offloaded" in said


def test_retention_that_keeps_everything_costs_no_read(cluster: Idle) -> None:
    cluster.retention[NAMESPACE] = (-1, -1)
    topic = cluster.written("t", 100, 20)
    cluster.tick(10**6)
    assert cluster.plan() == [PassedOver(topic, WhyPassedOver.KEPT_FOR_EVER)]


@pytest.mark.parametrize(("policy", "frees"), [((-1, 0), 2), ((-1, 1), 1), ((0, 0), 2), ((1, 0), 2), ((10**6, -1), 0)])
def test_time_and_size_count_as_brokers_count_them(cluster: Idle, policy: tuple[int, int], frees: int) -> None:
    cluster.retention[NAMESPACE] = policy
    megabyte = 1024 * 1024
    topic = cluster.written("t", megabyte, megabyte, 10)
    cluster.tick(3600)
    found = cluster.looked(topic)
    kept = cluster.size(topic) - found.overdue
    for _ in range(2):
        cluster.visit()
        cluster.tick(3600)
    assert cluster.size(topic) == kept
    assert (2 * megabyte + 10 - kept) // megabyte == frees


def test_the_broker_s_default_counts_where_a_namespace_has_no_policy(cluster: Idle) -> None:
    del cluster.retention[NAMESPACE]
    cluster.configuration |= {"defaultRetentionTimeInMinutes": "2", "defaultRetentionSizeInMB": "-1"}
    topic = cluster.written("t", 100, 20)
    assert str(cluster.looked(topic).retention) == "2 min, any size (broker)"


def test_topics_policies_are_asked_for_only_where_there_may_be_some(cluster: Idle) -> None:
    topic = cluster.written("t-partition-0", 100, 20)
    cluster.retention["persistent://acme/orders/t"] = (-1, -1)
    cluster.tick(3600)
    assert cluster.looked(topic).retention.minutes == 1
    assert cluster.faults.count("visits.topic_retention") == 0
    cluster.written("__change_events", 1)
    cluster.tick(3600)
    found = cluster.looked(topic)
    assert (found.retention.minutes, found.due_ms) == (-1, None)


def test_where_a_topic_s_policy_cannot_be_asked_the_plan_says_so(cluster: Idle) -> None:
    topic = cluster.written("t", 100, 20)
    cluster.written("__change_events", 1)
    cluster.tick(3600)
    cluster.faults.add("visits.topic_retention", lambda: AuthorizationFailedError("403"))
    found = cluster.looked(topic)
    assert found.retention.minutes == 1
    assert "could not be asked (403)" in why_not(found, cluster.now_ms)[-1]


def test_pulsars_own_topics_shared_names_and_strangers_are_passed_over(cluster: Idle) -> None:
    for local in ("__change_events", "t-s__transaction_pending_ack", "p", "left"):
        cluster.written(local, 100, 20)
    cluster.partitioned.add(str(name("p")))
    del cluster.topics[name("left")]  # its nodes stay
    cluster.tick(3600)
    said = {one.topic.name: one.why for one in cluster.plan() if isinstance(one, PassedOver)}
    assert said == {
        "__change_events": WhyPassedOver.SYSTEM,
        "t-s__transaction_pending_ack": WhyPassedOver.SYSTEM,
        "p": WhyPassedOver.SAME_NAME,
        "left": WhyPassedOver.UNKNOWN,
    }


def test_a_damaged_node_stops_its_topic_alone(cluster: Idle) -> None:
    for local in ("a", "b", "c", "d"):
        cluster.written(local, 100, 20)
    root = "/managed-ledgers/acme/orders/persistent"
    cluster.metadata.nodes.put(f"{root}/a", b"\xff")
    cluster.metadata.nodes.put(f"{root}/b/sub", b"\xff")
    cluster.metadata.cluster.put_ledger(cluster.topics[name("c")].ledgers[-1].id, b"\xff")
    cluster.tick(3600)
    said = [one.topic.name for one in cluster.plan() if isinstance(one, PassedOver)]
    assert said == ["a", "b", "c"]
    assert [one.topic.name for one in cluster.due()] == ["d"]


@pytest.mark.parametrize("version", ["2.11.4", "1.0"])
def test_brokers_that_cannot_trim_are_told_at_once(cluster: Idle, version: str) -> None:
    cluster.broker_version = version
    with pytest.raises(FatalError, match=r"only from 3\.0 on"):
        cluster.plan()


def test_who_may_not_ask_what_is_loaded_is_told_which_right_is_missing(cluster: Idle) -> None:
    cluster.faults.add("visits.loaded", lambda: AuthorizationFailedError("403"))
    with pytest.raises(AuthorizationFailedError, match="only super users may ask"):
        cluster.plan()


def test_without_all_brokers_answers_nothing_is_visited(cluster: Idle) -> None:
    cluster.written("t", 100, 20)
    cluster.tick(3600)
    planned = cluster.due()
    cluster.faults.add("visits.loaded", lambda: BrokerUnavailableError("broker-2 did not answer"))
    with pytest.raises(BrokerUnavailableError):
        cluster.visit(planned)
    assert cluster.trimmed == []


def test_a_lost_answer_is_not_taken_for_a_failure(cluster: Idle) -> None:
    topic = cluster.written("t", 100, 20)
    cluster.tick(3600)
    cluster.faults.add("visits.trim", lambda: BrokerUnavailableError("time-out"), effect=True)
    (outcome,) = cluster.visit()
    assert (outcome.end, outcome.freed, outcome.left) == (VisitEnd.UNCLEAR, 100, "")
    assert not cluster.topics[topic].loaded


def test_no_answer_and_no_load_leave_the_topic_as_it_is(cluster: Idle) -> None:
    topic = cluster.written("t", 100, 20)
    cluster.tick(3600)
    cluster.faults.add("visits.trim", lambda: BrokerUnavailableError("the bundle is being unloaded"))
    (outcome,) = cluster.visit()
    assert (outcome.end, cluster.unloaded, cluster.topics[topic].loaded) == (VisitEnd.UNANSWERED, [], False)
    assert [one.topic for one in cluster.due()] == [topic]


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (TopicNotFoundError("404"), VisitEnd.GONE),
        (FatalError("409"), VisitEnd.REFUSED),
        (FatalError("412"), VisitEnd.REFUSED),
        (ProtocolError("what is this"), VisitEnd.UNANSWERED),
    ],
)
def test_one_topic_s_refusal_does_not_end_the_round(cluster: Idle, error: Exception, end: VisitEnd) -> None:
    first, second = cluster.written("a", 100, 20), cluster.written("b", 100, 20)
    cluster.tick(3600)
    cluster.faults.add("visits.trim", lambda: error, topic=first)
    outcomes = cluster.visit()
    assert [(one.topic, one.end) for one in outcomes] == [(first, end), (second, VisitEnd.TRIMMED)]


def test_in_a_namespace_that_permits_no_visit_none_is_tried_again(cluster: Idle) -> None:
    for local in ("a", "b", "c"):
        cluster.written(local, 100, 20)
    cluster.tick(3600)
    cluster.faults.add("visits.trim", lambda: AuthorizationFailedError("403"), times=3)
    outcomes = cluster.visit()
    assert {one.end for one in outcomes} == {VisitEnd.NOT_PERMITTED}
    assert cluster.faults.count("visits.trim") == 1


@pytest.mark.parametrize("call", ["visits.use", "visits.unload"])
def test_what_cannot_be_unloaded_is_said_to_stay_loaded(cluster: Idle, call: str) -> None:
    topic = cluster.written("t", 100, 20)
    cluster.tick(3600)
    cluster.faults.add(call, lambda: BrokerUnavailableError("503"))
    (outcome,) = cluster.visit()
    assert (outcome.end, outcome.freed, "503" in outcome.left) == (VisitEnd.TRIMMED, 100, True)
    assert cluster.topics[topic].loaded


def test_visits_are_few_at_a_time_and_within_the_rate(cluster: Idle) -> None:
    for number in range(10):
        cluster.written(f"t{number}", 100, 20)
    cluster.tick(3600)
    began = cluster.now_ms
    times = []
    cluster.on_trim = lambda _: times.append(cluster.now_ms)
    outcomes = list(cluster.round(a_minute=30).visit(cluster.due()))
    assert len(outcomes) == 10
    assert [time - began for time in times] == [2000 * number for number in range(10)]


def test_a_topic_that_is_deleted_between_plan_and_visit_is_gone(cluster: Idle) -> None:
    topic = cluster.written("t", 100, 20)
    cluster.tick(3600)
    planned = cluster.due()
    cluster.delete(topic)
    (outcome,) = cluster.visit(planned)
    assert (outcome.end, cluster.trimmed) == (VisitEnd.GONE, [])


def test_a_position_that_its_node_does_not_have_holds_nothing_for_sure(cluster: Idle) -> None:
    """The broker died: the position is in the cursor's own ledger. A visit is worth it, and writes it into the node."""
    topic = cluster.written("t", 100, 200, 30)
    info = ManagedCursorInfo(cursorsLedgerId=99, markDeleteLedgerId=11, markDeleteEntryId=-1)
    cluster.topics[topic].cursors["s"] = (12, 3)
    cluster.metadata.nodes.put("/managed-ledgers/acme/orders/persistent/t/s", info.SerializeToString())
    cluster.tick(3600)
    found = cluster.looked(topic)
    assert found.due(cluster.now_ms)
    assert [(one.size, one.by.certain) for one in found.held] == [(330, False)]
    assert "or fewer: its position is in a ledger of its own" in " ".join(why_not(found, cluster.now_ms))
    (outcome,) = cluster.visit()
    assert outcome.freed == 100
    assert [(one.size, one.by.certain) for one in cluster.looked(topic).held] == [(200, True)]


def test_a_list_that_ends_with_a_ledger_that_is_missing_is_not_loaded(cluster: Idle) -> None:
    """A load would drop it from the list without a word."""
    topic = cluster.written("t", 100, 20)
    cluster.metadata.cluster.delete_ledger(12)
    cluster.tick(3600)
    assert cluster.plan() == [PassedOver(topic, WhyPassedOver.MISSING, "ledger 12")]


def test_a_namespace_that_cannot_be_asked_about_is_passed_over(cluster: Idle) -> None:
    topic = cluster.written("t", 100, 20)
    cluster.faults.add("visits.namespace_retention", lambda: AuthorizationFailedError("403"))
    assert cluster.plan() == [PassedOver(topic, WhyPassedOver.UNASKED, "403")]


def test_brokers_that_do_not_answer_for_topics_are_not_asked_for_each(cluster: Idle) -> None:
    cluster.written("__change_events", 1)
    topics = [cluster.written(f"t{number}", 100, 20) for number in range(9)]
    cluster.tick(3600)
    cluster.faults.add("visits.topic_retention", lambda: BrokerUnavailableError("time-out"), times=99)
    assert [cluster.looked(topic).doubt != "" for topic in topics] == [True] * 9
    assert cluster.faults.count("visits.topic_retention") == len(topics)  # one for each plan


def test_no_more_visits_than_allowed_are_under_way(cluster: Idle) -> None:
    for number in range(20):
        cluster.written(f"t{number}", 100, 20)
    cluster.tick(3600)
    planned, under_way, most, guard = cluster.due(), set[TopicName](), 0, threading.Lock()
    together = threading.Barrier(3)

    def began(topic: TopicName) -> None:
        nonlocal most
        with guard:
            under_way.add(topic)
            most = max(most, len(under_way))
        if topic.name in ("t0", "t1", "t10"):
            together.wait(10)  # three of them are really at work at once

    def used(topic: TopicName) -> None:
        with guard:
            under_way.discard(topic)

    cluster.on_trim, cluster.on_use = began, used
    outcomes = list(cluster.round(at_once=3, a_minute=10**6).visit(planned))
    assert {one.end for one in outcomes} == {VisitEnd.TRIMMED}
    assert most == 3


def test_a_shadow_topic_is_passed_over(cluster: Idle) -> None:
    topic = cluster.written("t", 100, 20)
    path = "/managed-ledgers/acme/orders/persistent/t"
    node = cluster.metadata.nodes.get(path)
    assert node is not None
    info = ManagedLedgerInfo.FromString(node.value)
    info.properties.add(key="PULSAR.SHADOW_SOURCE", value="persistent://acme/orders/source")
    cluster.metadata.nodes.put(path, info.SerializeToString())
    cluster.tick(3600)
    assert cluster.plan() == [PassedOver(topic, WhyPassedOver.SHADOW, "persistent://acme/orders/source")]


def test_what_is_under_way_when_a_round_ends_with_an_error_is_unloaded_all_the_same(cluster: Idle) -> None:
    first, second = cluster.written("a", 100, 20), cluster.written("b", 100, 20)
    cluster.tick(3600)
    planned, asked = cluster.due(), threading.Event()

    def away() -> BrokerUnavailableError:
        asked.set()
        return BrokerUnavailableError("away")

    cluster.faults.add("visits.loaded", away, after=1)
    cluster.on_trim = lambda _: asked.wait(10)
    with pytest.raises(BrokerUnavailableError):
        list(cluster.round(at_once=2, a_minute=1).visit(planned))
    assert [topic for topic, _ in cluster.trimmed] == [topic for topic, _ in cluster.unloaded] == [first]
    assert not cluster.topics[second].loaded


def test_without_the_metadata_service_nothing_is_touched(cluster: Idle) -> None:
    cluster.written("t", 100, 20)
    cluster.tick(3600)
    planned = cluster.due()
    cluster.metadata.nodes.gone = True
    (outcome,) = cluster.visit(planned)
    assert (outcome.end, cluster.trimmed) == (VisitEnd.UNANSWERED, [])


def test_data_of_an_enabled_topic_is_not_freed_before_its_first_offload(cluster: Idle) -> None:
    topic, other = cluster.written("t", 100, 200, 30), cluster.written("other", 100, 200, 30)
    cluster.to_be_offloaded.add(topic)
    cluster.tick(61)
    assert PassedOver(topic, WhyPassedOver.NOT_OFFLOADED) in cluster.plan()
    assert [outcome.topic for outcome in cluster.visit()] == [other]
    assert cluster.size(topic) == 330


def test_an_enabled_topic_is_visited_once_its_offload_subscription_keeps_what_is_not_offloaded(cluster: Idle) -> None:
    topic = cluster.written("t", 100, 200, 30, shut=False)
    cluster.to_be_offloaded.add(topic)
    cluster.subscribe(topic, PIN, (cluster.topics[topic].ledgers[1].id, 4))
    cluster.shut(topic)
    cluster.tick(61)
    assert cluster.due()
