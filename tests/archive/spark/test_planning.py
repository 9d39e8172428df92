"""Tasks are of bounded size, have every position once, and can look back over whatever a selection leaves out."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.archive.object_range import ObjectRange, PlanItem
from offloader.archive.reading.plan import plan
from offloader.archive.records import TopicRecords
from offloader.archive.selection import Selection
from offloader.archive.snapshot import TopicSnapshot
from offloader.archive.spark.options import SourceOptions
from offloader.archive.spark.parsing import parse_options
from offloader.archive.spark.planning import (
    LookBackPlan,
    TopicPlan,
    TopicSplit,
    check_losses,
    selection_of,
    task_size,
    tasks,
    topic_plans,
    topic_splits,
)
from offloader.errors import DataLostError
from offloader.model import Position, TopicName
from offloader.storage.settings import StoreSettings
from tests.archive.support import TOPIC, Archive, gap, stream
from tests.format.support import Stored, checksummed

TASKS = 8


def at(ledger: int, entry: int) -> Position:
    return Position(0, ledger, entry)


def timed(ledger: int, first: int, last: int, start: int) -> list[Stored]:
    """Entries whose publish time grows by 1,000 ms each."""
    return [
        Stored(
            ledger,
            entry,
            checksummed(
                MessageMetadata(producer_name="p", sequence_id=entry, publish_time=start + 1000 * (entry - first)),
                f"{ledger}:{entry}".encode().ljust(300, b"x"),
            ),
        )
        for entry in range(first, last + 1)
    ]


def made() -> TopicSnapshot:
    archive = Archive()
    archive.claim()
    archive.add(timed(1, 0, 49, 1_000_000))
    archive.add(timed(1, 50, 79, 2_000_000) + timed(2, 2, 30, 1_010_000), [gap(2, 0, 1)], closed={1: 79})
    archive.add(timed(2, 31, 60, 1_000_000))
    return TopicSnapshot.of(archive.catalog)


VIEW = made()
EVERYTHING = [(1, e) for e in range(80)] + [(2, e) for e in range(61)]


def positions(items: tuple[PlanItem, ...] | list[PlanItem]) -> list[tuple[int, int]]:
    return [(run.ledger, e) for item in items if isinstance(item, ObjectRange) for run in item.runs for e in run.ids]


@given(st.integers(1, 60_000), st.booleans())
def test_every_position_is_in_one_portion(max_bytes: int, look_back: bool) -> None:
    found = topic_splits(TopicPlan.of(VIEW, plan(VIEW), look_back=look_back), max_bytes)

    assert [p for portion in found for p in positions(portion.items)] == EVERYTHING
    largest_part = max(part.size for segment in VIEW.catalog.segments for part in segment.parts)
    assert all(portion.size <= max(max_bytes, largest_part) for portion in found)


def test_one_segment_is_read_by_many_tasks() -> None:
    found = topic_splits(TopicPlan.of(VIEW, plan(VIEW, Selection(at(1, 0), at(1, 49))), look_back=False), 4_000)

    assert len(tasks(found, 4_000)) >= 4


@given(st.sampled_from(EVERYTHING), st.integers(0, 50_000))
def test_looking_back_goes_on_where_a_portion_begins(first: tuple[int, int], max_bytes: int) -> None:
    back = positions(LookBackPlan(plan(VIEW)).before(at(*first), max_bytes))

    number = EVERYTHING.index(first)
    assert back == EVERYTHING[number - len(back) : number]
    enough = sum(len(e.data) for e in timed(1, 0, 0, 0)) * len(back) >= max_bytes
    assert enough or len(back) == number


def test_a_selection_by_time_falls_into_intervals() -> None:
    items = plan(VIEW, Selection(published_from=1_020_000, published_to=1_030_000))
    assert [p for p in EVERYTHING if p in positions(items)] != EVERYTHING

    found = topic_splits(TopicPlan.of(VIEW, items, look_back=True), 10**9)

    assert [p for portion in found for p in positions(portion.items)] == positions(items)
    assert [positions(portion.items)[0][0] for portion in found] == [1, 2, 2, 2]  # one of them is the gap
    for portion in found:
        ours = positions(portion.items)
        begin = EVERYTHING.index(ours[0])
        assert ours == EVERYTHING[begin : begin + len(ours)]
        assert positions(portion.before) == EVERYTHING[:begin]


def test_whatever_a_time_wants_is_read() -> None:
    items = plan(VIEW, Selection(published_from=1_020_000, published_to=1_030_000))
    found = {
        p for portion in topic_splits(TopicPlan.of(VIEW, items, look_back=True), 5000) for p in positions(portion.items)
    }

    wanted_ = {(1, e) for e in range(20, 31)} | {(2, e) for e in range(12, 23)} | {(2, e) for e in range(51, 61)}
    assert wanted_ <= found


def test_small_portions_share_a_task() -> None:
    item = plan(VIEW)[0]
    names = [TopicName("a", "b", str(n)) for n in range(5)]
    size = TopicSplit(TOPIC, (item,)).size

    packed = tasks([TopicSplit(name, (item,)) for name in names], 2 * size)

    assert [[p.topic for p in task] for task in packed] == [names[:2], names[2:4], names[4:]]


def test_portions_can_be_pickled() -> None:
    found = topic_splits(TopicPlan.of(VIEW, plan(VIEW), look_back=True), 5000)

    assert pickle.loads(pickle.dumps(found)) == found


def test_what_the_options_want() -> None:
    options = parse_options({"root": "s3://b", "topics": str(TOPIC), "startingPosition": "2:5", "endingTime": "7"})

    records = TopicRecords(VIEW)
    assert selection_of(records, options) == Selection(at(2, 5), None, None, 7)
    asked = topic_plans(records, selection_of(records, SourceOptions(StoreSettings("s3://b"))))
    assert [item for planned in asked for item in planned.items] == plan(VIEW)


def test_losses_are_refused() -> None:
    archive = Archive()
    archive.claim()
    archive.add(stream(1, 0, 9), [gap(1, 10, 12)])
    view = TopicSnapshot.of(archive.catalog)
    check_losses(TOPIC, plan(view))
    archive.lose(at(1, 13), at(1, 20))

    with pytest.raises(DataLostError, match=r"1:13\.\.1:20 is not in the archive .*failOnDataLoss=false"):
        check_losses(TOPIC, plan(TopicSnapshot.of(archive.catalog)))


def test_stored_bytes() -> None:
    assert TopicRecords(VIEW).stored_bytes == sum(segment.size for segment in VIEW.catalog.segments)


@given(st.integers(0, 1 << 44), st.integers(1, 1 << 34))
def test_no_task_is_larger_than_asked_and_there_are_hardly_more_than_needed(size: int, most: int) -> None:
    each = task_size(size, most)
    assert 1 <= each <= most
    assert -(-size // each) <= -(-size // most) + TASKS


@pytest.mark.parametrize(
    ("mib", "count"), [(1, 1), (16, 1), (40, 2), (128, 8), (1_000, 8), (1_024, 8), (1_025, 16), (10_000, 80)]
)
def test_how_many_tasks_the_default_size_makes(mib: int, count: int) -> None:
    assert -(-(mib << 20) // task_size(mib << 20, 128 << 20)) == count
