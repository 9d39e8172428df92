"""Enabling, pausing, releasing, requests from the command line, rate limits, dangers of a namespace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

import pytest

from offloader.errors import AuthorizationFailedError, BrokerUnavailableError, SubscriptionBusyError
from offloader.metadata import requests
from offloader.metadata.catalog import Catalogs
from offloader.metadata.layout import claim_key
from offloader.metadata.requests import Request, RequestKind
from offloader.metadata.state import Claim, Releasing, TopicState
from offloader.model import Position, RollReason, TopicName
from offloader.offload.driver.work import WorkKind
from offloader.storage.memory import MemoryStore
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults
from tests.invariants import check_invariants
from tests.offload.simulation import Simulation
from tests.truth import truth_of_cluster

T = TopicName.parse("public/default/t")
OTHER = TopicName.parse("public/default/other")
SWITCH = "offloader.enabled"


def started(**settings: object) -> Simulation:
    sim = Simulation(1, **{"roll": "2h", **settings})
    sim.cluster.create(T)
    sim.cluster.create(OTHER)
    sim.rounds(4)
    return sim


def ask(
    sim: Simulation, kind: RequestKind, topic: TopicName, position: Position | None = None, ahead_ms: int = 0
) -> str:
    sim.serve_requests()
    return requests.submit(sim.store, "sim", Request(kind, topic, sim.clock.now + ahead_ms, "test", position), sim.uuid)


def end(sim: Simulation, topic: TopicName = T) -> Position:
    ledger, entry = max((e.ledger, e.entry) for e in sim.cluster.entries(topic))
    return Position(0, ledger, entry)


def test_a_manual_close_is_satisfied_when_the_catalog_reaches_the_end_that_the_command_read() -> None:
    sim = started()
    sim.produce(T, 10)
    request = ask(sim, RequestKind.CLOSE, T, end(sim))
    sim.rounds(8)
    outcome = requests.outcome_of(sim.store, "sim", request)
    segment = sim.context.catalogs.load(T).segments[-1]
    assert outcome is not None
    assert outcome.ok
    assert segment.uuid in outcome.message
    assert segment.roll_reason is RollReason.REQUEST
    assert segment.end == end(sim)


def test_a_manual_close_with_nothing_to_do_closes_nothing() -> None:
    sim = started()
    sim.produce(T, 10)
    ask(sim, RequestKind.CLOSE, T, end(sim))
    sim.rounds(8)
    again = ask(sim, RequestKind.CLOSE, T, end(sim))
    sim.rounds(4)
    outcome = requests.outcome_of(sim.store, "sim", again)
    assert outcome is not None
    assert outcome.ok
    assert len(sim.context.catalogs.load(T).segments) == 1


def test_a_manual_close_survives_a_restart_and_never_closes_twice() -> None:
    sim = started()
    sim.produce(T, 10)
    request = ask(sim, RequestKind.CLOSE, T, end(sim))
    sim.rounds(2)
    sim.kill()
    sim.serve_requests()
    sim.rounds(12)
    assert requests.outcome_of(sim.store, "sim", request).ok
    assert len(sim.context.catalogs.load(T).segments) == 1


@pytest.mark.parametrize("ahead_ms", [0, 3_600_000, -3_600_000])
def test_a_close_of_a_ledger_that_ends_in_a_marker_is_satisfied_by_what_is_readable(ahead_ms: int) -> None:
    """Whatever the clock of whoever asked says."""
    sim = started(entries_per_ledger=None)
    sim.produce(T, 10)
    from offloader.model import GapKind

    sim.cluster.add_hidden(T, GapKind.MARKER)
    request = ask(sim, RequestKind.CLOSE, T, end(sim), ahead_ms)
    sim.rounds(12)
    assert requests.outcome_of(sim.store, "sim", request).ok


def test_two_closes_of_one_topic_are_both_answered_while_it_goes_on_being_written() -> None:
    """What satisfies one satisfies the other, and the next segment is open by then."""
    sim = started()
    sim.produce(T, 10)
    asked = [ask(sim, RequestKind.CLOSE, T, end(sim)) for _ in range(2)]
    for _ in range(12):
        sim.produce(T, 3)
        sim.rounds(1)
    assert [requests.outcome_of(sim.store, "sim", request).ok for request in asked] == [True, True]
    assert not sim.driver.state(T).requests


@pytest.mark.parametrize("effect", [Effect.BEFORE, Effect.LOST])
def test_a_close_is_answered_although_the_journal_s_answer_to_its_end_is_lost(effect: Effect) -> None:
    """The record may stand: then the journal has no request any more, and whoever asked still waits."""
    faults, failed = StoreFaults(), list[str]()
    sim = started(store=FaultyStore(MemoryStore(), faults))
    sim.produce(T, 10)
    wanted = end(sim)
    request = ask(sim, RequestKind.CLOSE, T, wanted)

    def is_its_end(key: str) -> bool:
        reached = sim.registry.topics[T].catalog.end
        if not key.startswith("_journal") or reached is None or reached < wanted:
            return False
        failed.append(key)
        return True

    faults.add(StoreFault("put", effect, key=is_its_end, times=3))
    for _ in range(40):
        sim.produce(T, 3)
        sim.rounds(1)
    assert len(failed) == 3
    assert requests.outcome_of(sim.store, "sim", request).ok


@pytest.mark.parametrize("effect", [None, Effect.BEFORE, Effect.LOST])
def test_requests_that_come_together_are_one_record_and_none_is_answered_before_it_is_written(
    effect: Effect | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 topics of a namespace do not wait for 10,000 calls to the store."""
    faults = StoreFaults()
    sim = started(store=FaultyStore(MemoryStore(), faults))
    names = [TopicName.parse(f"public/default/more-{n}") for n in range(6)]
    for name in names:
        sim.cluster.create(name)
    sim.rounds(4)
    for name in names:
        sim.produce(name, 4)
    sim.rounds(2)
    asked = [ask(sim, RequestKind.CLOSE, name, end(sim, name)) for name in names]
    journal, taken = sim.context.journal, list[int]()
    record = journal.record

    def counted(changes: Iterable[TopicState]) -> None:
        states = list(changes)
        new = [state for state in states if state.requests and not sim.driver.state(state.topic).requests]
        if new:
            taken.append(len(new))
        record(states)

    monkeypatch.setattr(journal, "record", counted)
    if effect is not None:
        faults.add(StoreFault("put", effect, key=lambda key: key.startswith("_journal"), times=1))
    for _ in range(40):
        sim.rounds(1)
        for name, request in zip(names, asked, strict=True):
            if requests.outcome_of(sim.store, "sim", request) is not None:
                assert sim.context.catalogs.head(name).end == end(sim, name)
                assert not sim.driver.state(name).requests
    assert all(requests.outcome_of(sim.store, "sim", request).ok for request in asked)
    assert set(taken) == {len(names)}


