"""What to do next with each topic: pure decisions, from frozen views to states to journal and slices to read.

`decide` looks at one topic; `plan` chooses among many. A topic with data is always either worked on, sealed, or held back with a
date or a named event that ends the wait.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from offloader.metadata.state import TopicState
from offloader.model import (
    Cuts,
    FailureKind,
    LedgerList,
    Position,
    RollReason,
    SealedFacts,
    Segment,
    Slice,
    Source,
    TopicName,
)
from offloader.streaming import segments

ROLL_SPREAD = 0.10  # topics that started together do not roll together
MAX_INDEX_BYTES = 16 * 1024 * 1024
INDEX_ENTRY_BYTES = 20
RATE_LIMIT = "rate limit"
# A segment that fails so often in a row is begun anew where its topic's source has been changed meanwhile: that may be the remedy.
ANEW_AFTER = 3


@dataclass(frozen=True, slots=True)
class Rules:
    """A topic's policy as the planner needs it, after the merge of all levels."""

    max_size: int
    roll_ms: int
    cuts: Cuts
    source: Source = Source.BROKER
    fail_on_data_loss: bool = True
    min_roll_ms: int = 0


@dataclass(frozen=True, slots=True)
class TopicView:
    """Everything that a decision about one topic rests on.

    `begin`: where its next segment starts; None while that is unknown. `last`: the last readable position, None: no data.
    `pending_bytes`: estimate of what lies after the last uploaded position; below `wanted_bytes` it is not read again (the last
    slice found less than a part, and how much was missing). `retire`: seal what is there up to `last` and open no other
    segment. `allowance`: bytes that rate limits leave now; `allowed_at`: when they leave more.
    """

    state: TopicState
    rules: Rules
    ledgers: LedgerList
    begin: Position | None
    last: Position | None
    pending_bytes: int
    wanted_bytes: int = 0
    predecessor: Segment | None = None
    retire: RollReason | None = None
    retire_at: Position | None = None
    allowance: int | None = None
    allowed_at: int = 0
    slow: int = 0
    died: bool = False
    planned_at: int = 0

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


@dataclass(frozen=True, slots=True)
class Read:
    """A slice is due. `seal`: it ends the segment."""

    start: Position
    bound: Position
    seal: bool


@dataclass(frozen=True, slots=True)
class Seal:
    """Everything is uploaded and journaled: complete, index, commit."""

    facts: SealedFacts


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
    if _another_source_helps(view):
        return Decision(view, segments.begun_anew(state, new_uuid(), view.rules.source), Hold("begun anew", now))
    if state.open is None:
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
    return _decide_open(view, state, now)


def _another_source_helps(view: TopicView) -> bool:
    """Whether the open segment cannot go on, and the topic has another source by now. Never where Pulsar has lost what it began with."""
    segment, failure = view.state.open, view.state.failure
    if segment is None or failure is None or segment.sealed is not None or segment.source is view.rules.source:
        return False
    may_help = failure.kind in (FailureKind.RETRYABLE, FailureKind.FATAL, FailureKind.INTEGRITY)
    return may_help and failure.attempts >= ANEW_AFTER and segment.start.ledger in view.ledgers


def _why_not_open(view: TopicView) -> Hold | None:
    if view.last is None or view.begin is None or view.last < view.begin:
        return Hold("caught up")
    if view.retire_at is not None and view.retire_at < view.begin:
        return Hold("caught up with the end it retires at")
    return None


def _decide_open(view: TopicView, state: TopicState, now: int) -> Decision:
    segment = segments.opened(state)
    if segment.sealed is not None:
        return Decision(view, state, Seal(segment.sealed))
    if segment.closing_end is None:
        due = _roll_due(view, state, now)
        if due is not None:
            state = segments.closing(state, *due)
            segment = segments.opened(state)
    start = segments.next_position(state, view.ledgers)
    if segment.closing_end is not None:
        return _finish(view, state, start, segment.closing_end, now)
    roll = roll_at(view.topic, segment.assigned_at, view.rules.roll_ms)
    if start is None or view.last is None or view.last < start:
        return Decision(view, state, Hold("caught up, open segment", roll))
    if view.pending_bytes < max(view.wanted_bytes, enough(state, view.rules)):
        return Decision(view, state, Hold("less than a part", roll))
    return _read(view, state, Read(start, view.last, seal=False))


def _roll_due(view: TopicView, state: TopicState, now: int) -> tuple[Position, RollReason] | None:
    """Where and why the open segment must end, None while it need not."""
    segment = segments.opened(state)
    covered = segment.covered
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
    if covered is not None and sum(len(p.index) for p in segment.parts) * INDEX_ENTRY_BYTES >= MAX_INDEX_BYTES:
        return (covered, RollReason.INDEX)
    if now >= roll_at(view.topic, segment.assigned_at, view.rules.roll_ms):
        return (reached, RollReason.AGE)
    return None


