"""A topic that changes while it is read: it goes on, parts of it are deleted, its store is away."""

from __future__ import annotations

import contextlib
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.archive.ledgers.bucket import LedgerBucket
from offloader.archive.opened import OpenArchive
from offloader.archive.reading.reader import ReadOptions
from offloader.archive.reading.stores import Stores
from offloader.cursors.core.records import DELETED_ON, CursorMarker
from offloader.errors import DamagedObjectError, DataLostError, FatalError, StoreUnavailableError
from offloader.format.entry import ABORT_MARKER
from offloader.gateway.core.events import EntryAck
from offloader.gateway.entries.archived import ArchivedTopicEntries
from offloader.gateway.entries.missing import OnMissing
from offloader.gateway.entries.reader import KeptReaders
from offloader.gateway.topic_entries import DeletedSegment, TopicEntries
from offloader.gateway.topics.acks import SubscriptionAcks, VolatileCursor, position_of
from offloader.gateway.values import ServedEntry
from offloader.metadata import layout, stock_keys
from offloader.metadata.deletions import Deleted, DeletionBegun, DeletionUndone, SegmentRange
from offloader.model import Place, Position
from offloader.storage.memory import MemoryStore
from offloader.storage.settings import StoreSettings
from tests.archive.bridges import fresh_bucket
from tests.archive.bridges import opened as bucket_of
from tests.archive.ledgers.support import put_ledger
from tests.archive.mixed import Asked, MixedTopic
from tests.archive.support import TOPIC, Archive, gap, message, stream, uuid_of
from tests.archive.test_deleted import WHOLE, append, archived, delete, deleting
from tests.fakes.faulty import FaultyStore, StoreFault, StoreFaults
from tests.format.support import Stored, checksummed

from .test_read import LARGEST, read_all, read_on
from .topics import opened

BEFORE_ALL = (-1, -1)


def places(entries: ArchivedTopicEntries, after: Place = BEFORE_ALL) -> list[Place]:
    return [each.place for each in read_all(entries, after)]


def aborted(entry: int, *, marker: bool = False) -> Stored:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, txnid_most_bits=0, txnid_least_bits=5)
    if marker:
        metadata.marker_type = ABORT_MARKER
    return Stored(1, entry, checksummed(metadata))


def test_what_is_sealed_since_is_there_after_a_refresh() -> None:
    archive = archived(2)
    entries = opened(archive.store)
    assert places(entries) == WHOLE[:20]
    assert not entries.refresh()
    before = entries.end()
    archive.add(stream(1, 0, 9))
    assert places(entries) == WHOLE[:20]
    assert entries.end() == before
    assert entries.refresh()
    assert places(entries, WHOLE[19]) == WHOLE[20:30]
    assert entries.end().last == (1, 9)
    assert list(entries.ledgers()) == [(0, 0, 19), (0, 1, 9)]
    archive.add(stream(1, 10, 14))
    assert entries.refresh()
    assert list(entries.ledgers()) == [(0, 0, 19), (0, 1, 14)]
    assert places(entries, (1, 7)) == [(1, entry) for entry in range(8, 15)]


def test_what_is_missing_at_the_end_is_covered() -> None:
    archive = archived(1)
    archive.add(stream(0, 10, 11), [gap(0, 12, 14)])
    archive.lose(Position(0, 0, 15), Position(0, 0, 17))
    entries = opened(archive.store, OnMissing.SKIP)
    read = entries.read((0, 9), 100, 10**6)
    while read.covered is not None:
        after = read.covered
        read = entries.read(after, 100, 10**6)
    assert after == (0, 17)
    assert entries.passed_over == 1
    assert entries.previous(LARGEST) == (0, 17)


def test_a_reader_goes_on_into_what_was_sealed_since() -> None:
    archive = archived(2)
    entries = opened(archive.store)
    assert entries.read(BEFORE_ALL, 10, 10**6).covered == (0, 9)
    assert entries.read((0, 9), 5, 10**6).covered == (0, 14)
    archive.add(stream(1, 0, 9))
    entries.refresh()
    assert places(entries, (0, 14)) == WHOLE[15:30]


