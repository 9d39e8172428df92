"""What to do next with each topic: from frozen views to states to journal and slices to read. Pure. A topic with data
is worked on, sealed, or held back until a date or a named event."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from offloader.metadata.state import NextStart, OpenTopic, TopicState
from offloader.model import (
    Ending,
    FailureKind,
    Lane,
    LedgerList,
    OpenSegment,
    Position,
    RollReason,
    SegmentLayout,
    Slice,
    SliceId,
    Source,
    TopicName,
)
from offloader.offload.core import lanes, segments
from offloader.offload.core.lanes import LaneLimits, Speed

ROLL_SPREAD = 0.10  # topics that started together do not roll together
MAX_INDEX_BYTES = 16 * 1024 * 1024
INDEX_ENTRY_BYTES = 20
RATE_LIMIT = "rate limit"
ANEW_AFTER = 3  # failures in a row; then a segment is begun anew where its topic has another source by now


@dataclass(frozen=True, slots=True)
class TopicRules:
    """A topic's policy as the planner needs it, after the merge of all levels."""

    max_size: int
    roll_ms: int
    cuts: SegmentLayout
    source: Source = Source.BROKER
    fail_on_data_loss: bool = True
    min_roll_ms: int = 0
    pin_holds_last_entry: bool = True


@dataclass(frozen=True, slots=True)
class Reach:
    """As far as a slice is sure to come: less than a part, in about so many bytes."""

    end: Position
    size: int


@dataclass(frozen=True, slots=True)
class TopicView:
    """Everything that a decision about one topic rests on.

    `begin`: where its next segment starts, and the proof that it follows; None while that is unknown. `last`: the last
    readable position, None: no data. `pending_bytes`: estimate of what lies after the last uploaded position; below
    `wanted_bytes` it is not read again. `retire`: seal up to `last` and open no other segment. `allowance`: bytes that
    rate limits leave now; `allowed_at`: when they leave more. `reach`: how far a slice of a slow topic comes in the
    time that the slow lane gives it; None: far enough for a part, or its time has no limit."""

    state: TopicState
    rules: TopicRules
    ledgers: LedgerList
    begin: NextStart | None
    last: Position | None
    pending_bytes: int
    wanted_bytes: int = 0
    predecessor: Ending | None = None
    retire: RollReason | None = None
    retire_at: Position | None = None
    allowance: int | None = None
    allowed_at: int = 0
    speed: Speed = field(default_factory=Speed)
    died: bool = False
    planned_at: int = 0
    reach: Reach | None = None

    @property
    def topic(self) -> TopicName:
        return self.state.topic


@dataclass(frozen=True, slots=True)
class Hold:
    """Nothing to do before `until` (None: before something changes)."""

    reason: str
    until: int | None = None


@dataclass(frozen=True, slots=True)
class Begin:
    """The segment's upload must begin before its slice can be planned."""

    uuid: str


@dataclass(frozen=True, slots=True)
class Read:
    """A slice is due, which uploads to the segment's `upload`. `seal`: it ends the segment."""

    segment: OpenSegment
    upload: str
    start: Position
    bound: Position
    seal: bool


@dataclass(frozen=True, slots=True)
class Seal:
    """Everything is uploaded and journaled: complete, index, commit."""

    state: OpenTopic


Step = Hold | Begin | Read | Seal


@dataclass(frozen=True, slots=True)
class Decision:
    """The topic's state after the decision (journal it first, where it differs), and the step that follows."""

    view: TopicView
    state: TopicState
    step: Step


def roll_at(topic: TopicName, assigned_at: int, roll_ms: int) -> int:
    """When a segment is due by age: up to 10 % early, by a hash of the topic."""
    digest = hashlib.blake2b(str(topic).encode(), digest_size=4).digest()
    early = int.from_bytes(digest, "big") / 2**32 * ROLL_SPREAD
    return assigned_at + int(roll_ms * (1 - early))


def decide(view: TopicView, now: int, new_uuid: Callable[[], str]) -> Decision:
    """The next step of one topic."""
    state = view.state
    if state.failure and now < state.failure.retry_at:
        return Decision(view, state, Hold(f"failed: {state.failure.reason}", state.failure.retry_at))
    if isinstance(state, OpenTopic) and _another_source_helps(view, state.open):
        reason = f"begun anew from source {view.rules.source} instead of {state.open.source}"
        anew = segments.begun_anew(state, new_uuid(), view.rules.source, reason)
        return Decision(view, anew, Hold("begun anew", now))
    if not isinstance(state, OpenTopic):
        hold = _why_not_open(view)
        if hold is not None or view.begin is None:
            return Decision(view, state, hold or Hold("the next ledger is not listed yet"))
        state = segments.assigned(
            state,
            uuid=new_uuid(),
            start=view.begin,
            source=view.rules.source,
            cuts=view.rules.cuts,
            now=now,
            predecessor=view.predecessor,
        )
    if view.reach is not None:
        state = _within_reach(view, view.reach, state, new_uuid)
    return _decide_open(view, state, now)


