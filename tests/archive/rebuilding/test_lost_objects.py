"""Records lost together with objects: what is not there any more is told of, and what comes back is taken."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.archive.checking.findings import Kind
from offloader.archive.checking.verify import verify
from offloader.archive.reading.once import located
from offloader.archive.rebuilding.found import MARK, NoteKind
from offloader.archive.view import TopicView
from offloader.errors import DamagedRecordError, FatalError, OffloadError
from offloader.metadata import layout
from offloader.metadata.catalog_codec import encode_catalog
from offloader.metadata.journal import Journal
from offloader.metadata.state import LedgerClosed, TopicState
from offloader.model import Cuts, Loss, OpenSegment, Position, Segment, Source
from offloader.testing.faulty import Effect, FaultyStore, StoreFault, StoreFaults
from tests.archive.rebuilding.lost import Place, back, going_on, gone, keys, lose_objects, missing, places, records, silent, sure
from tests.archive.rebuilding.support import GIVEN, Built, built, damage, proposed, read, record_key, written
from tests.archive.support import META, TOPIC, Archive, gap, stream, uuid_of

randoms = st.integers(0, 2**32).map(Random)
OTHER = replace(TOPIC, name="other")


def four() -> Archive:
    """A claim and four segments, each a ledger; other topics' ledgers may lie in between."""
    archive = Archive()
    archive.claim(10)
    for ledger in (10, 12, 14, 16):
        archive.add(stream(ledger, 0, 9), closed={ledger: 9})
    return archive


@pytest.mark.parametrize("what", [[1], [0], [0, 1]], ids=["index", "data", "both"])
@pytest.mark.parametrize(
    ("number", "expected"),
    [(1, ((10, 0), (12, -1))), (2, ((10, 10), (14, -1))), (3, ((12, 10), (16, -1)))],
    ids=["first", "second", "third"],
)
def test_a_record_that_is_lost_with_its_object_is_a_loss(number: int, expected: tuple[Place, Place], what: list[int]) -> None:
    archive = four()
    before = archive.catalog
    held = gone(archive, [number], [keys(number)[i] for i in what])
    proposal = written(archive)
    assert missing(archive) == [expected]
    loss = next(p.record for p in proposal.new)
    assert isinstance(loss, Loss)
    assert (loss.accepted_by, "objects are not there or damaged" in loss.reason) == (MARK, True)
    assert {f.kind for f in verify(archive.store).findings} <= {Kind.STRAY_OBJECT}  # the half that is left
    assert NoteKind.LOST in {n.kind for n in proposed(archive).notes}
    # What is brought back later takes its place again.
    back(archive, held)
    written(archive)
    assert missing(archive) == []
    assert len(places(archive)) == 40
    assert [s.uuid for s in archive.catalog.segments] == [s.uuid for s in before.segments]
    assert {f.kind for f in verify(archive.store).findings} == {Kind.LEFT_OVER}


def test_a_placeholder_of_an_earlier_version_is_made_again() -> None:
    archive = four()
    assert archive.catalog.claim is not None
    claim = replace(archive.catalog.claim, reason=MARK)
    held = gone(archive, [2], keys(2))
    archive.store.put(record_key(2), encode_catalog("t", claim))
    with pytest.raises(DamagedRecordError, match="up to 12:9, which is not recorded"):
        missing(archive)
    assert Kind.HOLE in {f.kind for f in verify(archive.store).findings}
    written(archive)
    assert missing(archive) == [((10, 10), (14, -1))]
    back(archive, held)
    written(archive)
    assert missing(archive) == []


def test_a_lost_record_of_which_nothing_speaks_may_have_been_a_loss() -> None:
    archive = Archive()
    archive.claim(10)
    archive.add(stream(10, 0, 9), closed={10: 9})
    archive.lose(Position(0, 12, 0), Position(0, 14, -1))
    archive.add(stream(14, 0, 9))
    gone(archive, [2], [])
    proposal = written(archive)
    assert missing(archive) == [((10, 10), (14, -1))]
    assert "--ended 10:9 where you know that nothing was" in next(n.message for n in proposal.notes)
    sure = replace(GIVEN, ended=((10, 9),))
    written(archive, sure)
    assert missing(archive) == []
    assert proposed(archive).new == []


