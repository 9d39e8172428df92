"""Whatever is wrong with an object: no wrong bytes, no silent hole; and skipped is exactly what could not be read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.archive.items import Missing, ReadItem
from offloader.archive.object_range import ObjectRange
from offloader.archive.reading.checksums import uncovered_entries
from offloader.archive.reading.plan import plan
from offloader.archive.reading.reader import OnDamage
from offloader.archive.selection import Selection
from offloader.archive.snapshot import TopicSnapshot
from offloader.errors import DamagedObjectError, ObjectNotFoundError
from offloader.metadata import layout
from offloader.model import MIB, Position, SegmentLayout, TopicName
from tests.archive.ledgers.support import put_ledger
from tests.archive.reading.support import Topic, items_told, reader, told, topics
from tests.archive.support import TOPIC, Archive, message, stream, uuid_of
from tests.format.support import Stored, checksummed

sizes = st.integers(1_024, 6_000)
CUTS = SegmentLayout(part_size=6_000, block_size=3_000, index_step=700)


def data_objects(built: Topic) -> list[str]:
    return sorted(
        {item.object.data_key for item in plan(built.view) if isinstance(item, ObjectRange) and item.split_points}
    )


def change(built: Topic, key: str, how: Callable[[bytes], bytes]) -> None:
    store = built.archive.store
    store.put(key, how(store.read(key)[0]))


def flipped(data: bytes, at: int, mask: int) -> bytes:
    return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


@given(topics(), sizes, st.data())
def test_any_changed_byte_is_an_error_that_names_the_object(built: Topic, read_size: int, data: st.DataObject) -> None:
    key = data.draw(st.sampled_from([key for key in data_objects(built) if "ledger" not in key] or [""]))
    if not key:
        return
    there = built.archive.store.read(key)[0]
    changed = flipped(there, data.draw(st.integers(0, len(there) - 1)), data.draw(st.integers(1, 255)))
    change(built, key, lambda _: changed)
    with pytest.raises(DamagedObjectError, match=rf"^{key}: offset \d+.*\(\d+:\d+\)$"):
        items_told(built, plan(built.view), read_size=read_size)


@given(topics(), sizes, st.data())
def test_a_range_gives_no_wrong_bytes(built: Topic, read_size: int, data: st.DataObject) -> None:
    """Also where it begins or ends inside a part, of entries whose own checksums do not cover all of them."""
    keys = [key for key in data_objects(built) if "ledger" not in key]
    if not keys:
        return
    start, end = sorted(data.draw(st.lists(st.sampled_from(sorted(built.truth)), min_size=2, max_size=2)))
    if start == end:
        return
    key = data.draw(st.sampled_from(keys))
    at, mask = data.draw(st.integers(0, len(built.archive.store.read(key)[0]) - 1)), data.draw(st.integers(1, 255))
    change(built, key, lambda there: flipped(there, at, mask))
    skipping = data.draw(st.sampled_from([OnDamage.FAIL, OnDamage.SKIP]))
    with suppress(DamagedObjectError):
        found = items_told(built, plan(built.view, Selection(start, end)), read_size=read_size, on_damage=skipping)
        assert found.keys() == {position for position in built.truth if start <= position <= end}
        assert {p: what for p, what in found.items() if what not in (built.truth[p], key)} == {}


def test_an_entry_that_is_too_short_for_a_checksum_has_none() -> None:
    data = memoryview(checksummed(MessageMetadata(producer_name="p", sequence_id=0, publish_time=1), b"x"))
    assert uncovered_entries(data, [0, 0, 0, 5, 0, len(data)]) == [0, 1]


@given(topics(), sizes, st.data())
def test_skipping_damage_tells_of_every_position_and_gives_no_wrong_bytes(
    built: Topic, read_size: int, data: st.DataObject
) -> None:
    keys = data_objects(built)
    if not keys:  # all is lost
        return
    key = data.draw(st.sampled_from(keys))
    store = built.archive.store
    there = store.read(key)[0]
    match data.draw(st.sampled_from(["flip", "shorten", "replace", "delete", "index", "delete index"])):
        case "flip":
            at = data.draw(
                st.integers(0, len(there) - 1).filter(
                    lambda at: there[at] != 0x0E and there[at - 1 : at + 1] != b"\x0e\x01"
                )
            )
            store.put(key, flipped(there, at, data.draw(st.integers(1, 255))))
        case "shorten":
            store.put(key, there[: data.draw(st.integers(0, len(there) - 1))])
        case "replace":
            store.put(key, store.read(data.draw(st.sampled_from(keys)))[0])
        case "delete":
            store.delete([key])
        case "index":
            index = store.read(f"{key}-index")[0]
            store.put(f"{key}-index", flipped(index, data.draw(st.integers(0, len(index) - 1)), 1))
        case "delete index":
            store.delete([f"{key}-index"])
    found = items_told(built, plan(built.view), read_size=read_size, on_damage=OnDamage.SKIP)
    assert found.keys() == built.truth.keys()
    wrong = {p: what for p, what in found.items() if what not in (built.truth[p], key)}
    assert wrong == {}


def archive(entries: int = 60, size: int = 300) -> tuple[Archive, str]:
    built = Archive()
    built.claim()
    segment = built.add(stream(1, 0, entries - 1, size), cuts=CUTS)
    return built, layout.data_key(TOPIC, segment.uuid)


def skipped(built: Archive, **options: object) -> tuple[list[Missing], int]:
    reading = reader(built.store, on_damage=OnDamage.SKIP, **options)
    items = list(reading.read(plan(TopicSnapshot.of(built.catalog))))
    assert sum(i.count for i in items if not isinstance(i, Missing)) == reading.stats.entries
    missing = [i for i in items if isinstance(i, Missing)]
    assert reading.stats.damaged == missing
    return missing, reading.stats.skipped


def test_one_entry_with_a_wrong_checksum_is_one_position() -> None:
    built, key = archive()
    there = built.store.read(key)[0]
    at = there.index(b"1:17 ") + 40
    built.store.put(key, flipped(there, at, 1))
    (missing,), count = skipped(built)
    assert (missing.start, missing.end, missing.damaged, count) == (Position(0, 1, 17), Position(0, 1, 17), key, 1)
    assert "checksum" in missing.why
    assert f"offset {at - 40 - 0}" not in missing.why  # the entry's begin is named, not its payload


def test_a_wrong_length_costs_what_follows_up_to_the_next_index_entry() -> None:
    built, key = archive()
    there = built.store.read(key)[0]
    at = there.index(b"1:17 ")
    length_at = there.rindex((17).to_bytes(8, "big"), 0, at) - 4
    built.store.put(key, flipped(there, length_at + 1, 1))
    (missing,), count = skipped(built)
    assert missing.start == Position(0, 1, 17)
    assert 1 <= count <= 3
    assert count == missing.end.entry - 16


def test_a_wrong_header_costs_its_block() -> None:
    built, key = archive()
    there = built.store.read(key)[0]
    second = there.index(b"\x26\xa6\x6d\x32", 128)
    built.store.put(key, flipped(there, second + 35, 1))
    (missing,), count = skipped(built, read_size=1_024)
    first = int.from_bytes(there[second + 20 : second + 28])
    third = there.index(b"\x26\xa6\x6d\x32", second + 128)
    after = int.from_bytes(there[third + 20 : third + 28])
    assert (missing.start.entry, missing.end.entry, count) == (first, after - 1, after - first)
    with pytest.raises(DamagedObjectError, match=rf"^{key}: offset {second}: a block of"):
        list(reader(built.store, read_size=1_024).read(plan(TopicSnapshot.of(built.catalog))))


def test_what_comes_before_the_damage_is_given() -> None:
    built, key = archive()
    there = built.store.read(key)[0]
    built.store.put(key, flipped(there, there.index(b"1:40 ") + 40, 1))
    got: list[ReadItem] = []
    with pytest.raises(DamagedObjectError, match=r"\(1:40\)$"):
        got.extend(reader(built.store, read_size=1_024).read(plan(TopicSnapshot.of(built.catalog))))
    assert got[-1].last >= 30


def test_bytes_that_no_checksum_of_an_entry_covers_are_covered_by_their_parts() -> None:
    built = Archive()
    built.claim()
    segment = built.add([Stored(1, n, b"opaque %d" % n) for n in range(9)])
    key = layout.data_key(TOPIC, segment.uuid)
    there = built.store.read(key)[0]
    built.store.put(key, flipped(there, there.index(b"opaque 4"), 1))
    with pytest.raises(DamagedObjectError, match=rf"^{key}: offset 0: the part of {len(there)} bytes has CRC32C"):
        list(reader(built.store).read(plan(TopicSnapshot.of(built.catalog))))
    (missing,), count = skipped(built)
    assert (missing.start.entry, missing.end.entry, count) == (0, 8, 9)  # which of them is wrong, nothing tells
    assert "has CRC32C" in missing.why


def test_of_a_wrong_part_what_entries_checksums_cover_is_given_where_damage_is_skipped() -> None:
    built = Archive()
    built.claim()
    entries = [Stored(1, n, b"opaque %d" % n if n in (3, 4, 7) else message(f"sound {n}")) for n in range(9)]
    segment = built.add(entries)
    key = layout.data_key(TOPIC, segment.uuid)
    there = built.store.read(key)[0]
    built.store.put(key, flipped(there, there.index(b"opaque 4"), 1))
    for read_size in (1024, MIB):
        missing, count = skipped(built, read_size=read_size)
        assert [(m.start.entry, m.end.entry) for m in missing] == [(3, 4), (7, 7)]
        assert count == 3
        got: list[ReadItem] = []
        with pytest.raises(DamagedObjectError):
            got.extend(reader(built.store, read_size=read_size).read(plan(TopicSnapshot.of(built.catalog))))
        assert [(r.first, r.last) for r in got] == [(0, 2)]


@pytest.mark.parametrize("ledger", [False, True])
def test_objects_that_are_not_there(ledger: bool) -> None:
    built = Topic()
    if ledger:
        built.offload(0, 4, [message("x")] * 5, 700)
        key = built.ledgers[0].object.data_key
    else:
        built.archive.claim()
        key = layout.data_key(TOPIC, built.archive.add(stream(1, 0, 3)).uuid)
    for missing in (key, f"{key}-index"):
        built.archive.store.delete([missing])
        with pytest.raises(ObjectNotFoundError, match=f"no object {missing}$"):
            items_told(built, plan(built.view))
        assert set(items_told(built, plan(built.view), on_damage=OnDamage.SKIP).values()) == {key}


def test_the_object_of_another_topic_in_its_place_is_never_read() -> None:
    """Of the same size, with the same entry ids at the same offsets: only blocks' headers tell them apart."""
    built, other = Archive(), Archive(topic=TopicName.parse("other"))
    for each, ledger in ((built, 5), (other, 6)):
        each.claim()
        each.add([Stored(ledger, n, message(f"{ledger}:{n:04} ".ljust(300, "x"))) for n in range(60)], cuts=CUTS)
    key = layout.data_key(TOPIC, uuid_of(1))
    mine, theirs = built.store.read(key)[0], other.store.read(layout.data_key(other.topic, uuid_of(1)))[0]
    assert len(mine) == len(theirs)
    built.store.put(key, theirs)
    view = TopicSnapshot.of(built.catalog)
    for entry in range(60):
        only = Position(0, 5, entry)
        with pytest.raises(DamagedObjectError, match=rf"^{key}: offset \d+: a block of 6:"):
            list(reader(built.store).read(plan(view, Selection(only, only))))
        found = told(reader(built.store, on_damage=OnDamage.SKIP).read(plan(view, Selection(only, only))))
        assert found == {only: key}


