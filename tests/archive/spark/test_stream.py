"""A stream gives every row once, across batches, restarts and topics that join, in batches of bounded size."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

from offloader.archive.spark.data_source import PulsarArchiveSource
from offloader.archive.spark.stream import ArchiveStreamReader
from offloader.archive.spark.task import ReadTask
from offloader.errors import ConfigError, DataLostError
from offloader.metadata.catalog_codec import decode_catalog
from offloader.metadata.layout import catalog_folder
from offloader.model import Position, Segment, TopicName
from offloader.storage.settings import StoreSettings
from tests.archive.spark.world import Row, World, ordered, row_of, standard


@dataclass
class Clock:
    """Time that passes only while somebody waits."""

    now: float = 100.0
    waited: list[float] = field(default_factory=list)

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.now += seconds


@dataclass
class Query:
    """What Spark does with a stream reader; offsets go through JSON."""

    world: World
    options: dict[str, str] = field(default_factory=dict)
    offset: dict[str, str] | None = None
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """In another process."""
        made = source(self.world, **self.options)
        found = made.streamReader(made.schema())
        assert isinstance(found, ArchiveStreamReader)
        self._copy = pickle.loads(pickle.dumps(found))
        self.reader = ArchiveStreamReader(found._options, found._schema, lambda: self.clock.now, self.clock.wait)
        if self.offset is None:
            self.offset = through_json(self.reader.initialOffset())

    def batch(self) -> list[Row] | None:
        """One batch's rows; None: there is nothing new."""
        assert self.offset is not None
        limit = self.reader.getDefaultReadLimit()
        end = through_json(self.reader.latestOffset(self.offset, limit))
        if end == self.offset:
            return None
        tasks = self.reader.partitions(self.offset, end)
        rows = [
            row_of(row)
            for task in tasks
            for found in self._copy.read(pickle.loads(pickle.dumps(task)))
            for row in found.to_pylist()
        ]
        self.offset = end
        return rows

    def rest(self) -> list[Row]:
        found: list[Row] = []
        while (rows := self.batch()) is not None:
            found += rows
        return found


def through_json(offset: dict[str, str]) -> dict[str, str]:
    found = json.loads(json.dumps(offset))
    assert isinstance(found, dict)
    return found


def source(world: World, **options: str) -> PulsarArchiveSource:
    selection = {} if {"topics", "topicsPattern"} & options.keys() else {"namespace": "public/default"}
    return PulsarArchiveSource({"root": world.root, "pollInterval": "2s", **selection, **options})


@pytest.fixture
def world(tmp_path: Path) -> World:
    return standard(StoreSettings(f"file://{tmp_path}"))


def test_everything_then_what_is_new(world: World) -> None:
    query = Query(world)

    assert ordered(query.rest()) == world.rows()
    before = len(world.rows(["public/default/users"]))
    world.topics["public/default/users"].segment(20, 180, 30)
    assert ordered(query.rest()) == world.rows(["public/default/users"])[before:]


@pytest.mark.parametrize("budget", ["1", "50K", "200K", "1G"])
def test_each_row_once_whatever_the_budget(world: World, budget: str) -> None:
    query = Query(world, {"maxBytesPerTrigger": budget, "maxPartitionBytes": "64K"})
    found: list[Row] = []
    batches = 0
    while (rows := query.batch()) is not None:
        found += rows
        batches += 1
        query.restart()

    assert ordered(found) == world.rows()
    assert batches >= world.stored // max(int(budget.replace("K", "000").replace("G", "000000000")), 70_000)


def test_a_budget_bounds_each_batch(world: World) -> None:
    query = Query(world, {"maxBytesPerTrigger": "200K", "maxPartitionBytes": "64K"})
    assert query.offset is not None
    end = query.reader.latestOffset(query.offset, query.reader.getDefaultReadLimit())

    tasks = [task for task in query.reader.partitions(query.offset, end) if isinstance(task, ReadTask)]
    assert sum(portion.size for task in tasks for portion in task.splits) <= 200 * 1024
    assert query.reader.latestOffset(query.offset, ReadAllAvailable()) == query.reader.reportLatestOffset()
    assert query.reader.getDefaultReadLimit() == ReadMaxBytes(200 * 1024)


def test_a_batch_is_the_same_when_it_is_planned_again(world: World) -> None:
    query = Query(world, {"maxBytesPerTrigger": "100K"})
    start = query.offset
    assert start is not None
    end = query.reader.latestOffset(start, ReadMaxBytes(100_000))

    def plan() -> list[tuple[str, int, bytes]]:
        return [
            (t.plan_id, t.number, pickle.dumps(t.splits))
            for t in query.reader.partitions(start, end)
            if isinstance(t, ReadTask)
        ]

    first = plan()
    world.topics["public/default/users"].segment(20, 180, 30)
    query.restart()
    assert [(name, number) for name, number, _ in plan()] == [(name, number) for name, number, _ in first]
    assert [pickle.loads(p) for _, _, p in plan()] == [pickle.loads(p) for _, _, p in first]
    assert query.reader.partitions(end, end) == []


