"""The archive as Python users see it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.archive.archive import Archive
from offloader.archive.items import ArchivedEntry, Missing
from offloader.archive.ledgers.bucket import LedgerBucket
from offloader.archive.reading.reader import OnDamage, ReadOptions
from offloader.archive.selection import Selection
from offloader.archive.topic import ArchivedTopic
from offloader.errors import ConfigError, DamagedObjectError, FatalError
from offloader.metadata import layout
from offloader.model import Position, TopicName
from offloader.storage.local import LocalStore
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings
from tests.archive.ledgers.support import put_ledger
from tests.archive.support import TOPIC, gap, message, stream
from tests.archive.support import Archive as Built
from tests.format.support import Stored, checksummed

START = 1_700_000_000_000


def published(at: int, text: str = "x", **fields: object) -> bytes:
    return checksummed(
        MessageMetadata(producer_name="p", sequence_id=0, publish_time=START + at, **fields), text.encode()
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two topics; the first with gaps, a loss, clocks that go back, and two incarnations."""
    built = Built(LocalStore(tmp_path / "root"))
    built.claim(3, 0)
    times = [100, 300, 200, 500, 400]
    built.add([Stored(3, n, published(at, f"m{n}")) for n, at in enumerate(times)], [gap(3, 5, 6)], closed={3: 6})
    built.add([Stored(4, n, published(600 + n, f"n{n}")) for n in range(30)])
    built.lose(Position(0, 4, 30), Position(0, 4, 34))
    built.incarnation = 1
    built.claim(9, 0, created=2)
    built.add([Stored(9, 0, published(900)), Stored(9, 1, b"opaque")], [gap(9, 2, 2)])
    other = Built(built.store, topic=TopicName.parse("acme/ns/other"))
    other.uuids = iter([70])
    other.claim()
    other.add(stream(50, 0, 2))
    return tmp_path / "root"


@pytest.fixture
def topic(root: Path) -> ArchivedTopic:
    return Archive(root.as_uri()).topic("orders")


def ids(entries: list[ArchivedEntry]) -> list[str]:
    return [str(entry.position) for entry in entries]


def test_topics(root: Path) -> None:
    archive = Archive(root.as_uri())
    assert [str(t) for t in archive.topics()] == ["persistent://acme/ns/other", "persistent://public/default/orders"]
    assert archive.topics("persistent://public/.*") == [TOPIC]
    assert archive.topics("public") == []
    with pytest.raises(ConfigError, match="pattern: '\\(' is no regular expression"):
        archive.topics("(")


def test_a_topic_that_is_not_there_is_one_line(root: Path) -> None:
    with Archive(root.as_uri()) as archive:
        with pytest.raises(FatalError, match=r"^persistent://public/default/nothing is not in the archive file://.*$"):
            archive.topic("nothing")
        with pytest.raises(ConfigError, match="only persistent topics"):
            archive.topic("non-persistent://a/b/c")
    with pytest.raises(FatalError, match="is not in the archive"):
        Archive("file:///nowhere/at/all").topic("orders")


def test_a_partitioned_topic_is_read_by_partition(tmp_path: Path) -> None:
    name = "persistent://public/default/many-partition-3"
    Built(LocalStore(tmp_path), topic=TopicName.parse(name)).claim()
    with (
        Archive(tmp_path.as_uri()) as archive,
        pytest.raises(FatalError, match=f"many is partitioned; .* for example {name}$"),
    ):
        archive.topic("many")


def test_what_is_no_message_is_named_with_its_object(topic: ArchivedTopic) -> None:
    key = topic.snapshot.catalog.segments[-1].uuid
    for reading in (topic.messages(), topic.record_batches()):
        with pytest.raises(DamagedObjectError, match=rf"orders/{key}\S*: 9:1 \(offset \d+\): ") as found:
            list(reading)
        assert str(found.value).count("9:1") == 1


def test_a_catalog_that_is_made_anew_is_seen_by_who_reads_already(tmp_path: Path) -> None:
    def build(ledgers: range) -> Built:
        built = Built(LocalStore(tmp_path))
        built.uuids = iter(ledgers)
        built.claim()
        for ledger in ledgers:
            built.add(stream(ledger, 0, 2), closed={ledger: 2})
        return built

    store = build(range(1, 4)).store
    with Archive(tmp_path.as_uri()) as archive:
        assert len(ids(list(archive.topic("orders").entries()))) == 9
        store.delete([key for key, _ in store.list(layout.topic_folder(TOPIC))])
        build(range(11, 18))
        assert [entry.position.ledger for entry in archive.topic("orders").entries()][::3] == list(range(11, 18))


