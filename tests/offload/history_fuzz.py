"""One topic with history, decided on again and again: the planner alone, without a cluster, a store or threads. Times
come late, segments are full too early, slices, seals and uploads fail, source, size and copies change, topics become
slow and quick again, and Pulsar deletes them. Each step checks what must hold of segments ahead."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

from offloader.metadata.state import CatalogHead, Claim, OpenTopic, TopicState
from offloader.model import (
    EntryStats,
    FailureKind,
    Lane,
    LedgerList,
    LedgerRange,
    LedgerSpan,
    Loss,
    OpenSegment,
    Part,
    Position,
    Receipt,
    SegmentLayout,
    SliceId,
    SliceStop,
    Source,
    Taking,
    TopicName,
)
from offloader.offload.core import history, segments
from offloader.offload.core.borders import BorderSearch
from offloader.offload.core.decisions import Begin, Copy, Decision, DecisionLimits, Read, Seal
from offloader.offload.core.facets import Learnt, TopicRules
from offloader.offload.core.lanes import LaneLimits, Speed
from offloader.offload.core.planner import decide
from offloader.offload.core.segments import StaleReceiptError
from offloader.offload.core.topic import Topic
from offloader.offload.driver import reconciling
from tests.offload.topics import known_topic

T = TopicName.parse("public/default/t")
CUTS = SegmentLayout(part_size=30_000, block_size=10_000)
MOST_STEPS = 3_000
READ_FROM = (Source.BROKER, Source.BROKER_WITH_BOOKIES, Source.BOOKKEEPER)
FAILURES = (FailureKind.RETRYABLE, FailureKind.UPLOAD_GONE, FailureKind.FATAL)


@dataclass
class FuzzedTopic:
    """`late`: so many rounds a look-up takes."""

    seed: int
    max_size: int = 0
    late: int | None = None
    state: TopicState = field(default_factory=lambda: TopicState(T))
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        numbers = itertools.count()
        self.new_uuid: Callable[[], str] = lambda: f"u{next(numbers)}"
        self.size_of: dict[tuple[int, int], int] = {}
        self.spans: list[LedgerSpan] = []
        self.sizes: dict[int, tuple[int, int]] = {}
        self._fill()
        self.ledgers = LedgerList(tuple(self.spans))
        self.written = self._written()
        self.places = [Position(0, *place) for place in sorted(self.size_of)]
        pause = self.rng.choice([1, 10, 1_000])
        self.published = {place: number * pause for number, place in enumerate(self.places)}
        first = self.places[0] if self.places else Position(0, 3, 0)
        self.head = CatalogHead(T, claim=Claim("a", 0, 1, first, 0, taking=Taking.COPY), begin=first)
        self.max_size = self.max_size or self.rng.choice([100_000, 300_000])
        self.late = self.rng.randint(0, 3) if self.late is None else self.late
        self.span_ms = self.rng.choice([0, 50, 500, 5_000])
        self.most = self.rng.choice([1, 2, 4, 8])
        self.source = Source.BROKER
        self.slow = False
        self.copies: frozenset[int] = frozenset()
        self.times: dict[Position, int | None] = {}
        self.search: tuple[int, BorderSearch] | None = None
        self.now = 0

    def _fill(self) -> None:
        rng, ledger = self.rng, 3
        for _ in range(rng.randint(1, 14)):
            count = rng.choice([0, 1, rng.randint(1, 60), rng.randint(100, 400)])
            skewed = rng.random() < 0.5
            for entry in range(count):
                each = (40 if entry < count // 4 else 1) if skewed else rng.choice([1, 5, 20])
                self.size_of[ledger, entry] = each * 1_000
            self._list(ledger, count, count - 1)
            ledger += rng.randint(1, 3)
        tail = rng.randint(0, 20)
        self.size_of |= {(ledger, entry): 3_000 for entry in range(tail)}
        self._list(ledger, tail, None)

    def _list(self, ledger: int, count: int, last: int | None) -> None:
        self.spans.append(LedgerSpan(ledger, last))
        self.sizes[ledger] = (count, sum(self.size_of[ledger, entry] for entry in range(count)))

    def _written(self) -> dict[int, tuple[int, int]]:
        """What Pulsar's list may say of when ledgers were written."""
        long = self.rng.choice([0, 1, 100, 10_000])
        known = [span.ledger for span in self.spans if self.rng.random() < 0.7]
        return {ledger: (number * long, (number + 1) * long) for number, ledger in enumerate(known)}

    # Rounds

    def settle(self) -> None:
        """Until everything is committed."""
        for _ in range(MOST_STEPS):
            if self.done:
                return
            self.round()
        raise AssertionError(f"it stands still: {self.state}")

    @property
    def done(self) -> bool:
        begin = self.head.next_start(self.ledgers)
        nothing_left = not self.places or (begin is not None and begin.position > self.places[-1])
        return not self.state.unfinished and nothing_left

    def round(self) -> None:
        """One decision, and what comes of it."""
        self.now += self.rng.choice([1, 1_000, 40_000])
        self._change()
        decision = self.decide()
        self.state = decision.state
        self._look_up(decision)
        self.check()
        begins = [step.uuid for step in decision.steps if isinstance(step, Begin)]
        for uuid in begins:
            if self.rng.random() < 0.95:
                self._on(uuid, lambda state, uuid=uuid: segments.uploading(state, uuid, "x" + uuid))  # type: ignore[misc]
        if not begins:
            self._act(decision)

    def decide(self) -> Decision:
        return decide(self._topic(), self.state, self._decision_limits(), self.now, self.new_uuid)

    def check(self) -> None:
        """Those ahead stand in a row, without overlap; without a hole also while the open one fails."""
        row = self.state.unfinished
        self.seen["ahead"] = max(self.seen["ahead"], len(self.state.ahead))
        for before, after in itertools.pairwise(row):
            assert before.closing_end is not None, "the open one has an end"
            assert after.closing_end is not None
            assert after.start == self.ledgers.successor(before.closing_end), (before, after)
            assert after.start <= after.closing_end
        uuids = [segment.uuid for segment in row]
        assert len(uuids) == len(set(uuids)), "a uuid is of one segment"
        assert not set(uuids) & {each.uuid for each in self.state.abandoned}

    def _change(self) -> None:
        rng = self.rng
        if rng.random() < 0.02:
            self.slow = not self.slow
        if rng.random() < 0.01:
            self.source = rng.choice(READ_FROM)
        if rng.random() < 0.01:
            self.max_size = rng.choice([100_000, 300_000, 50_000])
        if rng.random() < 0.01:
            full = [span.ledger for span in self.spans if span.last]
            self.copies = frozenset(() if self.copies else (ledger for ledger in full if rng.random() < 0.3))

    def _topic(self) -> Topic:
        learnt = Learnt(Speed(Lane.SLOW, rate=self.rng.randint(1, 20_000)) if self.slow else Speed())
        return known_topic(
            TopicRules(max_size=self.max_size, roll_ms=10**6, cuts=CUTS, source=self.source),
            self.head,
            self.ledgers,
            self.places[-1] if self.places else None,
            self.sizes,
            offloaded=self.copies,
            learnt=learnt,
            times=self.times,
            written=self.written,
        )

    def _decision_limits(self) -> DecisionLimits:
        """A slice of the slow lane is sure to bring what its topic brings in a second."""
        fast = LaneLimits(self.most, 1, 10**9, history=self.most, history_span_ms=self.span_ms)
        return DecisionLimits(fast, replace(fast, longest_ms=2_000))

    def _look_up(self, decision: Decision) -> None:
        if decision.search is not None and self.search is None:
            self.search = (self.late or 0, decision.search)
        elif self.search is not None:
            left, search = self.search
            self.search = (left - 1, search) if left else None
            while not left and (wanted := search.cut(self.times).wanted):
                self.times = self.times | {
                    p: self.published.get(p) if self.rng.random() < 0.95 else None for p in wanted
                }

    def _on(self, uuid: str, change: Callable[[TopicState], TopicState]) -> None:
        self.state = history.on_segment(self.state, uuid, change)

    # What others do

    def _act(self, decision: Decision) -> None:
        if isinstance(decision.step, Copy):
            self._copy(decision.step)
            return
        if isinstance(decision.step, Seal) and self.rng.random() < 0.8:
            self.commit(decision.step.state)
        reads = [step for step in decision.steps if isinstance(step, Read)]
        for read in reads[:1] if self.slow else reads:
            if self.slow or self.rng.random() < 0.8:
                self._read(read)

    def commit(self, state: OpenTopic) -> None:
        """The catalog takes what follows it, and nothing else."""
        record = segments.as_record(state, "", ())
        self.head.check_follows(record)
        self.head = self.head.after(record)
        self.state = segments.offloaded(state if self.state.open is None else cast("OpenTopic", self.state))
        self.seen["committed"] += 1

    def _copy(self, step: Copy) -> None:
        assert isinstance(self.state, OpenTopic)
        count, size = self.sizes[step.ledger]
        if self.rng.random() < 0.3:
            self.state = segments.failed(self.state, FailureKind.RETRYABLE, "not now", self.now, 0)
            return
        held = LedgerRange(step.ledger, 0, count, count=count, size=size)
        part = Part(1, 0, size, "", 0, 1, (held,), 0, EntryStats())
        self.state = segments.of_offloaded(self.state, (part,), self.ledgers, self.now)

    def _read(self, read: Read) -> None:
        receipt = self._receipt(read)

        def received(before: TopicState) -> TopicState:
            state = segments.received(before, receipt, self.now, 0)
            if receipt.finished and receipt.stop is not SliceStop.FAILED:
                return segments.complete(state, (), self.ledgers, self.now)
            if receipt.failure_kind is FailureKind.UPLOAD_GONE:
                return segments.abandoned(state, self.new_uuid(), "gone")
            return state

        try:
            self._on(read.segment.uuid, received)
        except StaleReceiptError:
            self.seen["stale"] += 1

    def _receipt(self, read: Read) -> Receipt:
        rng, segment = self.rng, read.segment
        got, stop = self._delivered(read, rng.choice([3, 30, 300]))
        finished = stop is SliceStop.BOUND and read.seal and got[-1:] == [read.bound]
        kind = rng.choice(FAILURES) if rng.random() < 0.05 else None
        if kind is not None:
            stop, finished = SliceStop.FAILED, False
        parts = () if not got or (kind and rng.random() < 0.5) else (self._part(segment, got),)
        return Receipt(
            SliceId(T, "r", Lane.FAST, 1, segment.uuid, read.upload, segment.next_part, read.start),
            stop,
            parts=parts,
            seen_to=got[-1] if got else None,
            finished=finished,
            failure_kind=kind,
            failure_reason="told" if kind else "",
        )

    def _delivered(self, read: Read, most: int) -> tuple[list[Position], SliceStop]:
        room, size, got = max(self.max_size - read.segment.size, 0), 0, list[Position]()
        at: Position | None = read.start
        while at is not None and at <= read.bound and at.place in self.size_of:
            size += self.size_of[at.place]
            if size > room and (got or read.segment.parts):
                return got, SliceStop.FULL
            if len(got) >= most:
                return got, SliceStop.BUDGET
            got.append(at)
            if size > room:
                return got, SliceStop.FULL
            at = self.ledgers.successor(at)
        return got, SliceStop.BOUND

    def _part(self, segment: OpenSegment, got: list[Position]) -> Part:
        held = []
        for ledger, places in itertools.groupby(got, key=lambda p: p.ledger):
            entries = [p.entry for p in places]
            size = sum(self.size_of[ledger, entry] for entry in entries)
            held.append(LedgerRange(ledger, entries[0], entries[-1] + 1, count=len(entries), size=size))
        size = sum(one.size for one in held)
        return Part(segment.next_part, segment.size, size, "etag", 0, 1, tuple(held), 1, EntryStats())

    # Its end

    def deleted(self) -> tuple[set[tuple[int, int]], list[Loss]]:
        """The topic is deleted: what was uploaded of it and is not committed in the end, and what is recorded as
        lost."""
        after = self.head.accounted
        uploaded = {
            place
            for segment in self.state.unfinished
            if segment.source is not Source.OFFLOADED
            for place in _places(segment.parts)
            if after is None or place > after.place
        }
        kept: set[tuple[int, int]] = set()
        losses: list[Loss] = []
        context = cast("Any", SimpleNamespace(new_uuid=self.new_uuid, clock_ms=lambda: self.now))
        for _ in range(500):
            state = self._to_its_end(context)
            if isinstance(state, OpenTopic):
                record = segments.as_record(state, "", ())
                self.head.check_follows(record)
                self.head, self.state = self.head.after(record), segments.offloaded(state)
                kept |= set(_places(record.parts))
                continue
            self.state = state
            loss = self._lost(state)
            if loss is None:
                assert not state.ahead
                return uploaded - kept, losses
            losses.append(loss)
            self.head.check_follows(loss)
            self.head = self.head.after(loss)
        raise AssertionError("it never ends")

    def _as_topic(self) -> Any:
        seen = SimpleNamespace(last=self.places[-1] if self.places else None)
        ledgers = LedgerList(()) if self.seed % 3 else self.ledgers
        return SimpleNamespace(name=T, catalog=self.head, info=SimpleNamespace(ledgers=ledgers), observed=seen)

    def _to_its_end(self, context: Any) -> TopicState:
        topic = self._as_topic()
        state = reconciling._next_to_end(topic, self.state, "deleted", self.now, context)
        return reconciling._end_old(context, topic, state, "deleted")

    def _lost(self, state: TopicState) -> Loss | None:
        topic = self._as_topic()
        between = reconciling._lost_between(topic, state, "deleted", self.now)
        return between or reconciling._lost_tail(topic, "deleted", self.now)


def _places(parts: tuple[Part, ...]) -> list[tuple[int, int]]:
    return [(held.ledger, entry) for part in parts for held in part.ledgers for entry in range(held.first, held.after)]
