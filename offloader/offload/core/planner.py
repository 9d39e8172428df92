"""What to do next with each topic: from its frozen facets to a state to journal and slices to read. Pure. A topic with
data is worked on, sealed, or held back until a date or a named event.

History is cut into segments with fixed ends, of which several are read at the same time; each is decided on as if it
were the topic's only one. `sources.py` says where each is read from, and `plans.py` packs the slices."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import replace

from offloader.metadata.state import NextStart, OpenTopic, TopicState
from offloader.model import (
    SINGLE_PUT,
    V1,
    V3,
    FailureKind,
    Lane,
    OpenSegment,
    Position,
    RollReason,
    Source,
    TopicName,
)
from offloader.offload.core import segments
from offloader.offload.core.borders import AIM, BorderSearch, ClosedLedgers, end_of_history
from offloader.offload.core.decisions import (
    Begin,
    Copy,
    Decision,
    DecisionLimits,
    Hold,
    Read,
    Seal,
    Step,
)
from offloader.offload.core.facets import TopicRules
from offloader.offload.core.history import (
    alone,
    behind,
    fixed,
    next_follows,
    normalise,
    opened_next,
    unread,
    with_ahead,
)
from offloader.offload.core.sources import (
    ANEW_AFTER,
    Reach,
    another_source_helps,
    from_another_source,
    reach_of,
    source_of,
)
from offloader.offload.core.topic import Topic

ROLL_SPREAD = 0.10  # topics that started together do not roll together
MAX_INDEX_BYTES = 16 * 1024 * 1024
INDEX_ENTRY_BYTES = 20
RATE_LIMIT = "rate limit"
WAITING = 2  # so many times as many segments ahead as are read at once: some wait for one before them
SINGLE_PUT_SHARE = 0.75  # of a part: what turns out to be more than a part is read again


def roll_at(topic: TopicName, assigned_at: int, roll_ms: int) -> int:
    """When a segment is due by age: up to 10 % early, by a hash of the topic."""
    digest = hashlib.blake2b(str(topic).encode(), digest_size=4).digest()
    early = int.from_bytes(digest, "big") / 2**32 * ROLL_SPREAD
    return assigned_at + int(roll_ms * (1 - early))


def decide(topic: Topic, state: TopicState, limits: DecisionLimits, now: int, new_uuid: Callable[[], str]) -> Decision:
    """The next step of one topic. `state`: the journal's."""
    decision = _decide_oldest(topic, state, limits, now, new_uuid)
    state = _normalised(topic, decision.state, now, new_uuid)
    decision = replace(decision, state=state)
    if not isinstance(state, OpenTopic) or state.failure is not None:
        return decision  # what cannot be committed before the open one goes on waits with it
    decided, steps = _decide_ahead(topic, state, limits, now, new_uuid)
    state = _normalised(topic, decided, now, new_uuid)  # one may have got an earlier end
    return replace(decision, state=state, ahead=steps)


def _normalised(topic: Topic, state: TopicState, now: int, new_uuid: Callable[[], str]) -> TopicState:
    return normalise(state, topic.catalog.accounted, topic.ledgers, new_uuid, now, topic.next_start)


def _decide_oldest(
    topic: Topic, state: TopicState, limits: DecisionLimits, now: int, new_uuid: Callable[[], str]
) -> Decision:
    """The step of the segment that is, or will be, the open one."""
    waits = _back_off(state, now)
    if waits is None and not isinstance(state, OpenTopic):
        waits, state = _opened(topic, state, now, new_uuid)
    if waits is not None or not isinstance(state, OpenTopic):
        return Decision(topic, state, waits or Hold("nothing is open"))
    if state.open.source is Source.OFFLOADED:
        return _decide_copy(topic, state, now, new_uuid)
    if another_source_helps(topic, state):
        return Decision(topic, from_another_source(topic, state, new_uuid), Hold("begun anew", now))
    anew = _uploaded_otherwise(topic, state, new_uuid)
    if anew is not None:
        return Decision(topic, anew, Hold("begun anew", now))
    start = segments.next_position(state.open, topic.ledgers)
    reach = reach_of(topic, start, enough(state.open, topic.rules), limits.slow)
    if reach is not None:
        state = _within_reach(topic, reach, state, new_uuid)
    state, search = assign_history(topic, state, limits, now, new_uuid)
    return replace(_decide_open(topic, state, limits, now), search=search)