def test_new_topics_join(world: World) -> None:
    query = Query(world, {"topicsPattern": ".*/(users|late)", "startingOffsets": "latest"})
    assert query.rest() == []

    world.topic("public/default/late").segment(30, 0, 30)

    assert query.rest() == world.rows(["public/default/late"])


def test_start_at_the_end(world: World) -> None:
    query = Query(world, {"startingOffsets": "latest"})
    before = len(world.rows(["public/default/users"]))
    world.topics["public/default/users"].segment(20, 180, 30)

    assert query.rest() == world.rows(["public/default/users"])[before:]


def test_start_at_a_position(world: World) -> None:
    query = Query(world, {"topics": "orders", "startingPosition": "10:590"})

    assert query.rest() == [r for r in world.rows(["public/default/orders"]) if (r.ledger, r.entry) >= (10, 590)]


def test_start_at_positions_of_topics_that_are_not_read(world: World) -> None:
    with pytest.raises(ConfigError, match=r"startingPosition: .*/ordres is not among the topics"):
        Query(world, {"startingPosition": '{"ordres": "10:590"}', "waitingForNonExistedTopic": "true"})


def test_start_at_a_time(world: World) -> None:
    start = world.rows()[-100].published
    query = Query(world, {"startingTime": str(start), "maxBytesPerTrigger": "50K"})

    assert ordered(query.rest()) == [r for r in world.rows() if r.published >= start]


def test_while_nothing_is_new_catalogs_are_looked_at_every_poll_interval(world: World) -> None:
    query = Query(world, {"startingOffsets": "latest"})
    assert query.batch() is None
    query.clock.now += 0.5
    assert query.batch() is None
    query.clock.now += 100
    assert query.batch() is None

    assert query.clock.waited == [2.0, 1.5, 0.0]


def test_available_now_ends(world: World) -> None:
    query = Query(world, {"maxBytesPerTrigger": "100K"})
    expected = world.rows()
    query.reader.prepareForTriggerAvailableNow()
    world.topics["public/default/users"].segment(20, 180, 30)

    assert ordered(query.rest()) == expected
    assert query.clock.waited == []
    query.restart()
    query.reader.prepareForTriggerAvailableNow()
    assert len(query.rest()) == len(world.rows()) - len(expected)


def test_topics_that_are_not_there_yet(world: World) -> None:
    with pytest.raises(ConfigError, match=r"topics: .*/late is not in the archive"):
        Query(world, {"topics": "late"})
    query = Query(world, {"topics": "late", "waitingForNonExistedTopic": "true"})
    assert query.batch() is None
    world.topic("public/default/late").segment(30, 0, 30)

    assert query.rest() == world.rows(["public/default/late"])


def test_losses(world: World) -> None:
    orders = world.topics["public/default/orders"]
    orders.archive.lose(Position(0, 11, 150), Position(0, 11, 164))
    orders.segment(11, 165, 10)

    with pytest.raises(DataLostError, match=r"11:150\.\.11:164"):
        Query(world).rest()
    assert ordered(Query(world, {"failOnDataLoss": "false"}).rest()) == world.rows()


def test_an_archive_that_ends_before_what_was_planned_is_told_of(world: World, tmp_path: Path) -> None:
    query = Query(world, {"topics": "orders"})
    assert query.offset is not None
    start, end = query.offset, through_json(query.reader.latestOffset(query.offset, ReadAllAvailable()))
    last = max((tmp_path / catalog_folder(TopicName.parse("orders"))).iterdir())
    while not isinstance(decode_catalog("x", last.read_bytes()), Segment):
        last.unlink()
        last = max(last.parent.iterdir())
    last.unlink()
    query.restart()
    with pytest.raises(DataLostError, match=r"it reached up to \d+:\d+, and the archive ends with \d+:\d+ now"):
        query.reader.partitions(start, end)
    query.offset = end
    with pytest.raises(DataLostError, match="records of its catalog are gone"):
        query.batch()
    query = Query(world, {"topics": "orders", "failOnDataLoss": "false"}, end)
    assert query.batch() is None


def test_a_checkpoint_of_other_topics(world: World) -> None:
    query = Query(world, {"topics": "orders"}, {"persistent://public/default/users": "0:20:5"})
    end = {"persistent://public/default/users": "0:20:9"}

    with pytest.raises(ConfigError, match="use another checkpoint"):
        query.reader.partitions(query.offset or {}, end)


@pytest.mark.parametrize("option", ["endingTime", "endingPosition", "ledgers", "pushFilters"])
def test_what_only_a_batch_read_can_do(world: World, option: str) -> None:
    value = {"endingTime": "5", "endingPosition": "1:1", "ledgers": "s3://b", "pushFilters": "true"}[option]
    made = source(world, topics="orders", **{option: value})

    with pytest.raises(ConfigError, match=f"{option}: not for a stream"):
        made.streamReader(made.schema())