def test_a_loss_that_is_recorded_later_is_known_after_a_refresh() -> None:
    archive = archived(2)
    entries = opened(archive.store)
    assert entries.missing_behind(BEFORE_ALL) is None
    archive.lose(Position(0, 1, 0), Position(0, 1, 4))
    assert entries.missing_behind(BEFORE_ALL) is None
    entries.refresh()
    assert entries.missing_behind((1, 3)) == f"{TOPIC}: 1:0..1:4 is missing: lost: trimmed (accepted by accept-loss)"
    assert entries.missing_behind((1, 4)) is None


def test_an_abort_that_is_archived_later_counts_also_for_what_was_read_ahead() -> None:
    archive = Archive()
    archive.claim(1)
    archive.add([Stored(1, 0, message("a")), aborted(1), Stored(1, 2, message("b"))])
    entries = opened(archive.store)
    assert entries.read(BEFORE_ALL, 1, 10**6).covered == (1, 0)
    archive.add([aborted(3, marker=True)])
    entries.refresh()
    assert places(entries, (1, 0)) == [(1, 2)]
    assert entries.again([(1, 1)]) == []
    assert entries.end().last == (1, 2)


def test_whoever_begins_at_the_earliest_misses_nothing_of_what_retention_deleted() -> None:
    archive = archived()
    delete(archive, 3)
    entries = opened(archive.store)
    assert entries.missing_behind(BEFORE_ALL) is None
    assert places(entries) == WHOLE[30:]
    assert entries.previous((0, 0)) == BEFORE_ALL
    assert list(entries.ledgers()) == [(0, 1, 19), (0, 2, 9)]


def test_a_ledger_of_which_all_was_deleted_is_none() -> None:
    archive = archived()
    delete(archive, 2)
    entries = opened(archive.store)
    assert list(entries.ledgers()) == [(0, 1, 19), (0, 2, 9)]
    assert entries.previous((0, 5)) == BEFORE_ALL


@pytest.mark.parametrize("after", [(0, 5), (0, 19), (1, 3)])
def test_whoever_stood_where_retention_deleted_is_told(after: Place) -> None:
    archive = archived()
    delete(archive, 3)
    failing, skipping = opened(archive.store), opened(archive.store, OnMissing.SKIP)
    assert "0:0..1:9 is missing: deleted by" in (failing.missing_behind(after) or "")
    for _ in range(2):
        with pytest.raises(DataLostError, match=rf"{after[0]}:{after[1] + 1}\.\.1:9 is missing: deleted by"):
            failing.read(after, 10, 10**6)
    assert places(skipping, after) == WHOLE[30:]
    assert skipping.passed_over == 1
    assert failing.missing_behind((1, 9)) is None


def test_a_segment_that_retention_deletes_between_plan_and_reading_is_none_for_the_earliest() -> None:
    archive = archived()
    entries = opened(archive.store)
    delete(archive, 2)
    assert places(entries) == WHOLE[20:]
    with pytest.raises(DataLostError, match=r"0:6\.\.0:9 is missing: deleted by"):
        entries.read((0, 5), 10, 10**6)


def test_a_topic_that_is_not_there_or_not_any_more_says_so() -> None:
    with pytest.raises(FatalError, match="is not in the archive"):
        opened(MemoryStore())
    archive = archived(2)
    entries = opened(archive.store)
    archive.store.delete([key for key, _ in archive.store.list()])
    for _ in range(2):
        with pytest.raises(FatalError, match="is not in the archive"):
            entries.read(BEFORE_ALL, 10, 10**6)
    with pytest.raises(FatalError, match="is not in the archive"):
        entries.refresh()


