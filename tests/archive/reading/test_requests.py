"""What reading costs: requests, bytes, memory."""

from __future__ import annotations

import threading
from collections.abc import Generator
from pathlib import Path
from random import Random

import pytest

from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.archive.items import EntryRun
from offloader.archive.reading.plan import plan, split
from offloader.archive.reading.range_reader import IndexCache
from offloader.archive.reading.reader import PlannedReader, ReadOptions
from offloader.archive.reading.stores import Stores
from offloader.archive.selection import Selection
from offloader.archive.snapshot import TopicSnapshot
from offloader.errors import ConfigError
from offloader.metadata import layout
from offloader.model import KIB, MIB, Position, SegmentLayout
from tests.archive.ledgers.support import put_ledger
from tests.archive.reading.support import CountingStore, Topic, items_told, reader
from tests.archive.support import TOPIC, Archive, message, stream
from tests.format.support import Stored, checksummed

START = 1_700_000_000_000


# Parts that are fetched at once: a part is given when all of it is there and checked.
ONE_FETCH = SegmentLayout(part_size=512 * KIB, block_size=128 * KIB)


def built(sizes: list[int], cuts: SegmentLayout = SegmentLayout()) -> Archive:  # noqa: B008 (frozen)
    """One segment with entries of these sizes, published a second after each other."""
    archive = Archive()
    archive.claim()
    random = Random(1)
    metadata = (
        MessageMetadata(producer_name="p", sequence_id=0, publish_time=START + 1000 * n) for n in range(len(sizes))
    )
    bodies = [checksummed(each, random.randbytes(size)) for each, size in zip(metadata, sizes, strict=True)]
    archive.add([Stored(1, n, body) for n, body in enumerate(bodies)], cuts=cuts)
    return archive


def at(entry: int) -> Selection:
    return Selection(Position(0, 1, entry), Position(0, 1, entry))


def test_one_entry_takes_one_request_with_a_warm_index_and_at_most_half_a_mebibyte() -> None:
    random = Random(2)
    archive = built([random.choice([100, 1_000, 50_000, 128 * KIB - 100]) for _ in range(300)])
    counting, indexes, stores = CountingStore(archive.store), IndexCache(), Stores.of(archive.store)
    view = TopicSnapshot.of(archive.catalog)
    counting.reads.clear()
    (run,) = PlannedReader(stores, indexes=indexes).read(plan(view, at(0)))
    assert isinstance(run, EntryRun)
    assert len(counting.reads) == 2  # the index, and the data
    for entry in random.sample(range(300), 100):
        counting.reads.clear()
        reading = PlannedReader(stores, indexes=indexes)
        (run,) = reading.read(plan(view, at(entry)))
        assert isinstance(run, EntryRun)
        assert (run.first, run.count) == (entry, 1)
        ((key, size),) = counting.reads
        assert key == layout.data_key(TOPIC, archive.catalog.segments[0].uuid)
        assert size <= 512 * KIB
        assert (reading.stats.requests, reading.stats.bytes_read, reading.stats.entries) == (1, size, 1)


def test_a_first_read_from_the_middle_of_a_block_also_asks_for_its_header() -> None:
    archive = built([50_000] * 100)
    counting = CountingStore(archive.store)
    view = TopicSnapshot.of(archive.catalog)
    counting.reads.clear()
    list(reader(archive.store).read(plan(view, at(15))))
    assert sorted(size for _, size in counting.reads)[0] == 128
    assert len(counting.reads) == 3


