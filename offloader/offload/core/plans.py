"""Which slices one micro-batch has, and in which tasks. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import NamedTuple

from offloader.model import Lane, Slice, SliceId, TopicName
from offloader.offload.core import lanes
from offloader.offload.core.decisions import Begin, Decision, Read, Step
from offloader.offload.core.lanes import LaneLimits
from offloader.offload.core.planner import enough
from offloader.offload.core.sources import reach_of
from offloader.offload.core.topic import Topic


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

    Least recently planned first, so that no topic starves; further slices of a topic's history only in tasks that would
    have none. A topic whose task died gets a task of its own. The slow lane has one task at a time, since it may sit in
    its slot for minutes."""
    due = _in_turn(decisions, lane, lambda step: isinstance(step, Read))
    if lane is Lane.SLOW:
        first_alone = bool(due) and due[0].topic.learnt.died
        due = due[:1] if first_alone else [each for each in due if not each.topic.learnt.died]
    chosen = _chosen(due, lane, limits)
    rounds = max(1, -(-min(len(due), limits.slots * limits.queue_factor) // limits.slots))
    sharing = Counter(topic.name for topic, _ in chosen)
    slices = [
        _slice(run, number, topic, read, limits, rounds, sharing[topic.name])
        for topic, read in chosen
        if isinstance(read, Read)
    ]
    return Plan(run, lane, number, _pack(slices, limits))


def uploads_due(decisions: Sequence[Decision], limits: LaneLimits, *, free: bool) -> dict[TopicName, list[str]]:
    """The segments whose uploads begin now: open ones, and those ahead of which the fast lane's next plan would have a
    slice, where it is `free`. An upload is not begun days before it is used: stores end what waits too long."""
    begins = {d.topic.name: [d.step.uuid] for d in decisions if isinstance(d.step, Begin)}
    due = _in_turn(decisions if free else (), Lane.FAST, lambda step: isinstance(step, Read | Begin))
    for topic, step in _chosen(due, Lane.FAST, limits):
        found = begins.setdefault(topic.name, []) if isinstance(step, Begin) else []
        if isinstance(step, Begin) and step.uuid not in found:
            found.append(step.uuid)
    return begins


class _Due(NamedTuple):
    """A topic with what is due of it, its oldest segment first."""

    topic: Topic
    steps: tuple[Step, ...]


def _in_turn(decisions: Iterable[Decision], lane: Lane, wanted: Callable[[Step], bool]) -> list[_Due]:
    """The lane's topics of which something is due, least recently planned first. In the slow lane a topic is read one
    segment after the other."""
    due = []
    for decision in decisions:
        steps = decision.steps if lane is Lane.FAST else (decision.step,)
        found = tuple(step for step in steps if wanted(step))
        if found and decision.topic.learnt.speed.lane is lane:
            due.append(_Due(decision.topic, found))
    return sorted(due, key=lambda each: (each.topic.planned.at, str(each.topic.name)))


def _chosen(due: Sequence[_Due], lane: Lane, limits: LaneLimits) -> list[tuple[Topic, Step]]:
    chosen = [(each.topic, each.steps[0]) for each in due[: limits.slots * limits.queue_factor]]
    if lane is Lane.FAST:
        chosen += islice(_more(due), max(limits.running - len(chosen), 0))
    return chosen


def _more(due: Sequence[_Due]) -> Iterator[tuple[Topic, Step]]:
    """For tasks that would be idle: history that is read at the same time, of one topic after the other. A topic whose
    task died has no second slice: which one it died of would not be known."""
    several = [each for each in due if not each.topic.learnt.died]
    for column in zip_longest(*(each.steps[1:] for each in several)):
        yield from ((each.topic, step) for each, step in zip(several, column, strict=True) if step is not None)


def _slice(run: str, number: int, topic: Topic, read: Read, limits: LaneLimits, rounds: int, sharing: int) -> Slice:
    """`sharing`: so many slices of the topic travel together."""
    segment, speed = read.segment, topic.learnt.speed
    part = enough(segment, topic.rules)
    reach = reach_of(topic, read.start, part, limits)
    goal = max(min(part, read.pending_bytes), 1) if read.seal else max(part, 1)
    if read.seal and reach is not None:
        goal = min(goal, reach.size)
    slow = speed.lane is Lane.SLOW
    hard_limit_ms = lanes.slow_limit_ms(speed, goal, limits) if slow else limits.hard_limit_ms
    budget = limits.byte_budget
    if slow and not read.seal:
        budget = min(budget, _whole_parts(read.pending_bytes, goal))
    if read.allowance is not None:
        budget = min(budget, max(read.allowance // sharing, 1))
    first, lane = segment.next_part, speed.lane
    return Slice(
        SliceId(topic.name, run, lane, number, segment.uuid, read.upload, first_part=first, start=read.start),
        bound=read.bound,
        seal=read.seal,
        offset=segment.size,
        first_block=segment.blocks + 1,
        room=max(topic.rules.max_size - segment.size, 0),
        byte_budget=budget,
        time_budget_ms=limits.time_budget_ms // rounds if reach is None else hard_limit_ms,
        hard_limit_ms=hard_limit_ms,
        silent_ms=limits.silent_ms,
        goal=goal,
        read_ahead=limits.read_ahead,
        source=segment.source,
        cuts=segment.cuts,
        ledgers=topic.ledgers.between(read.start.ledger, read.bound.ledger),
        max_gap_lookups=limits.max_gap_lookups * 2 ** min(read.attempts, 10),
        alone=topic.learnt.died,
        stall_ms=lanes.stall_ms(speed, limits),
    )


def _whole_parts(pending: int, part: int) -> int:
    """Bytes behind which only the rest of a part is left: a slow topic's is not read in vain."""
    return max((pending // part - 1) * part, part // 2, 1)


def _pack(slices: list[Slice], limits: LaneLimits) -> tuple[tuple[Slice, ...], ...]:
    """Deal the slices out to as many tasks as run at once; those that must be alone get tasks of their own."""
    shared = [s for s in slices if not s.alone]
    tasks = [tuple(shared[i :: limits.tasks]) for i in range(min(limits.tasks, len(shared)))]
    return tuple(tasks) + tuple((s,) for s in slices if s.alone)