def test_damage_fails_or_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    archive = archived(3)
    key = layout.data_key(TOPIC, archive.catalog.segments[1].uuid)
    data = bytearray(archive.store.read(key)[0])
    data[300] ^= 1
    archive.store.put(key, bytes(data))
    failing, skipping = opened(archive.store), opened(archive.store, OnMissing.SKIP)
    found_before: list[ServedEntry] = []
    with pytest.raises(DamagedObjectError, match=key):
        read_on(failing, BEFORE_ALL, found_before)
    assert [each.place for each in found_before][:10] == WHOLE[:10]
    with caplog.at_level(logging.WARNING):
        found = places(skipping)
        assert places(skipping) == found
    assert set(found) < set(WHOLE[:30])
    assert {*WHOLE[:10], *WHOLE[20:30]} < set(found)
    assert skipping.passed_over >= 2
    assert len([each for each in caplog.records if "is missing" in each.message]) == skipping.passed_over / 2


def test_a_store_that_is_away_is_told_and_the_next_call_works() -> None:
    archive, faults = archived(), StoreFaults(seed=3)
    store = FaultyStore(archive.store, faults)
    entries = opened(store)
    faults.at_random(0.3, StoreFault("read"))
    found, after, failed = [], BEFORE_ALL, 0
    while True:
        try:
            read = entries.read(after, 3, 10**6)
        except StoreUnavailableError:
            failed += 1
            continue
        if read.covered is None:
            break
        found += [each.place for each in read.entries]
        after = read.covered
    assert failed > 3
    assert found == WHOLE
    for call in (entries.refresh, entries.end, lambda: entries.again(WHOLE[3:5]), lambda: entries.before_time(2**60)):
        faults.clear()
        faults.add(StoreFault("*", times=1))
        with contextlib.suppress(StoreUnavailableError):
            call()
        call()


@pytest.mark.parametrize("asked", Asked)
@pytest.mark.parametrize("seed", range(25))
def test_topics_in_every_state_are_delivered_as_the_archive_reads_them(seed: int, asked: Asked) -> None:
    """Stock ledgers, bridged ones, segments that were handed over, and what is deleted."""
    topic = MixedTopic(seed)
    archive = topic.reader(asked, 4096)
    expected = [entry.position.place for entry in archive.topic(TOPIC).entries()]
    entries = ArchivedTopicEntries(
        archive._opened, TOPIC, KeptReaders(), on_missing=OnMissing.SKIP, options=ReadOptions(read_size=1024)
    )
    assert places(entries) == expected
    for after in expected[::3]:
        assert places(entries, after) == [each for each in expected if each > after]
    assert entries.end().last == (expected[-1] if expected else None)
    assert [each.place for each in entries.again(expected[::2])] == expected[::2]
    assert {each[1] for each in entries.ledgers()} >= {place[0] for place in expected}


@pytest.mark.parametrize("asked", Asked)
@pytest.mark.parametrize("seed", range(25))
def test_what_is_deleted_counts_as_acknowledged_and_nothing_that_is_left_before_it(seed: int, asked: Asked) -> None:
    """Ledgers that brokers have offloaded by themselves stay, whatever retention deletes behind them."""
    archive = MixedTopic(seed).reader(asked, 4096)
    entries = ArchivedTopicEntries(archive._opened, TOPIC, KeptReaders(), on_missing=OnMissing.SKIP)
    ledgers = entries.ledgers()
    acks = SubscriptionAcks(VolatileCursor(CursorMarker(position_of(BEFORE_ALL, ledgers))))
    acks.skip_deleted(entries.deleted_behind(acks.cursor.mark_delete), ledgers)
    found, after = list[Place](), acks.advance(ledgers)
    while (read := entries.read(after, 7, 10**6)).covered is not None:
        found += [each.place for each in acks.not_acknowledged(read, after, ledgers).entries]
        after = read.covered
    assert found == places(entries)
    for ledger, entry in found:
        acks.apply([EntryAck((ledger, entry), 0)], ledgers, {})
    acks.skip_deleted(entries.deleted_behind(acks.cursor.mark_delete), ledgers)
    assert acks.advance(ledgers) >= after


