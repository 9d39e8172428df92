"""The planner: always progress, never an overlap or a hole, never two open segments; a topic with data is read, sealed, or held
back with a date. Pure: lists of entries, no cluster, no journal, no store."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.metadata.state import Claim, CloseRequest, TopicCatalog, TopicState
from offloader.model import (
    Cuts,
    FailureKind,
    LedgerList,
    LedgerSpan,
    Position,
    Receipt,
    RollReason,
    SegmentStatus,
    Slice,
    Source,
    TopicName,
)
from offloader.pulsar.api import Extent, RawEntry
from offloader.storage.base import UploadedPart
from offloader.streaming import planner, segments
from offloader.streaming.planner import Begin, Decision, Hold, Limits, Read, Rules, Seal, TopicView, decide, plan, roll_at
from offloader.streaming.worker import died, run_slice
from tests.examples import worlds

LIMITS = Limits(tasks=2, threads=2, byte_budget=30_000)
MINUTE = 60_000


class NoStore:
    """Takes every part."""

    url = "file:///nowhere"

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
    rules: Rules
    sizes: list[int]
    state: TopicState
    catalog: TopicCatalog
    wanted: int = 0
    slow: int = 0
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
            return segments.next_position(self.state, self.ledgers)
        return self.catalog.begins_at(self.ledgers)

    def pending(self, error: float) -> int:
        start = self.start()
        if start is None:
            return 0
        rest = self.sizes[start.ledger * 10 + start.entry :]
        return int((sum(rest) + 12 * len(rest)) * error)

    def view(self, error: float) -> TopicView:
        return TopicView(
            state=self.state,
            rules=self.rules,
            ledgers=self.ledgers,
            begin=self.catalog.begins_at(self.ledgers),
            last=self.last,
            pending_bytes=self.pending(error),
            wanted_bytes=self.wanted,
            predecessor=self.catalog.segments[-1] if self.catalog.segments else None,
            slow=self.slow,
            died=self.died,
            planned_at=self.planned_at,
        )

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
        self.topics = {t.name: t for t in (self._topic(i) for i in range(rng.choice([1, 3, 12])))}
        self.uuids = 0
        self.number = 0

    def _topic(self, i: int) -> Listed:
        name = TopicName("a", "b", f"t{i}")
        rules = Rules(
            max_size=self.rng.choice([700, 5_000, 30_000, 10**9]),
            roll_ms=self.rng.choice([1_000, 10 * MINUTE]),
            cuts=Cuts(part_size=self.part, block_size=1_000, index_step=500),
        )
        claim = Claim("app", 0, "now", Position(0, 0, 0), 0)
        return Listed(name, rules, [], TopicState(name), TopicCatalog(name).apply(claim))

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
            topic.wanted = topic.slow = topic.planned_at = 0
            topic.died = False

    def round(self, trouble: float) -> None:
        decisions = [self._decided(t) for t in self.topics.values()]
        again = []
        for d in decisions:
            if isinstance(d.step, Begin):
                topic = self.topics[d.state.topic]
                topic.state = segments.uploading(d.state, "upload of " + segments.opened(d.state).uuid)
                again.append(self._decided(topic))
            elif isinstance(d.step, Seal):
                self._seal(self.topics[d.state.topic], trouble)
            elif isinstance(d.step, Read):
                again.append(d)
        self.number += 1
        made = plan("run", self.number, again, LIMITS)
        reads = [d for d in again if isinstance(d.step, Read)]
        assert bool(made.slices) == bool(reads)
        assert len({s.topic for s in made.slices}) == len(made.slices)
        for work in made.slices:
            self.topics[work.topic].planned_at = self.now
            self._work(self.topics[work.topic], work, trouble)

    def _decided(self, topic: Listed) -> Decision:
        decision = decide(topic.view(self.rng.choice([0.0, 0.5, 1.0, 1.0, 3.0])), self.now, self.uuid)
        self._check_alive(topic, decision)
        topic.state = decision.state
        return decision

    def _check_alive(self, topic: Listed, decision: Decision) -> None:
        begin = topic.catalog.begins_at(topic.ledgers)
        has_data = topic.last is not None and begin is not None and begin <= topic.last
        if isinstance(decision.step, Hold):
            assert not has_data or decision.step.until is not None, decision.step
            if decision.step.until is not None and decision.state.failure is None and decision.state.open is not None:
                latest = roll_at(topic.name, decision.state.open.assigned_at, topic.rules.roll_ms)
                assert decision.step.until <= latest
        if decision.state.open is not None and topic.state.open is not None:
            assert decision.state.open.uuid == topic.state.open.uuid, "a second segment was opened"

    def _work(self, topic: Listed, work: Slice, trouble: float) -> None:
        if self.rng.random() < trouble:
            receipt: Receipt = died(work)
            kind = self.rng.choice([FailureKind.TASK_DIED, FailureKind.RETRYABLE, FailureKind.UPLOAD_GONE])
            receipt = replace(receipt, failure_kind=kind)
        else:
            ticks = iter(range(0, 10**9, self.rng.choice([1, 400])))
            receipt = run_slice(work, topic, NoStore(), lambda: next(ticks))  # type: ignore[arg-type]
        topic.state = segments.received(topic.state, receipt, self.now, self.rng.random())
        topic.died = receipt.failure_kind is FailureKind.TASK_DIED
        if receipt.failure_kind is FailureKind.UPLOAD_GONE:
            topic.state = segments.abandoned(topic.state, self.uuid(), "gone")
        if receipt.finished:
            topic.state = segments.complete(topic.state, receipt.gaps, topic.ledgers, self.now)
        enough = planner.enough(topic.state, topic.rules)
        short = receipt.stop == "bound" and not receipt.finished
        topic.wanted = planner.after_slice(topic.pending(1), receipt.seen_bytes, enough) if short else 0

    def _seal(self, topic: Listed, trouble: float) -> None:
        segment = segments.opened(topic.state)
        assert segment.status is SegmentStatus.SEALING
        if self.rng.random() < trouble:
            topic.state = segments.failed(topic.state, FailureKind.RETRYABLE, "the store is down", self.now, 0.5)
            return
        record = segments.as_record(topic.state, "test", ())
        over = record.size - max(topic.rules.max_size, 128 + 4 + 12 + max((r.size for r in record.ledgers), default=0))
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


def test_a_topic_whose_task_died_has_a_task_to_itself_and_a_slow_one_runs_alone() -> None:
    world = World(1)
    world.topics = {}
    for i in range(6):
        topic = world._topic(i)
        topic.rules = replace(topic.rules, max_size=10**9, roll_ms=10 * MINUTE)
        topic.sizes = [1_000] * 50
        world.topics[topic.name] = topic
    first, second, *_ = world.topics.values()
    first.died = True

    def reads() -> list[Decision]:
        found = []
        for topic in world.topics.values():
            topic.state = decide(topic.view(1), world.now, world.uuid).state
            if topic.state.open is not None and topic.state.open.upload is None:
                topic.state = segments.uploading(topic.state, "up")
            found.append(decide(topic.view(1), world.now, world.uuid))
        return found

    made = plan("run", 1, reads(), LIMITS)
    alone = [task for task in made.tasks if any(s.topic == first.name for s in task)]
    assert [len(task) for task in alone] == [1]
    second.slow = 1
    for topic in world.topics.values():
        topic.planned_at = 5
    second.planned_at = 0
    slow = plan("run", 2, reads(), LIMITS)
    assert [s.topic for s in slow.slices] == [second.name]
    assert slow.slices[0].hard_limit_ms == 2 * LIMITS.hard_limit_ms


def failed_segment(kind: FailureKind, failures: int = planner.ANEW_AFTER) -> tuple[World, Listed]:
    """A topic with a part uploaded, whose end is fixed, and which then fails so often in a row."""
    world = World(1)
    topic = world._topic(0)
    world.topics = {topic.name: topic}
    topic.rules = replace(topic.rules, max_size=10**9, roll_ms=10 * MINUTE)
    topic.sizes = [1_000] * 60
    world.round(trouble=0)
    last = topic.last
    assert last is not None
    topic.state = segments.closing(topic.state, last, RollReason.REQUEST)
    assert segments.opened(topic.state).parts
    for _ in range(failures):
        topic.state = segments.failed(topic.state, kind, "it fails", world.now, 0.5)
    world.now += MINUTE
    return world, topic


@pytest.mark.parametrize("kind", [FailureKind.RETRYABLE, FailureKind.FATAL, FailureKind.INTEGRITY])
@pytest.mark.parametrize("source", [Source.FILLED, Source.BOOKKEEPER])
def test_a_segment_that_cannot_go_on_is_begun_anew_once_its_topic_has_another_source(kind: FailureKind, source: Source) -> None:
    world, topic = failed_segment(kind)
    before = segments.opened(topic.state)
    topic.rules = replace(topic.rules, source=source)
    decision = decide(topic.view(1), world.now, world.uuid)
    after = segments.opened(decision.state)
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
        (FailureKind.INTEGRITY, planner.ANEW_AFTER, Source.BROKER),  # the same source would fail again
        (FailureKind.INTEGRITY, planner.ANEW_AFTER - 1, Source.FILLED),  # it may be better soon
        (FailureKind.DATA_LOST, planner.ANEW_AFTER, Source.FILLED),  # what is uploaded may be the only copy
        (FailureKind.UPLOAD_GONE, planner.ANEW_AFTER, Source.FILLED),  # nothing of the source
    ],
)
def test_a_segment_keeps_its_source(kind: FailureKind, failures: int, source: Source) -> None:
    world, topic = failed_segment(kind, failures)
    topic.rules = replace(topic.rules, source=source)
    after = decide(topic.view(1), world.now, world.uuid).state
    assert segments.opened(after) == segments.opened(topic.state)


def test_a_segment_whose_first_ledger_is_gone_keeps_its_source() -> None:
    world, topic = failed_segment(FailureKind.INTEGRITY)
    topic.rules = replace(topic.rules, source=Source.BOOKKEEPER)
    trimmed = LedgerList(tuple(s for s in topic.ledgers.spans if s.ledger > segments.opened(topic.state).start.ledger))
    after = decide(replace(topic.view(1), ledgers=trimmed), world.now, world.uuid).state
    assert segments.opened(after).source is Source.BROKER