def _assigned(topic: Topic, state: TopicState, begin: NextStart, now: int, uuid: str) -> OpenTopic:
    """A new segment; of a ledger that is to be copied it is the whole."""
    rules, ledger, last = topic.rules, begin.position.ledger, topic.ledgers.closed_with(begin.position.ledger)
    copies = ledger in topic.copies and begin.position.entry == 0 and last is not None
    opened = segments.assigned(
        state,
        uuid=uuid,
        start=begin,
        source=Source.OFFLOADED if copies else source_of(topic, begin.position, None),
        cuts=replace(rules.cuts, version=V1) if copies else rules.cuts,
        now=now,
        predecessor=topic.catalog.last,
    )
    if not copies or last is None:
        return opened
    return segments.closing(opened, begin.position.at(last), RollReason.OFFLOADED)


def _decide_copy(topic: Topic, state: OpenTopic, now: int, new_uuid: Callable[[], str]) -> Decision:
    segment = state.open
    if segment.sealed is not None:
        return Decision(topic, state, Seal(state))
    if segment.start.ledger not in topic.copies:  # somebody has decided otherwise
        source = source_of(topic, segment.start, None)
        reason = f"begun anew from source {source}: ledger {segment.start.ledger} is not copied any more"
        anew = segments.begun_anew(state, new_uuid(), source, reason, topic.rules.cuts)
        return Decision(topic, anew, Hold("begun anew", now))
    if segment.upload is None:
        return Decision(topic, state, Begin(segment.uuid))
    return Decision(topic, state, Copy(state, segment.start.ledger))


def _opened(topic: Topic, state: TopicState, now: int, new_uuid: Callable[[], str]) -> tuple[Hold | None, TopicState]:
    """With the next segment open: the first of those assigned ahead, or else a new one. Why there is none, or why that
    waits."""
    state, begin = _normalised(topic, state, now, new_uuid), topic.next_start
    if state.ahead:
        if not next_follows(state, topic.catalog.accounted, begin):
            return Hold("the next ledger is not listed yet"), state
        state = opened_next(state, topic.catalog.last, now)
        return _back_off(state, now), state
    hold = _why_not_open(topic, begin)
    if hold is not None or begin is None:
        return hold or Hold("the next ledger is not listed yet"), state
    return None, _assigned(topic, state, begin, now, new_uuid())


def _back_off(state: TopicState, now: int) -> Hold | None:
    failure = state.failure
    return Hold(f"failed: {failure.reason}", failure.retry_at) if failure and now < failure.retry_at else None


def _decide_ahead(
    topic: Topic, state: OpenTopic, limits: DecisionLimits, now: int, new_uuid: Callable[[], str]
) -> tuple[TopicState, tuple[Step, ...]]:
    """The steps of the segments behind the open one, none of which is sealed before its turn."""
    steps: list[Step] = []
    decided: TopicState = state
    for number, each in enumerate(state.ahead):
        own, segment = alone(state, each), each.segment
        if segment.uuid in topic.learnt.slow_ahead:
            steps.append(Hold("slow: waits for its turn"))
            continue
        step = _decide_one(topic, own, limits, now, new_uuid)
        if step.state != own and isinstance(step.state, OpenTopic):
            decided = with_ahead(decided, number, step.state)
        steps.append(Hold("waits for its turn") if isinstance(step.step, Seal) else step.step)
    return decided, tuple(steps)


def _decide_one(
    topic: Topic, state: OpenTopic, limits: DecisionLimits, now: int, new_uuid: Callable[[], str]
) -> Decision:
    """The step of a segment that is assigned ahead."""
    waits = _back_off(state, now)
    if waits is not None:
        return Decision(topic, state, waits)
    if another_source_helps(topic, state):
        return Decision(topic, from_another_source(topic, state, new_uuid, keep_end=True), Hold("begun anew", now))
    anew = _uploaded_otherwise(topic, state, new_uuid)
    if anew is not None:
        return Decision(topic, anew, Hold("begun anew", now))
    return _decide_open(topic, state, limits, now)


def _uploaded_otherwise(topic: Topic, state: OpenTopic, new_uuid: Callable[[], str]) -> OpenTopic | None:
    """A segment of which nothing is uploaded and which fails, begun anew; None: nothing else helps.

    The store may take only parts of equal length, or an entry be too large for these, and others are set now. Or its
    object may be there, and the worker may write and not read."""
    segment, failure, cuts = state.open, state.failure, topic.rules.cuts
    if failure is None or segment.parts or segment.sealed is not None:
        return None
    if V3 in (segment.cuts.version, cuts.version) and segment.cuts != cuts:
        reason = "begun anew with other parts: it failed with those that were set before"
        return segments.begun_anew(state, new_uuid(), segment.source, reason, cuts, keep_end=True)
    put_is_unknown = failure.kind is FailureKind.UNKNOWN and not failure.of_catalog
    if segment.upload == SINGLE_PUT and put_is_unknown and failure.attempts >= ANEW_AFTER:
        return segments.abandoned(state, new_uuid(), f"nothing tells whether its single PUT happened: {failure.reason}")
    return None


