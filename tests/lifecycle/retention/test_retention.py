"""Retention over real catalogs: chunked messages, incarnations, what is read for a decision, rights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import TypeVar

import pytest

from offloader.errors import AccessDeniedError, ClaimedByOtherError
from offloader.lifecycle.retention.due_now import planned
from offloader.lifecycle.retention.policy import RetentionPolicy
from offloader.lifecycle.retention.retention import ArchiveRetention
from offloader.metadata import layout
from offloader.metadata.catalog import Catalogs
from offloader.metadata.compaction import compact
from offloader.ports.object_store import ObjectStore
from offloader.storage.forwarding import ForwardingStore, Verb
from tests.archive.spark.world import TopicMaker
from tests.archive.support import TOPIC, Archive, stream
from tests.fakes.faulty import FaultyStore, StoreFault, StoreFaults
from tests.times import MINUTE_MS

from .support import (
    HOUR,
    NOW,
    OLD,
    Clock,
    application,
    incarnations,
    retention,
)

T = TypeVar("T")


def chunked(*sealed_at: int, entries: tuple[int, ...]) -> Archive:
    """Every 15 entries have a chunked message, in the entries 4, 9 and 14 of these."""
    archive = Archive()
    archive.claim(30)
    maker, first = TopicMaker(archive, Random(1)), 0
    for at, count in zip(sealed_at, entries, strict=True):
        archive.sealed_at = at
        maker.segment(30, first, count)
        first += count
    return archive


@pytest.mark.parametrize(
    ("entries", "goes"),
    [
        ((15, 15, 15), ["30:0..30:29"]),
        ((15, 20, 15), ["30:0..30:14"]),  # a message begins at 34, and ends at 44
        ((20, 15, 15), []),  # one begins at 19 and one at 34: neither segment can be spared
        ((18, 12, 15), ["30:0..30:29"]),
    ],
)
def test_a_segment_stays_in_which_a_kept_message_begins(entries, goes):
    archive = chunked(OLD, OLD, NOW, entries=entries)
    found = planned(archive.store, archive.catalogs.head(TOPIC), HOUR, NOW + 10 * MINUTE_MS, None)
    assert [f"{each.range.start}..{each.range.end}" for each in found.due] == goes


def test_each_incarnation_goes_by_itself_and_what_went_side_by_side_is_one_range():
    archive = incarnations()
    gone = retention(archive, RetentionPolicy(gone_minutes=60))
    assert "4 segments" in gone.visit(TOPIC)
    assert "is done" in gone.visit(TOPIC)
    removed = archive.catalogs.head(TOPIC).removed
    [one] = removed.ranges
    assert (one.start.incarnation, one.end.incarnation, one.segments, one.whole) == (0, 1, 4, True)
    assert retention(archive, HOUR).visit(TOPIC) != ""
    retention(archive, HOUR).visit(TOPIC)
    [all_of] = archive.catalogs.head(TOPIC).removed.ranges
    assert (all_of.segments, str(all_of.end), all_of.whole) == (5, "20:9", False)


def test_time_goes_for_each_incarnation_and_leaves_only_the_newest_of_the_present_one():
    archive = incarnations()
    one = retention(archive, HOUR)
    assert "5 segments" in one.visit(TOPIC)
    one.visit(TOPIC)
    kept = [key for key, _ in archive.store.list(layout.topic_folder(TOPIC)) if key.endswith(layout.INDEX)]
    assert kept == [layout.index_key(TOPIC, archive.catalog.segments[-1].uuid)]


def test_a_role_that_may_not_delete_leaves_it_undoable():
    archive = incarnations()
    refused = FaultyStore(archive.store, StoreFaults([StoreFault("delete", error=AccessDeniedError, times=100)]))
    one = retention(archive, HOUR, refused)
    one.visit(TOPIC, noted=False)
    with pytest.raises(AccessDeniedError):
        one.visit(TOPIC, noted=False)
    removed = archive.catalogs.head(TOPIC).removed
    assert removed.pending is not None
    assert removed.begun is None
    retention(archive, HOUR).undelete(TOPIC, "me")
    assert archive.catalogs.head(TOPIC).removed.pending is None


def test_a_decision_reads_the_records_of_what_goes_and_not_all_that_are_kept():
    archive = Archive(sealed_at=OLD)
    archive.claim(0)
    for number in range(200):
        archive.sealed_at = OLD if number < 3 else NOW
        archive.add(stream(0, number, number))
    compact(archive.store, archive.catalogs.head(TOPIC))
    faults = StoreFaults([])
    reached = FaultyStore(archive.store, faults)
    head = Catalogs(reached, "").head(TOPIC)
    before = sum(faults.calls.values())
    found = planned(reached, head, HOUR, NOW + MINUTE_MS, None)
    assert [each.range.segments for each in found.due] == [3]
    # One read for each kept part of the first 64 MiB, for chunks; a look at both objects of what goes; and hardly any
    # for records.
    assert sum(faults.calls.values()) - before < 197 + 2 * 3 + 20


@dataclass(eq=False)
class CountedStore(ForwardingStore):
    store: ObjectStore
    calls: int = 0

    def _call(self, verb: Verb, key: str, work: Callable[[], T]) -> T:
        self.calls += 1
        return work()


def test_a_catalog_that_is_as_it_was_is_not_read_again_before_something_is_due():
    archive, clock = Archive(sealed_at=NOW), Clock()
    archive.claim(0)
    for number in range(30):
        archive.add(stream(0, 10 * number, 10 * number + 9))
    counted = CountedStore(archive.store)
    one = application(archive, clock, HOUR, store=counted)
    one.visit(TOPIC, noted=False)
    costs = []
    for _ in range(5):
        before = counted.calls
        clock.now += 10 * MINUTE_MS
        assert one.visit(TOPIC, noted=False) == ""
        costs.append(counted.calls - before)
    assert max(costs) <= 4
    archive.sealed_at = NOW + 50 * MINUTE_MS
    archive.add(stream(0, 300, 309))
    clock.now += 10 * MINUTE_MS + 1
    assert "30 segments" in one.visit(TOPIC, noted=False)
    before = counted.calls
    clock.now += MINUTE_MS
    one.visit(TOPIC)
    assert counted.calls > before + 6, "the look at what is recorded"
    before = counted.calls
    clock.now += MINUTE_MS
    one.visit(TOPIC)
    assert counted.calls <= before + 6, "as it was, and not time yet"
    clock.now += 10 * MINUTE_MS
    assert "is done" in one.visit(TOPIC)


def test_what_another_application_has_is_left_to_it():
    archive = incarnations()
    one = retention(archive, HOUR)
    other = ArchiveRetention(replace(one.deletion, by="other"), one.policy_of, one.gone_since, MINUTE_MS)
    one.visit(TOPIC)
    assert other.visit(TOPIC) == ""
    assert one.deletion.marked() == [TOPIC]
    for ask in (other.delete, other.undelete):
        with pytest.raises(ClaimedByOtherError, match="claimed by app: ask that application"):
            ask(TOPIC, "me")
    assert "is done" in one.visit(TOPIC)
    assert one.deletion.marked() == []