def test_an_index_of_another_object_is_refused() -> None:
    built, key = archive()
    other = built.add(stream(1, 60, 80))
    built.store.put(f"{key}-index", built.store.read(f"{layout.data_key(TOPIC, other.uuid)}-index")[0])
    with pytest.raises(
        DamagedObjectError, match=rf"^{key}-index: it is of an object of \d+ bytes, the catalog's has \d+$"
    ):
        list(reader(built.store).read(plan(TopicSnapshot.of(built.catalog))))


def test_more_in_a_ledgers_object_than_its_record_says() -> None:
    built = Topic()
    built.offload(0, 4, [message(f"{n}") for n in range(9)], 700)
    ledger = built.ledgers.pop()
    from dataclasses import replace

    built.ledgers.append(replace(ledger, end=Position(0, 4, 7)))
    with pytest.raises(DamagedObjectError, match=r"it is in the object, but not in its record \(4:8\)$"):
        items_told(built, plan(built.view))


def test_less_in_a_ledgers_object_than_its_record_says() -> None:
    built = Topic()
    built.offload(0, 4, [message(f"{n}") for n in range(9)], 700)
    put_ledger(built.archive.store, 4, [message(f"{n}") for n in range(7)], built.ledgers[0].uuid, block_size=700)
    with pytest.raises(DamagedObjectError, match=r"it is missing: what is there ends before it \(4:7\)$"):
        items_told(built, plan(built.view))
    found = items_told(built, plan(built.view), on_damage=OnDamage.SKIP)
    assert [p.entry for p, what in found.items() if what == built.ledgers[0].object.data_key] == [7, 8]