def test_a_request_for_a_topic_that_is_not_offloaded_is_refused_in_one_line() -> None:
    sim = started()
    request = ask(sim, RequestKind.CLOSE, TopicName.parse("public/default/nobody"), Position(0, 1, 1))
    sim.rounds(3)
    outcome = requests.outcome_of(sim.store, "sim", request)
    assert not outcome.ok
    assert "is not offloaded" in outcome.message


def test_release_offloads_up_to_the_end_and_deletes_the_subscription() -> None:
    sim = started()
    sim.produce(T, 10)
    request = ask(sim, RequestKind.RELEASE, T)
    sim.rounds(12)
    assert requests.outcome_of(sim.store, "sim", request).ok
    assert sim.cluster.mark_delete(T) is None
    assert T not in sim.registry.topics
    catalog = sim.context.catalogs.load(T)
    assert catalog.end == end(sim)
    assert catalog.claim.application == ""
    check_invariants(sim.store, {T: truth_of_cluster(sim.cluster, T)}, paces=[sim.pace])


def switch_off(sim: Simulation, how: str) -> None:
    """The namespace is switched off: by its property, by the file, or no line of the file enables it any more."""
    if how == "property":
        sim.cluster.namespace("public/default").properties[SWITCH] = "false"
    elif how == "file":
        sim.namespace_off = True
    else:
        sim.enabled = False


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("how", ["property", "file", "absent"])
def test_a_topic_that_is_not_enabled_any_more_is_paused_and_keeps_its_pin_and_its_claim(
    how: str, running: bool
) -> None:
    sim = started(roll="5s")
    sim.produce(T, 10)
    sim.settle()
    ends = sim.context.catalogs.head(T).end
    switch_off(sim, how)
    if not running or how != "property":
        sim.kill()
    sim.rounds(4)
    sim.produce(T, 200)
    sim.rounds(12, step_ms=10_000)
    assert sim.registry.topics[T].paused
    assert sim.context.catalogs.head(T).end == ends, "nothing is read of it"
    assert sim.context.catalogs.head(T).claim.application == "sim"
    assert sim.cluster.mark_delete(T) is not None
    assert sim.driver.state(T).paused_at
    sim.enabled, sim.namespace_off = True, False
    sim.cluster.namespace("public/default").properties.pop(SWITCH, None)
    sim.kill()
    sim.settle()
    assert sim.context.catalogs.head(T).end == end(sim)
    assert sim.driver.state(T).idle
    check_invariants(sim.store, {T: truth_of_cluster(sim.cluster, T)}, at_rest=True, paces=[sim.pace])


