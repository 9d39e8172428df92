"""Reading back gives every archived entry once, in order, byte for byte, and never passes over a hole silently."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.archive.items import ArchivedEntry, Missing
from offloader.archive.reading.reader import ReadOptions
from offloader.archive.selection import Selection
from offloader.archive.topic import ArchivedTopic
from offloader.errors import DamagedObjectError, DamagedRecordError, ObjectNotFoundError
from offloader.metadata import layout
from offloader.model import GapKind, Position, SegmentLayout
from offloader.ports.object_store import Stat
from tests.archive.support import TOPIC, Archive, gap, stream
from tests.format.support import Stored, small_cuts

BEGINS = (b"", b"\x0e\x01", b"\x0e\x02")  # also of entries that promise what they do not have
LEDGERS = {3: 29, 7: 11, 8: 40}  # ledger: the id it was closed with


@st.composite
def archives(draw: st.DrawFn) -> tuple[Archive, list[Stored], set[tuple[int, int]]]:
    """A topic of three ledgers with gaps, in segments of any lengths; its entries, and its gaps' positions."""
    random = Random(draw(st.integers(0, 2**32)))
    places = [(ledger, entry) for ledger, last in LEDGERS.items() for entry in range(last + 1)]
    hidden = {place for place in places if random.random() < draw(st.sampled_from([0, 0.1, 0.5]))}
    cuts = draw(small_cuts())
    archive = Archive()
    archive.claim(3, 0)
    kept = []
    while places:
        count = random.randint(1, len(places))
        mine, places = places[:count], places[count:]
        present = [
            Stored(*p, random.choice(BEGINS) + random.randbytes(random.randint(0, 400)))
            for p in mine
            if p not in hidden
        ]
        gaps = [gap(ledger, entry, entry) for ledger, entry in mine if (ledger, entry) in hidden]
        archive.add(present, gaps, closed=LEDGERS, cuts=cuts)
        kept += present
    return archive, kept, hidden


def plain(found: list[ArchivedEntry]) -> list[Stored]:
    return [Stored(e.position.ledger, e.position.entry, e.data) for e in found]


@given(archives(), st.integers(1_024, 9_000))
def test_everything_is_read_back_byte_for_byte(
    archive: tuple[Archive, list[Stored], set[tuple[int, int]]], size: int
) -> None:
    built, kept, hidden = archive
    found = list(ArchivedTopic.of(built.store, built.catalog, ReadOptions(read_size=size)).items())
    assert plain([i for i in found if isinstance(i, ArchivedEntry)]) == kept
    missing = [i for i in found if isinstance(i, Missing)]
    told = {(m.start.ledger, entry) for m in missing for entry in range(m.start.entry, m.end.entry + 1)}
    assert told == hidden
    assert {m.kind for m in missing} <= {GapKind.ABORTED}


@given(archives(), st.data())
def test_any_range_is_the_same_range_of_the_whole(
    archive: tuple[Archive, list[Stored], set[tuple[int, int]]], data: st.DataObject
) -> None:
    built, kept, _ = archive
    places = st.builds(Position, st.just(0), st.sampled_from([0, *LEDGERS, 99]), st.integers(0, 45))
    start, end = sorted((data.draw(places), data.draw(places)))
    expected = [e for e in kept if (start.ledger, start.entry) <= (e.ledger, e.entry) <= (end.ledger, end.entry)]
    found = ArchivedTopic.of(built.store, built.catalog).items(Selection(start, end))
    assert plain([i for i in found if isinstance(i, ArchivedEntry)]) == expected


def test_only_what_is_needed_is_read() -> None:
    archive = Archive()
    archive.claim()
    segment = archive.add(
        stream(5, 0, 999, 1_000), cuts=SegmentLayout(part_size=100_000, block_size=20_000, index_step=5_000)
    )
    reads: list[tuple[str, int]] = []
    read = archive.store.read

    def counting(key: str, offset: int = 0, length: int | None = None) -> tuple[bytes, Stat]:
        answer = read(key, offset, length)
        reads.append((key, len(answer[0])))
        return answer

    archive.store.read = counting
    position = Position(0, 5, 500)
    catalog = archive.catalog
    assert [e.position for e in ArchivedTopic.of(archive.store, catalog).items(Selection(position, position))] == [
        position
    ]
    assert sum(size for key, size in reads if key == layout.data_key(TOPIC, segment.uuid)) < 10_000


def test_a_loss_is_told_of_in_its_place() -> None:
    archive = Archive()
    archive.claim()
    archive.add(stream(1, 0, 4))
    archive.lose(Position(0, 1, 5), Position(0, 4, -1))
    archive.add(stream(4, 0, 2))
    found = list(ArchivedTopic.of(archive.store, archive.catalog).items())
    assert [type(i).__name__ for i in found] == ["ArchivedEntry"] * 5 + ["Missing"] + ["ArchivedEntry"] * 3
    assert found[5] == Missing(Position(0, 1, 5), Position(0, 4, -1), "lost: trimmed (accepted by accept-loss)")


