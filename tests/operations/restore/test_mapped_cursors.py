"""What a copied subscription has acknowledged, in the positions of a restored topic: entry by entry, the slow way."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.archive.items import Item
from offloader.archive.topic import ArchivedTopic
from offloader.cursors.copies import CopiedCursor, pieces_of
from offloader.errors import IntegrityError
from offloader.format.entry import ABORT_MARKER, COMMIT_MARKER
from offloader.model import AcknowledgedRange, PartlyAcknowledged, Position, Source
from offloader.operations.restore.numbering import Numbering, RestoredRun, TargetPlaces, mapped
from offloader.operations.restore.provenance import Provenance
from offloader.operations.restore.restore import ArchiveSource, proven_numbering
from offloader.operations.restore.tail import Tail
from tests.archive.support import Archive, gap, stream
from tests.format.support import Stored
from tests.operations.restore.support import ORIGIN, archived, at

EARLIEST = (-1, -1)

LEDGERS = {2: 12, 3: 1, 5: 9}
PLACES = st.tuples(st.sampled_from(list(LEDGERS)), st.integers(0, 11)).filter(lambda one: one[1] < LEDGERS[one[0]])
RANGES = st.tuples(PLACES, PLACES).map(lambda two: AcknowledgedRange(*sorted(two)))
BATCHES = st.builds(lambda place: PartlyAcknowledged(place[0], place[1], (0b101,)), PLACES)
LENGTHS = [*LEDGERS.items(), (9, None)]  # the open one has what was acknowledged ahead of the archive
CURSORS = st.builds(
    lambda mark, ranges, batches: CopiedCursor("job", mark, pieces_of(mark, ranges, batches, LENGTHS)),
    PLACES | st.just(EARLIEST) | st.just((9, 3)),
    st.lists(RANGES, max_size=6),
    st.lists(BATCHES, max_size=6),
)
EVERYTHING = [Position(1, ledger, entry) for ledger, count in LEDGERS.items() for entry in range(count)]
EARLIER = [Position(0, 20, entry) for entry in range(3)]  # of a topic of that name before
LEFT_OUT = st.sets(st.sampled_from(EVERYTHING), max_size=25)


@st.composite
def targets(draw, count):
    """Ledgers of a target of so many entries; the last one is open."""
    sizes = draw(st.lists(st.integers(0, 8), max_size=4))
    lengths: list[tuple[int, int]] = []
    for ledger, size in zip(itertools.count(100, 3), sizes, strict=False):
        size = min(size, count - sum(one for _, one in lengths))
        lengths.append((ledger, size))
    return [*lengths, (200, None)]


@given(CURSORS, LEFT_OUT, st.booleans(), st.data())
def test_each_restored_entry_is_acknowledged_as_its_archived_one_was(cursor, left_out, earlier, data) -> None:
    restored = [*(EARLIER if earlier else ()), *(one for one in EVERYTHING if one not in left_out)]
    lengths = data.draw(targets(len(restored)))
    numbering = Numbering((RestoredRun(one, 1) for one in restored), len(restored))
    places = TargetPlaces(lengths, len(restored))
    found = mapped(cursor, 1, numbering, places)

    before, after = cursor.acks(), found.cursor.acks()
    pending = 0
    for number, position in enumerate(restored, 1):
        place = places.place(number)
        acknowledged = position <= Position(1, *cursor.mark_delete) or is_whole(before, position.place)
        assert acknowledged == (place <= found.cursor.mark_delete or is_whole(after, place))
        pending += not acknowledged
        batches = (before.get(position.ledger), after.get(place[0]))
        here, there = (
            acks.batches.get(p[1]) if acks else None for acks, p in zip(batches, (position.place, place), strict=True)
        )
        if not acknowledged:
            assert (here.left if here else None) == (there.left if there else None)
    assert found.pending == pending
    gone = sum(is_whole(before, one.place) or is_part(before, one.place) for one in left_out)
    assert found.left_out == gone


def is_whole(acks, place) -> bool:
    return place[0] in acks and acks[place[0]].is_acknowledged(place[1])


def left(acks, place) -> int | None:
    return acks[place[0]].batches[place[1]].left if is_part(acks, place) else None


def is_part(acks, place) -> bool:
    return place[0] in acks and place[1] in acks[place[0]].batches


@given(st.data(), st.integers(0, 25))
def test_numbers_and_places_are_counted_through_the_ledgers(data, count) -> None:
    lengths = data.draw(targets(count))
    places = TargetPlaces(lengths, count)
    known = [(ledger, entry) for ledger, size in lengths[:-1] for entry in range(size)]
    wanted = known + [(200, entry) for entry in range(count - len(known))]
    assert [places.place(number) for number in range(1, count + 1)] == wanted
    found = [(one.ledger, entry) for one in places.ranges(1, count) for entry in one.ids]
    assert found == wanted


def test_a_target_with_other_entries_is_refused() -> None:
    with pytest.raises(IntegrityError):
        TargetPlaces([(1, 5), (2, None)], 4)
    with pytest.raises(IntegrityError):
        TargetPlaces([(1, 5), (2, 3)], 9)


def test_consecutive_entries_are_one_run() -> None:
    runs = [RestoredRun(at(1, 0), 3), RestoredRun(at(1, 3), 2), RestoredRun(at(1, 6), 1), RestoredRun(at(2, 0), 0)]
    ranges = list(Numbering(runs, 6).of_ledger(0, 1))
    assert [(one.first, one.after, number) for one, number in ranges] == [(0, 5, 1), (6, 7, 6)]


class Restored:
    """A target that holds these entries, in one ledger; counts what it is asked."""

    def __init__(self, positions) -> None:
        self.positions = list(positions)
        self.asked = 0

    def provenance(self, ledger: int, entry: int) -> Provenance:
        self.asked += 1
        return Provenance(ORIGIN, self.positions[entry], entry + 1)

    @property
    def tail(self) -> Tail:
        return Tail(len(self.positions), self.positions[-1])

    def numbering(self, source, lowest) -> Numbering:
        places = TargetPlaces([(7, None)], len(self.positions))
        return proven_numbering(source, self, places, self.tail, lowest, allow_missing=False)


def test_where_nothing_was_left_out_the_records_say_it_and_two_entries_prove_it() -> None:
    archive = Archive()
    archive.claim(1)
    archive.add(stream(1, 0, 9), [gap(1, 10, 12)], closed={1: 12})
    archive.add(stream(2, 0, 3))
    source = ArchiveSource(ArchivedTopic.of(archive.store, archive.catalog))
    target = Restored([*(at(1, n) for n in range(10)), *(at(2, n) for n in range(3))])  # a restore that did not end

    def unread(after: Position | None) -> Iterator[Item]:
        raise AssertionError("nothing is read")

    source.items = unread
    found = target.numbering(source, at(1, 4))
    assert target.asked == 2
    assert [found.up_to(at(*place)) for place in ((1, 4), (1, 9), (1, 11), (2, 0), (2, 3), (5, 0))] == [
        5,
        10,
        10,
        11,
        13,
        13,
    ]
    assert target.numbering(source, at(2, 2)).up_to(at(2, 2)) == 13
    assert target.numbering(source, at(0, -1)).up_to(at(0, -1)) == 0


def test_markers_and_aborted_entries_are_counted_out_by_reading() -> None:
    archive = Archive()
    archive.claim(1)
    items = [archived(at(1, n), txnid_most_bits=0, txnid_least_bits=n) for n in (0, 1)]
    markers = [
        archived(at(1, n), marker_type=kind, txnid_most_bits=0, txnid_least_bits=txn)
        for n, txn, kind in ((2, 0, ABORT_MARKER), (3, 1, COMMIT_MARKER))
    ]
    archive.add([Stored(1, item.position.entry, item.data) for item in (*items, *markers)])
    archive.add(stream(1, 4, 6))
    catalog = archive.catalog
    raw = next(one for one in Source if one.complete)
    copied = replace(catalog, segments=(replace(catalog.segments[0], source=raw), catalog.segments[1]))
    source = ArchiveSource(ArchivedTopic.of(archive.store, copied))
    target = Restored([at(1, 1), at(1, 4), at(1, 5), at(1, 6)])
    found = target.numbering(source, at(1, -1))
    assert [found.up_to(at(1, n)) for n in range(7)] == [0, 1, 1, 1, 2, 3, 4]
    assert target.numbering(source, at(1, 4)).up_to(at(1, 5)) == 3


def test_as_many_lost_since_as_markers_were_left_out_prove_nothing() -> None:
    """The number of all entries is right, and so are both ends."""
    archive = Archive()
    archive.claim(1)
    raw = next(one for one in Source if one.complete)
    marker = archived(at(1, 1), marker_type=COMMIT_MARKER, txnid_most_bits=0, txnid_least_bits=1)
    archive.add([*stream(1, 0, 0), Stored(1, 1, marker.data), *stream(1, 2, 3)], closed={1: 3})
    archive.lose(at(2, 0), at(2, 0))
    archive.add(stream(2, 1, 3))
    catalog = archive.catalog
    first, *others = catalog.segments
    copied = replace(catalog, segments=(replace(first, source=raw), *others))
    source = ArchiveSource(ArchivedTopic.of(archive.store, copied))
    target = Restored([*(at(1, n) for n in (0, 2, 3)), *(at(2, n) for n in range(4))])
    with pytest.raises(IntegrityError, match="cannot be mapped"):
        target.numbering(source, at(1, -1))
    assert target.numbering(source, at(2, 0)).up_to(at(2, 2)) == 6, "behind what is lost nothing is"


def test_an_archive_that_lacks_what_was_restored_is_noticed() -> None:
    archive = Archive()
    archive.claim(2)
    archive.add(stream(2, 0, 3))
    source = ArchiveSource(ArchivedTopic.of(archive.store, archive.catalog))
    target = Restored([at(1, 0), at(1, 1), *(at(2, n) for n in range(4))])
    with pytest.raises(IntegrityError, match="cannot be mapped"):
        target.numbering(source, at(1, 0))
    assert target.numbering(source, at(1, 1)).up_to(at(2, 0)) == 3
    assert target.numbering(source, at(2, 1)).up_to(at(2, 1)) == 4
    lost = Restored([*(at(2, n) for n in range(4)), at(3, 0)])
    with pytest.raises(IntegrityError, match="cannot be mapped"):
        lost.numbering(source, at(2, 1))