def test_of_a_paused_topic_what_is_uploaded_is_committed_and_nothing_more_is_read() -> None:
    sim = started(entries_per_ledger=None, max_size=10**8)
    sim.produce(T, 60)
    sim.rounds(4)
    uploaded = sim.driver.state(T).open.covered
    assert uploaded is not None
    sim.produce(T, 10)
    switch_off(sim, "property")
    sim.rounds(12, step_ms=10_000)
    assert sim.context.catalogs.head(T).end == uploaded
    assert not sim.driver.state(T).unfinished
    assert uploaded < end(sim)


def test_of_a_paused_topic_an_upload_that_has_nothing_is_given_up() -> None:
    sim = started(entries_per_ledger=None, max_size=10**8)
    sim.produce(T, 1)
    sim.rounds(4)
    assert sim.driver.state(T).open.covered is None
    switch_off(sim, "property")
    sim.rounds(12, step_ms=10_000)
    assert not sim.driver.state(T).unfinished
    assert not sim.driver.state(T).abandoned
    assert sim.context.catalogs.head(T).end is None


def test_a_release_that_an_older_version_began_by_a_policy_is_a_pause() -> None:
    sim = started(roll="5s")
    sim.produce(T, 10)
    sim.settle()
    sim.context.record(replace(sim.driver.state(T), releasing=Releasing.POLICY))
    switch_off(sim, "property")
    sim.kill()
    sim.rounds(12)
    assert sim.cluster.mark_delete(T) is not None
    assert sim.driver.state(T).releasing is None


def test_a_paused_topic_is_released_with_all_that_came_since_it_was_paused() -> None:
    sim = started(roll="5s")
    sim.produce(T, 10)
    sim.settle()
    sim.enabled = False
    sim.kill()
    sim.rounds(12)
    sim.produce(T, 10)
    sim.rounds(5)
    offloaded = sim.registry.topics[T].catalog.end
    assert offloaded is not None
    assert offloaded < end(sim), "it is paused"
    ask(sim, RequestKind.RELEASE, T)
    sim.rounds(30)
    assert sim.cluster.mark_delete(T) is None
    assert sim.context.catalogs.head(T).end == end(sim)


def test_a_released_topic_that_is_claimed_again_records_what_nobody_kept() -> None:
    sim = started(roll="5s", entries_per_ledger=5)
    sim.produce(T, 10)
    sim.settle()
    ask(sim, RequestKind.RELEASE, T)
    sim.rounds(12)
    sim.produce(T, 20)
    sim.pins.close()
    sim.journal.close()
    sim.start()
    sim.rounds(6)
    sim.produce(T, 10)
    sim.settle()
    catalog = sim.context.catalogs.load(T)
    assert catalog.losses[0].accepted_by == "release"
    check_invariants(sim.store, {T: truth_of_cluster(sim.cluster, T)}, at_rest=True, paces=[sim.pace])


def test_time_to_live_shorter_than_the_roll_refuses_new_topics_and_names_the_setting() -> None:
    sim = Simulation(1, roll="2h")
    sim.cluster.namespace("public/default").policies["message_ttl_in_seconds"] = 60
    sim.cluster.create(T)
    sim.rounds(5)
    assert not sim.registry.topics
    assert "set-message-ttl" in sim.registry.refused[T]


