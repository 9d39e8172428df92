"""Spark and what was deleted: who asks for no begin starts with what is there; who asks for what went is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from offloader.archive.spark.batch import ArchiveReader
from offloader.errors import DataLostError
from offloader.lifecycle.retention.phases import ArchiveDeletion
from offloader.lifecycle.retention.policy import RetentionPolicy
from offloader.lifecycle.retention.retention import ArchiveRetention
from offloader.metadata.catalog import Catalogs
from offloader.metadata.deletions import range_of
from offloader.model import TopicName
from offloader.storage.settings import StoreSettings
from tests.archive.spark.test_stream import Query, source
from tests.archive.spark.world import Row, World, ordered, row_of, standard
from tests.archive.support import APPLICATION

NAME = "public/default/users"
TOPIC = TopicName.parse(NAME)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return standard(StoreSettings(f"file://{tmp_path}"))


def delete(world: World, *, done: bool = True) -> list[Row]:
    """All that may go of a topic; the rows that are left."""
    store = world.topics[NAME].archive.store
    catalogs = Catalogs(store, APPLICATION)
    deletion = ArchiveDeletion(store, catalogs, catalogs.append, lambda: None, lambda: 10**13, "c", APPLICATION)
    retention = ArchiveRetention(deletion, lambda _: RetentionPolicy(), lambda _: None, grace_ms=0)
    retention.delete(TOPIC, "test")
    if done:
        assert "is done" in retention.visit(TOPIC)
    told = catalogs.head(TOPIC).removed.told
    gone = [s for s in catalogs.load(TOPIC).segments if range_of(told, s.end)]
    assert gone
    end = gone[-1].end.place
    return [row for row in world.rows([NAME]) if (row.ledger, row.entry) > end]


def read(world: World, **options: str) -> list[Row]:
    made = source(world, topics=NAME, **options)
    reader = made.reader(made.schema())
    assert isinstance(reader, ArchiveReader)
    return [row_of(row) for task in reader.partitions() for found in reader.read(task) for row in found.to_pylist()]


@pytest.mark.parametrize("done", [False, True])
def test_a_query_without_a_begin_has_what_is_there_and_one_that_asks_for_more_is_told(
    world: World, *, done: bool
) -> None:
    left = delete(world, done=done)
    assert ordered(read(world)) == ordered(left)
    first = world.rows([NAME])[0]
    begin = {"startingPosition": f"{first.ledger}:{first.entry}"}
    with pytest.raises(DataLostError, match="deleted by request of test on"):
        read(world, **begin)
    assert ordered(read(world, **begin, failOnDataLoss="false")) == ordered(left)
    with pytest.raises(DataLostError, match="deleted by request of test on"):
        read(world, startingTime=str(first.published))
    assert len(left) < len(world.rows([NAME]))


def test_times_behind_what_went_are_not_concerned(world: World) -> None:
    left = delete(world)
    since = max(row.published for row in world.rows([NAME]) if row not in left) + 1
    assert ordered(read(world, startingTime=str(since))) == ordered(r for r in left if r.published >= since)


@pytest.mark.parametrize("fails", [True, False])
def test_a_running_job_reads_or_is_told(world: World, caplog: pytest.LogCaptureFixture, *, fails: bool) -> None:
    made = source(world, topics=NAME, maxPartitionBytes="64K", failOnDataLoss=str(fails).lower())
    reader = made.reader(made.schema())
    assert isinstance(reader, ArchiveReader)
    tasks = reader.partitions()
    left = delete(world)
    if fails:
        with pytest.raises(DataLostError, match=r"deleted by request of test on .*, after this was planned"):
            [found for task in tasks for found in reader.read(task)]
        return
    rows = [row_of(row) for task in tasks for found in reader.read(task) for row in found.to_pylist()]
    assert ordered(rows) == ordered(left)
    assert "deleted by request of test on" in caplog.text


@pytest.mark.parametrize("budget", ["1", "50K", "1G"])
def test_a_stream_from_the_begin_starts_with_what_is_there(world: World, budget: str) -> None:
    left = delete(world)
    query = Query(world, {"topics": NAME, "maxBytesPerTrigger": budget, "maxPartitionBytes": "64K"})
    assert ordered(query.rest()) == ordered(left)


def test_a_stream_that_had_not_read_what_went_is_told(world: World) -> None:
    query = Query(world, {"topics": NAME, "maxBytesPerTrigger": "1", "maxPartitionBytes": "64K"})
    assert query.batch()
    left = delete(world)
    with pytest.raises(DataLostError, match="deleted by request of test on"):
        query.rest()
    tolerant = Query(world, {"topics": NAME, "failOnDataLoss": "false"}, offset=query.offset)
    assert ordered(tolerant.rest()) == ordered(left)
