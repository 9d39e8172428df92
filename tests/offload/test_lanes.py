"""A topic that is read slowly holds no other: the real planner, worker and journal's transitions in a time of their
own, over sources that deliver so many bytes a second, and a Spark that has so many slots and takes its jobs first in,
first out."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.config import Config
from offloader.metadata.state import Claim, TopicCatalog, TopicState
from offloader.model import (
    EntryRange,
    EntryStats,
    FailureKind,
    Lane,
    LedgerList,
    LedgerSpan,
    Part,
    Position,
    Receipt,
    SegmentLayout,
    Slice,
    SliceId,
    SliceStop,
    TopicName,
)
from offloader.offload import settings as derived
from offloader.offload.core import lanes, planner, segments
from offloader.offload.core.decisions import Begin, Decision, DecisionLimits, Seal
from offloader.offload.core.facets import Learnt, TopicRules
from offloader.offload.core.lanes import LaneLimits, Speed, after
from offloader.offload.core.plans import Plan, plan
from offloader.offload.core.topic import Topic
from offloader.offload.spark import session as spark_side
from offloader.offload.worker.slice_worker import run_slice
from offloader.ports.entry_source import Extent, RawEntry
from tests.examples import few, worlds
from tests.format.support import plain
from tests.offload.test_planner import NoStore
from tests.offload.topics import known_topic

FAST = LaneLimits(tasks=2, threads=4, byte_budget=10**9)
SLOW = LaneLimits(tasks=1, threads=8, byte_budget=10**9, time_budget_ms=300_000, hard_limit_ms=900_000, queue_factor=1)
LIMITS = DecisionLimits(replace(FAST, history=1), SLOW)
ENTRY = 10_000
HEAD = plain(MessageMetadata(producer_name="p", sequence_id=0, publish_time=1), payload=b"")
DATA = HEAD.ljust(ENTRY, b"\0")
PART = 100_000
SECOND = 1_000
STEP = 500


@dataclass
class Reader:
    """Delivers so many bytes a second of what its topic has; the clock moves on while it is waited for."""

    topic: Stream
    entry: int
    clock: list[int]
    allowed: float = 0.0

    def read(self, timeout: float) -> list[RawEntry]:
        self.clock[0] += int(timeout * SECOND)
        self.allowed += self.topic.rate * timeout / ENTRY
        last = min(self.entry + int(self.allowed), self.topic.produced)
        self.allowed -= int(self.allowed)
        found = [RawEntry(0, number, DATA) for number in range(self.entry, last)]
        self.topic.read_bytes += ENTRY * len(found)
        self.entry = max(last, self.entry)
        return found

    def close(self) -> None:
        pass


@dataclass
class Stream:
    """A topic with a producer, one ledger, and a broker that delivers `rate` bytes a second."""

    name: TopicName
    rate: int
    produced_a_second: int
    rules: TopicRules
    state: TopicState
    catalog: TopicCatalog
    produced: int = 0
    speed: Speed = field(default_factory=Speed)
    travels: bool = False
    planned_at: int = 0
    wanted: int = 0
    read_bytes: int = 0
    rolls: list[int] = field(default_factory=list)

    @property
    def ledgers(self) -> LedgerList:
        return LedgerList((LedgerSpan(0, None),))

    def known(self) -> Topic:
        last = Position(0, 0, self.produced - 1) if self.produced else None
        sizes = {0: (self.produced, self.produced * ENTRY)}
        learnt = Learnt(self.speed, wanted_bytes=self.wanted)
        return known_topic(
            self.rules, self.catalog.head, self.ledgers, last, sizes, learnt=learnt, planned_at=self.planned_at
        )


class Spark:
    """Slots; jobs are taken first in, first out; a job's end is the end of its last task."""

    def __init__(self, slots: int) -> None:
        self.free_at = [0] * slots

    def run(self, now: int, tasks: list[int]) -> int:
        """When a job of tasks of these lengths ends."""
        ends = []
        for length in tasks:
            begins = max(now, heapq.heappop(self.free_at))
            heapq.heappush(self.free_at, begins + length)
            ends.append(begins + length)
        return max(ends)


