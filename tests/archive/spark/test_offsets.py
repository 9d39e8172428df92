"""A stream reads everything once: whatever the budget, steps follow on and end where the archive ends."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.archive.items import Missing
from offloader.archive.object_range import PlanItem
from offloader.archive.records import TopicRecords
from offloader.archive.selection import Selection
from offloader.archive.snapshot import TopicSnapshot
from offloader.archive.spark import stream as stream_module
from offloader.archive.spark.stream import (
    Step,
    advance,
    before,
    check_not_removed,
    decode_offset,
    encode_offset,
    items_between,
    last_served,
    step_size,
    steps,
)
from offloader.errors import DataLostError, FormatVersionError
from offloader.metadata.state import TopicCatalog
from offloader.model import GapKind, Position, TopicName
from tests.archive.support import Archive, gap, stream

A, B, C = (TopicName.parse(f"public/default/{name}") for name in "abc")
ALL = Selection()


def at(ledger: int, entry: int) -> Position:
    return Position(0, ledger, entry)


def archive() -> Archive:
    """Three segments, a gap, a loss, and an end of a ledger that nothing proves."""
    made = Archive()
    made.claim()
    made.add(stream(1, 0, 39))
    made.add(stream(1, 40, 59) + stream(2, 2, 30), [gap(2, 0, 1)], closed={1: 59})
    made.lose(at(2, 31), at(2, 40))
    made.add(stream(2, 41, 60))
    made.add(stream(4, 0, 20))
    return made


@pytest.fixture(scope="module")
def view() -> TopicSnapshot:
    return TopicSnapshot.of(archive().catalog)


def test_offsets_as_json() -> None:
    ends = {B: Position(2, 3, 4), A: Position(0, 1, -1)}

    text = json.dumps(encode_offset(ends))

    places = '"persistent://public/default/a": "0:1:-1", "persistent://public/default/b": "2:3:4"}'
    assert text == '{"version": "1", ' + places
    assert decode_offset(json.loads(text)) == ends
    assert decode_offset(json.loads("{" + places)) == ends, "of a build before the first release"


def test_offsets_of_a_newer_version_are_refused() -> None:
    with pytest.raises(FormatVersionError, match="offsets of version 2, this version reads 1: run a newer one"):
        decode_offset({**encode_offset({A: Position(0, 1, 2)}), "version": "2"})


def accounted(items: list[PlanItem]) -> set[tuple[int, int]]:
    """Ledger and entry of everything that the items account for."""
    found: set[tuple[int, int]] = set()
    for item in items:
        if isinstance(item, Missing):
            if item.start.ledger == item.end.ledger:
                found |= {(item.start.ledger, e) for e in range(item.start.entry, item.end.entry + 1)}
        else:
            for run in item.runs:
                found |= {(run.ledger, e) for e in run.ids}
    return found


EVERYTHING = {(1, e) for e in range(60)} | {(2, e) for e in range(61)} | {(4, e) for e in range(21)}


@given(st.integers(1, 9000), st.integers(1, 9000))
def test_every_position_comes_once(budget: int, step: int) -> None:
    view = _VIEW
    after: Position | None = None
    seen: list[tuple[int, int]] = []
    breaks = 0
    while (taken := advance({}, {A: steps(view, after, ALL, step, budget)}, budget, None)) != {}:
        items = items_between(view, after, ALL, taken[A])
        seen += sorted(accounted(items))
        breaks += sum(isinstance(i, Missing) and i.kind is None and i.start.ledger != i.end.ledger for i in items)
        assert after is None or taken[A] > after
        after = taken[A]

    assert seen == sorted(EVERYTHING)
    assert breaks >= 1
    assert after == TopicRecords(view).last_position == at(4, 20)


_VIEW = TopicSnapshot.of(archive().catalog)


def test_nothing_new_is_nothing_pending(view: TopicSnapshot) -> None:
    assert steps(view, at(4, 20), ALL, 1000, None) == []
    assert steps(TopicSnapshot.of(TopicCatalog.empty(A)), None, ALL, 1000, None) == []


def test_what_no_time_wants_is_done_with(view: TopicSnapshot) -> None:
    found = steps(view, None, Selection(published_to=5), 1000, None)

    assert found[-1].end == at(4, 20)
    assert sum(step.size for step in found) == 0


def test_what_is_not_proven_is_told_also_where_a_batch_ends_there(view: TopicSnapshot) -> None:
    items = items_between(view, at(2, 60), ALL)

    assert isinstance(items[0], Missing)
    assert "unproven" in items[0].why


def test_a_gap_is_not_cut_off(view: TopicSnapshot) -> None:
    (piece,) = items_between(view, at(1, 59), ALL, at(2, 1))

    assert not isinstance(piece, Missing)
    assert [run.gap for run in piece.runs] == [GapKind.ABORTED]


def test_start_at_a_position(view: TopicSnapshot) -> None:
    previous = before(view, at(1, 0))
    assert previous is None or previous < at(1, 0)
    assert before(view, at(1, 7)) == at(1, 6)
    assert before(view, at(3, 0)) == at(2, 60)
    assert before(view, at(9, 0)) == at(4, 20)


def test_what_was_read_last_is_gone() -> None:
    made = archive()
    catalog = made.catalog
    rest = TopicSnapshot.of(replace(catalog, segments=catalog.segments[2:]))

    check_not_removed(TopicSnapshot.of(catalog), at(1, 39))
    check_not_removed(rest, at(2, 35))
    with pytest.raises(DataLostError, match="does not hold 1:39 any more"):
        check_not_removed(rest, at(1, 39))


def test_first_segment_removed_after_it_was_read() -> None:
    catalog = archive().catalog
    rest = TopicSnapshot.of(replace(catalog, segments=catalog.segments[1:]))

    check_not_removed(rest, at(1, 39))


def test_budget_is_shared() -> None:
    pending = {topic: [Step(at(1, e), 10) for e in range(20)] for topic in (A, B, C)}

    assert advance({}, pending, 60, None) == {A: at(1, 1), B: at(1, 1), C: at(1, 1)}
    assert advance({}, pending, None, None) == {A: at(1, 19), B: at(1, 19), C: at(1, 19)}


def test_whoever_is_left_out_comes_first_next_time() -> None:
    pending = {topic: [Step(at(1, e), 10) for e in range(20)] for topic in (A, B, C)}
    ends: dict[TopicName, Position] = {}
    turn = None
    served = []
    for _ in range(6):
        following = advance(ends, pending, 10, turn)
        turn = last_served(ends, following, turn)
        served.append(turn)
        ends = following
        pending = {t: [s for s in found if t not in ends or s.end > ends[t]] for t, found in pending.items()}

    assert served == [A, B, C, A, B, C]


def test_a_step_larger_than_the_budget_is_taken_alone() -> None:
    assert advance({}, {A: [Step(at(1, 1), 100)], B: [Step(at(1, 1), 1)]}, 10, None) == {A: at(1, 1)}


@pytest.mark.parametrize(("budget", "topics", "size"), [(None, 5, 64), (1000, 10, 64), (100, 10, 16), (100, 5, 20)])
def test_steps_are_as_large_as_each_topics_share(
    budget: int | None, topics: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "SMALLEST_STEP", 16)

    assert step_size(budget, topics, 64) == size