def test_entries_and_items(topic: ArchivedTopic, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        entries = list(topic.entries())
    assert ids(entries) == [f"3:{n}" for n in range(5)] + [f"4:{n}" for n in range(30)] + ["9:0", "9:1"]
    assert [record.getMessage() for record in caplog.records] == [
        "4:30..4:34 is missing: lost: trimmed (accepted by accept-loss)"
    ]
    items = list(topic.items())
    assert [i for i in items if isinstance(i, ArchivedEntry)] == entries
    assert [(str(i.start), str(i.end)) for i in items if isinstance(i, Missing)] == [
        ("3:5", "3:6"),
        ("4:30", "4:34"),
        ("9:2", "9:2"),
    ]


def test_bounds_by_position_need_no_incarnation(topic: ArchivedTopic) -> None:
    assert ids(list(topic.entries(Selection(Position.parse("4:28"), Position.parse("9:0"))))) == ["4:28", "4:29", "9:0"]


def test_bounds_by_time_are_exact(topic: ArchivedTopic) -> None:
    assert ids(list(topic.entries(Selection(published_from=START + 200, published_to=START + 400)))) == [
        "3:1",
        "3:2",
        "3:4",
    ]


def test_seek(topic: ArchivedTopic) -> None:
    assert topic.seek(position=Position.parse("3:5")) == Position(0, 4, 0)
    assert topic.seek(position=Position.parse("4:31")) == Position(1, 9, 0)
    assert topic.seek(position=Position.parse("9:2")) is None
    assert topic.seek(time=START + 150) == Position(0, 3, 1)
    assert topic.seek(time=START + 450) == Position(0, 3, 3)
    assert topic.seek(time=START + 150, position=Position.parse("3:2")) == Position(0, 3, 2)
    assert topic.seek(time=START + 901) is None
    assert (topic.first_position(), topic.last_position()) == (Position(0, 3, 0), Position(1, 9, 1))


def test_a_topic_without_entries(root: Path) -> None:
    built = Built(LocalStore(root), topic=TopicName.parse("empty"))
    built.claim()
    topic = Archive(root.as_uri()).topic("empty")
    assert (topic.first_position(), topic.last_position(), list(topic.items())) == (None, None, [])


def test_messages_and_batches(topic: ArchivedTopic) -> None:
    end = Position.parse("4:1")
    assert [m.value for m in topic.messages(Selection(end=end))] == [b"m0", b"m1", b"m2", b"m3", b"m4", b"n0", b"n1"]
    assert [m.value for m in topic.messages(Selection(end=end, published_from=START + 400))] == [
        b"m3",
        b"m4",
        b"n0",
        b"n1",
    ]
    (batch,) = topic.record_batches(["value"], Selection(end=end, published_from=START + 400))
    assert batch.to_pydict() == {"value": [b"m3", b"m4", b"n0", b"n1"]}


def test_entry_batches_are_the_entries(topic: ArchivedTopic) -> None:
    batches = list(topic.entry_batches(["ledgerId", "entryId", "data"]))
    rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    assert rows == [(e.position.ledger, e.position.entry, e.data) for e in topic.entries()]
    assert rows


def test_a_chunked_message_whose_first_chunk_is_before_what_is_read(root: Path) -> None:
    built = Built(LocalStore(root), topic=TopicName.parse("chunked"))
    built.uuids = iter([80])
    built.claim()

    def chunk(n: int) -> bytes:
        return published(n, f"<{n}>", uuid="u", chunk_id=n, num_chunks_from_msg=3, total_chunk_msg_size=9)

    built.add([Stored(60, 0, chunk(0)), Stored(60, 1, published(1)), Stored(60, 2, chunk(1)), Stored(60, 3, chunk(2))])
    topic = Archive(root.as_uri()).topic("chunked")
    assert [m.value for m in topic.messages(Selection(Position.parse("60:3")))] == [b"<0><1><2>"]
    assert [m.value for m in topic.messages()] == [b"x", b"<0><1><2>"]


def test_only_new_records_are_read_again(root: Path) -> None:
    archive = Archive(root.as_uri())
    assert archive.topic("acme/ns/other").last_position() == Position(0, 50, 2)
    store = LocalStore(root)
    built = Built(store, topic=TopicName.parse("acme/ns/other"))
    built.uuids = iter([71])
    built.add(stream(50, 3, 5))
    store.delete([layout.catalog_folder(built.topic) + layout.slot_name(0)])
    assert archive.topic("acme/ns/other").last_position() == Position(0, 50, 5)


def test_reading_writes_nothing(root: Path) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in root.rglob("*"))
    for path in (root, *root.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    archive = Archive(root.as_uri())
    for name in archive.topics():
        assert list(archive.topic(name).entries())
    for path in (root, *root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    assert sorted((path, path.stat().st_mtime_ns) for path in root.rglob("*")) == before


def test_damage_is_skipped_on_request(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = LocalStore(root)
    key = next(key for key, _ in store.list("public/default/orders/") if key.endswith("001"))
    store.put(key, store.read(key)[0].replace(b"m3", b"m9"))
    topic = Archive(root.as_uri(), options=ReadOptions(on_damage=OnDamage.SKIP)).topic("orders")
    with caplog.at_level(logging.WARNING):
        assert ids(list(topic.entries(Selection(end=Position.parse("3:9"))))) == ["3:0", "3:1", "3:2", "3:4"]
    assert any(key in record.getMessage() and "3:3" in record.getMessage() for record in caplog.records)


def test_a_topic_that_stock_brokers_offloaded(tmp_path: Path) -> None:
    bucket = StoreSettings((tmp_path / "bucket").as_uri())
    for ledger in (2, 5):
        put_ledger(open_store(bucket), ledger, [message(f"{ledger}:{n}") for n in range(4)])
    archive = Archive((tmp_path / "root").as_uri(), ledgers=LedgerBucket(bucket))
    assert archive.topics() == [TOPIC]
    topic = archive.topic(TOPIC)
    assert topic.snapshot.listed is None
    assert [m.value for m in topic.messages()] == [f"{ledger}:{n}".encode() for ledger in (2, 5) for n in range(4)]


def test_any_file_system_of_fsspec_can_be_read(root: Path) -> None:
    # Nothing proves that local:// creates atomically; reading needs no proof.
    archive = Archive(f"local://{root}")
    assert len(list(archive.topic("acme/ns/other").entries())) == 3
