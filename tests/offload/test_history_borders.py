"""Borders that become known late: whatever the open segment has read meanwhile, those ahead begin where it ends."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from offloader.errors import IntegrityError
from offloader.metadata.state import AssignedAhead, CatalogHead, Claim, NewestSegment, OpenTopic, TopicState
from offloader.model import (
    Ending,
    EntryStats,
    LedgerList,
    LedgerRange,
    LedgerSpan,
    Loss,
    OpenSegment,
    Part,
    Position,
    SegmentLayout,
    TopicName,
)
from offloader.offload.core import evidence
from offloader.offload.core.decisions import DecisionLimits
from offloader.offload.core.facets import PublishTimes, TopicRules
from offloader.offload.core.lanes import LaneLimits
from offloader.offload.core.planner import decide
from offloader.offload.driver import reconciling
from tests.offload.topics import known_topic

MIB = 1 << 20
T = TopicName.parse("public/default/t")
LEDGERS = LedgerList((LedgerSpan(5, 999), LedgerSpan(6, None)))


def part(first: int, after: int) -> Part:
    """Of entries of a MiB each."""
    size = (after - first) * MIB
    held = LedgerRange(5, first, after, count=after - first, size=size)
    return Part(1, 0, size, "etag", 0, 1, (held,), 1, EntryStats())


def assigned_late() -> OpenTopic:
    """The open segment has 200 entries, when it is known that a border is to be after every 47th or so."""
    numbers = itertools.count()
    topic = known_topic(
        TopicRules(max_size=400 * MIB, roll_ms=10**9, cuts=SegmentLayout()),
        CatalogHead(T, claim=Claim("a", 0, 1, Position(0, 5, 0), 0), begin=Position(0, 5, 0)),
        LEDGERS,
        Position(0, 5, 999),
        {5: (1000, 1000 * MIB), 6: (0, 0)},
    )
    fast = LaneLimits(tasks=8, threads=1, byte_budget=10**9, history_span_ms=1000)
    limits = DecisionLimits(fast, fast)
    first = decide(topic, TopicState(T), limits, 0, lambda: f"u{next(numbers)}")
    assert isinstance(first.state, OpenTopic)
    assert first.search is not None
    read = replace(first.state, open=replace(first.state.open, upload="up", parts=(part(0, 200),)))
    times: dict[Position, int | None] = {}
    while wanted := first.search.cut(times).wanted:
        times |= {p: 20 * p.entry for p in wanted}
    assert [end for end in first.search.cut(times).ends if end.entry < 200]
    topic.times = PublishTimes(times)
    state = decide(topic, read, limits, 1, lambda: f"u{next(numbers)}").state
    assert isinstance(state, OpenTopic)
    return state


def test_borders_that_the_open_segment_has_passed_are_none() -> None:
    state = assigned_late()
    assert state.open.closing_end == Position(0, 5, 199)
    assert len(state.ahead) > 2
    for before, after in itertools.pairwise(state.unfinished):
        assert before.closing_end is not None
        assert after.closing_end is not None
        assert after.start == LEDGERS.successor(before.closing_end)
        assert after.start <= after.closing_end


def committed() -> CatalogHead:
    """The open segment, by itself."""
    begin, end = Position(0, 5, 0), Position(0, 5, 199)
    return CatalogHead(
        T,
        claim=Claim("a", 0, 1, begin, 0),
        begin=begin,
        end=end,
        last=Ending("u0", end),
        newest=NewestSegment("u0", begin, end, 1, 1),
    )


def uploaded(segment: OpenSegment) -> OpenSegment:
    end = segment.closing_end
    assert end is not None
    parts = (part(segment.start.entry, end.entry + 1),) if segment.start <= end else ()
    return replace(segment, upload="x" + segment.uuid, parts=parts)


def overlapping() -> TopicState:
    """As an older version assigned them: one inverted, and others that begin within what the open one has."""
    state = assigned_late()
    model = state.ahead[0].segment

    def ahead(uuid: str, first: int, last: int) -> AssignedAhead:
        between = replace(model, uuid=uuid, start=Position(0, 5, first), closing_end=Position(0, 5, last))
        return AssignedAhead(uploaded(between))

    bad = (ahead("v1", 200, 93), ahead("v2", 94, 140), ahead("v3", 141, 187), ahead("v4", 188, 234))
    return replace(state, ahead=(*bad, ahead("v5", 235, 281), ahead("v6", 282, 328))).closed()


def ending(state: TopicState) -> tuple[TopicState, object]:
    """What becomes of it when the topic is deleted: what is opened, and what is recorded as lost before that."""
    topic = cast("Any", SimpleNamespace(name=T, catalog=committed(), info=SimpleNamespace(ledgers=LedgerList(()))))
    context = cast("Any", SimpleNamespace(new_uuid=lambda: "new"))
    after = reconciling._next_to_end(topic, state, "deleted", 5, context)
    return after, reconciling._lost_between(topic, after, "deleted", 5)


def test_what_is_uploaded_ahead_outlives_its_topic() -> None:
    state = assigned_late()
    state = replace(state, ahead=tuple(replace(each, segment=uploaded(each.segment)) for each in state.ahead))
    after, _ = ending(state.closed())
    assert after.open is not None
    assert (after.open.uuid, after.open.start) == (state.ahead[0].segment.uuid, Position(0, 5, 200))


def test_also_behind_segments_that_an_older_version_assigned_wrongly() -> None:
    after, loss = ending(overlapping())
    assert [each.segment.uuid for each in after.ahead] == ["v5", "v6"]
    assert {each.uuid for each in after.abandoned} >= {"v1", "v2", "v3", "v4"}
    assert loss is not None
    assert (cast("Any", loss).start, cast("Any", loss).end) == (Position(0, 5, 200), Position(0, 5, 234))


def test_where_the_list_is_gone_only_what_no_upload_has_counts_as_lost() -> None:
    trimmed = LedgerList((LedgerSpan(9, None),))
    state = overlapping()
    state = replace(state, ahead=state.ahead[1:])
    lost = evidence.lost(state, committed(), trimmed, Position(0, 9, 3))
    assert lost is not None
    assert (lost.first, lost.last) == (Position(0, 5, 200), Position(0, 5, 234))


def test_nothing_is_lost_between_the_end_of_a_loss_and_what_is_uploaded_right_behind_it() -> None:
    """The first one ahead was assigned before the loss, and nothing of it is uploaded."""
    state = assigned_late()
    before, saved = state.ahead[0], state.ahead[2]
    stale = replace(before, segment=replace(before.segment, parts=()))
    saved = replace(saved, segment=uploaded(saved.segment))
    end = saved.segment.start.previous_entry
    catalog = replace(committed(), end=end)
    closed = replace(state.closed(), ahead=(stale, saved), lost_after=end)
    assert evidence.lost(closed, catalog, LedgerList((LedgerSpan(9, None),)), Position(0, 9, 3)) is None


def test_a_record_that_contains_no_position_is_refused() -> None:
    loss = Loss(Position(0, 5, 200), Position(0, 5, 199), "trimmed", "an operator", 5)
    with pytest.raises(IntegrityError, match="contains no position"):
        committed().check_follows(loss)