def test_fetches_have_the_size_that_was_asked_for() -> None:
    archive = built([10_000] * 2_000)
    size = archive.catalog.segments[0].size
    for read_size in (512 * KIB, 4 * MIB, 64 * MIB):
        counting = CountingStore(archive.store)
        view = TopicSnapshot.of(archive.catalog)
        counting.reads.clear()
        assert (
            sum(i.count for i in reader(archive.store, read_size=read_size).read(plan(view)) if isinstance(i, EntryRun))
            == 2_000
        )
        bodies = [length for _, length in counting.reads[1:]]
        assert sum(bodies) == size
        assert max(bodies) <= read_size
        assert len(bodies) == sum(-(-part.size // read_size) for part in archive.catalog.segments[0].parts)


def test_times_leave_out_parts() -> None:
    archive = built([100_000] * 300, SegmentLayout(part_size=5 * MIB))
    view = TopicSnapshot.of(archive.catalog)
    reading = reader(archive.store)
    found = [i for i in reading.read(plan(view, Selection(published_from=START + 290_000))) if isinstance(i, EntryRun)]
    assert found[-1].last == 299
    assert found[0].first <= 290
    assert reading.stats.bytes_read < 7 * MIB
    assert plan(view, Selection(published_to=START - 1)) == []


def test_tasks_read_no_byte_twice() -> None:
    archive = built([30_000] * 2_000)
    tasks = split(plan(TopicSnapshot.of(archive.catalog)), 16 * MIB)
    assert len(tasks) >= 4
    total = 0
    for task in tasks:
        counting = CountingStore(archive.store)
        counting.reads.clear()
        list(reader(archive.store).read(task))
        total += sum(size for key, size in counting.reads if not key.endswith("-index"))
    assert total == archive.catalog.segments[0].size


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_no_more_is_fetched_ahead_than_was_asked_for(prefetch: int) -> None:
    archive = built([20_000] * 500, ONE_FETCH)
    store, lock = archive.store, threading.Lock()
    items = plan(TopicSnapshot.of(archive.catalog))
    begun, most, taken = [0], [0], [0]
    read = store.read

    def counted(key, offset=0, length=None):
        if not key.endswith("-index"):
            with lock:
                begun[0] += 1
                most[0] = max(most[0], begun[0] - taken[0])
        return read(key, offset, length)

    store.read = counted
    offsets = set()
    for run in reader(store, prefetch=prefetch, read_size=MIB).read(items):
        assert isinstance(run, EntryRun)
        if run.offset not in offsets:  # the buffers before it are free
            offsets.add(run.offset)
            taken[0] = len(offsets) - 1
    assert len(offsets) > 10
    assert most[0] <= prefetch + 2  # one of them the caller's


def test_a_reader_that_is_given_up_fetches_no_more() -> None:
    archive = built([20_000] * 500, ONE_FETCH)
    items = plan(TopicSnapshot.of(archive.catalog))
    counting = CountingStore(archive.store)
    reading = reader(archive.store, read_size=MIB).read(items)
    next(reading)
    assert isinstance(reading, Generator)
    reading.close()
    assert len(counting.reads) <= 4  # the index, the one in use, two ahead


def test_a_large_block_of_a_ledger_is_read_in_pieces_and_no_further_than_needed() -> None:
    topic = Topic()
    topic.offload(0, 1, [message("x" * 1_000) for _ in range(2_000)], 64 * MIB)
    counting = CountingStore(topic.archive.store)
    selection = Selection(Position(0, 1, 100), Position(0, 1, 110))
    counting.reads.clear()
    found = items_told(topic, plan(topic.view, selection), read_size=64 * KIB)
    assert len(found) == 11
    assert max(size for _, size in counting.reads[1:]) == 64 * KIB
    assert len(counting.reads) <= 1 + 2 + 3


def test_entries_larger_than_a_fetch() -> None:
    archive = built([3 * MIB, 10, 5 * MIB, 0, 100])
    runs = [
        i
        for i in reader(archive.store, read_size=MIB).read(plan(TopicSnapshot.of(archive.catalog)))
        if isinstance(i, EntryRun)
    ]
    assert [e.position.entry for run in runs for e in run.entries()] == [0, 1, 2, 3, 4]
    assert max(len(run.data) for run in runs) < 5 * MIB + KIB


def test_indexes_are_kept_within_their_bytes() -> None:
    archive = Archive()
    archive.claim()
    for n in range(10):
        archive.add(stream(1, 40 * n, 40 * n + 39))
    indexes, stores = IndexCache(max_bytes=5_000), Stores.of(archive.store)
    counting = CountingStore(archive.store)
    items = plan(TopicSnapshot.of(archive.catalog))
    counting.reads.clear()
    list(PlannedReader(stores, indexes=indexes).read(items))
    list(PlannedReader(stores, indexes=indexes).read(items[-1:]))
    assert sum(key.endswith("-index") for key, _ in counting.reads) == 10
    list(PlannedReader(stores, indexes=indexes).read(items[:1]))
    assert sum(key.endswith("-index") for key, _ in counting.reads) == 11


def test_indexes_of_stores_with_the_same_url_are_not_mixed_up() -> None:
    for text in ("one", "another"):
        archive = Archive()
        archive.claim()
        archive.add([Stored(1, 0, message(text))])
        (run,) = PlannedReader(Stores.of(archive.store)).read(plan(TopicSnapshot.of(archive.catalog)))
        assert isinstance(run, EntryRun)
        assert next(run.entries()).data == message(text)


def test_ledgers_in_a_bucket_of_their_own(tmp_path: Path) -> None:
    from offloader.archive.snapshot import OffloadedLedger
    from offloader.metadata.state import TopicCatalog
    from offloader.storage.open import open_store
    from offloader.storage.settings import StoreSettings

    url = (tmp_path / "bucket").as_uri()
    put_ledger(
        open_store(StoreSettings(url)),
        4,
        [message("a"), message("b")],
        layout_uuid := "0" * 8 + "-0000-4000-8000-" + "0" * 12,
    )
    ledger = OffloadedLedger(Position(0, 4, 0), Position(0, 4, 1), layout_uuid, 100, url)
    stores = Stores(StoreSettings((tmp_path / "root").as_uri()))
    view = TopicSnapshot(TOPIC, TopicCatalog.empty(TOPIC), (ledger,))
    (run,) = PlannedReader(stores).read(plan(view))
    assert isinstance(run, EntryRun)
    assert [e.data for e in run.entries()] == [message("a"), message("b")]
    assert not (tmp_path / "root").exists()
    stores.close()


def test_options_that_make_no_sense() -> None:
    with pytest.raises(ConfigError, match="read_size"):
        ReadOptions(read_size=100)
    with pytest.raises(ConfigError, match="prefetch"):
        ReadOptions(prefetch=-1)
