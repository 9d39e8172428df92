"""A topic with much history, in the simulated application: several of its segments are read at the same time, committed
in order, and the live end waits; through kills, lost tasks, failing calls, losses, and with one task only."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.errors import BookieUnavailableError, BrokerUnavailableError, TopicMovedError
from offloader.metadata.state import TopicState
from offloader.model import FailureKind, GapKind, Lane, Receipt, RollReason, Slice, SliceStop, Source, TopicName
from offloader.offload.core import history, planner, segments
from offloader.offload.core.lanes import LaneLimits
from offloader.operations.verify.catalog_records import read_catalog
from offloader.storage.memory import MemoryBacking, MemoryStore
from tests.archive.messages.encoder import Producer, Sent, single
from tests.examples import worlds
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults
from tests.invariants import check_invariants
from tests.offload.simulation import Simulation
from tests.truth import truth_of_cluster

T = TopicName.parse("public/default/t")
OTHERS = [TopicName.parse(f"public/default/other{i}") for i in range(6)]
PUBLISHED = 1_600_000_000_000
EFFECTS = [Effect.BEFORE, Effect.LOST, Effect.REPEATED]
FOUR = LaneLimits(tasks=4, threads=2, byte_budget=40 * 1024)


class Counting(Simulation):
    """Knows what was read, and which slices travelled together."""

    read_bytes = 0
    failed = 0
    together = 0
    order: tuple[str, ...] = ()

    def run(self, work: Slice) -> Receipt:
        receipt = super().run(work)
        self.read_bytes += receipt.read_bytes
        self.failed += receipt.stop is SliceStop.FAILED
        return receipt

    def planned(self, plan: Any) -> None:
        super().planned(plan)
        mine = [work.id.uuid for work in plan.slices if work.id.topic == T]
        assert len(mine) == len(set(mine)), "a segment has one slice at a time"
        self.together = max(self.together, len(mine))
        self.order += tuple(mine)


def with_history(seed: int = 1, entries: int = 400, **settings: Any) -> Counting:
    """A topic that was taken in, and whose producers then wrote much while nothing ran."""
    sim = Counting(seed, **{"max_size": 20_000, "part": 4_096, "limits": FOUR, "roll": "10m", **settings})
    sim.cluster.create(T)
    sim.rounds(3)
    sim.produce(T, entries)
    return sim


def state(sim: Simulation) -> TopicState:
    return sim.driver.state(T)


def check(sim: Simulation, *, at_rest: bool = True) -> None:
    truths = {t: truth_of_cluster(sim.cluster, t) for t in sim.registry.topics}
    check_invariants(sim.store, truths, at_rest=at_rest, paces=[sim.pace])


def stored(sim: Simulation) -> int:
    return sum(len(e.data) for e in sim.cluster.entries(T))


@pytest.mark.parametrize("source", list(Source))
def test_history_is_read_by_all_tasks_at_once_and_committed_in_order(source: Source) -> None:
    sim = with_history(source=source)
    sim.settle()
    assert sim.together == 4
    found = read_catalog(sim.store, T).catalog.segments
    assert len(found) > 10
    for before, after in pairwise(found):
        assert (after.predecessor_uuid, after.predecessor_end) == (before.uuid, before.end)
        assert after.offloaded_at >= before.offloaded_at
    full = [s for s in found if s.roll_reason is RollReason.SIZE]
    assert all(s.size <= 20_000 for s in found)
    assert sum(s.size >= 14_000 for s in full) > 0.7 * len(full), "borders are where segments are full"
    check(sim)


def test_what_is_read_is_read_once_but_for_what_does_not_fill_a_part() -> None:
    """The same as of a topic that is read one segment after the other."""
    one, four = (with_history(entries=600, limits=replace(FOUR, history=n)) for n in (1, 4))
    for sim in (one, four):
        sim.settle()
        check(sim)
    assert one.together == 1
    assert four.together == 4
    assert four.read_bytes <= 1.1 * one.read_bytes


def test_the_live_end_waits_until_history_is_committed() -> None:
    sim = with_history()
    opened_at: list[int] = []
    for number in range(80):
        before = state(sim)
        sim.rounds(1)
        sim.produce(T, 1)
        now = state(sim)
        if before.ahead and not now.ahead:
            opened_at.append(sim.clock.now)
        if now.ahead:
            assert now.open is None or now.open.closing_end is not None
        if number % 20 == 0:
            check(sim, at_rest=False)
    assert opened_at
    sim.settle()
    check(sim)


def test_with_one_task_history_is_read_one_segment_after_the_other() -> None:
    sim = with_history(limits=LaneLimits(tasks=1, threads=4, byte_budget=40 * 1024))
    sim.settle()
    assert sim.together == 1
    assert all(len(s.uuid) for s in read_catalog(sim.store, T).catalog.segments)
    check(sim)


def test_where_two_tasks_share_a_core_history_is_read_one_segment_after_the_other() -> None:
    sim = with_history(limits=replace(FOUR, cores=1))
    sim.settle()
    assert sim.together == 1
    check(sim)


def test_an_upload_begins_when_its_slice_is_due() -> None:
    """What waits behind others has none: stores end uploads that wait for days."""
    sim = with_history(entries=800)
    for topic in OTHERS:
        sim.cluster.create(topic)
    waited = 0
    for _ in range(12):
        for topic in OTHERS:
            sim.produce(topic, 6)
        sim.rounds(1)
        uploads = [s for s in state(sim).unfinished if s.upload is not None and not s.parts]
        waited = max(waited, sum(s.upload is None for s in state(sim).unfinished))
        assert len(uploads) <= FOUR.tasks
    assert waited > 1, "some are assigned and wait"
    sim.settle()
    check(sim)


def test_a_slow_segment_ahead_waits_for_its_turn_and_its_topic_stays_quick() -> None:
    sim = with_history()
    while not state(sim).ahead:
        sim.rounds(1)
    sim.round()
    slow = state(sim).ahead[0].segment.uuid
    run, tried = sim.run, list[Slice]()

    def slowly(work: Slice) -> Receipt:
        if work.id.uuid != slow or tried:
            return run(work)
        tried.append(work)
        return Receipt(work.id, SliceStop.SLOW, reading_ms=15_000, elapsed_ms=15_000)

    sim.run = slowly
    sim.batch()
    assert tried
    for _ in range(20):
        if all(each.segment.uuid != slow for each in state(sim).ahead):
            break
        sim.clock.now += 1_000
        sim.round()
        assert sim.registry.topics[T].learnt.speed.lane is Lane.FAST
        plan = sim.plans.newest[Lane.FAST]
        opened = state(sim).open
        assert slow not in [work.id.uuid for work in plan.slices] or (opened is not None and opened.uuid == slow)
        sim.batch()
    sim.settle()
    check(sim)


def test_little_history_is_left_to_the_live_end() -> None:
    sim = with_history(entries=25)
    sim.rounds(1)
    assert not state(sim).ahead
    sim.settle()
    check(sim)


def test_a_topic_with_history_takes_no_slice_from_another_one() -> None:
    sim = with_history(entries=800)
    for topic in OTHERS:
        sim.cluster.create(topic)
    sim.rounds(3)
    waiting: dict[TopicName, int] = {}
    for _ in range(30):
        sim.clock.now += 1_000
        for topic in OTHERS:
            sim.produce(topic, 6)
        sim.round()
        plan = sim.plans.newest.get(Lane.FAST)
        if plan is not None:
            topics = [work.id.topic for work in plan.slices]
            distinct = len(set(topics))
            assert len(topics) <= max(FOUR.tasks, distinct), "only tasks that have nothing get a second slice"
            for topic in OTHERS:
                waiting[topic] = 0 if topic in topics else waiting.get(topic, 0) + 1
        sim.batch()
    assert max(waiting.values()) <= 10
    sim.settle()
    check(sim)


@pytest.mark.parametrize("step", range(8))
def test_a_process_that_is_killed_at_any_step_goes_on_with_every_segment(step: int) -> None:
    sim = with_history(seed=step)
    sim.rounds(step // 2)
    sim.clock.now += 1_000
    sim.round()
    if step % 2:
        sim.batch()
    before = {segment.uuid: len(segment.parts) for segment in state(sim).unfinished}
    sim.kill()
    sim.rounds(1)
    sim.round()
    for segment in state(sim).unfinished:
        assert len(segment.parts) >= before.get(segment.uuid, 0), "what is uploaded is not uploaded again"
    sim.settle()
    check(sim)


def test_a_segment_ahead_that_fails_waits_alone_and_the_others_go_on() -> None:
    sim = with_history()
    for _ in range(5):
        if not state(sim).ahead:
            sim.batch()
            sim.clock.now += 1_000
            sim.round()
    failing, begin = state(sim).ahead[1].segment.uuid, state(sim).ahead[1].segment.start
    run, tries = sim.run, list[int]()

    def fails(work: Slice) -> Receipt:
        if work.id.uuid != failing or len(tries) > 4:
            return run(work)
        tries.append(sim.clock.now)
        kind, why = FailureKind.RETRYABLE, "not now"
        return Receipt(work.id, SliceStop.FAILED, failure_kind=kind, failure_reason=why)

    sim.run = fails
    sim.batch()
    assert tries
    assert state(sim).failure is None
    sim.rounds(3)
    end = read_catalog(sim.store, T).catalog.end
    assert end is not None
    assert sim.cluster.admin.topic_info(T).ledgers.successor(end) == begin, "those before it are committed, alone"
    sim.settle(step_ms=1_000)
    assert all(later - earlier >= 700 for earlier, later in pairwise(tries))
    check(sim)


def test_what_does_not_fit_because_entries_are_larger_than_the_average_goes_into_the_next() -> None:
    """Within a ledger small entries come first, then large ones: no border is where it was thought to be."""
    sim = Counting(3, max_size=30_000, part=4_096, limits=FOUR, roll="10m", entries_per_ledger=200)
    sim.cluster.create(T)
    sim.rounds(3)
    for _ in range(3):
        for size in (10, 3_000):
            for _ in range(100):
                sim.cluster.produce(T, b"\0" + sim.rng.randbytes(size))
    sim.settle()
    found = read_catalog(sim.store, T).catalog.segments
    assert all(s.size <= 30_000 for s in found)
    check(sim)


def dated(sim: Simulation, count: int, pause_ms: int) -> None:
    """Messages that were published so far apart."""
    for number in range(count):
        payload = sim.rng.randbytes(150)
        message = single(Producer(publish_time=PUBLISHED + number * pause_ms), Sent(payload))
        sim.cluster.produce(T, message.data)


@pytest.mark.parametrize("fails", [False, True])
def test_entries_of_a_segment_are_of_one_hour_where_that_is_wanted(fails: bool) -> None:
    """Where times cannot be looked up, size alone decides: nothing waits for them."""
    sim = with_history(entries=0, limits=replace(FOUR, history_span_ms=3_600_000))
    dated(sim, 600, 60_000)
    if fails:
        sim.context = replace(sim.context, source=Refusing())
        sim.driver.plans._context = replace(sim.driver.plans._context, source=Refusing())
    sim.settle()
    assert sim.together >= 3
    full = [s for s in read_catalog(sim.store, T).catalog.segments if s.roll_reason is RollReason.SIZE]
    spans = []
    for segment in full[1:]:  # the first one was begun before times were known
        bounds = [bound for part in segment.parts if (bound := part.stats.publish_bounds) is not None]
        spans.append(max(most for _, most in bounds) - min(least for least, _ in bounds))
    assert all(s.size <= 20_000 for s in full)
    if fails:
        assert max(spans) > 1.5 * 3_600_000
    else:
        assert max(spans) <= 3_600_000
        assert sum(span >= 0.8 * 3_600_000 for span in spans) > 0.7 * len(spans), "they are not much shorter either"
    check(sim)


class Refusing:
    """A broker that gives the driver no entry."""

    def open(self, *_: object, **__: object) -> NoReturn:
        raise BrokerUnavailableError("not now")

    def explain(self, *_: object, **__: object) -> NoReturn:
        raise BrokerUnavailableError("not now")


@pytest.mark.parametrize("max_size", [8_000, 20_000, 100_000])
def test_other_sizes_and_another_source_in_the_middle(max_size: int) -> None:
    sim = with_history()
    sim.rounds(3)
    sim.max_size = max_size
    sim.switch(Source.BOOKKEEPER)
    sim.settle()
    check(sim)


def test_a_release_in_the_middle_is_done_when_everything_up_to_it_is_committed() -> None:
    sim = with_history()
    sim.rounds(3)
    assert state(sim).ahead
    sim.release(T)
    for _ in range(300):
        sim.clock.now += 5_000
        sim.round()
        sim.batch()
        if T not in sim.registry.topics:
            break
    assert T not in sim.registry.topics
    truth = truth_of_cluster(sim.cluster, T)
    end = read_catalog(sim.store, T).catalog.end
    assert end is not None
    assert end.place >= max(place for place, entry in truth.entries.items() if not entry.gaps)
    assert sim.driver.state(T).idle


def test_a_topic_that_is_deleted_in_the_middle_keeps_whatever_is_uploaded() -> None:
    sim = with_history()
    sim.rounds(4)
    uploaded = {s.uuid for s in state(sim).unfinished if s.parts}
    assert len(uploaded) > 1
    sim.cluster.create(OTHERS[0])
    sim.rounds(2)
    uploaded = {s.uuid for s in state(sim).unfinished if s.parts}
    sim.cluster.delete(T)
    sim.until_believed()
    sim.rounds(40, step_ms=10_000)
    assert uploaded <= {s.uuid for s in read_catalog(sim.store, T).catalog.segments}
    assert sim.driver.state(T).idle
    check_invariants(sim.store, {})


@pytest.mark.parametrize("gone", [1, 4, 9])
def test_ledgers_that_are_lost_in_the_middle_are_lost_but_for_what_is_uploaded(gone: int) -> None:
    sim = with_history(fail_on_data_loss=False)
    sim.rounds(4)
    uploaded = {s.uuid for s in state(sim).unfinished if s.parts}
    ledgers = [s.ledger for s in sim.cluster.admin.topic_info(T).ledgers.spans[:-1]]
    sim.cluster.skip(T, 20 * gone)
    for ledger in ledgers[:gone]:
        if ledger in {s.ledger for s in sim.cluster.admin.topic_info(T).ledgers.spans}:
            sim.cluster.lose(T, ledger)
    sim.rounds(10, step_ms=30_000)
    sim.produce(T, 5)
    sim.settle()
    committed = {s.uuid for s in read_catalog(sim.store, T).catalog.segments}
    assert uploaded <= committed, "what was uploaded of a segment is kept, whatever Pulsar has lost"
    check(sim, at_rest=False)


def test_an_application_that_ends_with_a_batch_leaves_no_hole_behind_a_segment_that_was_full_early() -> None:
    """The journal has what the full one left with the receipt itself, before anything else is decided."""
    full = 0
    for seed in range(8):
        sim = Counting(seed, max_size=6_000, part=4_096, limits=FOUR, roll="10m", entries_per_ledger=20)
        sim.cluster.create(T)
        sim.rounds(3)
        for size in (10, 3_000) * 3:
            for _ in range(10):
                sim.cluster.produce(T, b"\0" + sim.rng.randbytes(size))
        for _ in range(12):
            sim.clock.now += 1_000
            sim.round()
            before = {each.uuid: each.closing_end for each in state(sim).unfinished}
            sim.batch()
            after = state(sim).unfinished
            full += any(before.get(each.uuid, each.closing_end) != each.closing_end for each in after[:-1])
            check(sim, at_rest=False)
        sim.settle()
        check(sim)
        sim.close()
    assert full > 8


def not_the_journal(key: str) -> bool:
    """Whatever the driver waits for is tried elsewhere."""
    return not key.startswith("_journal")


def chaos(seed: int, steps: int = 90) -> Counting:
    rng = random.Random(seed)
    faults, backing = StoreFaults(), MemoryBacking(clock_ms=lambda: 1_700_000_000_000)
    sim = with_history(
        seed,
        entries=rng.choice([100, 300]),
        max_size=rng.choice([6_000, 20_000, 50_000]),
        part=rng.choice([4_096, 8_192]),
        entries_per_ledger=rng.choice([3, 20, 150]),
        source=rng.choice(list(Source)),
        limits=replace(FOUR, tasks=rng.choice([1, 2, 4, 6])),
        store=FaultyStore(MemoryStore(backing), faults),
    )

    def new_sizes() -> None:
        sim.max_size = rng.choice([6_000, 20_000, 50_000])
        sim.limits = replace(FOUR, tasks=rng.choice([1, 2, 4, 6]))
        sim.kill()

    actions = [
        lambda: sim.rounds(1),
        sim.round,
        lambda: sim.batch(deaths=rng.choice([0, 0, 0.3])),
        sim.zombie,
        sim.kill,
        new_sizes,
        lambda: sim.produce(T, rng.randint(1, 60), largest=rng.choice([200, 3_000, 15_000])),
        lambda: sim.cluster.roll(T),
        lambda: sim.cluster.unload(T),
        lambda: sim.cluster.add_hidden(T, rng.choice([GapKind.ABORTED, GapKind.MARKER])),
        lambda: setattr(sim.clock, "now", sim.clock.now + rng.choice([100, 5_000, 70_000])),
        lambda: sim.cluster.faults.add(
            rng.choice(["source.read", "source.open", "pins.acknowledge", "admin.topic_info"]),
            rng.choice([lambda: TopicMovedError("moved"), lambda: BrokerUnavailableError("gone")]),
            effect=rng.random() < 0.5,
        ),
        lambda: sim.cluster.faults.add("bookies.read", lambda: BookieUnavailableError("busy")),
        lambda: faults.add(
            StoreFault(
                rng.choice(["begin", "put_part", "commit", "put"]), effect=rng.choice(EFFECTS), key=not_the_journal
            )
        ),
        lambda: sim.switch(rng.choice(list(Source))),
    ]
    weights = [6, 6, 6, 1, 0.7, 0.4, 2, 0.5, 0.3, 1, 2, 1, 0.5, 1, 0.3]
    for _ in range(steps):
        rng.choices(actions, weights)[0]()
    sim.cluster.faults.clear()
    faults.clear()
    return sim


@worlds
@given(st.integers(0, 10**9))
def test_every_entry_of_a_history_is_in_exactly_one_segment_whatever_happens(seed: int) -> None:
    sim = chaos(seed)
    if not sim.source.complete and any(e.hidden is None and not e.delivered for e in sim.cluster.entries(T)):
        sim.switch(Source.BOOKKEEPER)
    sim.settle()
    check(sim)
    sim.close()


def seals_out_of_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest one that is ready is opened first."""

    def reversed_(state: TopicState, *args: Any) -> TopicState:
        return opened_next(replace(state, ahead=state.ahead[::-1]), *args)

    opened_next = history.opened_next
    monkeypatch.setattr(planner, "opened_next", reversed_)


