"""What plans say of records that do not follow on, and of positions that are archived in two ways."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from offloader.archive.items import Missing
from offloader.archive.object_range import ObjectRange
from offloader.archive.reading.overlaps import located
from offloader.archive.reading.plan import plan, split, until
from offloader.archive.selection import Selection
from offloader.archive.snapshot import OffloadedLedger, TopicSnapshot
from offloader.errors import DamagedRecordError
from offloader.metadata.state import TopicCatalog
from offloader.model import LedgerList, LedgerSpan, Position
from tests.archive.reading.support import Topic, positions, topics
from tests.archive.support import TOPIC, Archive, gap, run, stream, uuid_of

LEDGER_STEP = 8 * 1024**2


def ledger(number: int, last: int, size: int = 1_000, incarnation: int = 0) -> OffloadedLedger:
    return OffloadedLedger(
        Position(incarnation, number, 0), Position(incarnation, number, last), uuid_of(number), size, "s3://stock"
    )


def of_ledgers(*ledgers: OffloadedLedger, listed: bool = True) -> TopicSnapshot:
    return TopicSnapshot(TOPIC, TopicCatalog.empty(TOPIC), ledgers, list_of(*ledgers) if listed else None)


def list_of(*ledgers: OffloadedLedger) -> LedgerList:
    return LedgerList(tuple(LedgerSpan(held.start.ledger, held.end.entry) for held in ledgers))


def pieces(view: TopicSnapshot, selection: Selection = Selection()) -> list[ObjectRange]:  # noqa: B008 (frozen)
    return [item for item in plan(view, selection) if isinstance(item, ObjectRange)]


def test_a_ledger_of_brokers_is_one_piece_under_the_keys_that_they_give() -> None:
    (piece,) = pieces(of_ledgers(ledger(5, 9)))
    assert piece.runs == (run(5, 0, 9),)
    assert (piece.object.data_key, piece.object.index_key) == (f"{uuid_of(5)}-ledger-5", f"{uuid_of(5)}-ledger-5-index")
    assert (piece.object.store, piece.object.ledger, piece.ends_object) == ("s3://stock", 5, True)
    assert piece.size >= 1_000


def test_a_ledger_is_cut_at_equal_estimates() -> None:
    (piece,) = pieces(of_ledgers(ledger(5, 999_999, size=1_000_000_000)))
    tasks = split([piece], 100_000_000)
    assert 11 <= len(tasks) <= 14
    assert all(task[0].size <= 100_000_000 for task in tasks if isinstance(task[0], ObjectRange))
    assert max(cut.size for cut in piece.split_points) <= LEDGER_STEP + 2_000


@given(topics(), positions())
def test_what_was_planned_can_be_cut_anywhere(built: Topic, end: Position | None) -> None:
    """As if it had been planned to there."""
    end = end or Position(9, 0, 0)
    expected = pieces(built.view, Selection(end=end))
    found = list(until(plan(built.view), end))
    assert [(piece.object, piece.runs) for piece in found] == [(piece.object, piece.runs) for piece in expected]
    for piece, other in zip(found, expected, strict=True):
        assert [cut[:2] for cut in piece.split_points] == [cut[:2] for cut in other.split_points]
        assert [cut[3:] for cut in piece.split_points] == [cut[3:] for cut in other.split_points]
        assert 0 <= piece.size - other.size <= 2  # an estimate is rounded
        assert piece.ends_object == (other.ends_object and piece.end == other.end)


def test_segments_are_preferred_to_the_same_positions_of_a_ledger() -> None:
    archive = Archive()
    archive.claim(5, 4)
    archive.add(stream(5, 4, 6), closed={5: 9})
    archive.add(stream(5, 7, 9) + stream(6, 0, 2), [gap(6, 3, 3)], closed={5: 9})
    held = (ledger(5, 9), ledger(6, 7))
    view = TopicSnapshot(TOPIC, archive.catalog, held, list_of(*held))
    found = pieces(view)
    assert [p.runs for p in found] == [
        (run(5, 0, 3),),
        (run(5, 4, 6),),
        (run(5, 7, 9), run(6, 0, 2), gap_run(6, 3, 3)),
        (run(6, 4, 7),),
    ]
    assert [p.ends_object for p in found] == [False, True, True, True]


def gap_run(number: int, first: int, last: int):
    return replace(run(number, first, last), gap=gap(number, first, last).kind)


def test_what_a_ledger_has_is_not_lost() -> None:
    archive = Archive()
    archive.claim()
    archive.add(stream(1, 0, 4))
    archive.lose(Position(0, 1, 5), Position(0, 4, -1))
    archive.add(stream(4, 0, 2))
    items = plan(TopicSnapshot(TOPIC, archive.catalog, (ledger(2, 9),)))
    assert [(i.start, i.end) for i in items] == [
        (Position(0, 1, 0), Position(0, 1, 4)),
        (Position(0, 1, 5), Position(0, 2, -1)),
        (Position(0, 2, 0), Position(0, 2, 9)),
        (Position(0, 2, 10), Position(0, 4, -1)),
        (Position(0, 4, 0), Position(0, 4, 2)),
    ]


def test_a_ledger_proves_where_it_ended() -> None:
    archive = Archive()
    archive.claim(6, 0)
    archive.add(stream(6, 0, 2))
    assert len(plan(TopicSnapshot(TOPIC, archive.catalog, (ledger(5, 9),), list_of(ledger(5, 9), ledger(6, 2))))) == 2
    later = Archive()
    later.claim(6, 2)
    later.add(stream(6, 2, 4))
    with pytest.raises(DamagedRecordError, match=r"hole: 6:0\.\.1 is in no segment"):
        plan(TopicSnapshot(TOPIC, later.catalog, (ledger(5, 9),)))


def test_without_a_list_of_ledgers_nothing_is_proven_between_two() -> None:
    first, told, second = plan(of_ledgers(ledger(5, 9), ledger(8, 3), listed=False))
    assert isinstance(told, Missing)
    assert "no ledger is missing between 5 and 8" in told.why
    assert (told.start, told.end) == (Position(0, 5, 9), Position(0, 8, 0))
    assert isinstance(first, ObjectRange)
    assert isinstance(second, ObjectRange)


def test_two_objects_of_one_ledger_are_an_overlap() -> None:
    with pytest.raises(DamagedRecordError, match="overlap"):
        plan(of_ledgers(ledger(5, 9), ledger(5, 9)))


def test_a_hole_outside_of_what_is_selected_does_not_matter() -> None:
    archive = Archive()
    archive.claim()
    archive.add(stream(1, 0, 4))
    archive.add(stream(1, 6, 9))
    view = TopicSnapshot.of(archive.catalog)
    assert len(pieces(view, Selection(end=Position(0, 1, 5)))) == 1
    assert len(pieces(view, Selection(start=Position(0, 1, 5)))) == 1
    with pytest.raises(DamagedRecordError, match="hole"):
        plan(view, Selection(Position(0, 1, 4), Position(0, 1, 6)))


def test_a_segment_whose_parts_do_not_have_its_entries() -> None:
    archive = Archive()
    archive.claim()
    segment = archive.add(stream(1, 0, 4))
    broken = replace(segment, parts=())
    with pytest.raises(DamagedRecordError, match=f"segment {segment.uuid}: 1:0 is in none of its parts"):
        plan(TopicSnapshot.of(replace(archive.catalog, segments=(broken,))))


def test_a_segment_of_gaps_alone_is_told_of_and_not_read() -> None:
    archive = Archive()
    archive.claim()
    archive.add([], [gap(1, 0, 4)])
    (piece,) = pieces(TopicSnapshot.of(archive.catalog))
    assert (piece.size, piece.split_points, piece.runs) == (0, (), (gap_run(1, 0, 4),))


def test_positions_are_of_the_incarnation_that_had_their_ledger() -> None:
    archive = Archive()
    archive.claim()
    archive.add(stream(3, 0, 4))
    archive.incarnation = 1
    archive.claim(created=2)
    archive.add(stream(7, 0, 4))
    view = TopicSnapshot.of(archive.catalog)
    expected = {0: 0, 3: 0, 4: 1, 7: 1, 9: 1}
    assert {n: located(view, Position(0, n, 2)).incarnation for n in expected} == expected
    assert located(of_ledgers(), Position(3, 1, 2)) == Position(3, 1, 2)


def without(archive: Archive, *numbers: int) -> TopicSnapshot:
    """As if some records had never been."""
    catalog = archive.catalog
    return TopicSnapshot.of(
        replace(catalog, segments=tuple(s for i, s in enumerate(catalog.segments) if i not in numbers))
    )


def test_a_segment_whose_predecessor_is_not_recorded_does_not_follow_on() -> None:
    archive = Archive()
    archive.claim(10)
    for number in (10, 12, 14):
        archive.add(stream(number, 0, 9), closed={number: 9})
    for missing in (0, 1):
        with pytest.raises(DamagedRecordError, match=rf"hole: .* up to 1{missing * 2}:9, which is not recorded"):
            plan(without(archive, missing))
    # What is asked for is read where that is proven.
    assert len(plan(without(archive, 0), Selection(start=Position(0, 12, 0)))) == 2
    assert len(plan(without(archive, 2))) == 2


def test_what_is_claimed_and_not_recorded_is_a_hole_unless_nothing_may_have_been_there() -> None:
    archive = Archive()
    archive.claim(5, 4)
    archive.add(stream(5, 6, 9), closed={5: 9})
    with pytest.raises(DamagedRecordError, match=r"5:4\.\.5 is in no record: what was claimed begins there"):
        plan(TopicSnapshot.of(archive.catalog))
    later = Archive()
    later.claim(5, 4)
    later.add(stream(7, 0, 9))
    assert len(plan(TopicSnapshot.of(later.catalog))) == 1
    later.incarnation = 1
    later.claim(20, 3, created=2)
    later.add(stream(20, 4, 9))
    with pytest.raises(DamagedRecordError, match=r"20:3\.\.3 is in no record"):
        plan(TopicSnapshot.of(later.catalog))