def test_a_topic_that_we_hold_goes_on_beside_such_a_setting_also_after_a_restart() -> None:
    sim = started(roll="5s")
    sim.produce(T, 30)
    sim.settle()
    sim.cluster.namespace("public/default").policies["message_ttl_in_seconds"] = 1
    sim.kill()
    sim.rounds(5)
    assert T in sim.registry.topics
    assert T not in sim.registry.refused


def test_stock_offload_beside_us_is_refused_unless_we_begin_after_it() -> None:
    sim = Simulation(1, roll="5s")
    sim.cluster.create(T)
    sim.cluster.add_subscription(T, "mine")
    sim.produce(T, 30)
    first = sim.cluster.ledgers(T).spans[0].ledger
    sim.cluster.offload_stock(T, first)
    sim.rounds(5)
    assert "startAfterOffloaded" in sim.registry.refused[T]
    sim.pins.close()
    sim.journal.close()
    sim.start_after_offloaded = True
    sim.start()
    sim.settle()
    assert sim.context.catalogs.load(T).claim.begin.ledger > first
    check_invariants(sim.store, {T: truth_of_cluster(sim.cluster, T)}, paces=[sim.pace])


def test_a_rate_limit_holds_over_time_and_the_topic_still_gets_there() -> None:
    sim = started(roll="5s", rate=1_000, max_size=10**6, entries_per_ledger=None)
    sim.produce(T, 100)
    total = sum(len(e.data) for e in sim.cluster.entries(T))
    began = sim.clock.now
    burst = 8 * 1024 * 1024
    sim.driver.plans.rates._buckets[str(T)].level = 0
    assert total < burst
    sim.settle(step_ms=1_000, rounds=4_000)
    assert (sim.clock.now - began) / 1000 >= 0.5 * total / 1_000


def test_release_offloads_what_was_written_before_it_also_of_a_topic_that_was_quiet_for_long() -> None:
    sim = started()
    sim.produce(T, 3)
    sim.rounds(3, step_ms=60_000)
    sim.produce(T, 20)
    request = ask(sim, RequestKind.RELEASE, T)
    sim.rounds(12)
    assert requests.outcome_of(sim.store, "sim", request).ok
    assert sim.context.catalogs.load(T).end == end(sim)


def test_a_topic_disabled_and_enabled_again_is_offloaded_again() -> None:
    sim = started(roll="5s")
    properties = sim.cluster.namespace("public/default").properties
    sim.produce(T, 10)
    properties[SWITCH] = "false"
    sim.rounds(12)
    assert sim.registry.topics[T].paused
    properties[SWITCH] = "true"
    sim.rounds(6)
    sim.produce(T, 10)
    sim.settle()
    assert sim.context.catalogs.load(T).end == end(sim)


def test_a_list_of_requests_that_fails_once_delays_them_and_no_more() -> None:
    from offloader.storage.memory import MemoryStore
    from tests.fakes.faulty import FaultyStore, StoreFault, StoreFaults

    faults = StoreFaults()
    sim = started(store=FaultyStore(MemoryStore(), faults))
    faults.add(StoreFault("list", key=lambda key: key.startswith("_requests"), times=2))
    sim.produce(T, 10)
    request = ask(sim, RequestKind.CLOSE, T, end(sim))
    sim.rounds(15)
    assert requests.outcome_of(sim.store, "sim", request).ok


def test_accepting_a_loss_where_nothing_is_lost_is_refused_and_stays_without_effect() -> None:
    sim = started()
    sim.produce(T, 10)
    sim.rounds(3)
    request = ask(sim, RequestKind.ACCEPT_LOSS, T, Position(0, 10**6, 0))
    sim.rounds(4)
    outcome = requests.outcome_of(sim.store, "sim", request)
    assert not outcome.ok
    assert "nothing" in outcome.message
    assert sim.registry.topics[T].losses.accepted is None


def test_a_namespace_that_cannot_be_read_for_a_moment_is_read_again_before_its_topics_count_as_known() -> None:
    sim = Simulation(1, roll="2h")
    sim.cluster.create(T)
    sim.cluster.faults.add("admin.namespace_properties", lambda: BrokerUnavailableError("not now"))
    sim.rounds(1)
    settled = [sim.driver.registry.settled]
    sim.rounds(8)
    assert [*settled, sim.driver.registry.settled] == [False, True]
    assert not sim.driver.registry.found.unread
    assert T in sim.driver.registry.topics