class Highway:
    """Topics, lanes, and one Spark under them."""

    def __init__(self, topics: list[Stream], cores: int = 2) -> None:
        self.topics = {t.name: t for t in topics}
        self.spark = Spark(cores + 1)
        self.lanes = {Lane.FAST: replace(FAST, tasks=2 * cores), Lane.SLOW: SLOW}
        self.now = 0
        self.number = 0
        self.outstanding: dict[Lane, tuple[int, list[Receipt]]] = {}

    def uuid(self) -> str:
        self.number += 1
        return f"{self.number:08x}-0000-0000-0000-000000000000"

    def run(self, seconds: int) -> None:
        end = self.now + seconds * SECOND
        while self.now < end:
            self._take_receipts()
            self._plan()
            self.now += STEP
            for topic in self.topics.values():
                topic.produced = self.now * topic.produced_a_second // SECOND // ENTRY

    def _take_receipts(self) -> None:
        for lane, (done_at, receipts) in list(self.outstanding.items()):
            if done_at <= self.now:
                del self.outstanding[lane]
                for receipt in receipts:
                    self._take(self.topics[receipt.id.topic], receipt, lanes.best_rate(receipts))

    def _take(self, topic: Stream, receipt: Receipt, best: float) -> None:
        assert topic.travels
        topic.travels = False
        topic.state = segments.received(topic.state, receipt, self.now, 0.5)
        assert receipt.failure_kind is None, receipt.failure_reason
        if receipt.finished:
            topic.state = segments.complete(topic.state, receipt.gaps, topic.ledgers, self.now)
        topic.speed = after(topic.speed, receipt, self.lanes[Lane.FAST], best)
        short = receipt.stop is SliceStop.BOUND and not receipt.finished
        enough = planner.enough(topic.state.open, topic.rules)
        topic.wanted = (
            planner.after_slice(topic.known().pending(topic.state), receipt.seen_bytes, enough) if short else 0
        )

    def _plan(self) -> None:
        decisions = [self._decided(topic) for topic in self.topics.values() if not topic.travels]
        for lane in Lane:
            if lane not in self.outstanding:
                self.number += 1
                made = plan("run", self.number, lane, decisions, self.lanes[lane])
                if made.tasks:
                    self._start(made)

    def _decided(self, topic: Stream) -> Decision:
        while True:
            decision = planner.decide(topic.known(), topic.state, LIMITS, self.now, self.uuid)
            topic.state = decision.state
            if isinstance(decision.step, Begin):
                topic.state = segments.uploading(topic.state, topic.state.open.uuid, "upload")
            elif isinstance(decision.step, Seal):
                topic.catalog = topic.catalog.apply(segments.as_record(topic.state, "test", ()))
                topic.state = segments.offloaded(topic.state)
                topic.rolls.append(self.now)
            else:
                return decision

    def _start(self, made: Plan) -> None:
        receipts, lengths = [], []
        threads = self.lanes[made.lane].threads
        for task in made.tasks:
            pool = Spark(threads)
            done = [self._work(work) for work in task]
            receipts += done
            lengths.append(max(pool.run(0, [receipt.elapsed_ms]) for receipt in done))
        assert made.lane is Lane.FAST or len(lengths) == 1
        self.outstanding[made.lane] = self.spark.run(self.now, lengths), receipts

    def _work(self, work: Slice) -> Receipt:
        topic = self.topics[work.id.topic]
        assert not topic.travels, "two slices of one topic at once"
        topic.travels, topic.planned_at = True, self.now
        clock = [0]

        class Source:
            def open(self, name: TopicName, ledger: int, entry: int, *, max_bytes: int, extent: Extent) -> Reader:
                return Reader(topic, entry, clock)

            def explain(self, name: TopicName, missing: EntryRange, *, limit: int) -> tuple[tuple[()], int]:
                return (), missing.first

        return run_slice(work, Source(), NoStore(), lambda: clock[0])


def stream(number: int, rate: int, produced_a_second: int, roll_ms: int = 10 * SECOND) -> Stream:
    name = TopicName("a", "b", f"t{number}")
    rules = TopicRules(max_size=10**9, roll_ms=roll_ms, cuts=SegmentLayout(PART, PART, PART))
    catalog = TopicCatalog.empty(name).apply(Claim("app", 0, "now", Position(0, 0, 0), 0))
    return Stream(name, rate, produced_a_second, rules, TopicState(name), catalog)


def longest_wait(topic: Stream, seconds: int) -> int:
    """The longest time without a roll."""
    return max(later - earlier for earlier, later in pairwise([0, *topic.rolls, seconds * SECOND]))


def uploaded_bytes(topic: Stream) -> int:
    parts = topic.state.open.parts if topic.state.open else ()
    committed = sum(r.size for s in topic.catalog.segments for r in s.ledgers)
    return committed + sum(p.entries for p in parts) * ENTRY


@cache
def undisturbed(cores: int, seconds: int) -> int:
    """The longest wait of three topics that have everything to themselves."""
    alone = Highway([stream(n, 10**8, 50_000) for n in range(3)], cores)
    alone.run(seconds)
    return max(longest_wait(t, seconds) for t in alone.topics.values())


