"""What is in no object that is left: a gap of a segment's, where nothing else can have been there, else told of as lost."""

from __future__ import annotations

from tests.archive.rebuilding.lost import back, gone, keys, missing, places
from tests.archive.rebuilding.support import proposed, written
from tests.archive.support import Archive, gap, stream


def test_a_lost_segment_is_told_of_though_another_one_has_a_gap_as_large() -> None:
    archive = Archive()
    archive.claim(10)
    archive.add(stream(10, 0, 9))
    archive.add(stream(10, 10, 10))
    archive.add(stream(10, 11, 15))
    archive.add(stream(10, 17, 19), [gap(10, 16, 16)])
    archive.add(stream(10, 20, 25))
    held = gone(archive, [2, 3, 4], keys(2))
    written(archive)
    # Three records, two objects: one of the holes was a gap, and nobody knows which one.
    assert missing(archive) == [((10, 10), (10, 10)), ((10, 16), (10, 16))]
    assert proposed(archive).new == []
    back(archive, held)
    written(archive)
    assert missing(archive) == []
    assert [(s.start.entry, s.end.entry) for s in archive.catalog.segments] == [(0, 9), (10, 10), (11, 15), (16, 19), (20, 25)]


def test_a_lost_segment_of_two_ledgers_is_told_of_beside_a_gap_of_one_entry() -> None:
    archive = Archive()
    archive.claim(10)
    archive.add(stream(10, 0, 5))
    archive.add(stream(10, 6, 9) + stream(12, 0, 6), closed={10: 9})
    archive.add(stream(12, 7, 9))
    archive.add(stream(12, 11, 15), [gap(12, 10, 10)])
    archive.add(stream(12, 16, 19))
    held = gone(archive, [2, 3, 4], keys(2))
    archive.closed(10, 9)
    written(archive)
    assert missing(archive) == [((10, 6), (12, 6)), ((12, 10), (12, 10))]
    back(archive, held)
    written(archive)
    assert missing(archive) == []
    assert len(places(archive)) == 29


def test_what_no_missing_record_can_have_accounted_for_was_a_gap() -> None:
    archive = Archive()
    archive.claim(10)
    archive.add(stream(10, 0, 9))
    archive.add(stream(10, 10, 14))
    archive.add(stream(10, 18, 19), [gap(10, 15, 17)])
    archive.add(stream(10, 20, 24))
    archive.add(stream(10, 25, 29))
    gone(archive, [3, 4], keys(4))  # the last one's record names the segment that is lost: one record is left, for another
    written(archive)
    assert missing(archive) == [((10, 20), (10, 24))]
    assert [(g.first, g.last) for s in archive.catalog.segments for g in s.gaps] == [(15, 17)]