@pytest.mark.parametrize("undone", [True, False])
def test_what_may_still_be_taken_back_is_acknowledged_by_nobody(undone: bool) -> None:
    archive = archived(5)
    entries = opened(archive.store)
    cursor = VolatileCursor(CursorMarker(position_of(BEFORE_ALL, entries.ledgers())))
    acks = SubscriptionAcks(cursor)
    acks.apply([EntryAck(place, 0) for place in WHOLE if place[0] or place[1] < 5], entries.ledgers(), {})
    record = deleting(archive, 2)  # ledger 0
    append(archive, record)
    entries.refresh()
    assert acks.advance(entries.ledgers(), entries.absent_for_now()) == (0, -1)
    append(archive, DeletionUndone(0, "me", "", 2) if undone else DeletionBegun(0, "app", 2))
    if not undone:
        append(archive, Deleted(0, record.ranges, record.reason, record.policy, record.by, record.at))
    entries.refresh()
    acks.skip_deleted(entries.deleted_behind(acks.cursor.mark_delete), entries.ledgers())
    assert acks.advance(entries.ledgers(), entries.absent_for_now()) == ((0, 4) if undone else (2, 9))
    counts = [count for name, count in cursor.properties if name.startswith(DELETED_ON)]
    assert counts == ([] if undone else [15])


def test_what_is_taken_back_while_it_is_read_over_is_acknowledged_by_nobody() -> None:
    """A read takes as long as the store does."""
    archive = archived(5)
    entries = opened(archive.store)
    acks = SubscriptionAcks(VolatileCursor(CursorMarker(position_of(BEFORE_ALL, entries.ledgers()))))
    append(archive, deleting(archive, 2))  # ledger 0
    entries.refresh()
    absent, read = entries.absent_for_now(), entries.read(BEFORE_ALL, 100, 10**6)
    assert read.entries[0].place[0] > 0
    append(archive, DeletionUndone(0, "me", "", 2))
    entries.refresh()
    ledgers = entries.ledgers()
    assert acks.not_acknowledged(read, BEFORE_ALL, ledgers, absent) == read
    assert acks.advance(ledgers) == (0, -1)


@pytest.mark.parametrize("is_late", [True, False])
def test_what_goes_or_comes_back_while_deletions_are_looked_at_is_not_passed_over(is_late: bool) -> None:
    """A ledger before what is deleted: another thread looks at the topic between two questions."""
    archive = archived(5)
    record = deleting(archive, 2)
    append(archive, record)
    append(archive, DeletionBegun(0, "app", 2))
    append(archive, Deleted(0, record.ranges, record.reason, record.policy, record.by, record.at))
    before, entries = Position(0, 0, 0), opened(archive.store)
    (deleted, *_) = entries.deleted_behind(Position(0, -1, -1))
    away = [SegmentRange(before, before)]

    class Flapping(ArchivedTopicEntries):
        def __init__(self) -> None:
            self.absent = [[], away] if is_late else [away, []]

        def absent_for_now(self) -> list[SegmentRange]:
            return self.absent.pop(0)

        def deleted_behind(self, position: Position) -> list[DeletedSegment]:
            return [deleted._replace(segment=replace(deleted.segment, start=before.next_entry))]

        def ledgers(self) -> list[tuple[int, int, int]]:
            return [(0, 9, 9)]

    acks = SubscriptionAcks(VolatileCursor(CursorMarker(Position(0, -1, -1))))
    acks.skip_what_is_deleted(Flapping())
    assert acks.cursor.mark_delete < before


