"""What a batch read plans and its tasks give, without a Spark around them: each row once and right, and no more read
than is needed."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from unittest.mock import Mock

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, LessThan

import offloader.archive
from offloader.archive.messages.encryption import PemFiles
from offloader.archive.spark.batch import ArchiveReader, FilteringReader
from offloader.archive.spark.data_source import PulsarArchiveSource
from offloader.archive.spark.metrics import MetricsFolder, PlanMetrics
from offloader.archive.spark.task import ReadTask
from offloader.errors import ConfigError, DamagedObjectError, DataLostError, ObjectNotFoundError, OffloadError
from offloader.metadata import stock_keys as names
from offloader.metadata.layout import data_key
from offloader.model import Position, TopicName
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings
from tests.archive.ledgers.support import messages, put_ledger
from tests.archive.messages.test_committed import READABLE
from tests.archive.messages.test_committed import archive as with_an_abort
from tests.archive.spark.world import BEGIN, Row, World, ordered, row_of, standard
from tests.archive.support import TOPIC, uuid_of

ORDERS = TopicName.parse("persistent://public/default/orders")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return standard(StoreSettings(f"file://{tmp_path_factory.mktemp('archive')}"))


def source(world: World, **options: str) -> PulsarArchiveSource:
    selection = {} if {"topics", "topicsPattern", "namespace"} & options.keys() else {"namespace": "public/default"}
    return PulsarArchiveSource({"root": world.root, **selection, **options})


def reader(world: World, **options: str) -> ArchiveReader:
    made = source(world, **options)
    found = made.reader(made.schema())
    assert isinstance(found, ArchiveReader)
    return found


def batches(planned: ArchiveReader) -> Iterator[pa.RecordBatch]:
    """As Spark does it: reader and partitions go through pickle, also where `partitions()` is called first."""
    parts = pickle.loads(pickle.dumps(planned.partitions()))
    copy = pickle.loads(pickle.dumps(planned))
    for part in parts:
        yield from copy.read(part)


def rows(planned: ArchiveReader) -> list[Row]:
    return [row_of(row) for batch in batches(planned) for row in batch.to_pylist()]


def tasks_of(planned: ArchiveReader) -> list[ReadTask]:
    return [task for task in planned.partitions() if isinstance(task, ReadTask)]


def test_every_message_in_the_topics_order(world: World) -> None:
    assert rows(reader(world)) == world.rows()


@pytest.mark.parametrize("max_bytes", ["1", "100K", "300K"])
def test_every_message_whatever_the_tasks_size(world: World, max_bytes: str) -> None:
    planned = reader(world, maxPartitionBytes=max_bytes)

    assert len(tasks_of(planned)) > 2
    assert ordered(rows(planned)) == world.rows()


def test_every_entry(world: World) -> None:
    found = [
        row for batch in batches(reader(world, format="entries", maxPartitionBytes="200K")) for row in batch.to_pylist()
    ]

    expected = [(name, e.ledger, e.entry, e.data) for name, made in sorted(world.topics.items()) for e in made.entries]
    assert [
        (r["topic"].removeprefix("persistent://"), r["ledgerId"], r["entryId"], r["data"]) for r in found
    ] == expected


def test_topics_by_pattern(world: World) -> None:
    found = rows(reader(world, topicsPattern="persistent://public/default/u.*"))

    assert found == world.rows(["public/default/users"])


def test_a_topic_that_is_not_there(world: World) -> None:
    with pytest.raises(ConfigError, match="topics: persistent://public/default/x is not in the archive"):
        reader(world, topics="x").partitions()


def test_partitioned_topics_are_read_by_their_name(tmp_path: Path) -> None:
    world = World(StoreSettings(f"file://{tmp_path}"))
    for number in (0, 1):
        world.topic(f"public/default/t-partition-{number}").segment(5, 0, 20)
    world.topic("public/default/t2").segment(5, 0, 20)

    assert rows(reader(world, topics="t")) == world.rows(
        ["public/default/t-partition-0", "public/default/t-partition-1"]
    )


def test_positions(world: World) -> None:
    found = rows(reader(world, topics="orders", startingPosition="10:100", endingPosition="10:460"))

    expected = [r for r in world.rows(["public/default/orders"]) if (10, 100) <= (r.ledger, r.entry) <= (10, 460)]
    assert found == expected


@pytest.mark.parametrize("option", ["startingPosition", "endingPosition"])
def test_positions_of_topics_that_are_not_read(world: World, option: str) -> None:
    with pytest.raises(ConfigError, match=f"{option}: persistent://public/default/ordres is not among the topics"):
        reader(world, **{option: '{"ordres": "10:100"}'}).partitions()


def test_a_name_that_was_a_topic_s_and_a_partitioned_one_s_means_both(tmp_path: Path) -> None:
    world = World(StoreSettings(f"file://{tmp_path}"))
    names = ["public/default/t", "public/default/t-partition-0", "public/default/t-partition-1"]
    for ledger, name in enumerate(names):
        world.topic(name).segment(ledger, 0, 20)
    assert rows(reader(world, topics="t")) == world.rows(names)


@pytest.mark.parametrize(
    ("options", "left"),
    [({"topics": "t"}, (0, 2)), ({"topicsPattern": ".*"}, (0, 2)), ({"topics": "t-partition-1"}, ())],
)
def test_a_topic_whose_catalog_is_gone_is_not_left_out(
    tmp_path: Path, options: dict[str, str], left: tuple[int, ...]
) -> None:
    world = World(StoreSettings(f"file://{tmp_path}"))
    names = [f"public/default/t-partition-{number}" for number in range(3)]
    for name in names:
        world.topic(name).segment(5, 0, 20)
    shutil.rmtree(tmp_path / names[1] / "_catalog")
    with pytest.raises(
        DataLostError, match=r"t-partition-1 has segments in .* its catalog is gone: `offloader catalog rebuild"
    ):
        reader(world, **options).partitions()
    assert rows(reader(world, **options, failOnDataLoss="false")) == [
        row for number in left for row in world.rows([names[number]])
    ]


def test_one_position_is_not_for_several_partitions(tmp_path: Path) -> None:
    world = World(StoreSettings(f"file://{tmp_path}"))
    for number in (0, 1):
        world.topic(f"public/default/t-partition-{number}").segment(5 + number, 0, 20)

    with pytest.raises(ConfigError, match=r"startingPosition: .*/t has 2 partitions"):
        reader(world, topics="t", startingPosition="5:7").partitions()
    each = '{"t-partition-0": "5:7", "t-partition-1": "6:15"}'
    found = rows(reader(world, topics="t", startingPosition=each))
    assert found == [r for r in world.rows() if (r.ledger, r.entry) >= ((5, 7) if r.ledger == 5 else (6, 15))]


def test_a_root_that_is_no_archive(tmp_path: Path) -> None:
    nowhere = World(StoreSettings(f"file://{tmp_path}/nowhere"))

    with pytest.raises(ConfigError, match="root: there is no archive in"):
        reader(nowhere).partitions()
    assert reader(nowhere, waitingForNonExistedTopic="true").partitions() == []


def test_a_namespace_that_nobody_has_written_to(world: World) -> None:
    assert reader(world, namespace="public/other").partitions() == []


def test_latest_is_only_for_streams(world: World) -> None:
    with pytest.raises(ConfigError, match="startingOffsets: latest is only for a stream"):
        reader(world, startingOffsets="latest")


def test_times_are_exact_and_chunks_before_them_are_found(world: World) -> None:
    early, late = BEGIN + 100_000, BEGIN + 160_000
    found = rows(reader(world, startingTime=str(early), endingTime=str(late)))

    assert found == [r for r in world.rows() if early <= r.published <= late]
    assert any(r.value is not None and len(r.value) == 1500 for r in found)


def test_times_of_entries(world: World) -> None:
    made = reader(
        world,
        format="entries",
        columns="entryId",
        topics="users",
        startingTime=str(BEGIN),
        endingTime=str(BEGIN + 2500),
    )

    assert [row for batch in batches(made) for row in batch.to_pylist()] == [{"entryId": n} for n in range(3)]


def test_columns(world: World) -> None:
    found = list(batches(reader(world, columns="__entryId,value")))

    assert {tuple(batch.schema.names) for batch in found} == {("__entryId", "value")}
    assert sum(batch.num_rows for batch in found) == len(world.rows())


@pytest.mark.parametrize(
    ("columns", "says"),
    [("valeu", "columns: messages have no column valeu; there are value, __key"), (",", "columns: it names nothing")],
)
def test_columns_that_are_none(world: World, columns: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        reader(world, columns=columns)


def test_a_schema_of_other_types(world: World) -> None:
    from pyspark.sql.types import LongType, StringType, StructType

    made = source(world)
    with pytest.raises(ConfigError, match="schema: value is binary, not string; cast it after load"):
        made.reader(StructType().add("value", StringType()))
    with pytest.raises(ConfigError, match="schema: it has __entryId twice"):
        made.reader(StructType().add("__entryId", LongType()).add("__entryId", LongType()))
    made.reader(StructType().add("__entryId", LongType()))


def metrics(folder: Path) -> PlanMetrics:
    (found,) = MetricsFolder(StoreSettings(f"file://{folder}")).read().values()
    return found


def test_bytes_read_against_bytes_stored(world: World, tmp_path: Path) -> None:
    whole, part = tmp_path / "whole", tmp_path / "part"
    size = len(rows(reader(world, metrics=f"file://{whole}", readSize="64K")))
    few = len(
        rows(
            reader(
                world,
                metrics=f"file://{part}",
                readSize="64K",
                startingTime=str(BEGIN + 100_000),
                endingTime=str(BEGIN + 110_000),
            )
        )
    )

    everything, some = metrics(whole), metrics(part)
    assert everything.bytes_stored == some.bytes_stored == world.stored
    assert (everything.rows, some.rows) == (size, few)
    assert everything.bytes_read >= world.stored
    assert some.bytes_read < 0.45 * world.stored
    assert some.bytes_planned < 0.3 * world.stored


def filtered(world: World, filters: list[Filter], **options: str) -> FilteringReader:
    planned = reader(world, pushFilters="true", **options)
    assert isinstance(planned, FilteringReader)
    assert list(planned.pushFilters(filters)) == filters
    return planned


def moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def test_filters_read_less_and_lose_nothing(world: World) -> None:
    def bytes_planned(planned: ArchiveReader) -> int:
        return sum(portion.size for task in tasks_of(planned) for portion in task.splits)

    users = EqualTo(("__topic",), "persistent://public/default/users")
    times: list[Filter] = [
        GreaterThanOrEqual(("__publishTime",), moment(BEGIN + 90_000)),
        LessThan(("__publishTime",), moment(BEGIN + 95_000)),
    ]
    place: list[Filter] = [EqualTo(("__ledgerId",), 11), LessThan(("__entryId",), 9)]
    everything = bytes_planned(reader(world))

    by_topic, by_time, by_place = (filtered(world, f) for f in ([users], [users, *times], place))

    assert rows(by_topic) == world.rows(["public/default/users"])
    assert {r for r in map(str, world.rows()) if "users" in r and f"published={BEGIN + 91_000}" in r} <= set(
        map(str, rows(by_time))
    )
    assert {(r.ledger, r.entry) for r in rows(by_place)} >= {(11, e) for e in range(4)}
    assert everything > 3 * bytes_planned(by_topic) > 4 * bytes_planned(by_time)
    assert everything > 8 * bytes_planned(by_place)


def test_filters_that_contradict_read_nothing(world: World) -> None:
    planned = filtered(world, [EqualTo(("__ledgerId",), 11), EqualTo(("__ledgerId",), 12)])

    assert planned.partitions() == []


def test_no_partition_is_one_that_spark_makes(world: World) -> None:
    from pyspark.sql.datasource import InputPartition

    assert list(reader(world).read(InputPartition(None))) == []


def damaged(root: Path) -> World:
    world = World(StoreSettings(f"file://{root}"))
    maker = world.topic("public/default/orders")
    maker.segment(10, 0, 400)
    (segment,) = maker.archive.catalog.segments
    key = data_key(maker.archive.topic, segment.uuid)
    data = bytearray(world.store.read(key)[0])
    data[len(data) // 2] ^= 1
    world.store.delete([key])
    world.store.put(key, bytes(data))
    return world


def test_damage_fails(tmp_path: Path) -> None:
    with pytest.raises(DamagedObjectError, match="offset"):
        rows(reader(damaged(tmp_path)))


def test_damage_is_skipped_and_counted(tmp_path: Path) -> None:
    world = damaged(tmp_path / "archive")
    folder = tmp_path / "metrics"
    found = rows(reader(world, onDamage="skip", metrics=f"file://{folder}"))

    lost = [row for row in world.rows() if row not in found]
    assert 0 < len(lost) < 60
    assert sum(task.skipped for task in metrics(folder).done) > 0


def test_metrics_that_cannot_be_written_cost_no_row(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "metrics"
    planned = reader(world, metrics=f"file://{folder}")
    parts = planned.partitions()
    shutil.rmtree(folder)
    folder.write_text("in the way")
    found = [row_of(row) for part in parts for batch in planned.read(part) for row in batch.to_pylist()]

    assert found == world.rows()
    assert caplog.text.count("its metrics are not written") == len(parts)


def test_metrics_that_cannot_be_written_hide_no_damage(tmp_path: Path) -> None:
    planned = reader(damaged(tmp_path / "archive"), metrics=f"file://{tmp_path}/metrics")
    parts = planned.partitions()
    shutil.rmtree(tmp_path / "metrics")
    (tmp_path / "metrics").write_text("in the way")

    with pytest.raises(DamagedObjectError, match="offset"):
        [list(planned.read(part)) for part in parts]


def test_losses(tmp_path: Path) -> None:
    world = World(StoreSettings(f"file://{tmp_path}"))
    maker = world.topic("public/default/orders")
    maker.segment(10, 0, 20)
    maker.archive.lose(Position(0, 10, 20), Position(0, 10, 29))
    maker.segment(10, 30, 20)

    with pytest.raises(DataLostError, match=r"10:20\.\.10:29 is not in the archive"):
        reader(world).partitions()
    assert rows(reader(world, failOnDataLoss="false")) == world.rows()


@pytest.fixture
def mixed() -> Iterator[str]:
    """The name of a bucket in memory, where a stock broker has offloaded ledger 5 of a topic."""
    name = "spark-mixed"
    with closing(open_store(StoreSettings(f"memory://{name}-ledgers"))) as bucket:
        put_ledger(bucket, 5, messages(5, 30), topic=ORDERS)
        yield name
        bucket.delete([key for key, _ in bucket.list()])


def test_what_a_stock_broker_offloaded_comes_before_our_segments(mixed: str, caplog: pytest.LogCaptureFixture) -> None:
    world = World(StoreSettings(f"memory://{mixed}"))
    maker = world.topic(str(ORDERS))
    maker.segment(6, 0, 25)
    options = {
        "ledgers": f"memory://{mixed}-ledgers",
        "topics": "orders",
        "format": "entries",
        "columns": "ledgerId,entryId,data",
    }

    with pytest.raises(DataLostError, match="unproven"):
        reader(world, **options).partitions()
    found = [
        tuple(row.values())
        for batch in batches(reader(world, failOnDataLoss="false", **options))
        for row in batch.to_pylist()
    ]

    assert found == [(5, n, data) for n, data in enumerate(messages(5, 30))] + [
        (6, e.entry, e.data) for e in maker.entries
    ]
    assert "nothing proves that no ledger is missing" in caplog.text


@pytest.mark.parametrize("key_of", [names.data_key, names.index_key])
def test_a_ledger_of_a_stock_broker_that_is_not_sound_is_damage(
    mixed: str, key_of: Callable[[str, int], str], caplog: pytest.LogCaptureFixture
) -> None:
    world = World(StoreSettings(f"memory://{mixed}-{key_of.__name__}"))
    options = {
        "ledgers": f"memory://{mixed}-ledgers",
        "topics": "orders",
        "format": "entries",
        "failOnDataLoss": "false",
    }
    with closing(open_store(StoreSettings(f"memory://{mixed}-ledgers"))) as bucket:
        put_ledger(bucket, 6, messages(6, 3), uuid_of(9), topic=ORDERS)
        put_ledger(bucket, 7, messages(7, 3), topic=ORDERS)
        bucket.delete([key_of(uuid_of(9), 6)])

    with pytest.raises((DamagedObjectError, ObjectNotFoundError), match=key_of(uuid_of(9), 6)):
        list(batches(reader(world, **options)))
    found = [
        row["ledgerId"] for batch in batches(reader(world, onDamage="skip", **options)) for row in batch.to_pylist()
    ]

    assert (found.count(5), found.count(6), found.count(7)) == (30, 0, 3)
    told = [record.message for record in caplog.records if "is missing: damaged: " in record.message]
    assert [f"{uuid_of(9)}-ledger-6" in message for message in told] == [True]


def test_two_copies_of_a_ledger_that_contradict_each_other_are_warned_of(
    mixed: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(StoreSettings(f"memory://{mixed}-contradiction"))
    with closing(open_store(StoreSettings(f"memory://{mixed}-ledgers"))) as bucket:
        put_ledger(bucket, 5, messages(6, 30), uuid_of(9), topic=ORDERS)
    made = reader(world, ledgers=f"memory://{mixed}-ledgers", topics="orders", format="entries", columns="data")

    found = [row["data"] for batch in batches(made) for row in batch.to_pylist()]
    assert found == messages(5, 30)
    told = {
        record.getMessage() for record in caplog.records if "two complete copies of ledger 5" in record.getMessage()
    }
    assert [uuid in text for text in told for uuid in (f"{uuid_of(1)} is taken", f"{uuid_of(9)} is left out")] == [
        True,
        True,
    ]


def test_topics_that_only_a_stock_broker_offloaded(mixed: str) -> None:
    world = World(StoreSettings(f"memory://{mixed}-empty"))
    made = reader(world, ledgers=f"memory://{mixed}-ledgers", topicsPattern=".*", columns="__topic,__entryId")

    found = [row for batch in batches(made) for row in batch.to_pylist()]
    assert found == [{"__topic": str(ORDERS), "__entryId": n} for n in range(30)]


@pytest.mark.parametrize("option", ["ledgers", "metrics"])
def test_a_url_that_is_wrong_is_reported_under_its_option(world: World, option: str) -> None:
    with pytest.raises(ConfigError, match=f"^{option}: 'bucket' is not a URL"):
        reader(world, topicsPattern=".*", **{option: "bucket"}).partitions()


def test_private_keys_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "a.pem").write_bytes(b"key")
    keys = PemFiles({"a": str(tmp_path / "a.pem"), "gone": str(tmp_path / "gone.pem")})

    assert keys.private_key("a", {}) == b"key"
    assert keys.private_key("b", {}) is None
    with pytest.raises(ConfigError, match=r"private key gone: .*gone\.pem"):
        keys.private_key("gone", {})


def test_spark_finds_the_source_by_its_package() -> None:
    found = [module.name for module in iter_modules() if module.name.startswith("pyspark_pulsar")]
    source_ = import_module(found[0]).DefaultSource

    assert found == ["pyspark_pulsar_archive"]
    assert source_ is PulsarArchiveSource
    assert source_.name() == "pulsar-archive"


def test_registering_is_for_sessions_that_did_not_look() -> None:
    session = Mock()
    offloader.archive.register(session)

    session.dataSource.register.assert_called_once_with(PulsarArchiveSource)


def test_messages_of_aborted_transactions_are_no_rows_and_their_entries_are_entries(tmp_path: Path) -> None:
    world = World(StoreSettings(f"file://{tmp_path}"))
    with_an_abort(world.store)
    for size in ("1", "128M"):
        found = rows(reader(world, topics=str(TOPIC), maxPartitionBytes=size))
        assert [row.value for row in found] == READABLE
        assert sum(batch.num_rows for batch in batches(reader(world, topics=str(TOPIC), format="entries"))) == 9


@pytest.mark.parametrize("place", ["file:///proc/nowhere", "/tmp/metrics"])
def test_metrics_that_cannot_be_written_are_told_of_by_the_option_s_name(world, place) -> None:
    with pytest.raises(OffloadError, match=r"^metrics: "):
        reader(world, metrics=place).partitions()