def test_nobody_says_that_a_ledger_ended_where_a_lost_record_may_have_followed() -> None:
    archive = Archive()
    archive.claim(10)
    archive.add(stream(10, 0, 9))
    archive.add(stream(10, 10, 14))
    archive.add([], [gap(10, 15, 19)], closed={10: 19})
    archive.add(stream(14, 0, 9))
    gone(archive, [1, 2, 3], keys(2))
    written(archive)
    assert missing(archive) == [((10, 10), (14, -1))]
    assert archive.catalog.segments[0].ledgers[0].closed_with is None


def test_a_lost_tail_is_told_of_each_time_until_somebody_knows_better() -> None:
    archive = Archive()
    archive.claim(10)
    for ledger in (10, 12, 14):
        archive.add(stream(ledger, 0, 9))
        archive.closed(ledger, 9)
    gone(archive, [3, 4, 5, 6], [])
    for proposal in (written(archive), written(archive)):
        lost = [n.message for n in proposal.notes if n.kind is NoteKind.LOST]
        assert ["--ended 10:9" in lost[0], "--ended 12:9" in lost[1]] == [True, True]
    assert missing(archive) == [((10, 10), (12, -1)), ((12, 10), (14, -1))]
    with pytest.raises(FatalError, match="no segment ends with 12:8"):
        written(archive, replace(GIVEN, ended=((12, 8),)))
    for _ in range(2):
        written(archive, replace(GIVEN, ended=((10, 9), (12, 9))))
        assert missing(archive) == []
        assert archive.catalog.closed[0, 12] == 9
    assert {f.kind for f in verify(archive.store).findings} == {Kind.LEFT_OVER}
    said = [r for r in records(archive) if isinstance(r, LedgerClosed) and r.vouched_by]
    assert said == [LedgerClosed(0, ledger, 9, "catalog rebuild --ended") for ledger in (10, 12)]


def test_an_end_that_only_a_lost_record_proved_is_told_of_each_time() -> None:
    archive = Archive()
    archive.claim(10)
    archive.add(stream(10, 0, 9))
    archive.add(stream(12, 0, 9))
    archive.store.put(record_key(3), encode_catalog("c", LedgerClosed(0, 12, 9)))
    for _ in range(2):
        notes = written(archive).notes
        assert ["--ended 10:9" in n.message for n in notes] == [True]
    written(archive, replace(GIVEN, ended=((10, 9),)))
    assert missing(archive) == []
    assert proposed(archive).notes == ()


def test_what_comes_back_finds_its_place_when_the_application_has_gone_on() -> None:
    archive = four()
    held = gone(archive, [0, 1, 2, 3, 4], keys(2))
    written(archive)
    assert missing(archive) == [((10, 10), (14, -1)), ((14, 10), (16, -1))]
    going_on(archive).add(stream(16, 10, 19))
    back(archive, held)
    written(archive)
    assert places(archive) == {(ledger, e) for ledger in (10, 12, 14, 16) for e in range(20 if ledger == 16 else 10)}


def test_what_comes_back_and_finds_no_place_is_told_of() -> None:
    archive = Archive()
    archive.claim(10)
    for ledger in (10, 12):
        archive.add(stream(ledger, 0, 9))
    held = gone(archive, [0, 1, 2], keys(1))
    written(archive)
    going_on(archive).add(stream(12, 10, 19))
    before = records(archive)
    back(archive, held)
    proposal = written(archive)
    assert ["left no slot for it" in n.message for n in proposal.notes] == [True]
    assert records(archive) == before