@pytest.mark.parametrize("on_missing", OnMissing)
def test_a_ledger_that_cannot_be_read_for_a_moment_is_acknowledged_by_nobody(on_missing: OnMissing) -> None:
    """Brokers have offloaded it by themselves; its index is away, and comes back. Who passes over it has said so."""
    archive, bucket = Archive(), fresh_bucket()
    brokers = bucket_of(bucket)
    for ledger in (1, 2):
        put_ledger(brokers, ledger, [message("x"), message("y")], uuid_of(ledger))
    archive.claim(3)
    archive.add(stream(3, 0, 1), closed={3: 1})
    index = stock_keys.index_key(uuid_of(2), 2)
    data, stat = brokers.read(index)

    def entries() -> ArchivedTopicEntries:
        described = StoreSettings(bucket)
        stores = Stores(
            StoreSettings("memory://unused"), [described], borrowed=archive.store, opener=lambda s: bucket_of(s.root)
        )
        opened_archive = OpenArchive(stores, LedgerBucket(described))
        return ArchivedTopicEntries(opened_archive, TOPIC, KeptReaders(), on_missing=on_missing)

    there = entries()
    acks = SubscriptionAcks(VolatileCursor(CursorMarker(position_of(BEFORE_ALL, there.ledgers()))))
    done = [EntryAck(place, 0) for place in ((1, 0), (1, 1), (3, 0))]  # a consumer has those of ledger 2
    brokers.delete([index])
    away = entries()
    acks.apply(done, away.ledgers(), {})
    acks.skip_deleted((), away.ledgers(), away.absent_for_now())
    fails = on_missing is OnMissing.FAIL
    assert acks.advance(away.ledgers(), away.absent_for_now()) == ((1, 1) if fails else (3, 0))
    brokers.put(index, data, meta=stat.meta)
    back = entries()
    assert back.absent_for_now() == ()
    assert acks.advance(back.ledgers(), back.absent_for_now()) == ((1, 1) if fails else (3, 0))


@pytest.mark.parametrize(("second", "served"), [(1, [(1, 0), (1, 1)]), (5, [(5, 0), (5, 1), (7, 0), (7, 1)])])
def test_incarnations_follow_each_other_as_far_back_as_ledger_ids_grow(second: int, served: list[Place]) -> None:
    archive = Archive()
    for incarnation, ledger in enumerate([5, 7, second] if second == 1 else [second, 7]):
        archive.incarnation = incarnation
        archive.claim(ledger, created=incarnation)
        archive.add(stream(ledger, 0, 1), closed={ledger: 1})
    entries = opened(archive.store)
    assert places(entries) == served
    assert entries.end().last == served[-1]
    assert [each[1] for each in entries.ledgers()] == sorted({place[0] for place in served})
    assert entries.before_time(2**60) == served[-1]
    assert entries.before_time(0) == BEFORE_ALL
    assert [each.place for each in entries.again([(5, 0), (1, 0)])] == [
        each for each in [(1, 0), (5, 0)] if each in served
    ]


def test_an_incarnation_whose_ledger_ids_began_anew_takes_the_place_of_what_was_served() -> None:
    archive = Archive()
    archive.claim(5)
    archive.add(stream(5, 0, 1), closed={5: 1})
    entries = opened(archive.store)
    assert places(entries) == [(5, 0), (5, 1)]
    assert (list(entries.ledgers()), entries.missing_behind(BEFORE_ALL)) == ([(0, 5, 1)], None)
    archive.incarnation = 1
    archive.claim(2, created=2)
    archive.add(stream(2, 0, 1))
    assert entries.refresh()
    assert places(entries) == [(2, 0), (2, 1)]
    assert (list(entries.ledgers()), entries.missing_behind(BEFORE_ALL)) == ([(1, 2, 1)], None)


def test_a_topic_of_which_nothing_is_sealed_yet() -> None:
    archive = Archive()
    archive.claim(1)
    entries = opened(archive.store)
    assert entries.read(BEFORE_ALL, 10, 10) == ([], None)
    assert entries.end() == (None, 0, False)
    assert entries.again([(1, 2)]) == []
    assert (entries.previous(LARGEST), entries.before_time(5), list(entries.ledgers())) == (BEFORE_ALL, BEFORE_ALL, [])
    archive.add(stream(1, 0, 3))
    assert entries.refresh()
    assert places(entries) == [(1, 0), (1, 1), (1, 2), (1, 3)]