@pytest.mark.parametrize("cores", few([1, 2], 1))
@pytest.mark.parametrize("rate", few([30_000, 2_000], 1))
def test_three_topics_roll_beside_a_slow_one_as_without_it(cores: int, rate: int) -> None:
    seconds = 900
    beside = Highway([*(stream(n, 10**8, 50_000) for n in range(3)), stream(3, rate, 40_000)], cores)
    beside.run(seconds)
    *fast, slow = beside.topics.values()
    assert max(longest_wait(t, seconds) for t in fast) <= undisturbed(cores, seconds) + 2 * FAST.time_budget_ms
    assert uploaded_bytes(slow) > 0.6 * rate * seconds
    under_way = slow.read_bytes - uploaded_bytes(slow) if slow.travels else 0
    assert slow.read_bytes - under_way <= 1.2 * uploaded_bytes(slow)


@settings(worlds, max_examples=max(worlds.max_examples * 2 // 5, 1))  # a quarter of an hour's traffic each
@given(st.integers(0, 10**9))
def test_no_topic_waits_for_a_slower_one_and_each_byte_is_read_about_once(seed: int) -> None:
    rng = random.Random(seed)
    seconds, cores = 400, rng.choice([1, 2])
    slow = [stream(n, rng.choice([5_000, 10_000, 30_000]), 30_000, 60 * SECOND) for n in range(rng.randint(1, 6))]
    fast = [stream(10 + n, 10**8, rng.choice([1_000, 20_000, 80_000])) for n in range(rng.randint(1, 8))]
    highway = Highway([*slow, *fast], cores)
    highway.run(seconds)
    detected = (
        FAST.hard_limit_ms
    )  # each slow one was in the fast lane once: in the batch that is waited for, and in one's own
    assert max(longest_wait(t, seconds) for t in fast) <= 10 * SECOND + 2 * detected
    for topic in slow:
        assert topic.speed.lane is Lane.SLOW or topic.travels or topic.rate >= 30_000
        last = 0 if not topic.travels else SLOW.hard_limit_ms * topic.rate // SECOND
        assert topic.read_bytes <= 1.2 * uploaded_bytes(topic) + last


UPLOADED = Part(1, 0, PART, "etag", 0, 1, (), 1, EntryStats())


def receipt(
    stop: SliceStop, elapsed_ms: int, lane: Lane = Lane.FAST, kind: FailureKind | None = None, seen: int = 0
) -> Receipt:
    name = TopicName("a", "b", "t")
    return Receipt(
        SliceId(name, "r", lane, 1, "u", "up", 1, Position(0, 0, 0)),
        stop,
        failure_kind=kind,
        elapsed_ms=elapsed_ms,
        reading_ms=elapsed_ms,
        seen_bytes=seen,
    )


@pytest.mark.parametrize(
    ("answer", "lane"),
    [
        (receipt(SliceStop.SLOW, 5_000), Lane.SLOW),
        (receipt(SliceStop.BOUND, 4_000), Lane.FAST),
        (receipt(SliceStop.BOUND, 20_000), Lane.SLOW),  # it found less than a part, and took long to find it
        (receipt(SliceStop.FAILED, 100, kind=FailureKind.RETRYABLE), Lane.FAST),
        (receipt(SliceStop.FAILED, 30_000, kind=FailureKind.RETRYABLE), Lane.SLOW),  # its broker hangs
        (receipt(SliceStop.BUDGET, 14_000), Lane.SLOW),  # it had its part, but late
        (receipt(SliceStop.FAILED, 0, kind=FailureKind.TASK_DIED), Lane.FAST),
    ],
)
def test_who_holds_others_goes_to_the_slow_lane(answer: Receipt, lane: Lane) -> None:
    assert after(Speed(), answer, FAST, 10**6).lane is lane


def test_what_is_slow_for_all_topics_alike_sends_none_to_the_slow_lane() -> None:
    part = UPLOADED
    late = replace(receipt(SliceStop.BUDGET, 14_000), parts=(part,))
    rate = part.size * 1_000 / 14_000
    assert lanes.best_rate([late, late]) == rate
    assert after(Speed(), late, FAST, 2 * rate).lane is Lane.FAST
    assert after(Speed(), late, FAST, 4 * rate).lane is Lane.SLOW


def test_a_topic_comes_back_when_it_proves_fast_and_each_time_it_must_prove_more() -> None:
    speed = after(Speed(), receipt(SliceStop.SLOW, 5_000, seen=1_000), FAST, 0)
    assert speed.rate == 200
    for proofs in (1, 2, 4, lanes.MOST_PROOFS, lanes.MOST_PROOFS):
        for _ in range(proofs - 1):
            speed = after(speed, receipt(SliceStop.BOUND, 1_000, Lane.SLOW), FAST, 0)
            assert speed.lane is Lane.SLOW
        assert after(speed, receipt(SliceStop.BOUND, 4_000, Lane.SLOW), FAST, 0).proofs == 0
        speed = after(speed, receipt(SliceStop.BOUND, 1_000, Lane.SLOW), FAST, 0)
        assert speed.lane is Lane.FAST
        speed = after(speed, receipt(SliceStop.SLOW, 5_000), FAST, 0)
        assert speed.lane is Lane.SLOW


def test_a_failure_in_the_slow_lane_proves_nothing() -> None:
    speed = Speed(Lane.SLOW)
    assert after(speed, receipt(SliceStop.FAILED, 10, Lane.SLOW, FailureKind.RETRYABLE), FAST, 0).lane is Lane.SLOW


CONFIG = """
application: app
pulsar: {serviceUrl: "pulsar://localhost:6650", adminUrl: "http://localhost:8080"}
storage: {root: "file:///archive"}
limits: {tasksPerCore: 2, slice: {timeBudget: 3s, hardLimit: 9s}, slowLane: {threads: 5, timeBudget: 2m, hardLimit: 4m}}
"""


@pytest.mark.parametrize("slots", [2, 3, 64])
def test_the_slow_lane_never_holds_all_slots(slots: int) -> None:
    limits = derived.lanes(Config.parse(CONFIG, {}), slots)
    assert limits[Lane.FAST].tasks == 2 * (slots - 1)
    assert limits[Lane.FAST].at_once == min(slots - 1, 8), "history is read by tasks that have a core"
    slow = limits[Lane.SLOW]
    assert (slow.tasks, slow.threads, slow.time_budget_ms, slow.hard_limit_ms) == (1, 5, 120_000, 240_000)


def test_with_one_slot_slow_slices_are_as_short_as_the_others(caplog: pytest.LogCaptureFixture) -> None:
    limits = derived.lanes(Config.parse(CONFIG, {}), 1)
    assert (limits[Lane.SLOW].time_budget_ms, limits[Lane.SLOW].hard_limit_ms) == (3_000, 9_000)
    assert "Spark runs one task at a time" in caplog.text


@pytest.mark.parametrize(("roll", "longest"), [("10s", 9_000), ("1m", 30_000), ("1h", 240_000)])
def test_with_one_slot_nobody_waits_for_a_slow_slice_longer_than_half_a_roll(roll: str, longest: int) -> None:
    text = (
        CONFIG + f"namespaces: {{a/b: {{enabled: true, policies: {{maxOffloadSegmentRolloverTimeInSeconds: {roll}}}}}}}"
    )
    slow = derived.lanes(Config.parse(text, {}), 1)[Lane.SLOW]
    assert slow.longest_ms == longest
    speed = Speed(Lane.SLOW, rate=100)
    assert lanes.slow_limit_ms(speed, PART, slow) == longest
    assert lanes.sure_bytes(speed, slow) == longest * 100 / 2_000
    in_vain = replace(speed, in_vain=1)  # not even that came: an entry may be larger
    assert lanes.slow_limit_ms(in_vain, PART, slow) == 2 * longest
    assert lanes.sure_bytes(in_vain, slow) == longest * 100 / 1_000


def test_who_may_take_its_time_is_sure_of_any_part() -> None:
    assert lanes.sure_bytes(Speed(Lane.SLOW, rate=1), SLOW) is None
    assert lanes.sure_bytes(Speed(Lane.FAST, rate=1), replace(SLOW, longest_ms=1)) is None


def test_who_sends_nothing_at_all_is_waited_for_no_longer_than_the_limit_and_then_twice_as_long() -> None:
    waits = [lanes.stall_ms(Speed(Lane.SLOW, rate=0.01, in_vain=n), SLOW) for n in (0, 1, 2, 60)]
    assert waits == [900_000, 1_800_000, 3_600_000, 64 * 900_000]


def test_what_comes_at_once_after_a_pause_is_no_proof_of_a_higher_rate() -> None:
    speed = Speed(Lane.SLOW, rate=300)
    at_once = after(speed, receipt(SliceStop.BOUND, 10, Lane.SLOW, seen=3_000), FAST, 0)
    assert at_once.rate == 300
    assert after(speed, receipt(SliceStop.BOUND, 2_000, Lane.SLOW, seen=3_000), FAST, 0).rate == 600
    assert after(speed, receipt(SliceStop.BOUND, 2_000, Lane.SLOW, seen=200), FAST, 0).rate == 100


@pytest.mark.parametrize(
    ("master", "runs_as"),
    [
        ("local", "local[2,4]"),
        ("local[1]", "local[2,4]"),
        ("local[2]", "local[3,4]"),
        ("local[2,7]", "local[3,7]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("spark://host:7077", "spark://host:7077"),
    ],
)
def test_a_local_master_gets_a_slot_for_the_slow_lane(master: str, runs_as: str) -> None:
    assert spark_side.master_with_attempts(master) == runs_as
