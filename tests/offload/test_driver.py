"""The driver and its lanes: one plan of each is outstanding, a topic that travels in one of them is left alone, and
nothing is waited for."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

import pytest

from offloader.errors import OvertakenError
from offloader.model import GapKind, Lane, Slice, TopicName
from offloader.offload.core.facets import Learnt
from offloader.offload.core.lanes import Speed
from offloader.offload.driver.lane_plans import LaneBatch
from offloader.offload.driver.work import WorkKind
from offloader.ports.admin import TopicInfo
from tests.invariants import check_invariants
from tests.offload.simulation import Simulation
from tests.truth import truth_of_cluster

QUICK, SLOW = TopicName.parse("public/default/t"), TopicName.parse("public/default/slow")


def started() -> Simulation:
    sim = Simulation(1, roll="10m", max_size=10**8)
    for topic in (QUICK, SLOW):
        sim.cluster.create(topic)
    sim.rounds(4)
    sim.registry.topics[SLOW].learnt = Learnt(Speed(Lane.SLOW))
    return sim


def planned(sim: Simulation) -> dict[Lane, tuple[Slice, ...]]:
    """What the next rounds plan."""
    for _ in range(5):
        sim.clock.now += 1_000
        sim.round()
    return {lane: plan.slices for lane, plan in sim.plans.newest.items()}


def test_a_plan_of_one_lane_that_is_outstanding_does_not_keep_the_other_from_planning() -> None:
    sim = started()
    for topic in (QUICK, SLOW):
        sim.produce(topic, 60)
    assert {lane: [s.id.topic for s in slices] for lane, slices in planned(sim).items()} == {
        Lane.FAST: [QUICK],
        Lane.SLOW: [SLOW],
    }
    for _ in range(3):
        assert sim.batch_of(Lane.FAST)
        sim.produce(QUICK, 60)
        sim.produce(SLOW, 60)
        planned(sim)
    assert len(sim.plans.newest[Lane.SLOW].slices) == 1
    sim.settle()
    check_invariants(sim.store, {t: truth_of_cluster(sim.cluster, t) for t in (QUICK, SLOW)}, at_rest=True)


def test_a_topic_that_travels_is_left_alone_whichever_lane_it_is_to_travel_in_next() -> None:
    sim = started()
    sim.produce(SLOW, 60)
    assert list(planned(sim)) == [Lane.SLOW]
    before = sim.driver.state(SLOW)
    sim.registry.topics[SLOW].learnt = Learnt(Speed(Lane.FAST))
    sim.clock.now += 3_600_000
    sim.produce(QUICK, 60)
    assert [s.id.topic for s in planned(sim)[Lane.FAST]] == [QUICK]
    assert sim.driver.state(SLOW) == before
    assert sim.batch_of(Lane.SLOW)
    sim.settle()


def test_the_empty_batch_with_which_a_query_begins_ends_no_plan() -> None:
    sim = started()
    sim.produce(QUICK, 60)
    (work,) = planned(sim)[Lane.FAST]
    sim.driver.plans.take(LaneBatch(Lane.FAST, []))
    assert planned(sim)[Lane.FAST] == (work,)
    receipt = sim.run(work)
    sim.driver.plans.take(LaneBatch(Lane.FAST, [replace(receipt, id=replace(receipt.id, plan=receipt.id.plan - 1))]))
    assert planned(sim)[Lane.FAST] == (work,)
    sim.settle()


class Stuck(Executor):
    """Every thread hangs."""

    def __init__(self) -> None:
        self.asked = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.asked += 1
        return Future()


def hang(sim: Simulation, kind: WorkKind) -> Stuck:
    stuck = Stuck()
    sim.executors[kind] = stuck
    return stuck


NOT_FOR_READING = [k for k in WorkKind if k not in (WorkKind.LOOK, WorkKind.LEDGERS, WorkKind.BEGIN)]


@pytest.mark.parametrize("kind", NOT_FOR_READING)
def test_whatever_kind_of_work_hangs_topics_are_read_and_the_driver_sees_whether_it_was_overtaken(
    kind: WorkKind,
) -> None:
    sim = started()
    hang(sim, kind)
    checks = 0
    check = sim.journal.check_not_overtaken

    def counted() -> None:
        nonlocal checks
        checks += 1
        check()

    sim.journal.check_not_overtaken = counted
    read = 0
    for _ in range(20):
        sim.produce(QUICK, 20)
        sim.clock.now += 1_000
        sim.round()
        read += sim.batch()
    assert read >= 5
    assert checks >= 20


def test_sixty_three_seals_that_take_long_hold_no_round_and_no_other_topic() -> None:
    many = [TopicName.parse(f"public/default/m{n}") for n in range(63)]
    sim = Simulation(1, roll="10s", max_size=10**8)
    for topic in (QUICK, *many):
        sim.cluster.create(topic)
    sim.rounds(4)
    for topic in many:
        sim.produce(topic, 5, largest=100)
    stuck = hang(sim, WorkKind.SEAL)
    sim.rounds(30)
    assert stuck.asked == 63
    sim.produce(QUICK, 200)
    assert sum(bool(planned(sim)) and bool(sim.batch()) for _ in range(3))
    assert stuck.asked <= 64, "each is posted once, however many rounds there are"
    assert sim.context.work.backlog()[WorkKind.SEAL].queued == stuck.asked


def test_tails_before_a_rest_that_hangs_hold_nobody() -> None:
    quiet = [TopicName.parse(f"public/default/q{n}") for n in range(20)]
    sim = Simulation(1, roll="10s", max_size=10**8)
    for topic in (QUICK, *quiet):
        sim.cluster.create(topic)
    for topic in quiet:
        sim.cluster.add_hidden(topic, GapKind.MARKER)
    sim.rounds(4)
    stuck = hang(sim, WorkKind.TAIL)
    sim.rounds(30)
    assert stuck.asked == len(quiet)
    segments = 0
    for _ in range(10):
        sim.produce(QUICK, 20)
        sim.rounds(4, step_ms=4_000)
        segments = len(sim.context.catalogs.load(QUICK).segments)
    assert segments >= 5


def test_a_topic_of_which_odd_things_are_known_holds_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = started()
    sound = sim.context.admin.topic_info

    def odd(name: TopicName) -> TopicInfo:
        info = sound(name)
        if name != SLOW:
            return info
        sizes: dict[int, tuple[int, int | None]] = {ledger: (n, None) for ledger, (n, _) in info.sizes.items()}
        return replace(info, sizes=sizes)

    with monkeypatch.context() as patch:
        patch.setattr(sim.context.admin, "topic_info", odd)
        for _ in range(6):
            sim.produce(QUICK, 60)
            sim.produce(SLOW, 60)
            sim.rounds(4, step_ms=300_000)
    assert sim.context.catalogs.load(QUICK).segments
    assert "TypeError" in {s.topic: s for s in sim.driver.statuses.latest}[SLOW].alarm
    sim.produce(SLOW, 60)
    sim.rounds(4, step_ms=300_000)
    sim.settle()
    check_invariants(sim.store, {t: truth_of_cluster(sim.cluster, t) for t in (QUICK, SLOW)}, at_rest=True)
    assert sim.context.catalogs.load(SLOW).segments


def test_who_stops_waits_for_no_batch_of_a_driver_that_is_dead() -> None:
    sim = started()
    sim.produce(QUICK, 60)
    assert Lane.FAST in planned(sim)

    def overtaken() -> None:
        raise OvertakenError("another process owns the journal")

    sim.driver.round = overtaken
    with pytest.raises(OvertakenError):
        sim.driver.run()
    began = time.monotonic()
    sim.driver.plans.drain(timeout=60)
    assert time.monotonic() - began < 30