def _within_reach(topic: Topic, reach: Reach, state: OpenTopic, new_uuid: Callable[[], str]) -> OpenTopic:
    """No part will be whole: the segment ends with those that it has or, where it has none, as far as one slice comes.

    Where a later end was fixed before the topic was known to be slow, the segment is begun anew under another uuid: a
    slice may still upload the short part of that end."""
    segment = state.open
    end = segment.closing_end
    if segment.sealed is not None or (end is not None and end <= reach.end):
        return state
    if segment.covered is not None:
        return segments.closing(state, segment.covered, RollReason.SIZE)
    if end is not None and segment.upload is not None:
        reason = f"begun anew with an earlier end: its topic is slow, and no slice comes as far as {end}"
        state = segments.begun_anew(state, new_uuid(), segment.source, reason, keep_end=bool(state.ahead))
    there = topic.last is not None and topic.last >= reach.end
    return segments.closing(state, reach.end, RollReason.SIZE) if there else state


def _why_not_open(topic: Topic, begin: NextStart | None) -> Hold | None:
    if topic.last is None or begin is None or topic.last < begin.position:
        return Hold("caught up")
    if topic.retire_at is not None and topic.retire_at < begin.position:
        return Hold("caught up with the end it retires at")
    return None


def _decide_open(topic: Topic, state: OpenTopic, limits: DecisionLimits, now: int) -> Decision:
    decision = _step_of_open(topic, state, limits, now)
    if not isinstance(decision.step, Hold) or state.open.closing_end is not None:
        return decision
    # When time alone closes the segment, if it has anything by then: by age, and where somebody asked for it.
    segment, rules = state.open, topic.rules
    rolls = (roll_at(topic.name, segment.assigned_at, rules.roll_ms), segment.assigned_at + rules.min_roll_ms)
    dates = [at for at in (decision.step.until, *rolls[: 2 if state.requests else 1]) if at is not None and at > now]
    return replace(decision, step=replace(decision.step, until=min(dates, default=None)))


def _step_of_open(topic: Topic, state: OpenTopic, limits: DecisionLimits, now: int) -> Decision:
    if state.open.sealed is not None:
        return Decision(topic, state, Seal(state))
    if state.open.closing_end is None:
        due = _roll_due(topic, state, now)
        if due is not None:
            state = segments.closing(state, *due)
    segment = state.open
    start = segments.next_position(segment, topic.ledgers)
    if segment.closing_end is not None:
        return _finish(topic, state, limits, start, segment.closing_end, now)
    if start is None or topic.last is None or topic.last < start:
        return Decision(topic, state, Hold("caught up, open segment"))
    # A part ends with a whole block: a slow topic is not read before both are there.
    block = topic.rules.cuts.block_size if topic.learnt.speed.lane is Lane.SLOW else 0
    if topic.pending(state) < max(topic.learnt.wanted_bytes, enough(segment, topic.rules) + block):
        return Decision(topic, state, Hold("less than a part"))
    return _read(topic, state, limits, start, topic.last, seal=False)


def _roll_due(topic: Topic, state: OpenTopic, now: int) -> tuple[Position, RollReason] | None:
    """Where and why the open segment must end, None while it need not."""
    segment, covered = state.open, state.open.covered
    reached = max((p for p in (topic.last, covered) if p is not None), default=None)
    if reached is None or reached < segment.start:
        return None
    border = before_next_copy(topic, segment)
    if border is not None and segment.start <= border <= reached:
        return (border, RollReason.OFFLOADED)
    if topic.retire is not None:
        end = topic.retire_at or reached
        return (max(min(end, reached), covered or segment.start), topic.retire)
    wanted = max((r.end for r in state.requests), default=None)
    if wanted is not None and wanted <= reached and now >= segment.assigned_at + topic.rules.min_roll_ms:
        return (reached, RollReason.REQUEST)
    if covered is not None and segment.size >= topic.rules.max_size:
        return (covered, RollReason.SIZE)
    if covered is not None and sum(p.indexed for p in segment.parts) * INDEX_ENTRY_BYTES >= MAX_INDEX_BYTES:
        return (covered, RollReason.INDEX)
    if now >= roll_at(topic.name, segment.assigned_at, topic.rules.roll_ms):
        return (reached, RollReason.AGE)
    return None


def _finish(
    topic: Topic, state: OpenTopic, limits: DecisionLimits, start: Position | None, end: Position, now: int
) -> Decision:
    """The segment's end is fixed: read what is missing, or seal when nothing is."""
    covered = state.open.covered
    if covered is not None and covered >= end:
        state = segments.complete(state, (), topic.ledgers, now)
        return Decision(topic, state, Seal(state))
    if start is None or not topic.ledgers.reaches(end.ledger):
        return Decision(topic, state, Hold("the next ledger is not listed yet"))
    return _read(topic, state, limits, start, end, seal=True)