def test_what_the_application_has_open_says_that_the_last_segment_is_lost() -> None:
    archive = four()
    last = archive.catalog.segments[-1]
    opened = OpenSegment(uuid_of(90), Position(0, 18, 0), Source.BROKER, Cuts(), 1)
    opened = replace(opened, predecessor_uuid=last.uuid, predecessor_end=last.end)
    with Journal.open(archive.store, "app", archive.token) as journal:
        journal.record([TopicState(TOPIC, open=opened)])
    gone(archive, [4], keys(4))
    written(archive)
    assert missing(archive) == [((14, 10), (18, -1))]


def test_the_end_of_a_former_incarnation_is_lost_up_to_the_claim_of_the_next_one() -> None:
    archive = Archive()
    archive.claim(10)
    archive.add(stream(10, 0, 9), closed={10: 9})
    archive.add(stream(12, 0, 9), closed={12: 9})
    archive.incarnation = 1
    archive.claim(20, created="later")
    archive.add(stream(20, 0, 9))
    held = gone(archive, [2, 3], keys(2))
    written(archive)
    assert missing(archive) == [((10, 10), (20, -1))]
    # Of which incarnation a position is, is still known.
    view = TopicView.of(archive.catalog)
    assert [located(view, Position(0, *place)) for place in ((12, 3), (20, 3))] == [Position(0, 12, 3), Position(1, 20, 3)]
    back(archive, held)
    written(archive)
    assert missing(archive) == []
    assert len(places(archive)) == 30


def test_a_former_incarnation_of_which_only_a_name_is_left_is_lost_up_to_the_next_one() -> None:
    archive = Archive()
    archive.claim(10)
    archive.add(stream(10, 0, 9), closed={10: 9})
    archive.incarnation = 1
    archive.claim(20, created="later")
    archive.add(stream(20, 0, 9))
    held = gone(archive, [0, 1, 2], keys(1))
    written(archive)
    assert missing(archive) == [((10, 0), (20, -1))]
    assert places(archive) == {(20, entry) for entry in range(10)}
    back(archive, held)
    written(archive)
    assert missing(archive) == []
    assert len(places(archive)) == 20


@pytest.mark.parametrize("how", ["named", "ledger", "beside", "open"])
def test_another_topic_s_objects_never_enter(how: str) -> None:
    archive = four()
    other = Archive(archive.store, OTHER)
    other._uuids = iter([100, 101, 102])
    other.claim(11)
    segment = other.add(stream(11, 0, 9), closed={11: 9})
    uuid = uuid_of(77) if how == "ledger" else segment.uuid
    for key in (layout.data_key, layout.index_key):
        archive.store.put(key(TOPIC, uuid), archive.store.read(key(OTHER, segment.uuid))[0], meta=META)
    if how in ("beside", "open"):
        archive.store.delete([layout.catalog_folder(OTHER) + layout.slot_name(1)])
    if how == "open":
        archive.store.delete([key(OTHER, uuid) for key in (layout.data_key, layout.index_key)])
        with Journal.open(archive.store, "app", archive.token) as journal:
            journal.record([TopicState(OTHER, open=OpenSegment(uuid, segment.start, Source.BROKER, Cuts(), 1))])
    for slots in ([2], [0, 1, 2, 3, 4]):
        gone(archive, slots, keys(2) if slots == [2] else [])
        proposal = written(archive)
        assert all(p.record.uuid != uuid for p in proposal.records if isinstance(p.record, Segment))
        assert str(OTHER) in next(n.message for n in proposal.notes if n.key == layout.data_key(TOPIC, uuid))
        assert missing(archive)[0] == ((10, 10), (14, -1))