def test_a_topic_that_was_created_again_is_read_through() -> None:
    archive = Archive()
    archive.claim()
    archive.add(stream(9, 0, 4))
    archive.incarnation = 1
    archive.claim(created=2)
    archive.add(stream(12, 0, 1))
    positions = [e.position for e in ArchivedTopic.of(archive.store, archive.catalog).entries()]
    assert positions == [Position(0, 9, e) for e in range(5)] + [Position(1, 12, e) for e in range(2)]


def test_the_next_ledger_follows_once_the_end_of_the_one_before_is_recorded() -> None:
    archive = Archive()
    archive.claim()
    archive.add(stream(1, 0, 4))
    archive.add(stream(2, 0, 4))
    found = list(ArchivedTopic.of(archive.store, archive.catalog).items())
    assert len(found) == 11
    assert isinstance(found[5], Missing)
    assert "nothing records that ledger 1 ended with 4" in found[5].why
    archive.closed(1, 4)
    assert [type(item) for item in ArchivedTopic.of(archive.store, archive.catalog).items()] == [ArchivedEntry] * 10


def test_an_entry_that_was_copied_broken_is_read_alone_too() -> None:
    archive, poison = Archive(), Stored(1, 5, b"\x0e\x02 and no frame")
    archive.claim()
    archive.add([*stream(1, 0, 4), poison, *stream(1, 6, 9)])
    place = Position(0, 1, 5)
    assert list(ArchivedTopic.of(archive.store, archive.catalog).items(Selection(place, place))) == [
        ArchivedEntry(place, poison.data)
    ]


def test_a_hole_between_segments_is_an_error() -> None:
    archive = Archive()
    archive.claim()
    archive.add(stream(1, 0, 4))
    archive.add(stream(1, 6, 9))
    with pytest.raises(DamagedRecordError, match=r"hole: 1:5\.\.5 is in no segment"):
        list(ArchivedTopic.of(archive.store, archive.catalog).entries())


def test_a_ledger_that_went_on_is_a_hole() -> None:
    archive = Archive()
    archive.claim()
    archive.add(stream(1, 0, 4), closed={1: 6})
    archive.add(stream(2, 0, 4))
    with pytest.raises(DamagedRecordError, match=r"hole: 1:5\.\.6 is in no segment"):
        list(ArchivedTopic.of(archive.store, archive.catalog).entries())


def test_an_overlap_is_an_error() -> None:
    archive = Archive()
    archive.claim()
    first = archive.add(stream(1, 0, 4))
    archive.add(stream(1, 5, 9))
    catalog = archive.catalog
    shifted = replace(catalog.segments[1], start=Position(0, 1, 4))
    with pytest.raises(DamagedRecordError, match=f"overlap.*{first.uuid}"):
        list(ArchivedTopic.of(archive.store, replace(catalog, segments=(first, shifted))).entries())


def test_a_record_that_claims_an_entry_too_many_names_object_and_position() -> None:
    archive = Archive()
    archive.claim()
    segment = archive.add(stream(1, 0, 4))
    held = replace(segment.ledgers[0], after=6, count=6)
    (part,) = segment.parts[-1:]
    parts = (*segment.parts[:-1], replace(part, ledgers=(replace(part.ledgers[0], after=6),)))
    more = replace(segment, end=Position(0, 1, 5), ledgers=(held,), parts=parts)
    with pytest.raises(DamagedObjectError, match=rf"{segment.uuid}: it is missing.*\(1:5\)"):
        list(ArchivedTopic.of(archive.store, replace(archive.catalog, segments=(more,))).entries())


@pytest.mark.parametrize("where", [0, 10, 130, 145, -1])
def test_damage_names_object_and_offset(where: int) -> None:
    archive = Archive()
    archive.claim()
    segment = archive.add(stream(1, 0, 30))
    key = layout.data_key(TOPIC, segment.uuid)
    data = bytearray(archive.store.read(key)[0])
    data[where] ^= 0x55
    archive.store.put(key, bytes(data))
    with pytest.raises(DamagedObjectError, match=rf"{key}: offset \d+"):
        list(ArchivedTopic.of(archive.store, archive.catalog).entries())


def test_a_shorter_object_is_damage() -> None:
    archive = Archive()
    archive.claim()
    key = layout.data_key(TOPIC, archive.add(stream(1, 0, 30)).uuid)
    archive.store.put(key, archive.store.read(key)[0][:-100])
    with pytest.raises(DamagedObjectError, match="the object ends here, 100 bytes are missing"):
        list(ArchivedTopic.of(archive.store, archive.catalog).entries())


def test_a_missing_object_is_named() -> None:
    archive = Archive()
    archive.claim()
    key = layout.data_key(TOPIC, archive.add(stream(1, 0, 3)).uuid)
    archive.store.delete([key])
    with pytest.raises(ObjectNotFoundError, match=key):
        list(ArchivedTopic.of(archive.store, archive.catalog).entries())
