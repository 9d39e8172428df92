"""The data source `pulsar-archive` in a real Spark: found without being registered, every row once, streams that go
on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pyspark.sql.functions as F  # noqa: N812 (as everybody calls it)
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from integration.processes import HANGS
from integration.spark import patiently, session
from offloader.archive.spark.metrics import MetricsFolder
from offloader.format.blocks import ENTRY_HEADER_SIZE, entries, read_blocks
from offloader.metadata.layout import data_key
from offloader.storage.settings import StoreSettings
from tests.archive.spark.world import BEGIN, Row, World, ordered, row_of, standard
from tests.storage.servers import REGION, S3Server

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """Nothing is registered."""
    with session("archive") as spark:
        yield spark


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return standard(StoreSettings(f"file://{tmp_path_factory.mktemp('archive')}"))


def reader(spark: SparkSession, world: World, **options: str) -> DataFrameReader:
    selection = {} if {"topics", "topicsPattern"} & options.keys() else {"namespace": "public/default"}
    return spark.read.format("pulsar-archive").options(root=world.root, **selection, **options)


def loaded(spark: SparkSession, world: World, **options: str) -> DataFrame:
    return patiently(reader(spark, world, **options).load)


def rows(found: DataFrame) -> list[Row]:
    return ordered(map(row_of, patiently(found.collect)))


def test_every_message(spark: SparkSession, world: World) -> None:
    found = loaded(spark, world, maxPartitionBytes="100K")

    assert rows(found) == world.rows()
    assert patiently(lambda: found.rdd.getNumPartitions()) >= 5


def test_every_entry_from_s3(spark: SparkSession, moto: S3Server) -> None:
    world = standard(moto.settings(moto.fresh_root()))
    options = {"format": "entries", "topics": "orders,users", "endpoint": moto.url, "region": REGION}
    found = patiently(loaded(spark, world, **options).collect)

    expected = {
        (f"persistent://{name}", e.ledger, e.entry, e.data) for name, made in world.topics.items() for e in made.entries
    }
    assert {(r.topic, r.ledgerId, r.entryId, bytes(r.data)) for r in found} == expected
    assert len(found) == len(expected)


def test_topics_by_pattern_in_sql(spark: SparkSession, world: World) -> None:
    found = loaded(spark, world, topicsPattern=".*/us.*", columns="__topic,__publishTime,value")
    found.createOrReplaceTempView("users")

    counts = spark.sql("SELECT __topic, count(*) AS n, min(__publishTime) AS first FROM users GROUP BY __topic")
    (count,) = patiently(counts.collect)

    assert (count["__topic"], count.n) == (
        "persistent://public/default/users",
        len(world.rows(["public/default/users"])),
    )
    assert round(count["first"].timestamp() * 1000) == BEGIN


def test_a_schema_of_some_columns(spark: SparkSession, world: World) -> None:
    found = patiently(reader(spark, world).schema("__entryId LONG, __key BINARY").load)

    assert found.columns == ["__entryId", "__key"]
    assert patiently(found.count) == len(world.rows())


def test_a_time_range_reads_little(spark: SparkSession, world: World, tmp_path: Path) -> None:
    early, late = BEGIN + 100_000, BEGIN + 110_000
    folder = f"file://{tmp_path}/metrics"
    found = loaded(
        spark, world, startingTime=str(early), endingTime="2023-11-14T22:15:10Z", readSize="64K", metrics=folder
    )

    assert rows(found) == [r for r in world.rows() if early <= r.published <= late]
    (cost,) = MetricsFolder(StoreSettings(folder)).read().values()
    assert cost.bytes_stored == world.stored
    assert 0 < cost.bytes_read < 0.45 * cost.bytes_stored


def test_filters_are_pushed_down_on_request(spark: SparkSession, world: World, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        folder = f"file://{tmp_path}/metrics"
        found = loaded(spark, world, pushFilters="true", readSize="64K", metrics=folder)
        early, late = BEGIN + 100_000, BEGIN + 110_000
        time = F.col("__publishTime")
        chosen = found.where(
            (F.col("__topic") == "persistent://public/default/orders") & (F.unix_millis(time) % 2 == 0)
        )
        chosen = chosen.where((time >= F.timestamp_millis(F.lit(early))) & (time < F.timestamp_millis(F.lit(late))))

        orders = world.rows(["public/default/orders"])
        assert rows(chosen) == [r for r in orders if early <= r.published < late]
        costs = MetricsFolder(StoreSettings(folder)).read().values()
        assert all(0 < cost.bytes_read < 0.4 * cost.bytes_stored for cost in costs)
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_filters_without_the_option_are_right_whatever_spark_is_set_to(spark: SparkSession, world: World) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        found = loaded(spark, world)
        first = patiently(found.where(F.col("__ledgerId") == 11).count)

        assert first == len([r for r in world.rows() if r.ledger == 11])
        assert patiently(found.count) == len(world.rows())
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_wrong_options_say_so(spark: SparkSession, world: World) -> None:
    with pytest.raises(PySparkException, match="startingtme: no option of pulsar-archive; did you mean startingTime"):
        loaded(spark, world, startingTme="5")


def test_damage(spark: SparkSession, tmp_path: Path) -> None:
    world = World(StoreSettings(f"file://{tmp_path}"))
    maker = world.topic("public/default/orders")
    maker.segment(10, 0, 200)
    key = data_key(maker.archive.topic, maker.archive.catalog.segments[0].uuid)
    data = bytearray(world.store.read(key)[0])
    middle = [entry for block in read_blocks(bytes(data)) for entry in entries(block)][100]
    data[middle.offset + ENTRY_HEADER_SIZE + len(middle.data) - 1] ^= 1  # of a payload
    world.store.delete([key])
    world.store.put(key, bytes(data))

    with pytest.raises(PySparkException, match="its checksum does not match its bytes"):
        patiently(loaded(spark, world).count)
    found = loaded(spark, world, onDamage="skip")
    sound = rows(found.where("__problem IS NULL"))  # a message of whose chunks one is damaged is a row that says so
    assert len(world.rows()) - 60 < len(sound) < len(world.rows())
    assert {*map(str, sound)} <= {*map(str, world.rows())}


class Stream:
    """A query that appends to a table in memory, by name; restarts go on from its checkpoint."""

    def __init__(self, spark: SparkSession, world: World, folder: Path, **options: str) -> None:
        self._spark = spark
        self._folder = folder
        self.batches = 0
        self._source = spark.readStream.format("pulsar-archive").options(
            root=world.root, topicsPattern=".*", pollInterval="100ms", **options
        )

    def run(self) -> list[Row]:
        """Everything that is there now, and the end; all rows that were ever written."""
        patiently(self._run)
        return rows(self._spark.read.parquet(f"{self._folder}/out"))

    def _run(self) -> None:
        written = (
            self._source.load().writeStream.format("parquet").option("checkpointLocation", f"{self._folder}/checkpoint")
        )
        query = written.trigger(availableNow=True).start(f"{self._folder}/out")
        try:
            assert query.awaitTermination(HANGS)
        finally:
            self.batches += len(query.recentProgress)


def test_stream_goes_on_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    world = standard(StoreSettings(f"file://{tmp_path}/archive"))
    stream = Stream(spark, world, tmp_path, maxBytesPerTrigger="250K")

    assert stream.run() == world.rows()
    assert stream.batches >= world.stored // 350_000
    world.topics["public/default/users"].segment(20, 180, 60)
    world.topic("public/default/late").segment(40, 0, 30)
    assert stream.run() == world.rows()


def test_stream_follows_what_is_sealed(spark: SparkSession, tmp_path: Path) -> None:
    folders = map(str, itertools.count())
    patiently(lambda: followed(spark, tmp_path / next(folders)))


def followed(spark: SparkSession, folder: Path) -> None:
    world = standard(StoreSettings(f"file://{folder}"))
    source = spark.readStream.format("pulsar-archive").options(
        root=world.root, topicsPattern=".*", pollInterval="100ms"
    )
    query = source.load().writeStream.format("memory").queryName("followed").start()
    try:
        query.processAllAvailable()
        assert rows(spark.table("followed")) == world.rows()
        world.topics["public/default/users"].segment(20, 180, 60)
        query.processAllAvailable()
        assert rows(spark.table("followed")) == world.rows()
    finally:
        query.stop()


def test_stream_that_cannot_start_says_why(spark: SparkSession, tmp_path: Path) -> None:
    world = standard(StoreSettings(f"file://{tmp_path}/archive"))
    source = spark.readStream.format("pulsar-archive").options(root=world.root, topics="nowhere")

    def run() -> None:
        query = source.load().writeStream.format("noop").option("checkpointLocation", f"{tmp_path}/checkpoint").start()
        query.awaitTermination(HANGS)

    with pytest.raises(StreamingQueryException, match="nowhere is not in the archive"):
        patiently(run)
