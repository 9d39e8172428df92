"""Which objects get a record again, who may have it done, and what is left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offloader.archive.checking.findings import Kind
from offloader.archive.checking.verify import verify
from offloader.archive.rebuilding.found import NoteKind
from offloader.archive.rebuilding.propose import Origin, Proposal
from offloader.archive.rebuilding.replace import owner
from offloader.errors import FatalError, FormatVersionError, IntegrityError, OvertakenError
from offloader.metadata import layout
from offloader.metadata.catalog_codec import encode_catalog
from offloader.metadata.journal import Journal
from offloader.metadata.state import Abandoned, Claim, TopicState
from offloader.model import Cuts, GapKind, Loss, OpenSegment, Position, Segment, Source
from tests.archive.rebuilding.support import GIVEN, proposed, read, record_key, written
from tests.archive.support import APPLICATION, META, SMALL, TOPIC, Archive, gap, stream, uuid_of


def three() -> Archive:
    """Slots: a claim, three segments."""
    archive = Archive()
    archive.claim(1)
    archive.add(stream(1, 0, 9))
    archive.add(stream(1, 10, 19), [gap(1, 20, 20)], closed={1: 20})
    archive.add(stream(2, 0, 9))
    return archive


def lost(archive: Archive, *slots: int) -> Archive:
    archive.store.delete([record_key(slot) for slot in slots])
    return archive


def journal(archive: Archive, state: TopicState) -> None:
    with Journal.open(archive.store, APPLICATION, archive.token) as opened:
        opened.record([state])


def opened(uuid: str, start: Position, follows: Segment | None) -> OpenSegment:
    uuid_before, end = ("", None) if follows is None else (follows.uuid, follows.end)
    return OpenSegment(uuid, start, Source.BROKER, Cuts(), 1, predecessor_uuid=uuid_before, predecessor_end=end)


def copy_of(archive: Archive, segment: Segment, uuid: str) -> None:
    for key in (layout.data_key, layout.index_key):
        archive.store.put(key(TOPIC, uuid), archive.store.read(key(TOPIC, segment.uuid))[0], meta=META)


def left_out(proposal: Proposal) -> list[str]:
    return [note.key for note in proposal.notes if note.kind is NoteKind.LEFT_OUT]


def segments(proposal: Proposal) -> list[str]:
    return [p.record.uuid for p in proposal.records if isinstance(p.record, Segment)]


def test_a_sound_catalog_is_left_as_it_is() -> None:
    archive = three()
    proposal = proposed(archive)
    assert proposal.new == []
    assert proposal.notes == ()
    assert written(archive).catalog() == archive.catalog


def test_nothing_is_left_of_a_topic_without_anything() -> None:
    assert proposed(Archive()).records == ()


def test_a_catalog_that_is_lost_altogether() -> None:
    archive = three()
    original = archive.catalog
    proposal = written(lost(archive, 0, 1, 2, 3))
    assert [p.origin for p in proposal.records] == [Origin.REMADE] * 5
    assert archive.catalog.claim == Claim(APPLICATION, 0, "then", Position(0, 1, 0), 99, "catalog rebuild")
    first, second, third = archive.catalog.segments
    assert (first.start, first.end, second.predecessor_uuid) == (Position(0, 1, 0), Position(0, 1, 9), first.uuid)
    # Its index says 20: the end of a gap, or of the ledger. Either way nothing is left of that entry.
    assert (second.end, archive.catalog.losses[0].start) == (Position(0, 1, 19), Position(0, 1, 20))
    assert third.crc32c == original.segments[2].crc32c


def test_what_followed_says_where_a_segment_ended() -> None:
    archive = three()
    original = archive.catalog.segments[1]
    written(lost(archive, 2))
    again = archive.catalog.segments[1]
    assert (again.end, again.ledgers) == (original.end, original.ledgers)
    assert again.gaps == (gap(1, 20, 20, GapKind.UNKNOWN),)
    assert verify(archive.store).findings == ()


def test_no_segment_gets_a_gap_at_its_end_that_its_index_denies() -> None:
    archive = Archive()
    archive.claim(1)
    archive.add(stream(1, 0, 4))
    archive.add(stream(1, 7, 7), [gap(1, 5, 6)])
    archive.add(stream(1, 8, 8))
    archive.add([], [gap(1, 9, 9)])  # it has no objects: its record was all there was
    archive.add(stream(1, 10, 12))
    written(lost(archive, 2, 3, 4))
    again = archive.catalog
    assert [(s.start.entry, s.end.entry) for s in again.segments] == [(0, 4), (5, 7), (8, 8), (10, 12)]
    assert [(loss.start.entry, loss.end.entry) for loss in again.losses] == [(9, 9)]
    assert verify(archive.store).findings == ()  # the loss stands for the segment that is named as predecessor


def test_objects_that_overlap_are_told_of_and_none_is_taken() -> None:
    archive = three()
    other = Archive()
    other.claim(1)
    other._uuids = iter([60])
    copied = other.add(stream(1, 5, 12))
    for name in (layout.data_key, layout.index_key):
        archive.store.put(name(TOPIC, uuid_of(60)), other.store.read(name(TOPIC, copied.uuid))[0], meta=META)
    proposal = proposed(lost(archive, 1, 2, 3))
    assert segments(proposal) == [uuid_of(3)]
    assert left_out(proposal) == [layout.data_key(TOPIC, uuid_of(n)) for n in (1, 60, 2)]
    # Where a later record names one of them, that one was committed.
    archive = three()
    copy_of(archive, archive.catalog.segments[1], uuid_of(1)[:-1] + "0")
    assert segments(proposed(lost(archive, 2))) == [uuid_of(1), uuid_of(2), uuid_of(3)]


def test_one_of_several_objects_with_the_same_contents_is_taken() -> None:
    archive = three()
    copy_of(archive, archive.catalog.segments[2], uuid_of(70))
    proposal = proposed(lost(archive, 3))
    assert segments(proposal) == [uuid_of(1), uuid_of(2), uuid_of(3)]
    assert left_out(proposal) == [layout.data_key(TOPIC, uuid_of(70))]


def test_a_stray_object_where_no_record_is_missing_is_left_alone() -> None:
    archive = three()
    copy_of(archive, archive.catalog.segments[0], uuid_of(70))
    proposal = proposed(archive)
    assert proposal.new == []
    assert left_out(proposal) == [layout.data_key(TOPIC, uuid_of(70))]


def test_a_damaged_object_or_half_of_one_is_left_out_and_its_positions_are_lost() -> None:
    archive = three()
    key = layout.data_key(TOPIC, uuid_of(2))
    data = archive.store.read(key)[0]
    archive.store.put(key, data[:300] + bytes([data[300] ^ 1]) + data[301:], meta=META)
    proposal = proposed(lost(archive, 2))
    assert left_out(proposal) == [key]
    # Nothing says up to where ledger 1 went.
    assert [(p.record.start, p.record.end) for p in proposal.new if isinstance(p.record, Loss)] == [
        (Position(0, 1, 10), Position(0, 2, -1))
    ]
    archive.store.delete([layout.index_key(TOPIC, uuid_of(2))])
    assert "no index object" in proposed(archive).notes[0].message
    archive.store.delete([key])
    assert proposed(archive).notes[0].kind is NoteKind.LOST


def test_what_the_journal_has_open_or_abandoned_gets_no_record() -> None:
    archive = three()
    first, second, third = archive.catalog.segments
    copy_of(archive, third, uuid_of(80))
    open_again = opened(third.uuid, third.start, second)
    journal(archive, TopicState(TOPIC, open=open_again, abandoned=(Abandoned(uuid_of(80), None, "gone"),)))
    proposal = proposed(lost(archive, 3))
    assert segments(proposal) == [first.uuid, second.uuid]
    assert left_out(proposal) == [layout.data_key(TOPIC, uuid_of(80))]
    assert proposal.new == []


def test_the_open_segment_says_where_the_last_one_ended() -> None:
    archive = three()
    last = archive.add(stream(2, 10, 12), [gap(2, 13, 15)])
    journal(archive, TopicState(TOPIC, open=opened(uuid_of(90), Position(0, 2, 16), last)))
    written(lost(archive, 3, 4))
    assert archive.catalog.end == Position(0, 2, 15)
    assert verify(archive.store).findings == ()


def test_a_journal_that_does_not_agree_refuses() -> None:
    archive = three()
    journal(archive, TopicState(TOPIC, open=opened(uuid_of(90), Position(0, 2, 5), None)))
    with pytest.raises(IntegrityError, match="starts at 2:5, the catalog would end at 2:9"):
        written(archive)
    with Journal.open(archive.store, "another", archive.token) as another:
        another.record([TopicState(TOPIC, open=opened(uuid_of(91), Position(0, 2, 10), None))])
    with pytest.raises(FatalError, match="both have a segment of it open"):
        written(archive)


def test_whoever_runs_on_the_owner_s_journal_is_ended() -> None:
    archive = three()
    with Journal.open(archive.store, APPLICATION, archive.token) as running:
        running.record([TopicState(TOPIC, releasing=True)])
        written(lost(archive, 3))
        with pytest.raises(OvertakenError):
            running.check_not_overtaken()


def test_nobody_is_ended_where_there_is_nothing_to_write() -> None:
    archive = three()
    with Journal.open(archive.store, APPLICATION, archive.token) as running:
        running.record([TopicState(TOPIC, releasing=True)])
        assert written(archive).new == []
        running.check_not_overtaken()


def test_a_number_that_no_record_can_have_come_to_is_told() -> None:
    archive = three()
    far = layout.catalog_folder(TOPIC) + layout.slot_name(10**19)
    archive.store.put(far, archive.store.read(record_key(1))[0])
    with pytest.raises(FatalError, match=rf"^{far}: \d+ records would be missing before it, which cannot be: move it away"):
        written(archive)


def test_somebody_who_writes_meanwhile_is_not_overwritten() -> None:
    archive = lost(three(), 3)
    store, put = archive.store, archive.store.put

    def racing(key: str, data: bytes, **more: object) -> object:
        if key == record_key(3):
            store.put = put  # type: ignore[method-assign]
            Archive(store).claim(1, created="theirs")
        return put(key, data, **more)  # type: ignore[arg-type]

    store.put = racing  # type: ignore[method-assign, assignment]
    with pytest.raises(IntegrityError, match="has been written meanwhile"):
        written(archive)
    assert archive.catalog.claim is not None
    assert archive.catalog.claim.created == "theirs"


def test_damaged_records_are_moved_aside_and_readers_are_refused_until_the_end() -> None:
    archive = three()
    archive.store.put(record_key(1), b"rubbish")
    copied = archive.store.read(record_key(3))[0]
    archive.store.put(record_key(4), copied)
    proposal = written(archive)
    assert {slot: p.origin for slot, p in enumerate(proposal.records)}[1] is Origin.REMADE
    moved = {
        key.rpartition("/")[2]: archive.store.read(key)[0] for key, _ in archive.store.list() if "_catalog-damaged-99/" in key
    }
    assert moved == {layout.slot_name(1): b"rubbish", layout.slot_name(4): copied}
    assert {f.kind for f in verify(archive.store).findings} == {Kind.LEFT_OVER}
    assert len(read(archive, archive.catalog)) == 30


def test_a_record_whose_object_is_not_there_does_not_stand_against_one_that_is() -> None:
    archive = three()
    wrong = replace(archive.catalog.segments[1], uuid=uuid_of(66))
    archive.store.put(record_key(2), encode_catalog("wrong", wrong))
    proposal = proposed(archive)
    assert segments(proposal) == [uuid_of(1), uuid_of(2), uuid_of(3)]
    archive.store.put(record_key(2), encode_catalog("wrong", replace(wrong, start=Position(0, 50, 0), end=Position(0, 50, 1))))
    assert segments(proposed(archive)) == [uuid_of(1), uuid_of(2), uuid_of(3)]


def test_a_newer_version_s_record_is_not_touched() -> None:
    archive = three()
    from offloader._proto import metadata_pb2 as pb
    from offloader.metadata.envelope import seal

    archive.store.put(record_key(3), seal("t", pb.Body(fence=pb.Fence()), format_version=2))
    with pytest.raises(FormatVersionError):
        proposed(archive)


def test_cuts_are_those_that_would_have_made_these_blocks() -> None:
    archive = three()
    found = next(s for s in proposed(lost(archive, 1, 2, 3), replace(GIVEN, cuts=Cuts())).catalog().segments)
    assert found.cuts == Cuts()
    assert [p.size for p in found.parts] == [found.size]
    proposal = proposed(three_again(), replace(GIVEN, cuts=Cuts()))
    assert {s.cuts for s in proposal.catalog().segments} == {SMALL}


def three_again() -> Archive:
    return lost(three(), 1)


def test_whose_topic_it_is() -> None:
    archive = three()
    evidence = proposed(archive).evidence
    assert owner(evidence, None, "configured") == APPLICATION
    with pytest.raises(FatalError, match="not other's: `offloader takeover`"):
        owner(evidence, "other", "configured")
    nothing = proposed(lost(archive, 0)).evidence
    assert owner(nothing, None, "configured") == "configured"
    assert owner(nothing, "other", "configured") == "other"