@given(randoms)
def test_whatever_is_lost_is_reported_and_whatever_comes_back_is_taken(random: Random) -> None:
    there = built(random, hide=random.choice([0, 0.15]))
    archive = there.archive
    foreign = with_another_s(archive, random)
    held = lose_objects(there, random)
    proposal = proposed(archive)
    if not proposal.records:
        return
    assert written(archive) == proposal
    found = read(archive, archive.catalog)
    assert set(found) <= set(there.entries) or not sure(proposal.notes)
    have = {(p.ledger, p.entry) for p, _ in found}
    assert not sure(proposal.notes) or not silent(there, have)
    losses = [((x.start.ledger, x.start.entry), (x.end.ledger, x.end.entry)) for x in archive.catalog.losses]
    assert not any(a <= place <= b for a, b in losses for place in have)
    assert proposed(archive).new == [], "once more, nothing changes"
    back(archive, held)
    written(archive, replace(GIVEN, at=100))
    again = [(p.ledger, p.entry, data) for p, data in read(archive, archive.catalog)]
    assert again == [(p.ledger, p.entry, data) for p, data in there.entries]
    assert foreign not in {s.uuid for s in archive.catalog.segments}


@given(randoms, st.integers(0, 12))
def test_a_repeated_rebuild_that_is_interrupted_is_repaired_by_trying_again(random: Random, passed: int) -> None:
    there = built(random)
    archive = there.archive
    held = lose_objects(there, random)
    proposal = proposed(archive)
    if not proposal.records:
        return
    certain = sure(proposal.notes)
    written(archive)
    some = {key: data for key, data in held.items() if random.random() < 0.7}
    for returned in (some, held):
        back(archive, returned)
        faults = StoreFaults([StoreFault("put", random.choice([Effect.BEFORE, Effect.LOST]), after=passed, times=1000)])
        try:
            written(archive, replace(GIVEN, at=100), FaultyStore(archive.store, faults))
        except OffloadError:
            nothing_wrong(there, certain=certain)
            written(archive, replace(GIVEN, at=101))
    again = [(p.ledger, p.entry, data) for p, data in read(archive, archive.catalog)]
    assert again == [(p.ledger, p.entry, data) for p, data in there.entries]


def nothing_wrong(there: Built, *, certain: bool) -> None:
    """Whoever reads meanwhile reads what is right and is told what is missing, or is refused."""
    try:
        if there.archive.catalog.claim is None:
            return  # a topic without a claim is not in the archive
        found = read(there.archive, there.archive.catalog)
    except OffloadError:
        return
    assert {(p.ledger, p.entry, data) for p, data in found} <= {(p.ledger, p.entry, data) for p, data in there.entries}
    assert not certain or not silent(there, {(p.ledger, p.entry) for p, _ in found})


def with_another_s(archive: Archive, random: Random) -> str:
    """A copy of another topic's segment, of a ledger between ours."""
    other = Archive(archive.store, OTHER)
    other._uuids = iter([900])
    ledger = random.choice([1, 5, 50, 105])
    other.claim(ledger)
    segment = other.add(stream(ledger, 0, 4))
    for key in (layout.data_key, layout.index_key):
        archive.store.put(key(TOPIC, segment.uuid), archive.store.read(key(OTHER, segment.uuid))[0], meta=META)
    return segment.uuid


def test_what_is_too_much_for_the_records_that_are_missing_shares_one() -> None:
    archive = Archive()
    archive.claim(10)
    archive.add(stream(10, 0, 9), closed={10: 19})
    archive.add(stream(10, 10, 14))
    archive.add(stream(10, 15, 19), closed={10: 19})
    archive.incarnation = 1
    archive.claim(20, created="later")
    archive.add(stream(20, 0, 9))
    held = gone(archive, [2, 3], keys(2))
    written(archive)
    assert [(x.start.entry, x.end.ledger, x.end.entry) for x in archive.catalog.losses] == [(10, 10, 14)]
    damage(archive, 5)  # what said that nothing came behind the third segment
    proposal = written(archive)
    assert missing(archive) == [((10, 10), (10, 14)), ((10, 20), (20, -1))]
    assert [len(p.record.also) for p in proposal.records if isinstance(p.record, Loss)] == [1]
    assert sum(n.kind is NoteKind.LOST for n in proposal.notes) == 2
    back(archive, held)
    written(archive)
    assert len(places(archive)) == 30