def _finish(view: TopicView, state: TopicState, start: Position | None, end: Position, now: int) -> Decision:
    """The segment's end is fixed: read what is missing, or seal when nothing is."""
    segment = segments.opened(state)
    covered = segment.covered
    if covered is not None and covered >= end:
        state = segments.complete(state, (), view.ledgers, now)
        return Decision(view, state, Seal(_facts(state)))
    if start is None:
        return Decision(view, state, Hold("the next ledger is not listed yet"))
    return _read(view, state, Read(start, end, seal=True))


def _facts(state: TopicState) -> SealedFacts:
    facts = segments.opened(state).sealed
    if facts is None:
        raise AssertionError("complete() fills in the facts")
    return facts


def _read(view: TopicView, state: TopicState, read: Read) -> Decision:
    if view.allowance is not None and view.allowance <= 0:
        return Decision(view, state, Hold(RATE_LIMIT, view.allowed_at))
    if segments.opened(state).upload is None:
        return Decision(view, state, Begin())
    return Decision(view, state, read)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one micro-batch may hold. `tasks` run at once, each with `threads` threads."""

    tasks: int
    threads: int
    byte_budget: int
    time_budget_ms: int = 5_000
    hard_limit_ms: int = 60_000
    max_gap_lookups: int = 1_000
    queue_factor: int = 4

    @property
    def slots(self) -> int:
        return self.tasks * self.threads


@dataclass(frozen=True, slots=True)
class Plan:
    """One micro-batch: slices packed into tasks."""

    run: str
    number: int
    tasks: tuple[tuple[Slice, ...], ...]

    @property
    def slices(self) -> tuple[Slice, ...]:
        return tuple(s for task in self.tasks for s in task)


def plan(run: str, number: int, decisions: Iterable[Decision], limits: Limits) -> Plan:
    """Choose the slices of the next micro-batch and pack them into tasks.

    Least recently planned first, so that no topic starves. A topic whose task died has a task to itself. A slow topic runs alone: one
    of them a batch, with a limit that doubles each time.
    """
    reads = [(d, d.step) for d in decisions if isinstance(d.step, Read)]
    reads.sort(key=lambda pair: (pair[0].view.planned_at, str(pair[0].view.topic)))
    slow = [pair for pair in reads if pair[0].view.slow]
    if slow and slow[0] == reads[0]:
        chosen = slow[:1]
    else:
        chosen = [pair for pair in reads if not pair[0].view.slow][: limits.slots * limits.queue_factor]
    rounds = max(1, -(-len(chosen) // limits.slots))
    time_budget = limits.time_budget_ms // rounds
    slices = [_slice(run, number, d, read, limits, time_budget) for d, read in chosen]
    return Plan(run, number, _pack(slices, limits))


def _slice(run: str, number: int, decision: Decision, read: Read, limits: Limits, time_budget: int) -> Slice:
    view, segment = decision.view, segments.opened(decision.state)
    if segment.upload is None:
        raise AssertionError("a slice is planned only after its upload has begun")
    budget = limits.byte_budget if view.allowance is None else min(limits.byte_budget, max(view.allowance, 1))
    return Slice(
        topic=view.topic,
        run=run,
        plan=number,
        uuid=segment.uuid,
        upload=segment.upload,
        start=read.start,
        bound=read.bound,
        seal=read.seal,
        first_part=len(segment.parts) + 1,
        offset=segment.size,
        first_block=segment.blocks + 1,
        room=max(view.rules.max_size - segment.size, 0),
        byte_budget=budget,
        time_budget_ms=time_budget,
        hard_limit_ms=limits.hard_limit_ms * 2 ** min(view.slow, 6),
        source=segment.source,
        cuts=segment.cuts,
        ledgers=tuple(s for s in view.ledgers.spans if read.start.ledger <= s.ledger <= read.bound.ledger),
        max_gap_lookups=limits.max_gap_lookups * 2 ** min(decision.state.failure.attempts if decision.state.failure else 0, 10),
        alone=view.died,
    )


def _pack(slices: list[Slice], limits: Limits) -> tuple[tuple[Slice, ...], ...]:
    """Deal the slices out to as many tasks as run at once; those that must be alone get tasks of their own."""
    shared = [s for s in slices if not s.alone]
    tasks = [tuple(shared[i :: limits.tasks]) for i in range(min(limits.tasks, len(shared)))]
    return tuple(tasks) + tuple((s,) for s in slices if s.alone)


def enough(state: TopicState, rules: Rules) -> int:
    """Object bytes that make a slice worth while: a part, or what the segment may still grow by."""
    segment = state.open
    part = segment.cuts.part_size if segment else rules.cuts.part_size
    return min(part, rules.max_size - (segment.size if segment else 0))


def after_slice(pending: int, seen: int, enough_bytes: int) -> int:
    """The estimate that a topic must reach before it is planned again: what was estimated, plus what was missing."""
    return pending + max(enough_bytes - seen, 1)
