"""The second look: what is disproven is taken back, what is not known yet waits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.archive.items import ArchivedEntry
from offloader.lifecycle.retention import holdings as holdings_module
from offloader.lifecycle.retention.policy import RetentionPolicy
from offloader.lifecycle.retention.retention import GoneDoubt
from offloader.metadata.deletions import TopicGone
from tests.archive.support import TOPIC, Archive, stream
from tests.archive.test_deleted import topic_of
from tests.format.support import Stored, checksummed
from tests.times import MINUTE_MS

from .support import (
    HOUR,
    NOW,
    OLD,
    Clock,
    append,
    application,
    incarnations,
    told,
)


def test_what_is_only_not_known_yet_neither_goes_nor_is_taken_back():
    archive, clock = incarnations(), Clock()
    append(archive, TopicGone(2, OLD))
    policy = RetentionPolicy(gone_minutes=60)
    assert "6 segments" in application(archive, clock, policy, gone=OLD).visit(TOPIC)
    slots = archive.catalogs.head(TOPIC).next_slot
    clock.now += 11 * MINUTE_MS
    doubtful = application(archive, clock, policy, gone=GoneDoubt.NOT_KNOWN_YET)
    for _ in range(20):
        assert "not known yet" in doubtful.visit(TOPIC)
    assert archive.catalogs.head(TOPIC).next_slot == slots
    held = replace(policy, hold="case 4711")
    assert "is done" in application(archive, clock, policy, gone=OLD).visit(TOPIC)
    assert "held by" not in application(archive, clock, held, gone=GoneDoubt.NOT_KNOWN_YET).visit(TOPIC)


@pytest.mark.parametrize("change", ["hold", "back", "claimed"])
def test_what_is_disproven_is_taken_back_also_while_it_is_not_known_whether_the_topic_is_gone(change):
    archive, clock = incarnations(), Clock()
    append(archive, TopicGone(2, OLD))
    policy = RetentionPolicy(gone_minutes=60)
    application(archive, clock, policy, gone=OLD).visit(TOPIC)
    gone: GoneDoubt | None = GoneDoubt.NOT_KNOWN_YET
    if change == "hold":
        policy = replace(policy, hold="case 4711")
    if change == "back":
        gone = None
    if change == "claimed":
        claim = archive.catalogs.head(TOPIC).claim
        assert claim is not None
        append(archive, replace(claim, at=NOW + 1))
    assert "is undone" in application(archive, clock, policy, gone=gone).visit(TOPIC)


def test_what_does_not_depend_on_whether_the_topic_is_gone_goes_meanwhile():
    archive, clock = incarnations(), Clock()
    append(archive, TopicGone(2, OLD))
    one = application(archive, clock, HOUR, gone=GoneDoubt.NOT_KNOWN_YET)
    assert "5 segments" in one.visit(TOPIC)
    clock.now += 11 * MINUTE_MS
    assert "is done" in one.visit(TOPIC)


def chunk(entry: int, number: int, message: int = 7) -> Stored:
    metadata = MessageMetadata(
        producer_name="p",
        sequence_id=message,
        publish_time=1_700_000_000_000,
        uuid=f"p-{message}",
        num_chunks_from_msg=2,
        chunk_id=number,
        total_chunk_msg_size=100,
    )
    return Stored(0, entry, checksummed(metadata, b"x" * 50))


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("longer", [False, True])
def test_a_segment_stays_in_which_a_message_begins_that_was_sealed_in_the_grace(asked, longer):
    """`longer`: more goes by now than was recorded, but that is not what is about to go."""
    archive, clock = Archive(sealed_at=OLD), Clock()
    archive.claim(0)
    archive.add([*stream(0, 0, 8), chunk(9, 0)])
    archive.sealed_at = NOW - 55 * MINUTE_MS if longer else NOW
    archive.add(stream(0, 10, 19))
    if asked:
        one = application(archive, clock, RetentionPolicy())
        one.delete(TOPIC, "me")
    else:
        one = application(archive, clock, HOUR)
        one.visit(TOPIC)
    assert told(archive) == [("0:0", "0:9")]
    archive.sealed_at = NOW + MINUTE_MS
    archive.add([chunk(20, 1), *stream(0, 21, 29)])
    archive.add(stream(0, 30, 39))
    clock.now += 11 * MINUTE_MS
    assert "is undone: a message begins in it" in one.visit(TOPIC)
    for _ in range(3):
        clock.now += 11 * MINUTE_MS
        one.visit(TOPIC)
    got = [item.position.place for item in topic_of(archive.store).items() if isinstance(item, ArchivedEntry)]
    assert ((0, 9) in got) == ((0, 20) in got)


@pytest.mark.parametrize("free", [None, 2])
def test_what_the_second_look_would_take_back_is_never_recorded(free, monkeypatch):
    """A message reaches across the end of each segment, but of the one that is `free`: segments that are larger than
    readers look back."""
    archive, clock = Archive(sealed_at=OLD), Clock()
    archive.claim(0)
    for number in range(6):
        first = 10 * number
        begins = chunk(first + 9, 0, number) if number != free else stream(0, first + 9, first + 9)[0]
        ends = chunk(first, 1, number - 1) if number not in (0, (free or -9) + 1) else stream(0, first, first)[0]
        archive.add([ends, *stream(0, first + 1, first + 8), begins])
    monkeypatch.setattr(holdings_module, "LOOK_BACK", archive.catalog.segments[0].size // 2)
    one = application(archive, clock, HOUR)
    before = archive.catalogs.head(TOPIC).next_slot
    for _ in range(4):
        one.visit(TOPIC)
        clock.now += 11 * MINUTE_MS
    assert told(archive) == ([] if free is None else [("0:0", "0:29")])
    assert archive.catalogs.head(TOPIC).next_slot - before == (0 if free is None else 3)