def _within_reach(view: TopicView, reach: Reach, state: OpenTopic, new_uuid: Callable[[], str]) -> OpenTopic:
    """No part will be whole: the segment ends with those that it has or, where it has none, as far as one slice comes.

    Where a later end was fixed before the topic was known to be slow, the segment is begun anew under another uuid: a
    slice may still upload the short part of that end."""
    segment = state.open
    end = segment.closing_end
    if segment.sealed is not None or (end is not None and end <= reach.end):
        return state
    if segment.covered is not None:
        return segments.closing(state, segment.covered, RollReason.SIZE)
    if end is not None:
        reason = f"begun anew with an earlier end: its topic is slow, and no slice comes as far as {end}"
        state = segments.begun_anew(state, new_uuid(), segment.source, reason)
    there = view.last is not None and view.last >= reach.end
    return segments.closing(state, reach.end, RollReason.SIZE) if there else state


def _another_source_helps(view: TopicView, segment: OpenSegment) -> bool:
    """Whether the topic's present source may help a segment that fails. Never where Pulsar lost its beginning."""
    failure = view.state.failure
    if failure is None or segment.sealed is not None or segment.source is view.rules.source:
        return False
    may_help = failure.kind in (FailureKind.RETRYABLE, FailureKind.FATAL, FailureKind.INTEGRITY)
    return may_help and failure.attempts >= ANEW_AFTER and segment.start.ledger in view.ledgers


def _why_not_open(view: TopicView) -> Hold | None:
    if view.last is None or view.begin is None or view.last < view.begin.position:
        return Hold("caught up")
    if view.retire_at is not None and view.retire_at < view.begin.position:
        return Hold("caught up with the end it retires at")
    return None


def _decide_open(view: TopicView, state: OpenTopic, now: int) -> Decision:
    if state.open.sealed is not None:
        return Decision(view, state, Seal(state))
    if state.open.closing_end is None:
        due = _roll_due(view, state, now)
        if due is not None:
            state = segments.closing(state, *due)
    segment = state.open
    start = segments.next_position(segment, view.ledgers)
    if segment.closing_end is not None:
        return _finish(view, state, start, segment.closing_end, now)
    roll = roll_at(view.topic, segment.assigned_at, view.rules.roll_ms)
    if start is None or view.last is None or view.last < start:
        return Decision(view, state, Hold("caught up, open segment", roll))
    # A part ends with a whole block: a slow topic is not read before both are there.
    block = view.rules.cuts.block_size if view.speed.lane is Lane.SLOW else 0
    if view.pending_bytes < max(view.wanted_bytes, enough(state, view.rules) + block):
        return Decision(view, state, Hold("less than a part", roll))
    return _read(view, state, start, view.last, seal=False)


def _roll_due(view: TopicView, state: OpenTopic, now: int) -> tuple[Position, RollReason] | None:
    """Where and why the open segment must end, None while it need not."""
    segment, covered = state.open, state.open.covered
    reached = max((p for p in (view.last, covered) if p is not None), default=None)
    if reached is None or reached < segment.start:
        return None
    if view.retire is not None:
        end = view.retire_at or reached
        return (max(min(end, reached), covered or segment.start), view.retire)
    wanted = max((r.end for r in state.requests), default=None)
    if wanted is not None and wanted <= reached and now >= segment.assigned_at + view.rules.min_roll_ms:
        return (reached, RollReason.REQUEST)
    if covered is not None and segment.size >= view.rules.max_size:
        return (covered, RollReason.SIZE)
    if covered is not None and sum(p.indexed for p in segment.parts) * INDEX_ENTRY_BYTES >= MAX_INDEX_BYTES:
        return (covered, RollReason.INDEX)
    if now >= roll_at(view.topic, segment.assigned_at, view.rules.roll_ms):
        return (reached, RollReason.AGE)
    return None


def _finish(view: TopicView, state: OpenTopic, start: Position | None, end: Position, now: int) -> Decision:
    """The segment's end is fixed: read what is missing, or seal when nothing is."""
    covered = state.open.covered
    if covered is not None and covered >= end:
        state = segments.complete(state, (), view.ledgers, now)
        return Decision(view, state, Seal(state))
    if start is None or not view.ledgers.reaches(end.ledger):
        return Decision(view, state, Hold("the next ledger is not listed yet"))
    return _read(view, state, start, end, seal=True)