def _read(
    topic: Topic, state: OpenTopic, limits: DecisionLimits, start: Position, bound: Position, *, seal: bool
) -> Decision:
    if limits.allowance is not None and limits.allowance <= 0:
        return Decision(topic, state, Hold(RATE_LIMIT, limits.allowed_at))
    pending = topic.info.sums.object_bytes(start, bound)
    upload = state.open.upload
    if upload is None:
        if not (seal and _fits_single_put(state.open, pending)):
            return Decision(topic, state, Begin(state.open.uuid))
        upload = SINGLE_PUT
        state = replace(state, open=replace(state.open, upload=upload))
    read = Read(state.open, upload, start, bound, seal, pending, state.attempts, limits.allowance)
    return Decision(topic, state, read)


def _fits_single_put(segment: OpenSegment, pending: int) -> bool:
    """Whether a segment with a fixed end is one part by its estimate, and no upload of its range has failed."""
    return segment.lost_uploads == 0 and pending <= SINGLE_PUT_SHARE * segment.cuts.part_size


def enough(segment: OpenSegment | None, rules: TopicRules) -> int:
    """Object bytes that make a slice worth while: a part, or what the segment may still grow by."""
    part = segment.cuts.part_size if segment else rules.cuts.part_size
    return min(part, rules.max_size - (segment.size if segment else 0))


def after_slice(pending: int, seen: int, enough_bytes: int) -> int:
    """The estimate that a topic must reach before it is planned again: what was estimated, plus what was missing."""
    return pending + max(enough_bytes - seen, 1)


def assign_history(
    topic: Topic, state: OpenTopic, limits: DecisionLimits, now: int, new_uuid: Callable[[], str]
) -> tuple[OpenTopic, BorderSearch | None]:
    """Where closed ledgers hold two whole segments or more, those get fixed ends: as many as are read at once, and some
    that wait."""
    search = _search(topic, state, limits)
    if search is None:
        return state, None
    cut = search.cut(topic.times.known)
    state = _assigned_ahead(topic, state, cut.ends, now, new_uuid)
    if not cut.wanted:
        return state, None
    return state, replace(search, most=search.most + limits.fast.at_once)  # so that the next ones are known, too


def _assigned_ahead(
    topic: Topic, state: OpenTopic, ends: Iterable[Position], now: int, new_uuid: Callable[[], str]
) -> OpenTopic:
    """With segments that end at `ends`: the first of these is the open one's, where that has no end yet."""
    for end in ends:
        if state.open.closing_end is None:
            state = segments.closing(state, max(end, state.open.covered or end), RollReason.SIZE)
            continue
        start = behind(state.unfinished[-1].closing_end, topic.ledgers)
        if start is None:
            return state
        if end < start.position:  # the open one came further while times were looked up
            continue
        source = source_of(topic, start.position, end)
        following = fixed(new_uuid(), start, end, source, topic.rules.cuts, now)
        state = replace(state, ahead=(*state.ahead, following))
    return state


def _search(topic: Topic, state: OpenTopic, limits: DecisionLimits) -> BorderSearch | None:
    """For the borders of more segments; None: there are enough, or there is too little history for one."""
    newest, each, at_once = state.unfinished[-1], topic.rules.max_size * AIM, limits.fast.at_once
    unfixed = newest.closing_end is None  # the open one, which gets an end, too
    free = min(
        at_once - sum(unread(segment) for segment in state.unfinished),
        WAITING * at_once - len(state.ahead),
    )
    least = 2 * each if unfixed else each
    slow = topic.learnt.speed.lane is Lane.SLOW
    if free <= 0 or at_once <= 1 or slow or topic.pending(state) + newest.size < least:
        return None
    ends = (topic.last, topic.retire_at, before_next_copy(topic, newest))
    end = end_of_history(topic.ledgers, *(each for each in ends if each is not None))
    # The open one's border does not move while it is read.
    begin = newest.start if newest.closing_end is None else topic.ledgers.successor(newest.closing_end)
    if begin is None or end is None or end < begin:
        return None
    closed, span_ms = ClosedLedgers(topic.info.sums, begin, end), limits.fast.history_span_ms
    return BorderSearch(closed, each, each, free + unfixed, span_ms) if closed.size >= least else None


def before_next_copy(topic: Topic, segment: OpenSegment) -> Position | None:
    """The last entry before the next ledger that is to be copied; None: there is none behind what is read."""
    reached = (segment.covered or segment.start).ledger
    following = min((ledger for ledger in topic.copies if ledger > reached), default=None)
    return None if following is None else topic.ledgers.predecessor(Position(segment.start.incarnation, following, 0))