def test_a_namespace_that_we_may_not_read_is_named() -> None:
    sim = Simulation(1, roll="2h")
    sim.cluster.create(T)
    sim.cluster.faults.add("admin.namespace_properties", lambda: AuthorizationFailedError("not allowed"), times=99)
    sim.rounds(4)
    assert sim.driver.registry.settled
    assert [str(error) for error in sim.driver.registry.found.unread.values()] == ["not allowed"]


def test_a_topic_released_by_request_is_offloaded_again_once_it_was_disabled_and_enabled_and_can_be_released_again():
    sim = started()
    properties = sim.cluster.namespace("public/default").properties
    sim.produce(T, 10)
    ask(sim, RequestKind.RELEASE, T)
    sim.rounds(12)
    properties[SWITCH] = "false"
    sim.rounds(12)
    properties[SWITCH] = "true"
    sim.rounds(12)
    assert sim.cluster.mark_delete(T) is not None
    sim.produce(T, 60)
    again = ask(sim, RequestKind.RELEASE, T)
    sim.rounds(2)
    assert requests.outcome_of(sim.store, "sim", again) is None
    sim.rounds(12)
    assert requests.outcome_of(sim.store, "sim", again).ok
    assert sim.cluster.mark_delete(T) is None
    assert sim.context.catalogs.load(T).end == end(sim)


class OneAnswer(Executor):
    """Whatever is submitted has the same answer."""

    def __init__(self, answer: Future[Any]) -> None:
        self.answer = answer

    def submit(self, *_: object, **__: object) -> Future[Any]:
        return self.answer


def test_a_deleted_topic_does_not_come_back_from_a_discovery_that_was_under_way() -> None:
    sim = started(roll="5s")
    sim.produce(T, 30)
    sim.settle()
    under_way: Future[object] = Future()
    seen = sim.registry.found._discover({T, OTHER})
    inline, sim.executors[WorkKind.DISCOVER] = sim.executors[WorkKind.DISCOVER], OneAnswer(under_way)
    sim.cluster.delete(T)
    sim.until_believed()
    assert T not in sim.registry.topics
    assert sim.context.work.has(WorkKind.DISCOVER, "")
    sim.executors[WorkKind.DISCOVER] = inline
    under_way.set_result(seen)
    asked = sim.cluster.faults.count("admin.topic_info", T)
    sim.rounds(20)
    assert not sim.registry.refused
    assert sim.cluster.faults.count("admin.topic_info", T) == asked


@pytest.mark.parametrize("enabled", [True, False])
def test_a_topic_that_only_the_archive_remembers_is_not_looked_for_in_pulsar(enabled: bool) -> None:
    sim = started(roll="5s")
    sim.produce(T, 30)
    sim.settle()
    sim.cluster.delete(T)
    sim.rounds(10)
    sim.cluster.namespace("public/default").properties[SWITCH] = str(enabled).lower()
    sim.kill()
    sim.rounds(10)
    assert sim.context.catalogs.load(T).segments
    assert sim.registry.settled
    assert not sim.registry.refused
    asked = sim.cluster.faults.count("admin.topic_info", T)
    sim.rounds(10)
    assert sim.cluster.faults.count("admin.topic_info", T) == asked


def test_a_topic_that_was_refused_is_forgotten_once_it_is_not_listed_any_more() -> None:
    sim = started()
    busy = TopicName.parse("public/default/busy")
    sim.cluster.faults.add("pins.open", lambda: SubscriptionBusyError("busy"), topic=busy, times=99)
    sim.cluster.create(busy)
    sim.rounds(6)
    assert busy in sim.registry.refused
    sim.cluster.delete(busy)
    sim.rounds(6)
    assert not sim.registry.refused
    assert sim.registry.settled


def test_what_is_known_of_a_namespace_that_cannot_be_read_stays() -> None:
    sim = started()
    busy = TopicName.parse("public/default/busy")
    sim.cluster.faults.add("pins.open", lambda: SubscriptionBusyError("busy"), topic=busy, times=99)
    sim.cluster.create(busy)
    sim.rounds(6)
    sim.cluster.faults.add("admin.topics", lambda: BrokerUnavailableError("not now"), times=99)
    sim.rounds(6)
    assert busy in sim.registry.refused
    assert {T, OTHER, busy} <= sim.registry.found.policies.keys()


