"""The planner: always progress, never an overlap or a hole, never two open segments; a topic with data is read, sealed,
or held back with a date. Pure: lists of entries, no cluster, no journal, no store."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.metadata.state import Claim, CloseRequest, OpenTopic, TopicCatalog, TopicState
from offloader.model import (
    SINGLE_PUT,
    FailureKind,
    Lane,
    LedgerList,
    LedgerSpan,
    Position,
    Receipt,
    RollReason,
    SegmentLayout,
    SegmentStatus,
    Slice,
    SliceStop,
    Source,
    TopicName,
)
from offloader.offload.core import lanes, planner, segments, sources
from offloader.offload.core.decisions import (
    Begin,
    Decision,
    DecisionLimits,
    Hold,
    Read,
    Seal,
)
from offloader.offload.core.facets import Learnt, TopicRules
from offloader.offload.core.lanes import LaneLimits, Speed
from offloader.offload.core.planner import roll_at
from offloader.offload.core.plans import plan
from offloader.offload.core.sources import Reach, reach_of
from offloader.offload.core.topic import Topic
from offloader.offload.worker.slice_worker import died, run_slice
from offloader.ports.entry_source import Extent, RawEntry
from offloader.ports.object_store import Stat, UploadedPart
from tests.examples import worlds
from tests.offload.topics import known_topic

LANES = {
    Lane.FAST: LaneLimits(tasks=2, threads=2, byte_budget=30_000),
    Lane.SLOW: LaneLimits(
        tasks=1, threads=3, byte_budget=30_000, time_budget_ms=300_000, hard_limit_ms=900_000, queue_factor=1
    ),
}
SHARED = LaneLimits(1, 8, 10**9, longest_ms=30_000)  # of a slow lane whose slot others wait for
HALF_S = 15
MINUTE = 60_000


class NoStore:
    """Takes every part, and an object of one part once."""

    url = "file:///nowhere"

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}

    def put(self, key: str, data: bytes, **_: object) -> Stat | None:
        return Stat(len(data), "etag") if self._objects.setdefault(key, bytes(data)) == data else None

    def put_part(self, upload: str, number: int, offset: int, data: bytes, crc32c: int) -> UploadedPart:
        return UploadedPart(number, len(data), "etag", crc32c)


@cache
def ledgers_with(full: int) -> LedgerList:
    """So many full ledgers, and an open one."""
    return LedgerList((*(LedgerSpan(i, 9) for i in range(full)), LedgerSpan(full, None)))


@dataclass
class Listed:
    """A topic that is a list of entries; ledgers hold ten of them, the last one is open."""

    name: TopicName
    rules: TopicRules
    sizes: list[int]
    state: TopicState
    catalog: TopicCatalog
    wanted: int = 0
    speed: Speed = field(default_factory=Speed)
    died: bool = False
    planned_at: int = 0
    reads: list[int] = field(default_factory=list)

    @property
    def ledgers(self) -> LedgerList:
        return ledgers_with(len(self.sizes) // 10)

    @property
    def last(self) -> Position | None:
        return Position(0, *divmod(len(self.sizes) - 1, 10)) if self.sizes else None

    def start(self) -> Position | None:
        if self.state.open is not None:
            return segments.next_position(self.state.open, self.ledgers)
        start = self.catalog.head.next_start(self.ledgers)
        return None if start is None else start.position

    def pending(self, error: float) -> int:
        start = self.start()
        if start is None:
            return 0
        rest = self.sizes[start.ledger * 10 + start.entry :]
        return int((sum(rest) + 12 * len(rest)) * error)

    def topic(
        self,
        error: float = 1,
        *,
        ledgers: LedgerList | None = None,
        offloaded: Iterable[int] = (),
        sizes: Mapping[int, tuple[int, int]] | None = None,
    ) -> Topic:
        """`error`: what Pulsar's sizes are multiplied with."""
        own = {n // 10: self.sizes[n : n + 10] for n in range(0, len(self.sizes), 10)}
        listed = {ledger: (len(each), int(sum(each) * error)) for ledger, each in own.items()}
        return known_topic(
            self.rules,
            self.catalog.head,
            ledgers or self.ledgers,
            self.last,
            sizes or listed,
            offloaded=offloaded,
            learnt=Learnt(self.speed, self.died, self.wanted),
            planned_at=self.planned_at,
        )

    def decide(self, world: World, topic: Topic | None = None, slow: LaneLimits | None = None) -> Decision:
        """`topic`: this one, where a test knows something else of it."""
        limits = DecisionLimits(replace(LANES[Lane.FAST], history=1), slow or LANES[Lane.SLOW])
        return planner.decide(topic or self.topic(), self.state, limits, world.now, world.uuid)

    def open(self, topic: TopicName, ledger: int, entry: int, *, max_bytes: int, extent: Extent) -> Listed:
        self.reads = list(range(ledger * 10 + entry, len(self.sizes)))
        return self

    def read(self, timeout: float) -> list[RawEntry]:
        taken, self.reads = self.reads[:7], self.reads[7:]
        return [RawEntry(*divmod(i, 10), bytes(self.sizes[i])) for i in taken]

    def close(self) -> None:
        pass


class World:
    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.now = 1_000_000
        self.part = rng.choice([2_000, 10_000])
        self.largest = rng.choice([50, 500, 15_000])
        self.topics = {t.name: t for t in (self.new_topic(i) for i in range(rng.choice([1, 3, 12])))}
        self.uuids = 0
        self.number = 0
        self.store = NoStore()

    def new_topic(self, i: int) -> Listed:
        name = TopicName("a", "b", f"t{i}")
        rules = TopicRules(
            max_size=self.rng.choice([700, 5_000, 30_000, 10**9]),
            roll_ms=self.rng.choice([1_000, 10 * MINUTE]),
            cuts=SegmentLayout(part_size=self.part, block_size=1_000, index_step=500),
        )
        claim = Claim("app", 0, 1, Position(0, 0, 0), 0)
        return Listed(name, rules, [], TopicState(name), TopicCatalog.empty(name).apply(claim))

    def uuid(self) -> str:
        self.uuids += 1
        return f"{self.uuids:08x}-0000-0000-0000-000000000000"

    def produce(self) -> None:
        topic = self.rng.choice(list(self.topics.values()))
        topic.sizes += [self.rng.randint(0, self.largest) for _ in range(self.rng.randint(1, 40))]

    def request(self) -> None:
        topic = self.rng.choice(list(self.topics.values()))
        if topic.last is not None and topic.catalog.end != topic.last:
            topic.state = replace(topic.state, requests=(*topic.state.requests, CloseRequest(self.uuid(), topic.last)))

    def restart(self) -> None:
        for topic in self.topics.values():
            topic.wanted = topic.planned_at = 0
            topic.speed, topic.died = Speed(), False

    def round(self, trouble: float) -> None:
        decisions = [self._decided(t) for t in self.topics.values()]
        again = []
        for d in decisions:
            if isinstance(d.step, Begin):
                topic = self.topics[d.state.topic]
                topic.state = segments.uploading(d.state, d.state.open.uuid, "upload of " + d.state.open.uuid)
                again.append(self._decided(topic))
            elif isinstance(d.step, Seal):
                self._seal(self.topics[d.state.topic], trouble)
            elif isinstance(d.step, Read):
                again.append(d)
        for lane in Lane:
            self.number += 1
            made = plan("run", self.number, lane, again, LANES[lane])
            reads = [d for d in again if isinstance(d.step, Read) and d.topic.learnt.speed.lane is lane]
            assert bool(made.slices) == bool(reads)
            assert len({s.id.topic for s in made.slices}) == len(made.slices)
            assert lane is Lane.FAST or len(made.tasks) <= 1
            for work in made.slices:
                self.topics[work.id.topic].planned_at = self.now
                self._work(self.topics[work.id.topic], work, trouble)

    def _decided(self, topic: Listed) -> Decision:
        decision = topic.decide(self, topic.topic(self.rng.choice([0.0, 0.5, 1.0, 1.0, 3.0])))
        self._check_alive(topic, decision)
        if decision.state == topic.state:
            self._check_date(topic, decision)
        topic.state = decision.state
        return decision

    def _check_alive(self, topic: Listed, decision: Decision) -> None:
        begin = topic.catalog.head.next_start(topic.ledgers)
        has_data = topic.last is not None and begin is not None and begin.position <= topic.last
        if isinstance(decision.step, Hold):
            assert not has_data or decision.step.until is not None, decision.step
            if decision.step.until is not None and decision.state.failure is None and decision.state.open is not None:
                latest = roll_at(topic.name, decision.state.open.assigned_at, topic.rules.roll_ms)
                assert decision.step.until <= latest
        if decision.state.open is not None and topic.state.open is not None:
            assert decision.state.open.uuid == topic.state.open.uuid, "a second segment was opened"

    def _check_date(self, topic: Listed, decision: Decision) -> None:
        """A topic that is held back needs no look before the date that the hold says."""
        if all(isinstance(step, Hold) for step in decision.steps):
            until = min((step.until for step in decision.steps if step.until is not None), default=self.now + 10**10)
            present, self.now = self.now, max(self.now, until - 1)
            later = topic.decide(self, decision.topic)
            self.now = present
            assert later.state == decision.state
            assert all(isinstance(step, Hold) for step in later.steps)

    def _work(self, topic: Listed, work: Slice, trouble: float) -> None:
        if self.rng.random() < trouble:
            receipt: Receipt = died(work)
            kind = self.rng.choice([FailureKind.TASK_DIED, FailureKind.RETRYABLE, FailureKind.UPLOAD_GONE])
            receipt = replace(receipt, failure_kind=kind)
        else:
            ticks = iter(range(0, 10**9, self.rng.choice([1, 400])))
            receipt = run_slice(work, topic, self.store, lambda: next(ticks))
        topic.state = segments.received(topic.state, receipt, self.now, self.rng.random())
        topic.speed = lanes.after(topic.speed, receipt, LANES[Lane.FAST], 10**6)
        topic.died = receipt.failure_kind is FailureKind.TASK_DIED
        if receipt.failure_kind is FailureKind.UPLOAD_GONE or receipt.stop is SliceStop.LARGER:
            topic.state = segments.abandoned(topic.state, self.uuid(), "gone")
        if receipt.finished:
            topic.state = segments.complete(topic.state, receipt.gaps, topic.ledgers, self.now)
        enough = planner.enough(topic.state.open, topic.rules)
        short = receipt.stop == "bound" and not receipt.finished
        topic.wanted = planner.after_slice(topic.pending(1), receipt.seen_bytes, enough) if short else 0

    def _seal(self, topic: Listed, trouble: float) -> None:
        segment = topic.state.open
        assert segment.status is SegmentStatus.SEALING
        if self.rng.random() < trouble:
            topic.state = segments.failed(topic.state, FailureKind.RETRYABLE, "the store is down", self.now, 0.5)
            return
        record = segments.as_record(topic.state, "test", ())
        over = record.size - max(
            topic.rules.max_size, 128 + 4 + 12 + 32 + max((r.size for r in record.ledgers), default=0)
        )
        assert over <= 0, "larger than its maximum by more than one entry"
        topic.catalog = topic.catalog.apply(record)  # raises where it does not continue the catalog
        topic.state, _ = segments.satisfied(segments.offloaded(topic.state), topic.catalog.end)
        topic.wanted = 0

    def done(self) -> bool:
        return all(t.state.open is None and (not t.sizes or t.catalog.end == t.last) for t in self.topics.values())


@worlds
@given(st.integers(0, 10**9))
def test_always_progress_and_never_a_hole_an_overlap_or_a_second_segment(seed: int) -> None:
    world = World(seed)
    for _ in range(60):
        world.rng.choice([world.produce, world.produce, world.request, world.restart])()
        world.round(trouble=0.15)
        world.now += world.rng.choice([1, 500, 5_000, 2 * MINUTE])
    for _ in range(3_000):
        if world.done():
            break
        world.round(trouble=0)
        world.now += 30_000
    assert world.done(), {str(t.name): t.state for t in world.topics.values() if t.state.open}
    for topic in world.topics.values():
        assert sum(s.entries for s in topic.catalog.segments) == len(topic.sizes)
        assert not topic.state.requests


def test_rolls_of_topics_that_started_together_are_spread_over_a_tenth() -> None:
    rolls = [roll_at(TopicName("a", "b", f"t{i}"), 0, 600_000) for i in range(1_000)]
    assert min(rolls) >= 540_000
    assert max(rolls) <= 600_000
    tenths = [sum(540_000 + 6_000 * i <= r < 540_000 + 6_000 * (i + 1) for r in rolls) for i in range(10)]
    assert min(tenths) > 50


def reading(count: int) -> tuple[World, list[Listed]]:
    """So many topics that are all to be read."""
    world = World(1)
    world.topics = {}
    for i in range(count):
        topic = world.new_topic(i)
        topic.rules = replace(topic.rules, max_size=10**9, roll_ms=10 * MINUTE)
        topic.sizes = [1_000] * 50
        topic.state = topic.decide(world).state
        topic.state = segments.uploading(topic.state, topic.state.open.uuid, "up")
        world.topics[topic.name] = topic
    return world, list(world.topics.values())


def decisions(world: World) -> list[Decision]:
    return [topic.decide(world) for topic in world.topics.values()]


def test_a_topic_whose_task_died_has_a_task_to_itself() -> None:
    world, topics = reading(6)
    topics[0].died = True
    made = plan("run", 1, Lane.FAST, decisions(world), LANES[Lane.FAST])
    assert [len(task) for task in made.tasks if any(s.id.topic == topics[0].name for s in task)] == [1]


def test_a_topic_is_in_the_plan_of_its_lane_alone() -> None:
    world, topics = reading(6)
    topics[1].speed = Speed(Lane.SLOW)
    fast, slow = (plan("run", 2, lane, decisions(world), LANES[lane]) for lane in Lane)
    assert [s.id.topic for s in slow.slices] == [topics[1].name]
    assert {s.id.topic for s in fast.slices} == {t.name for t in topics} - {topics[1].name}


def test_the_slow_lane_has_one_task_at_a_time_also_where_tasks_died() -> None:
    world, topics = reading(4)
    for topic in topics:
        topic.speed = Speed(Lane.SLOW)
    topics[0].died = topics[1].died = True
    for topic in topics:
        topic.planned_at = 5
    first = plan("run", 1, Lane.SLOW, decisions(world), LANES[Lane.SLOW])
    assert [[s.id.topic for s in task] for task in first.tasks] == [[topics[0].name]]
    topics[0].planned_at, topics[2].planned_at = 9, 1
    second = plan("run", 2, Lane.SLOW, decisions(world), LANES[Lane.SLOW])
    assert [{s.id.topic for s in task} for task in second.tasks] == [{topics[2].name, topics[3].name}]


@pytest.mark.parametrize(
    ("speed", "patience"),
    [
        (Speed(Lane.SLOW), 900_000),  # nothing is known: the limit
        (Speed(Lane.SLOW, rate=1_000_000), 900_000),
        (Speed(Lane.SLOW, rate=5), 2 * 2_000_000),  # twice what a part of 10,000 bytes takes
        (Speed(Lane.SLOW, in_vain=2), 4 * 900_000),
        (Speed(Lane.SLOW, rate=0.001), 24 * 60 * MINUTE),
    ],
)
def test_a_slice_of_the_slow_lane_waits_for_what_its_topic_needs(speed: Speed, patience: int) -> None:
    assert lanes.slow_limit_ms(speed, 10_000, LANES[Lane.SLOW]) == patience


def failed_segment(kind: FailureKind, failures: int = sources.ANEW_AFTER) -> tuple[World, Listed]:
    """A topic with a part uploaded, whose end is fixed, and which then fails so often in a row."""
    world = World(1)
    topic = world.new_topic(0)
    world.topics = {topic.name: topic}
    topic.rules = replace(topic.rules, max_size=10**9, roll_ms=10 * MINUTE)
    topic.sizes = [1_000] * 60
    world.round(trouble=0)
    last = topic.last
    assert last is not None
    topic.state = segments.closing(topic.state, last, RollReason.REQUEST)
    assert topic.state.open.parts
    for _ in range(failures):
        topic.state = segments.failed(topic.state, kind, "it fails", world.now, 0.5)
    world.now += MINUTE
    return world, topic


@pytest.mark.parametrize("one_less", [False, True])
def test_a_segment_ends_before_its_index_is_larger_than_readers_shall_hold(one_less: bool) -> None:
    """Markers between single entries make each entry a block of its own: 8 MiB of those have 50,000 index entries."""
    world = World(1)
    topic = world.new_topic(0)
    world.topics = {topic.name: topic}
    topic.rules = replace(topic.rules, max_size=10**9, roll_ms=10 * MINUTE)
    topic.sizes = [1_000] * 60
    world.round(trouble=0)
    assert isinstance(topic.state, OpenTopic)
    *parts, last = topic.state.open.parts
    many = -(-planner.MAX_INDEX_BYTES // planner.INDEX_ENTRY_BYTES) - sum(p.indexed for p in parts)
    parts.append(replace(last, indexed=many - one_less))
    topic.state = replace(topic.state, open=replace(topic.state.open, parts=tuple(parts)))
    after = topic.decide(world).state.open
    reached = (topic.state.open.covered, RollReason.INDEX)
    assert (after.closing_end, after.roll_reason) == ((None, None) if one_less else reached)


@pytest.mark.parametrize("kind", [FailureKind.RETRYABLE, FailureKind.FATAL, FailureKind.INTEGRITY])
@pytest.mark.parametrize("source", [Source.BROKER_WITH_BOOKIES, Source.BOOKKEEPER])
def test_a_segment_that_cannot_go_on_is_begun_anew_once_its_topic_has_another_source(
    kind: FailureKind, source: Source
) -> None:
    world, topic = failed_segment(kind)
    before = topic.state.open
    topic.rules = replace(topic.rules, source=source)
    decision = topic.decide(world)
    after = decision.state.open
    assert (after.start, after.source, after.cuts) == (before.start, source, before.cuts)
    assert (after.parts, after.upload, after.closing_end, after.status) == ((), None, None, SegmentStatus.ASSIGNED)
    assert after.uuid != before.uuid
    assert [a.uuid for a in decision.state.abandoned] == [before.uuid]
    assert decision.state.failure is None
    topic.state = decision.state
    for _ in range(40):
        world.round(trouble=0)
        world.now += MINUTE
    assert world.done()
    assert {s.source for s in topic.catalog.segments} == {source}


@pytest.mark.parametrize(
    ("kind", "failures", "source"),
    [
        (FailureKind.INTEGRITY, sources.ANEW_AFTER, Source.BROKER),  # the same source would fail again
        (FailureKind.INTEGRITY, sources.ANEW_AFTER - 1, Source.BROKER_WITH_BOOKIES),  # it may be better soon
        (FailureKind.DATA_LOST, sources.ANEW_AFTER, Source.BROKER),  # lost is lost
        (FailureKind.UPLOAD_GONE, sources.ANEW_AFTER, Source.BROKER_WITH_BOOKIES),  # nothing of the source
    ],
)
def test_a_segment_keeps_its_source(kind: FailureKind, failures: int, source: Source) -> None:
    world, topic = failed_segment(kind, failures)
    topic.rules = replace(topic.rules, source=source)
    after = topic.decide(world).state
    assert after.open == topic.state.open


@pytest.mark.parametrize("of_catalog", [False, True])
def test_only_an_unknown_outcome_of_its_own_put_gives_a_segment_another_uuid(of_catalog: bool) -> None:
    world, topic = failed_segment(FailureKind.UNKNOWN)
    failure = topic.state.failure
    assert isinstance(topic.state, OpenTopic)
    assert failure is not None
    segment = replace(topic.state.open, parts=(), upload=SINGLE_PUT, sealed=None)
    topic.state = replace(topic.state, open=segment, failure=replace(failure, of_catalog=of_catalog))
    after = topic.decide(world).state
    assert (after.open.uuid == segment.uuid) == of_catalog
    assert bool(after.abandoned) != of_catalog


def test_where_a_ledger_is_gone_for_its_source_a_segment_ends_with_what_it_has() -> None:
    """What is uploaded may be the only copy. What follows it has the other source."""
    world, topic = failed_segment(FailureKind.DATA_LOST)
    before = topic.state.open
    topic.rules = replace(topic.rules, source=Source.BROKER_WITH_BOOKIES)
    topic.state = topic.decide(world).state
    after = topic.state.open
    assert (after.uuid, after.parts, after.closing_end) == (before.uuid, before.parts, before.covered)
    for _ in range(40):
        world.round(trouble=0)
        world.now += MINUTE
    assert world.done()
    assert [s.source for s in topic.catalog.segments][:2] == [Source.BROKER, Source.BROKER_WITH_BOOKIES]


def test_a_segment_without_parts_whose_ledger_brokers_have_offloaded_is_begun_anew_through_brokers() -> None:
    world, topic = failed_segment(FailureKind.DATA_LOST)
    assert isinstance(topic.state, OpenTopic)
    bare = replace(topic.state.open, parts=(), source=Source.BOOKKEEPER)
    topic.state, topic.rules = replace(topic.state, open=bare), replace(topic.rules, source=Source.BOOKKEEPER)
    assert topic.decide(world).state.open == bare
    after = topic.decide(world, topic.topic(offloaded={bare.start.ledger})).state
    assert (after.open.source, after.failure) == (Source.BROKER_WITH_BOOKIES, None)


def test_only_what_brokers_have_offloaded_is_read_through_them_where_bookies_are_the_source() -> None:
    world, topic = failed_segment(FailureKind.RETRYABLE)
    topic.rules = replace(topic.rules, source=Source.BOOKKEEPER)
    topic.state = TopicState(topic.name)
    for offloaded, source in ((), Source.BOOKKEEPER), ((0,), Source.BROKER_WITH_BOOKIES):
        assert topic.decide(world, topic.topic(offloaded=offloaded)).state.open.source is source


def test_a_segment_whose_first_ledger_is_gone_keeps_its_source() -> None:
    world, topic = failed_segment(FailureKind.INTEGRITY)
    topic.rules = replace(topic.rules, source=Source.BOOKKEEPER)
    trimmed = LedgerList(tuple(s for s in topic.ledgers.spans if s.ledger > topic.state.open.start.ledger))
    after = topic.decide(world, topic.topic(ledgers=trimmed)).state
    assert after.open.source is Source.BROKER


def test_nothing_of_a_slow_topic_is_read_before_a_part_and_the_block_that_ends_it_are_there() -> None:
    world, (topic,) = reading(1)
    cuts = topic.rules.cuts
    whole = cuts.part_size + cuts.block_size - 12  # without what an entry takes besides
    assert isinstance(topic.decide(world, topic.topic(sizes={0: (1, whole - 1)})).step, Read)
    topic.speed = Speed(Lane.SLOW)
    assert isinstance(topic.decide(world, topic.topic(sizes={0: (1, whole - 1)})).step, Hold)
    assert isinstance(topic.decide(world, topic.topic(sizes={0: (1, whole)})).step, Read)


def slow_one(topic: Listed, entries: int) -> Reach:
    """A slice of the topic, whose entries are alike, is sure to bring so many from where it stands, and no part."""
    size = entries * (topic.sizes[0] + 12)
    topic.speed = Speed(Lane.SLOW, rate=(size + 1) / HALF_S)
    start = topic.start()
    assert start is not None
    return Reach(start._replace(entry=start.entry + entries - 1), size)


def test_where_others_wait_a_slow_segment_ends_as_far_as_a_slice_comes() -> None:
    world, (topic,) = reading(1)
    topic.state = TopicState(topic.name)
    reach = slow_one(topic, 1)
    after = topic.decide(world, slow=SHARED).state
    assert after.open.closing_end == reach.end
    topic.state = segments.uploading(after, after.open.uuid, "upload")
    decision = topic.decide(world, slow=SHARED)
    assert isinstance(decision.step, Read)
    assert (decision.step.bound, decision.step.seal) == (reach.end, True)
    made = plan("run", 1, Lane.SLOW, [decision], SHARED)
    (work,) = made.slices
    assert work.goal <= reach.size
    assert work.time_budget_ms == work.hard_limit_ms <= 30_000
    topic.state = decision.state
    assert topic.decide(world, slow=SHARED).state == decision.state


def test_where_others_wait_an_end_that_is_too_far_is_given_up_with_its_upload() -> None:
    world, (topic,) = reading(1)
    before = topic.state.open
    assert not before.parts
    assert topic.last is not None
    topic.state = segments.closing(topic.state, topic.last, RollReason.AGE)
    reach = slow_one(topic, 1)
    after = topic.decide(world, slow=SHARED).state
    assert after.open.closing_end == reach.end
    assert after.open.uuid != before.uuid
    (gone,) = after.abandoned
    assert gone.uuid == before.uuid
    assert "slow" in gone.reason
    assert "source" not in gone.reason


def test_where_others_wait_a_slow_segment_that_has_parts_ends_with_them() -> None:
    world, topic = failed_segment(FailureKind.RETRYABLE, 0)
    covered = topic.state.open.covered
    assert covered is not None
    slow_one(topic, 1)
    decision = topic.decide(world, slow=SHARED)
    assert decision.state.open.closing_end == covered
    assert isinstance(decision.step, Seal)


def test_how_far_a_slice_is_sure_to_come() -> None:
    name, ledgers = TopicName("a", "b", "t"), LedgerList((LedgerSpan(4, 9), LedgerSpan(7, None)))
    head = TopicCatalog.empty(name).head
    rules = TopicRules(max_size=5_000, roll_ms=1, cuts=SegmentLayout())
    start = Position(0, 4, 3)

    def reach(start: Position, sure: int) -> Reach | None:
        learnt = Learnt(Speed(Lane.SLOW, rate=sure / HALF_S + 0.01))
        topic = known_topic(rules, head, ledgers, None, {4: (10, 880), 7: (5, 440)}, learnt=learnt)
        return reach_of(topic, start, 5_000, SHARED)

    quick = known_topic(rules, head, ledgers, None, {4: (10, 880)}, learnt=Learnt(Speed(Lane.FAST, rate=1.0)))
    assert reach_of(quick, start, 5_000, SHARED) is None
    assert reach(start, 5_000) is None
    assert reach(start, 450) == Reach(Position(0, 4, 6), 400)
    assert reach(start, 0) == Reach(start, 100)
    assert reach(start, 4_000) == Reach(Position(0, 4, 9), 700)  # the ledger's end
    assert reach(Position(0, 7, 3), 450) == Reach(Position(0, 7, 6), 400)
    assert reach(Position(0, 8, 0), 450) == Reach(Position(0, 8, 0), 5_000)  # nothing is known of it


def test_an_upload_that_began_for_another_uuid_is_not_the_segment_s_and_is_ended() -> None:
    world = World(1)
    topic = world.new_topic(0)
    topic.sizes = [1_000] * 50
    opened = topic.decide(world).state
    before = opened.open.uuid
    given_up = segments.abandoned(opened, "another", "the answer was lost")
    late = segments.uploading(given_up, before, "late")
    assert late.open.upload is None
    assert [a.upload for a in late.abandoned] == [None, "late"]
    assert segments.uploading(late, before, "late") == late
    begun = segments.uploading(opened, before, "first")
    twice = segments.uploading(begun, before, "second")
    assert twice.open.upload == "first"
    assert [a.upload for a in twice.abandoned] == ["second"]
    assert segments.uploading(begun, before, "first") == begun