def test_whether_a_topic_was_terminated_is_asked_when_it_grows_and_else_once_a_minute() -> None:
    """Whoever acknowledges at its end asks for it each time."""
    made, asked, now = archived(5), list[float](), 0.0

    def is_terminated() -> bool:
        asked.append(now)
        return len(asked) > 2

    entries = ArchivedTopicEntries(
        OpenArchive(Stores.of(made.store)), TOPIC, KeptReaders(), is_terminated=is_terminated, clock=lambda: now
    )
    for second in range(130):
        now = float(second)
        entries.refresh()
        assert entries.end().terminated == (second >= 91)
        if second == 30:
            made.add(stream(4, 0, 1))
    assert asked == [0, 31, 91]


def test_a_terminated_topic_says_so() -> None:
    archive = OpenArchive(Stores.of(archived(1).store))
    entries: TopicEntries = ArchivedTopicEntries(archive, TOPIC, KeptReaders(), is_terminated=lambda: True)
    assert entries.end() == ((0, 9), 1, True)


def test_reading_on_asks_the_store_for_nothing_twice_whoever_else_reads() -> None:
    archive, faults = archived(), StoreFaults()
    entries = opened(FaultyStore(archive.store, faults), read_size=10**6)
    assert len(places(entries)) == 50
    once = faults.calls["read"]
    at: list[Place | None] = [BEFORE_ALL] * 5
    while any(place is not None for place in at):
        for number, after in enumerate(at):
            if after is not None:
                at[number] = entries.read(after, 4, 10**6).covered
    assert faults.calls["read"] <= 6 * once
    known = faults.calls["read"]
    assert [each.place for each in entries.again(WHOLE[5:40])] == WHOLE[5:40]
    assert faults.calls["read"] == known, "what was just read is kept"


def test_only_so_many_readers_are_kept_and_none_of_a_closed_topic() -> None:
    kept = KeptReaders(most_readers=3, most_bytes=0)
    entries = opened(archived().store, kept=kept)
    for number, entry in enumerate(range(8, 0, -1), 1):
        entries.read((0, entry), 1, 1)
        assert len(kept._readers) == min(number, 3)
    assert not kept._runs
    assert kept._bytes == 0
    readers = list(kept._readers)
    entries.close()
    assert not kept._readers
    assert all(reader.is_over for reader in readers)
    entries.read(BEFORE_ALL, 1, 1)
    assert not kept._readers


def test_threads_read_while_others_refresh_and_all_get_everything() -> None:
    archive = archived(1)
    entries = opened(archive.store, prefetch=1)
    done = threading.Event()

    def read(_: int) -> list[Place]:
        found: list[Place] = []
        after = BEFORE_ALL
        while True:
            over = done.is_set()
            read = entries.read(after, 3, 10**6)
            found += [each.place for each in read.entries]
            if read.covered is None and over:
                return found
            after = read.covered or after

    with ThreadPoolExecutor(5) as pool:
        reading = [pool.submit(read, number) for number in range(4)]
        for number in range(1, 5):
            ledger, half = divmod(number, 2)
            archive.add(stream(ledger, 10 * half, 10 * half + 9), closed={ledger: 19} if half else {})
            entries.refresh()
        done.set()
        assert [each.result() for each in reading] == [WHOLE] * 4


def test_a_reader_that_stands_at_the_end_goes_on_behind_it() -> None:
    archive = Archive()
    archive.claim(1)
    archive.add(stream(1, 0, 99))
    entries = opened(archive.store, read_size=10**6)
    after, found = BEFORE_ALL, list[Place]()
    while len(found) < 100:
        read = entries.read(after, 100, 10**6)
        found += [each.place for each in read.entries]
        after = read.covered or after
    archive.add(stream(1, 100, 101))
    entries.refresh()
    assert [each.place for each in entries.read(after, 10, 10**6).entries] == [(1, 100), (1, 101)]