def test_a_start_asks_the_bucket_only_for_what_it_owns() -> None:
    """However many topics of others lie there, and however many of its own were disabled and released before."""
    requests_made = []
    for others in (0, 40):
        faults = StoreFaults()
        sim = started(roll="5s", store=FaultyStore(MemoryStore(), faults))
        sim.produce(T, 30)
        sim.settle()
        catalogs = Catalogs(sim.store, "somebody-else")
        for number in range(others):
            name = TopicName.parse(f"public/elsewhere/t{number}")
            catalogs.append(catalogs.head(name), Claim("somebody-else", 0, 1, Position(0, 3, 0), 1))
        sim.kill()
        before = Counter(faults.calls)
        sim.rounds(6)
        assert sim.registry.settled
        requests_made.append(sum(faults.calls[call] - before[call] for call in ("list", "read", "stat")))
    assert requests_made[0] == requests_made[1]


def test_a_topic_that_was_disabled_while_nothing_ran_is_found_by_the_list_of_claims() -> None:
    sim = started(roll="5s")
    sim.produce(T, 30)
    sim.settle()
    stale = TopicName.parse("public/default/never-claimed")
    Catalogs(sim.store, sim.application).mark(stale)
    sim.cluster.namespace("public/default").properties[SWITCH] = "false"
    sim.kill()
    sim.rounds(20)
    assert sim.registry.topics[T].paused
    assert set(Catalogs(sim.store, sim.application).claimed()) == {T, OTHER}


def test_a_topic_that_has_a_pin_and_could_not_be_claimed_is_paused_when_it_is_disabled() -> None:
    sim = Simulation(1, roll="5s")
    sim.cluster.faults.add("admin.pin_token", lambda: BrokerUnavailableError("gone"), times=10**6)
    sim.cluster.create(T)
    sim.rounds(10)
    assert T not in sim.registry.topics
    assert sim.cluster.mark_delete(T) is not None
    sim.cluster.namespace("public/default").properties[SWITCH] = "false"
    sim.rounds(10)
    sim.cluster.faults.clear()
    sim.rounds(200, step_ms=3_000)
    assert sim.registry.topics[T].paused
    assert sim.cluster.mark_delete(T) is not None
    assert Catalogs(sim.store, sim.application).claimed() == [T]


@pytest.mark.parametrize("restarted", [False, True])
def test_nobody_lets_go_of_a_pin_that_another_application_holds(restarted: bool) -> None:
    """Of another bucket, with the same name for its subscription."""
    sim = started(roll="10m")
    sim.produce(T, 30)
    sim.rounds(5)
    other = Simulation(2, roll="10m", cluster_of=sim, application="other")
    other.rounds(10)
    assert T in other.registry.refused
    sim.cluster.namespace("public/default").properties[SWITCH] = "false"
    if restarted:
        other.kill()
    other.rounds(10)
    sim.pins.close()  # the other one is away for a while
    other.rounds(100, step_ms=3_000)
    assert sim.cluster.mark_delete(T) is not None
    assert other.context.catalogs.head(T).claim is None


def test_a_claim_that_is_gone_from_the_list_is_listed_again_at_the_next_start() -> None:
    sim = started(roll="5s")
    sim.produce(T, 30)
    sim.settle()
    sim.store.delete([claim_key(sim.application, T)])
    sim.kill()
    sim.rounds(6)
    assert T in Catalogs(sim.store, sim.application).claimed()


def test_a_users_topic_is_offloaded_whatever_its_name_begins_with(caplog: pytest.LogCaptureFixture) -> None:
    """Kafka-on-Pulsar's, for example. A system topic is not, and the log names it once."""
    caplog.set_level("INFO")
    sim = started(roll="5s")
    mine, system = (TopicName.parse(f"public/default/{name}") for name in ("__consumer_offsets", "__change_events"))
    for topic in (mine, system):
        sim.cluster.create(topic)
    sim.rounds(6)
    sim.produce(mine, 20)
    sim.produce(system, 20)
    sim.settle()
    assert sim.registry.topics[mine].catalog.entries > 0
    assert system not in sim.registry.topics
    assert [r.getMessage() for r in caplog.records if "skipped topic" in r.getMessage()] == [
        f"skipped topic={system}: a system topic of Pulsar's, which is never offloaded"
    ]