def forgets_those_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit forgets what is uploaded ahead, with its uploads."""
    offloaded = segments.offloaded
    monkeypatch.setattr(segments, "offloaded", lambda state: replace(offloaded(state), ahead=()))


def leaves_a_hole(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a full segment lacks is left to nobody."""
    for module in (history, planner):
        monkeypatch.setattr(module, "normalise", lambda state, *_: state)
    monkeypatch.setattr(planner, "next_follows", lambda *_: True)


def opens_the_live_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new segment is opened while some are ahead."""

    def opened(view: Any, state: TopicState, now: int, new_uuid: Any) -> Any:
        ahead = state.ahead
        waits, state = opens(view, replace(state, ahead=()), now, new_uuid)
        return waits, replace(state, ahead=ahead)

    opens = planner._opened
    monkeypatch.setattr(planner, "_opened", opened)


def tries_at_once_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure of a segment ahead is forgotten."""
    monkeypatch.setattr(planner, "_back_off", lambda *_: None)


@pytest.mark.parametrize(
    "broken",
    [seals_out_of_order, forgets_those_ahead, leaves_a_hole, opens_the_live_end_at_once, tries_at_once_again],
)
def test_a_broken_variant_is_caught(broken: Callable[[pytest.MonkeyPatch], None]) -> None:
    for seed in range(40):
        with pytest.MonkeyPatch.context() as patch:
            broken(patch)
            try:
                sim = chaos(seed, steps=40)
                sim.settle(rounds=60)
                check(sim)
                assert not list(sim.store.list_uploads()), "an upload that nobody names"
            except AssertionError:
                return
    pytest.fail("no world has caught it")
