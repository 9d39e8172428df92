"""Whether the archive has a whole ledger: every entry in a committed segment or in a gap, else the reason."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offloader.bridge.core.coverage import LedgerCoverage, UncommittedLedger, cover
from offloader.bridge.core.rounds import BridgeVerdict, UnbridgedLedger
from offloader.errors import IntegrityError
from offloader.metadata.deletions import DeletionReason, buried
from offloader.model import EntryRange, Loss, Position

from .support import ArchivedTopic, archived, topics

FEWER = settings(max_examples=max(settings.default.max_examples // 5, 10))
LEDGERS = {4: [b"a"] * 3, 5: [b"b"] * 10, 6: [b"c"] * 2}


def verdict(found: object) -> tuple[BridgeVerdict, str]:
    assert isinstance(found, UnbridgedLedger), found
    return found.verdict, found.why


def lost(first: tuple[int, int], last: tuple[int, int]) -> Loss:
    return Loss(Position(0, *first), Position(0, *last), "the ledger was deleted", "ops", 1)


@FEWER
@given(topics(), st.randoms(use_true_random=False))
def test_every_entry_is_held_once_or_missing(topic: ArchivedTopic, random) -> None:
    """Whatever order the records come in."""
    shuffled = random.sample(topic.segments, len(topic.segments))
    for ledger, entries in topic.entries.items():
        covered = cover(shuffled, (), None, ledger, len(entries) - 1)
        assert isinstance(covered, LedgerCoverage)
        held = [entry for ranges in covered.held for each in ranges for entry in each.ids]
        assert held == sorted(held)
        assert sorted([*held, *(entry for each in covered.missing for entry in each.ids)]) == list(range(len(entries)))
        assert [s.start for s in covered.segments] == sorted(s.start for s in covered.segments)
        assert covered.length == sum(len(entries[entry]) for entry in held)
        assert all(
            before.after < after.first for before, after in zip(covered.missing, covered.missing[1:], strict=False)
        )


@FEWER
@given(topics())
def test_what_is_not_committed_yet_is_waited_for(topic: ArchivedTopic) -> None:
    *committed, newest = topic.segments
    ledger, entry = newest.start.place
    last = len(topic.entries[ledger]) - 1
    found = cover(committed, (), None, ledger, last)
    before = any(segment.end.ledger == ledger for segment in committed)
    assert found == UncommittedLedger(ledger, last, entry if before else 0)


def test_segments_of_other_ledgers_do_no_harm() -> None:
    topic = archived(LEDGERS, [(4, 2), (5, 4), (5, 9)])
    covered = topic.whole(5)
    assert [segment.uuid for segment in covered.segments] == ["uuid-1", "uuid-2"]
    assert covered.missing == ()


def test_gaps_are_what_bookies_have_to_fill_also_over_a_segments_border() -> None:
    covered = archived(LEDGERS, [(5, 4)], [(5, 3), (5, 4), (5, 5), (5, 9)]).whole(5)
    assert covered.missing == (EntryRange(5, 3, 6), EntryRange(5, 9, 10))
    assert covered.held == ((EntryRange(5, 0, 3),), (EntryRange(5, 6, 9),))


def test_a_ledger_of_gaps_alone_has_no_segment() -> None:
    covered = archived(LEDGERS, [], [(5, entry) for entry in range(10)]).whole(5)
    assert (covered.segments, covered.missing) == ((), (EntryRange(5, 0, 10),))


def test_what_was_there_before_the_archive_began_is_missing_like_a_gap() -> None:
    assert archived(LEDGERS, [], begin=(5, 4)).whole(5).missing == (EntryRange(5, 0, 4),)


def test_a_ledger_before_the_archive_cannot_be_bridged() -> None:
    found = archived(LEDGERS, [], begin=(5, 4)).covered(4)
    assert verdict(found) == (BridgeVerdict.GAPS, "the archive begins behind it")


@pytest.mark.parametrize(
    ("first", "last", "told"),
    [
        ((5, 3), (5, 4), "what is from entry 3 to 4 was gone before it was offloaded: the ledger was deleted"),
        ((4, 1), (6, -1), "all of it was gone before it was offloaded: the ledger was deleted"),
        ((5, 9), (6, 0), "entry 9 was gone before it was offloaded: the ledger was deleted"),
    ],
)
def test_a_loss_inside_it_is_the_reason(first, last, told) -> None:
    topic = archived(LEDGERS, [])
    assert verdict(cover(topic.segments, [lost(first, last)], None, 5, 9)) == (BridgeVerdict.LOSS, told)


@pytest.mark.parametrize(("first", "last"), [((4, 0), (5, -1)), ((5, 10), (6, -1)), ((6, 0), (6, 1))])
def test_a_loss_beside_it_is_none(first, last) -> None:
    topic = archived(LEDGERS, [(5, 9)])
    assert isinstance(cover(topic.segments[:1], [lost(first, last)], None, 5, 9), LedgerCoverage)


@pytest.mark.parametrize(
    ("place", "told"),
    [((5, 0), "entry 0"), ((5, 3), "what is from entry 0 to 3"), ((5, 9), "all of it"), ((6, 0), "all of it")],
)
def test_what_was_deleted_is_the_reason(place, told) -> None:
    topic = archived(LEDGERS, [(5, 3)])
    found = cover(topic.segments[1:], (), Position(0, *place), 5, 9)
    assert verdict(found) == (BridgeVerdict.DELETED, f"{told} is deleted from the archive")


def test_deletions_before_it_are_none() -> None:
    assert isinstance(cover(archived(LEDGERS, []).segments, (), Position(0, 4, 2), 5, 9), LedgerCoverage)


def test_a_tombstone_is_a_deletion() -> None:
    first, *rest = archived(LEDGERS, [(5, 3)]).segments
    found = cover([buried(first, DeletionReason.REQUEST, "by request", 1), *rest], (), None, 5, 9)
    assert verdict(found)[0] is BridgeVerdict.DELETED


def test_a_hole_between_records_is_told() -> None:
    topic = archived(LEDGERS, [(5, 1), (5, 4), (5, 6)])
    without = [segment for segment in topic.segments if segment.uuid != "uuid-1"]
    told = "no record of the catalog accounts for what is from entry 2 to 4"
    assert verdict(cover(without, (), None, 5, 9)) == (BridgeVerdict.LOSS, told)
    cut_short = archived({5: [b"b"] * 8, 6: [b"c"]}, [(5, 7)])
    told = "no record of the catalog accounts for what is from entry 8 to 9"
    assert verdict(cover(cut_short.segments, (), None, 5, 9)) == (BridgeVerdict.LOSS, told)


def test_records_that_contradict_each_other_are_damage() -> None:
    topic = archived(LEDGERS, [(5, 4)])
    one, two = topic.segments
    earlier = archived(LEDGERS, [(5, 3)]).segments[1]
    with pytest.raises(IntegrityError, match="which another one has, too"):
        cover([one, replace(earlier, uuid="late")], (), None, 5, 9)
    with pytest.raises(IntegrityError, match="its gaps leave"):
        cover([replace(one, ledgers=()), two], (), None, 5, 9)
    over_the_end = archived({5: [b"b"] * 8, 6: [b"c"]}, [])
    with pytest.raises(IntegrityError, match="its gaps leave"):
        cover(over_the_end.segments, (), None, 5, 9)
    with pytest.raises(IntegrityError, match="its gaps leave"):
        cover(topic.segments, (), None, 5, 7)  # Pulsar's list says that it ended earlier
