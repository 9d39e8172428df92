"""`offloader topics cursors show`: subscriptions as they are copied, and their backlog against the archive."""

from __future__ import annotations

import itertools

import pytest

from offloader.cursors.copies import CopiedCursor, CursorCopy, CursorSource, pieces_of
from offloader.cursors.copy_store import write_copy
from offloader.model import AcknowledgedRange, PartlyAcknowledged, TopicName
from tests.archive.support import TOPIC, gap, stream
from tests.archive.test_deleted import append, deleting

LENGTHS = [(1, 20), (2, None)]


def copy(at, mark, name="job", topic=TOPIC, missing=()):
    ranges = [AcknowledgedRange((1, 11), (1, 13)), AcknowledgedRange((2, 1), (2, 2))]
    pieces = pieces_of(mark, ranges, [PartlyAcknowledged(1, 15, (0x3E0,))], LENGTHS)
    cursor = CopiedCursor(name, mark, pieces, sources=(CursorSource.BROKER,), missing=missing)
    other = CopiedCursor("other", (2, 9))
    return CursorCopy(topic, 0, at, (cursor, other))


@pytest.fixture
def copied(line):
    line.root()
    line.archive.claim(1)
    line.archive.add(stream(1, 0, 17) + stream(1, 19, 19), [gap(1, 18, 18)])
    line.archive.add(stream(2, 0, 4), closed={1: 19})
    token = map(str, itertools.count()).__next__
    for one in (copy(1_000, (1, 3)), copy(2_000, (1, 9), missing=("batches are not known",))):
        write_copy(line.archive.store, one, token, None)
    return line


def test_the_newest_copy_is_shown_with_its_backlog(copied) -> None:
    job, other = copied.json("topics", "cursors", "show", str(TOPIC))
    assert (job["topic"], job["subscription"], job["copied"]) == (str(TOPIC), "job", 2_000)
    assert (job["mark delete"], job["ranges"], job["acknowledged"], job["batches"]) == ("1:9", 2, 3, 1)
    # 10 entries of ledger 1 behind it, one of them a gap and two acknowledged; 5 of ledger 2, one acknowledged
    assert job["backlog"] == 7 + 4
    assert job["bytes"] > 0
    assert (job["read from"], job["note"]) == ("broker", "batches are not known")
    assert (other["subscription"], other["backlog"], other["bytes"]) == ("other", 0, 0)


def test_the_copy_of_a_moment_is_shown(copied) -> None:
    expected = copied.json("topics", "cursors", "show", str(TOPIC), "--at", "1500", "--subscription", "job")
    assert [(one["copied"], one["mark delete"]) for one in expected] == [(1_000, "1:3")]
    assert copied.json("topics", "cursors", str(TOPIC), "--at", "1500", "--subscription", "job") == expected
    assert copied.json("topics", "cursors", str(TOPIC), "--at=1500", "--subscription", "job") == expected


def test_a_copy_that_is_damaged_of_one_subscription_shows_the_others(copied) -> None:
    token = map(str, itertools.count(200)).__next__
    known = copy(3_000, (1, 3))
    damaged = CopiedCursor("damaged", (1, 3), {1: b"junk"})
    write_copy(copied.archive.store, CursorCopy(TOPIC, 0, 3_000, (damaged, *known.cursors)), token, None)
    first, job, other = copied.json("topics", "cursors", "show", str(TOPIC))
    assert (first["mark delete"], first["backlog"]) == ("1:3", None)
    assert "damaged: " in first["note"]
    assert (job["ranges"], other["subscription"]) == (2, "other")
    copied.config += "gateway: {durableSubscriptions: true}\n"
    error = copied.error("gateway", "subscriptions", "import", str(TOPIC), "damaged")
    assert "subscription damaged: " in error


def test_text_is_for_people(copied) -> None:
    text = copied.ok("topics", "cursors", "show", str(TOPIC))
    assert "1970-01-01T00:00:02.000Z" in text
    assert "1:9" in text


def test_where_there_is_no_copy_the_setting_is_named(copied) -> None:
    assert "policies.archiveCursors: true" in copied.error("topics", "cursors", "show", "public/default/none")
    assert "1970-01-01T00:00:01.000Z" in copied.error("topics", "cursors", "show", str(TOPIC), "--at", "999")
    assert "no subscription nobody" in copied.error("topics", "cursors", "show", str(TOPIC), "--subscription", "nobody")


def test_partitions_are_shown_together(copied) -> None:
    token = map(str, itertools.count(100)).__next__
    parts = [TopicName.parse(f"public/default/parts-partition-{number}") for number in range(2)]
    for part in parts:
        write_copy(copied.archive.store, copy(5, (1, 1), topic=part), token, None)
    found = copied.json("topics", "cursors", "show", "public/default/parts", "--subscription", "job")
    assert [one["topic"] for one in found] == [str(part) for part in parts]


def test_what_retention_has_deleted_is_no_backlog(copied) -> None:
    append(copied.archive, deleting(copied.archive, 1))  # ledger 1
    job, _ = copied.json("topics", "cursors", "show", str(TOPIC))
    assert job["backlog"] == 4
