"""Whatever is wrong with an archive has a finding with a name, and a sound archive has none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.archive.findings import FindingKind
from offloader.errors import ObjectArchivedError
from offloader.metadata import layout
from offloader.metadata.catalog import Catalogs
from offloader.metadata.catalog_codec import decode_slot, encode_catalog, standing
from offloader.metadata.journal import Journal
from offloader.metadata.state import Abandoned, OpenTopic, Releasing, TopicState
from offloader.model import OpenSegment, Position, Segment, SegmentLayout, Source
from offloader.operations.verify.catalog_records import parts_of, read_catalog
from offloader.operations.verify.verify import verify
from tests.archive.support import APPLICATION, META, TOPIC, Archive, gap, message, stream, uuid_of
from tests.format.support import Stored


def sound() -> Archive:
    archive = Archive()
    archive.claim()
    archive.add(stream(1, 0, 60), [gap(1, 61, 61)], closed={1: 61})
    archive.add(stream(3, 0, 9) + stream(3, 12, 40) + stream(4, 0, 20), [gap(3, 10, 11)], closed={3: 40})
    return archive


def kinds(archive: Archive, *, quick: bool = False) -> list[FindingKind]:
    return [f.kind for f in verify(archive.store, quick=quick).findings]


def journal(archive: Archive, state: TopicState) -> None:
    with Journal.open(archive.store, APPLICATION, archive.token) as opened:
        opened.record([state])


def open_segment(uuid: str, start: Position, upload: str | None = None) -> OpenSegment:
    """It follows the last segment of a sound archive."""
    return OpenSegment(
        uuid,
        start,
        Source.BROKER,
        SegmentLayout(),
        1,
        predecessor_uuid=uuid_of(2),
        predecessor_end=Position(0, 4, 20),
        upload=upload,
    )


def rewrite(archive: Archive, number: int, change: Callable[[Segment], Segment]) -> None:
    """Put another record into the slot of the segment."""
    segment = archive.catalog.segments[number]
    changed = change(segment)
    data = encode_catalog(changed.uuid, changed)
    key = layout.slot_key(TOPIC, 0, number + 1)
    before = decode_slot(TOPIC, 0, number + 1, key, archive.store.read(key)[0]).before
    archive.store.put(key, standing(before, data))
    archive.store.put(layout.record_key(TOPIC, changed.uuid), data)


def test_a_sound_archive_has_no_findings_and_is_counted() -> None:
    archive = sound()
    report = verify(archive.store)
    assert report.findings == ()
    assert (report.topics, report.segments, report.entries) == (1, 2, 121)
    assert report.bytes == sum(s.size for s in archive.catalog.segments)


@given(st.data())
def test_every_changed_byte_of_a_data_object_is_found(data: st.DataObject) -> None:
    archive = sound()
    key = layout.data_key(TOPIC, data.draw(st.sampled_from(archive.catalog.segments)).uuid)
    damage(archive, key, data)
    assert kinds(archive) == [FindingKind.DAMAGED_PART]


@given(st.data())
def test_every_changed_byte_of_an_index_object_is_found(data: st.DataObject) -> None:
    archive = sound()
    key = layout.index_key(TOPIC, data.draw(st.sampled_from(archive.catalog.segments)).uuid)
    damage(archive, key, data)
    found = kinds(archive)
    assert len(found) == 1
    assert found[0] in (FindingKind.DAMAGED_INDEX, FindingKind.UNACCOUNTED_BYTES)


@given(st.data())
def test_every_changed_byte_of_a_catalog_record_is_found(data: st.DataObject) -> None:
    archive = sound()
    slot = data.draw(st.integers(0, archive.catalog.next_slot - 1))
    damage(archive, layout.catalog_folder(TOPIC) + layout.slot_name(slot), data)
    assert FindingKind.DAMAGED_RECORD in kinds(archive)


def damage(archive: Archive, key: str, data: st.DataObject) -> None:
    there, stat = archive.store.read(key)
    changed = bytearray(there)
    changed[data.draw(st.integers(0, len(there) - 1))] ^= data.draw(st.integers(1, 255))
    archive.store.put(key, bytes(changed), meta=stat.meta)


@pytest.mark.parametrize("quick", [True, False])
def test_absent_objects(quick) -> None:
    archive = sound()
    first, second = archive.catalog.segments
    archive.store.delete([layout.data_key(TOPIC, first.uuid), layout.index_key(TOPIC, second.uuid)])
    assert kinds(archive, quick=quick) == [FindingKind.MISSING_OBJECT, FindingKind.MISSING_INDEX]


@pytest.mark.parametrize("quick", [True, False])
def test_objects_in_an_archive_tier_are_findings_and_the_others_are_checked(quick) -> None:
    archive = sound()
    first, second = archive.catalog.segments
    asleep = {layout.data_key(TOPIC, first.uuid), layout.index_key(TOPIC, second.uuid)}
    read = archive.store.read

    def read_unless_asleep(key, *a):
        if key in asleep:
            raise ObjectArchivedError(f"reading {key}: the object is in an archive tier")
        return read(key, *a)

    archive.store.read = read_unless_asleep
    found = verify(archive.store, quick=quick).findings
    assert {(f.kind, f.key) for f in found} == {
        (FindingKind.ARCHIVED_OBJECT, key) for key in asleep if not quick or key.endswith("-index")
    }
    damaged = layout.data_key(TOPIC, second.uuid)
    asleep.discard(layout.index_key(TOPIC, second.uuid))
    data, stat = read(damaged)
    archive.store.put(damaged, bytes([data[0] ^ 1]) + data[1:], meta=stat.meta)
    assert (FindingKind.DAMAGED_PART in kinds(archive, quick=quick)) is not quick


@pytest.mark.parametrize("quick", [True, False])
def test_an_object_of_another_size(quick) -> None:
    archive = sound()
    key = layout.data_key(TOPIC, archive.catalog.segments[0].uuid)
    archive.store.put(key, archive.store.read(key)[0][:-1], meta=META)
    assert kinds(archive, quick=quick) == [FindingKind.WRONG_SIZE]


def test_quick_reads_no_data() -> None:
    archive = sound()
    keys = [layout.data_key(TOPIC, s.uuid) for s in archive.catalog.segments]
    read = archive.store.read
    touched = []
    archive.store.read = lambda key, *a: touched.append(key) or read(key, *a)  # type: ignore[func-returns-value]
    verify(archive.store, quick=True)
    assert not set(keys) & set(touched)


def test_an_object_without_the_key_that_stock_readers_look_for() -> None:
    archive = sound()
    key = layout.data_key(TOPIC, archive.catalog.segments[0].uuid)
    archive.store.put(key, archive.store.read(key)[0])
    assert kinds(archive) == []
    archive.store.url = "s3://bucket"
    assert kinds(archive) == [FindingKind.WRONG_METADATA]


def test_an_entry_whose_own_checksum_does_not_match() -> None:
    archive = Archive()
    archive.claim()
    bad = bytearray(message("hello"))
    good = bytes(bad)
    archive.add([Stored(1, 0, good)])
    bad[-1] ^= 1
    _, data, index = archive.made([Stored(1, 0, good)], [], {}, SegmentLayout())
    changed = data.replace(good, bytes(bad))
    assert len(index) > 0
    key = layout.data_key(TOPIC, archive.catalog.segments[0].uuid)
    archive.store.put(key, changed, meta=META)
    rewrite(archive, 0, lambda s: with_crc(s, changed))
    assert FindingKind.DAMAGED_ENTRY in kinds(archive)


def with_crc(segment: Segment, data: bytes) -> Segment:
    import crc32c

    crc = crc32c.crc32c(data)
    return replace(segment, crc32c=crc, parts=(replace(segment.parts[0], crc32c=crc),))


def test_other_entries_than_the_record_says() -> None:
    archive = sound()
    rewrite(archive, 1, lambda s: replace(s, gaps=(gap(3, 9, 10),)))
    assert kinds(archive) == [FindingKind.WRONG_ENTRIES]


def test_other_statistics_than_the_record_says() -> None:
    archive = sound()
    rewrite(
        archive,
        0,
        lambda s: replace(s, parts=(replace(s.parts[0], stats=replace(s.parts[0].stats, messages=1)), *s.parts[1:])),
    )
    assert kinds(archive) == [FindingKind.WRONG_STATISTICS]


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda s: replace(s, size=s.size + 1), FindingKind.DAMAGED_RECORD),
        (lambda s: replace(s, crc32c=s.crc32c ^ 1), FindingKind.DAMAGED_RECORD),
        (lambda s: replace(s, ledgers=(replace(s.ledgers[0], count=99), *s.ledgers[1:])), FindingKind.DAMAGED_RECORD),
        (
            lambda s: replace(s, ledgers=(replace(s.ledgers[0], closed_with=None), *s.ledgers[1:])),
            FindingKind.DAMAGED_RECORD,
        ),
        (lambda s: replace(s, end=Position(0, 4, 21)), FindingKind.DAMAGED_RECORD),
        (lambda s: replace(s, gaps=(*s.gaps, gap(99, 0, 0))), FindingKind.DAMAGED_RECORD),
        (lambda s: replace(s, predecessor_uuid=uuid_of(7)), FindingKind.WRONG_PREDECESSOR),
        (lambda s: replace(s, start=Position(0, 3, 1)), FindingKind.HOLE),
    ],
)
def test_a_record_that_contradicts_itself_or_its_neighbour(
    change: Callable[[Segment], Segment], kind: FindingKind
) -> None:
    archive = sound()
    rewrite(archive, 1, change)
    assert kind in kinds(archive, quick=True)


def test_one_uuid_in_two_topics() -> None:
    archive, other = sound(), Archive(topic=replace(TOPIC, name="other"))
    other.store.backing = archive.store.backing
    other.claim()
    other.add(stream(1, 0, 3))
    assert kinds(archive).count(FindingKind.DUPLICATE_UUID) == 2


def test_an_object_that_nothing_names_is_a_stray_unless_a_journal_does() -> None:
    archive = sound()
    archive.store.put(layout.data_key(TOPIC, uuid_of(50)), b"x")
    archive.store.put("_unknown/thing", b"x")
    assert kinds(archive) == [FindingKind.STRAY_OBJECT, FindingKind.STRAY_OBJECT]
    archive.store.delete(["_unknown/thing"])
    end = Position(0, 4, 21)
    journal(archive, OpenTopic(TOPIC, open=open_segment(uuid_of(50), end)))
    assert kinds(archive) == []
    journal(archive, TopicState(TOPIC, abandoned=(Abandoned(uuid_of(50), None, "the upload is gone"),)))
    assert kinds(archive) == [FindingKind.ABANDONED_OBJECT]


def test_uploads_that_no_journal_names_are_told_of_and_ended_on_request() -> None:
    archive = sound()
    store = archive.store
    handles = [store.begin(layout.data_key(TOPIC, uuid_of(n))) for n in (50, 50, 51, 52)]
    state = TopicState(TOPIC, abandoned=(Abandoned(uuid_of(51), handles[2], "gone"),))
    journal(archive, state.opened(open_segment(uuid_of(50), Position(0, 4, 21))))
    # The open segment's upload has just begun: which of the two it is nobody knows yet.
    assert kinds(archive) == [FindingKind.OPEN_UPLOAD]
    journal(archive, state.opened(open_segment(uuid_of(50), Position(0, 4, 21), handles[0])))
    assert kinds(archive) == [FindingKind.OPEN_UPLOAD, FindingKind.OPEN_UPLOAD]
    assert set(verify(store, abort_uploads=True).aborted) == {handles[1], handles[3]}
    assert kinds(archive) == []
    assert {u.upload for u in store.list_uploads()} == {handles[0], handles[2]}


@pytest.mark.parametrize(
    "key",
    [
        "other/product.bin",
        "a/b/c/product.bin",
        f"{uuid_of(7)}-ledger-12",  # a stock broker's own offload
        layout.index_key(TOPIC, uuid_of(7)),
        layout.catalog_folder(TOPIC) + layout.slot_name(9),
        f"production/{layout.data_key(TOPIC, uuid_of(7))}",  # another root below this one
    ],
)
def test_the_uploads_of_others_are_never_ended(key) -> None:
    archive = sound()
    begun = archive.store.begin(key)
    report = verify(archive.store, abort_uploads=True)
    assert [(f.kind, f.key, "left alone" in f.message) for f in report.findings] == [
        (FindingKind.OPEN_UPLOAD, key, True)
    ]
    assert (report.aborted, [u.upload for u in archive.store.list_uploads()]) == ((), [begun])


def test_no_upload_is_ended_while_a_journal_cannot_be_read() -> None:
    archive = sound()
    archive.store.begin(layout.data_key(TOPIC, uuid_of(50)))
    journal(archive, TopicState(TOPIC, releasing=Releasing.REQUEST))
    for key, _ in list(archive.store.list(layout.journal_folder(APPLICATION))):
        archive.store.put(key, b"rubbish")
    report = verify(archive.store, abort_uploads=True)
    assert {f.kind for f in report.findings} == {FindingKind.DAMAGED_RECORD, FindingKind.OPEN_UPLOAD}
    assert report.aborted == ()


def test_an_open_segment_must_continue_the_catalog_of_its_application() -> None:
    archive = sound()
    journal(archive, OpenTopic(TOPIC, open=open_segment(uuid_of(50), Position(0, 4, 20))))
    assert kinds(archive) == [FindingKind.OVERLAP]
    with Journal.open(archive.store, "another", archive.token) as opened:
        opened.record([OpenTopic(TOPIC, open=open_segment(uuid_of(51), Position(0, 4, 21)))])
    assert kinds(archive) == [FindingKind.NOT_CLAIMED, FindingKind.OVERLAP]


def two_topics() -> tuple[Archive, Archive]:
    archive, other = sound(), Archive(topic=replace(TOPIC, name="other"))
    other.store.backing = archive.store.backing
    other.catalogs = Catalogs(other.store, APPLICATION)
    other.claim()
    return archive, other


@pytest.mark.parametrize("slot", [0, 1])
def test_a_record_of_another_topic_is_found_for_a_topic_that_is_named(slot) -> None:
    archive, other = two_topics()
    other.closed(1, 61)
    first = layout.catalog_folder(TOPIC) + layout.slot_name(0)
    there = layout.catalog_folder(other.topic) + layout.slot_name(slot)
    archive.store.put(first, archive.store.read(there)[0])
    found = [f for f in verify(archive.store, [TOPIC]).findings if "is a copy of" in f.message]
    assert [(f.kind, f.key) for f in found] == [(FindingKind.DAMAGED_RECORD, first)]


def test_what_is_the_same_in_other_topics_is_not_a_named_topics_matter() -> None:
    archive, other = two_topics()
    third = layout.catalog_folder(replace(TOPIC, name="third")) + layout.slot_name(0)
    archive.store.put(third, archive.store.read(layout.catalog_folder(other.topic) + layout.slot_name(0))[0])
    assert verify(archive.store, [TOPIC]).findings == ()


@pytest.mark.parametrize(("ledger", "entry"), [(3, 6), (4, 0)])
def test_a_topic_that_begins_before_the_place_that_it_was_claimed_from(ledger, entry) -> None:
    archive = Archive()
    archive.claim(ledger, entry)
    archive.add(stream(3, 5, 9))
    (finding,) = verify(archive.store).findings
    assert (finding.kind, finding.key) == (FindingKind.DAMAGED_RECORD, layout.catalog_folder(TOPIC))


def test_a_topic_may_be_claimed_again_from_a_later_place_on() -> None:
    archive = sound()
    archive.claim(4, 21)
    archive.incarnation = 1
    archive.claim(2, 0, created=3)
    archive.add(stream(2, 0, 5))
    assert kinds(archive) == []


def test_only_the_topics_asked_for() -> None:
    archive = sound()
    archive.store.put("public/default/other/rubbish", b"x")
    assert verify(archive.store, [TOPIC]).findings == ()
    assert [f.kind for f in verify(archive.store).findings] == [FindingKind.STRAY_OBJECT]


def test_a_lost_end_of_a_catalog_is_told_by_the_records_beside_the_segments() -> None:
    archive = Archive()
    archive.claim(3)
    kept = [archive.add(stream(3, first, first + 4)) for first in (0, 5, 10, 15)]
    archive.store.delete([layout.slot_key(TOPIC, 0, slot) for slot in (3, 4)])
    found = {f.key: f.message for f in verify(archive.store).findings if f.kind is FindingKind.UNCOMMITTED_RECORD}
    assert [layout.record_key(TOPIC, segment.uuid) for segment in kept[2:]] == list(found)
    assert all("it goes on where the catalog ends" in message for message in found.values())


def test_the_objects_of_a_lost_end_are_not_told_as_what_can_be_deleted() -> None:
    archive = Archive()
    archive.claim(3)
    kept = [archive.add(stream(3, first, first + 4)) for first in (0, 5, 10)]
    archive.store.delete([layout.slot_key(TOPIC, 0, slot) for slot in (2, 3)])
    stray = uuid_of(999)
    archive.store.put(layout.data_key(TOPIC, stray), b"x")
    found = {f.key: f.message for f in verify(archive.store).findings if f.kind is FindingKind.STRAY_OBJECT}
    ours = {key(TOPIC, segment.uuid) for segment in kept[1:] for key in (layout.data_key, layout.index_key)}
    assert found.keys() == ours | {layout.data_key(TOPIC, stray)}
    assert all("goes on where the catalog ends: do not delete it" in found[key] for key in ours)
    assert found[layout.data_key(TOPIC, stray)] == "neither a catalog nor a journal names it"


def test_what_is_kept_of_a_segment_does_not_grow_with_its_parts() -> None:
    archive = sound()
    whole, slim = (read_catalog(archive.store, TOPIC, slim=slim) for slim in (False, True))
    assert [replace(segment, parts=()) for segment in whole.catalog.segments] == list(slim.catalog.segments)
    assert any(segment.parts for segment in whole.catalog.segments)
    assert (slim.findings, slim.records, slim.unreadable) == (whole.findings, whole.records, whole.unreadable)
    records = {record.uuid: record for record in slim.records}
    assert [parts_of(archive.store, TOPIC, records[s.uuid]) for s in whole.catalog.segments] == list(
        whole.catalog.segments
    )


def test_a_record_that_is_changed_while_the_archive_is_verified_is_told_of() -> None:
    archive = sound()
    record = next(r for r in read_catalog(archive.store, TOPIC, slim=True).records if r.uuid == uuid_of(1))
    data, _ = archive.store.read(record.key)
    archive.store.put(record.key, data[:-1] + bytes([data[-1] ^ 1]))
    assert parts_of(archive.store, TOPIC, record) is None
    archive.store.delete([record.key])
    assert parts_of(archive.store, TOPIC, record) is None


def test_an_object_is_compared_with_the_record_that_counts_where_there_are_two_of_its_uuid() -> None:
    archive = sound()
    head, segment = Catalogs(archive.store, APPLICATION).head(TOPIC), archive.catalog.segments[-1]
    copy = encode_catalog(segment.uuid, replace(segment, size=segment.size - 1))
    archive.store.put(layout.slot_key(TOPIC, head.generation, head.next_slot), standing(head, copy))
    assert set(kinds(archive, quick=True)) == {FindingKind.DAMAGED_RECORD}