def _read(view: TopicView, state: OpenTopic, start: Position, bound: Position, *, seal: bool) -> Decision:
    if view.allowance is not None and view.allowance <= 0:
        return Decision(view, state, Hold(RATE_LIMIT, view.allowed_at))
    segment = state.open
    if segment.upload is None:
        return Decision(view, state, Begin(segment.uuid))
    return Decision(view, state, Read(segment, segment.upload, start, bound, seal))


@dataclass(frozen=True, slots=True)
class Plan:
    """One micro-batch of a lane: slices packed into tasks."""

    run: str
    lane: Lane
    number: int
    tasks: tuple[tuple[Slice, ...], ...]

    @property
    def slices(self) -> tuple[Slice, ...]:
        return tuple(s for task in self.tasks for s in task)

    @property
    def longest_ms(self) -> int:
        """What its slices may take, one after the other where there are more of them than threads."""
        return max((s.hard_limit_ms for s in self.slices), default=0)


def plan(run: str, number: int, lane: Lane, decisions: Iterable[Decision], limits: LaneLimits) -> Plan:
    """Choose the slices of a lane's next micro-batch and pack them into tasks.

    Least recently planned first, so that no topic starves. A topic whose task died gets a task of its own. The slow
    lane has one task at a time, since it may sit in its slot for minutes."""
    reads = [(d, d.step) for d in decisions if isinstance(d.step, Read) and d.view.speed.lane is lane]
    reads.sort(key=lambda pair: (pair[0].view.planned_at, str(pair[0].view.topic)))
    if lane is Lane.SLOW:
        first_alone = bool(reads) and reads[0][0].view.died
        reads = reads[:1] if first_alone else [pair for pair in reads if not pair[0].view.died]
    chosen = reads[: limits.slots * limits.queue_factor]
    rounds = max(1, -(-len(chosen) // limits.slots))
    slices = [_slice(run, number, d, read, limits, rounds) for d, read in chosen]
    return Plan(run, lane, number, _pack(slices, limits))


def _slice(run: str, number: int, decision: Decision, read: Read, limits: LaneLimits, rounds: int) -> Slice:
    view, segment = decision.view, read.segment
    part = enough(decision.state, view.rules)
    goal = max(min(part, view.pending_bytes), 1) if read.seal else max(part, 1)
    if read.seal and view.reach is not None:
        goal = min(goal, view.reach.size)
    slow = view.speed.lane is Lane.SLOW
    hard_limit_ms = lanes.slow_limit_ms(view.speed, goal, limits) if slow else limits.hard_limit_ms
    budget = limits.byte_budget
    if slow and not read.seal:
        budget = min(budget, _whole_parts(view.pending_bytes, goal))
    if view.allowance is not None:
        budget = min(budget, max(view.allowance, 1))
    first, lane = segment.next_part, view.speed.lane
    return Slice(
        SliceId(view.topic, run, lane, number, segment.uuid, read.upload, first_part=first, start=read.start),
        bound=read.bound,
        seal=read.seal,
        offset=segment.size,
        first_block=segment.blocks + 1,
        room=max(view.rules.max_size - segment.size, 0),
        byte_budget=budget,
        time_budget_ms=limits.time_budget_ms // rounds if view.reach is None else hard_limit_ms,
        hard_limit_ms=hard_limit_ms,
        silent_ms=limits.silent_ms,
        goal=goal,
        read_ahead=limits.read_ahead,
        source=segment.source,
        cuts=segment.cuts,
        ledgers=tuple(s for s in view.ledgers.spans if read.start.ledger <= s.ledger <= read.bound.ledger),
        max_gap_lookups=limits.max_gap_lookups * 2 ** min(decision.state.attempts, 10),
        alone=view.died,
        stall_ms=lanes.stall_ms(view.speed, limits),
    )


def _whole_parts(pending: int, part: int) -> int:
    """Bytes behind which only the rest of a part is left: a slow topic's is not read in vain."""
    return max((pending // part - 1) * part, part // 2, 1)


def _pack(slices: list[Slice], limits: LaneLimits) -> tuple[tuple[Slice, ...], ...]:
    """Deal the slices out to as many tasks as run at once; those that must be alone get tasks of their own."""
    shared = [s for s in slices if not s.alone]
    tasks = [tuple(shared[i :: limits.tasks]) for i in range(min(limits.tasks, len(shared)))]
    return tuple(tasks) + tuple((s,) for s in slices if s.alone)


def enough(state: TopicState, rules: TopicRules) -> int:
    """Object bytes that make a slice worth while: a part, or what the segment may still grow by."""
    segment = state.open
    part = segment.cuts.part_size if segment else rules.cuts.part_size
    return min(part, rules.max_size - (segment.size if segment else 0))


def after_slice(pending: int, seen: int, enough_bytes: int) -> int:
    """The estimate that a topic must reach before it is planned again: what was estimated, plus what was missing."""
    return pending + max(enough_bytes - seen, 1)
