"""Rebuilt again after the application has gone on: there are as many slots as the first rebuild needed, not as there were records."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from offloader.archive.rebuilding.found import NoteKind
from tests.archive.rebuilding.lost import back, going_on, gone, keys, lose_objects, missing, places, records, silent, sure
from tests.archive.rebuilding.support import GIVEN, built, proposed, read, written
from tests.archive.support import Archive, stream

randoms = st.integers(0, 2**32).map(Random)
FIVE = ((0, 9), (10, 14), (15, 19), (20, 24), (25, 29))


def test_what_comes_back_hides_nothing_that_is_still_lost() -> None:
    archive = Archive()
    archive.claim(10)
    for first, last in FIVE:
        archive.add(stream(10, first, last))
    held = gone(archive, [0, 1, 2, 3, 4, 5], keys(2, 3))
    written(archive)
    assert missing(archive) == [((10, 10), (10, 19))]
    going_on(archive).add(stream(10, 30, 39))
    before = records(archive)
    for returned in (keys(2), keys(3)):  # two segments for one slot: neither one alone, nor both
        back(archive, {key: held[key] for key in returned})
        notes = written(archive).notes
        assert {n.key for n in notes if n.kind is NoteKind.LEFT_OUT and "left no slot" in n.message} >= {returned[0]}
        assert (records(archive), missing(archive)) == (before, [((10, 10), (10, 19))])


def test_what_comes_back_elsewhere_is_taken_nevertheless() -> None:
    archive = Archive()
    archive.claim(10)
    for first, last in FIVE:
        archive.add(stream(10, first, last))
    held = gone(archive, [1, 2, 3, 4, 5], keys(1, 2, 4))
    written(archive)
    assert missing(archive) == [((10, 0), (10, 14)), ((10, 20), (10, 24))]
    going_on(archive).add(stream(10, 30, 39))
    back(archive, {key: held[key] for key in keys(1, 4)})
    written(archive)
    assert missing(archive) == [((10, 0), (10, 14))]
    assert places(archive) == {(10, entry) for entry in range(15, 40)}
    assert proposed(archive).new == []


def test_what_comes_back_takes_no_slot_of_the_incarnation_before() -> None:
    archive = Archive()
    archive.claim(10)
    archive.add(stream(10, 0, 9), closed={10: 9})
    archive.add(stream(12, 0, 4), closed={12: 4})
    archive.incarnation = 1
    archive.claim(20, created="later")
    for first, last in FIVE[:3]:
        archive.add(stream(20, first, last))
    held = gone(archive, [2, 4, 5, 6], keys(2, 3, 4))
    written(archive)
    assert missing(archive) == [((10, 10), (20, -1)), ((20, 0), (20, 14))]
    again = going_on(archive)
    again.incarnation = 1
    again.add(stream(20, 20, 24))
    back(archive, {key: held[key] for key in keys(3, 4)})
    written(archive)
    assert missing(archive) == [((10, 10), (20, -1)), ((20, 0), (20, 14))]
    back(archive, held)
    written(archive)
    assert missing(archive) == [((20, 0), (20, 14))]


@given(randoms)
def test_whatever_comes_back_later_nothing_is_silent(random: Random) -> None:
    there = built(random, hide=random.choice([0, 0.15]))
    archive = there.archive
    held = lose_objects(there, random)
    written(archive)
    end = archive.catalog.end
    if end is None or end != there.original.end:
        return  # the application says itself what it has missed
    again = going_on(archive)
    again.incarnation = end.incarnation
    again.add(stream(200, 0, 4) if random.random() < 0.5 else stream(end.ledger, end.entry + 1, end.entry + 5))
    certain = True
    for returned in ({key: data for key, data in held.items() if random.random() < 0.7}, held):
        back(archive, returned)
        certain &= sure(written(archive, replace(GIVEN, at=100)).notes)
        have = {(p.ledger, p.entry) for p, _ in read(archive, archive.catalog)}
        assert not certain or not silent(there, have)
        assert proposed(archive).new == []
