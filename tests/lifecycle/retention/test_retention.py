"""Retention over real catalogs: chunked messages, incarnations, what is read for a decision, rights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.archive.findings import FindingKind
from offloader.archive.items import ArchivedEntry
from offloader.errors import AccessDeniedError, ClaimedByOtherError, IntegrityError
from offloader.lifecycle.bucket.reading import read_names
from offloader.lifecycle.retention.phases import ArchiveDeletion
from offloader.lifecycle.retention.policy import MINUTE_MS, RetentionPolicy
from offloader.lifecycle.retention.retention import ArchiveRetention, GoneDoubt, planned
from offloader.metadata import layout
from offloader.metadata.catalog import Catalogs, released
from offloader.metadata.compaction import compact
from offloader.metadata.deletions import Deleting, DeletionReason, PulsarTrimmed, SegmentRange, TopicGone
from offloader.metadata.journal import Journal
from offloader.metadata.state import CatalogHead, Said
from offloader.metadata.takeover import takeover
from offloader.model import Position
from offloader.operations.rebuild.remains import Given
from offloader.operations.rebuild.write import rebuild
from offloader.operations.verify.verify import verify
from offloader.ports.object_store import ObjectStore
from offloader.storage.forwarding import ForwardingStore, T, Verb
from offloader.testing.faulty import FaultyStore, StoreFault, StoreFaults
from tests.archive.spark.world import TopicMaker
from tests.archive.support import APPLICATION, TOPIC, Archive, stream
from tests.archive.test_deleted import topic_of
from tests.format.support import Stored, checksummed

from .world import KilledError

NOW = 1_800_000_000_000
OLD = NOW - 100 * MINUTE_MS
HOUR = RetentionPolicy(minutes=60)


def retention(archive: Archive, policy: RetentionPolicy, store: object = None, gone: int | None = None):
    reached = store or archive.store
    catalogs = Catalogs(reached, APPLICATION)  # type: ignore[arg-type]
    clock = lambda: NOW if catalogs.head(TOPIC).removed.pending is None else NOW + MINUTE_MS  # noqa: E731
    deletion = ArchiveDeletion(
        reached,  # type: ignore[arg-type]
        catalogs,
        catalogs.append,
        lambda: None,
        clock,
        "memory",
        APPLICATION,
    )
    return ArchiveRetention(deletion, lambda _: policy, lambda _: gone, MINUTE_MS)


def append(archive: Archive, record: Said) -> CatalogHead:
    return archive.catalogs.append(archive.catalogs.head(TOPIC), record)


def chunked(*sealed_at: int, entries: tuple[int, ...]) -> Archive:
    """Every 15 entries have a chunked message, in the entries 4, 9 and 14 of these."""
    archive = Archive()
    archive.claim(30)
    maker, first = TopicMaker(archive, Random(1)), 0
    for at, count in zip(sealed_at, entries, strict=True):
        archive.sealed_at = at
        maker.segment(30, first, count)
        first += count
    return archive


@pytest.mark.parametrize(
    ("entries", "goes"),
    [
        ((15, 15, 15), ["30:0..30:29"]),
        ((15, 20, 15), ["30:0..30:14"]),  # a message begins at 34, and ends at 44
        ((20, 15, 15), []),  # one begins at 19 and one at 34: neither segment can be spared
        ((18, 12, 15), ["30:0..30:29"]),
    ],
)
def test_a_segment_stays_in_which_a_kept_message_begins(entries, goes):
    archive = chunked(OLD, OLD, NOW, entries=entries)
    found = planned(archive.store, archive.catalogs.head(TOPIC), HOUR, NOW + 10 * MINUTE_MS, None)
    assert [f"{each.range.start}..{each.range.end}" for each in found.due] == goes


def incarnations() -> Archive:
    """Three topics of one name, of two segments each; the last one is there."""
    archive = Archive(sealed_at=OLD)
    for number in range(3):
        archive.incarnation = number
        archive.claim(10 * number, created=number)
        archive.add(stream(10 * number, 0, 9))
        archive.add(stream(10 * number, 10, 19))
    return archive


def test_each_incarnation_goes_by_itself_and_what_went_side_by_side_is_one_range():
    archive = incarnations()
    gone = retention(archive, RetentionPolicy(gone_minutes=60))
    assert "4 segments" in gone.visit(TOPIC)
    assert "is done" in gone.visit(TOPIC)
    removed = archive.catalogs.head(TOPIC).removed
    [one] = removed.ranges
    assert (one.start.incarnation, one.end.incarnation, one.segments, one.whole) == (0, 1, 4, True)
    assert retention(archive, HOUR).visit(TOPIC) != ""
    retention(archive, HOUR).visit(TOPIC)
    [all_of] = archive.catalogs.head(TOPIC).removed.ranges
    assert (all_of.segments, str(all_of.end), all_of.whole) == (5, "20:9", False)


def test_time_goes_for_each_incarnation_and_leaves_only_the_newest_of_the_present_one():
    archive = incarnations()
    one = retention(archive, HOUR)
    assert "5 segments" in one.visit(TOPIC)
    one.visit(TOPIC)
    kept = [key for key, _ in archive.store.list(layout.topic_folder(TOPIC)) if key.endswith(layout.INDEX)]
    assert kept == [layout.index_key(TOPIC, archive.catalog.segments[-1].uuid)]


def test_a_role_that_may_not_delete_leaves_it_undoable():
    archive = incarnations()
    refused = FaultyStore(archive.store, StoreFaults([StoreFault("delete", error=AccessDeniedError, times=100)]))
    one = retention(archive, HOUR, refused)
    one.visit(TOPIC, noted=False)
    with pytest.raises(AccessDeniedError):
        one.visit(TOPIC, noted=False)
    removed = archive.catalogs.head(TOPIC).removed
    assert removed.pending is not None
    assert removed.begun is None
    retention(archive, HOUR).undelete(TOPIC, "me")
    assert archive.catalogs.head(TOPIC).removed.pending is None


def test_a_decision_reads_the_records_of_what_goes_and_not_all_that_are_kept():
    archive = Archive(sealed_at=OLD)
    archive.claim(0)
    for number in range(200):
        archive.sealed_at = OLD if number < 3 else NOW
        archive.add(stream(0, number, number))
    compact(archive.store, archive.catalogs.head(TOPIC))
    faults = StoreFaults([])
    reached = FaultyStore(archive.store, faults)
    head = Catalogs(reached, "").head(TOPIC)
    before = sum(faults.calls.values())
    found = planned(reached, head, HOUR, NOW + MINUTE_MS, None)
    assert [each.range.segments for each in found.due] == [3]
    # One read for each kept part of the first 64 MiB, for chunks; and hardly any for records.
    assert sum(faults.calls.values()) - before < 197 + 20


def test_what_another_application_has_is_left_to_it():
    archive = incarnations()
    one = retention(archive, HOUR)
    other = ArchiveRetention(replace(one.deletion, by="other"), one.policy_of, one.gone_since, MINUTE_MS)
    one.visit(TOPIC)
    assert other.visit(TOPIC) == ""
    assert one.deletion.marked() == [TOPIC]
    for ask in (other.delete, other.undelete):
        with pytest.raises(ClaimedByOtherError, match="claimed by app: ask that application"):
            ask(TOPIC, "me")
    assert "is done" in one.visit(TOPIC)
    assert one.deletion.marked() == []


def told(archive: Archive) -> list[tuple[str, str]]:
    return [(str(each.start), str(each.end)) for each in archive.catalogs.head(TOPIC).removed.told]


FOLLOWING = RetentionPolicy(follow_pulsar=True)


@pytest.mark.parametrize("when", ["after", "in the grace", "begun"])
@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("loss", [False, True])
def test_what_is_recorded_behind_all_that_went_of_a_topic_is_never_told_as_deleted(when, lost, loss):
    archive = Archive(sealed_at=OLD)
    archive.claim(0)
    for first in (0, 10, 20):
        archive.add(stream(0, first, first + 9))
    append(archive, TopicGone(0, OLD))
    gone = retention(archive, RetentionPolicy(), gone=OLD)
    assert "3 segments" in gone.delete(TOPIC, "me")

    def late() -> None:
        """The driver seals at last what was uploaded, or records what was lost behind it."""
        if loss:
            archive.lose(Position(0, 0, 30), Position(0, 0, 39))
        else:
            archive.add(stream(0, 30, 39))

    if when == "in the grace":
        late()
    if when == "begun":
        head = archive.catalogs.head(TOPIC)
        pending = head.removed.pending
        assert pending is not None
        gone.deletion.begin(head, pending)
        late()
    assert "is done" in gone.visit(TOPIC) or "is done" in gone.visit(TOPIC)
    if when == "after":
        late()
    kept = archive.catalog.segments[3:]
    archive.incarnation = 1
    archive.claim(10, created=2)
    for first in (0, 10, 20):
        archive.add(stream(10, first, first + 9))
    append(archive, PulsarTrimmed(1, 11, NOW))
    again = retention(archive, FOLLOWING)
    assert "2 segments" in again.visit(TOPIC)
    assert told(archive) == [("0:0", "0:29"), ("10:0", "10:19")]
    assert "is done" in again.visit(TOPIC)
    if lost:
        archive.store.delete([key for key, _ in archive.store.list(layout.generations_folder(TOPIC))])
        rebuild(archive.store, TOPIC, Given(APPLICATION, NOW), archive.token)
    assert told(archive) == [("0:0", "0:29"), ("10:0", "10:19")]
    names = read_names(archive.store, TOPIC)
    assert not {segment.uuid for segment in kept} & names.deleted
    assert verify(archive.store).findings == ()


def test_a_deletion_that_lost_its_slot_does_not_say_what_is_left_behind_it():
    """Two records and a claim got in between: nobody can tell from the head what followed."""
    archive = Archive(sealed_at=OLD)
    archive.claim(0)
    archive.add(stream(0, 0, 9))
    stale = archive.catalogs.head(TOPIC)
    archive.add(stream(0, 10, 19))
    archive.incarnation = 1
    archive.claim(10, created=2)
    archive.add(stream(10, 0, 9))
    span = SegmentRange(Position(0, 0, 0), Position(0, 0, 9), 1, 10, 600, None, whole=True)
    record = Deleting(0, (span,), DeletionReason.REQUEST, "", "me", NOW, NOW)
    pending = archive.catalogs.append(stale, record).removed.pending
    assert pending is not None
    assert [each.whole for each in pending.ranges] == [False]
    assert archive.catalogs.append(stale, record).removed.pending == pending, "the same once more is the same"


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


def application(
    archive: Archive,
    clock: Clock,
    policy: RetentionPolicy,
    name: str = APPLICATION,
    gone: int | GoneDoubt | None = None,
    store: ObjectStore | None = None,
) -> ArchiveRetention:
    """One of several in one root; its grace is ten minutes."""
    reached = store or archive.store
    catalogs = Catalogs(reached, name)
    deletion = ArchiveDeletion(reached, catalogs, catalogs.append, lambda: None, clock, "memory", name)
    return ArchiveRetention(deletion, lambda _: policy, lambda _: gone, 10 * MINUTE_MS)


def visit_all(one: ArchiveRetention) -> None:
    """As the application does it."""
    noted = one.deletion.marked()
    if TOPIC in noted or one.policy_of(TOPIC).says_anything:
        one.visit(TOPIC, noted=TOPIC in noted)


def released_archive(*, before_the_field: bool = False) -> Archive:
    archive = incarnations()
    claim = archive.catalogs.head(TOPIC).claim
    assert claim is not None
    left = released(claim, NOW, "released")
    append(archive, replace(left, released_by="") if before_the_field else left)
    return archive


OTHERS = [RetentionPolicy(hold="case 4711"), RetentionPolicy(), RetentionPolicy(minutes=10**6)]


@pytest.mark.parametrize("policy", OTHERS)
@pytest.mark.parametrize("before_the_field", [False, True])
def test_what_was_released_only_who_had_it_last_decides_of(policy, before_the_field):
    archive, clock = released_archive(before_the_field=before_the_field), Clock()
    mine, other = application(archive, clock, policy), application(archive, clock, HOUR, "other")
    before = archive.catalogs.head(TOPIC)
    for _ in range(288):  # two days
        visit_all(other)
        visit_all(mine)
        clock.now += 10 * MINUTE_MS
    for _ in range(288):  # its own application is down
        visit_all(other)
        clock.now += 10 * MINUTE_MS
    assert archive.catalogs.head(TOPIC) == before
    for ask in (other.delete, other.undelete):
        with pytest.raises(ClaimedByOtherError, match="released by app: ask that application"):
            ask(TOPIC, "me")


def test_the_deletion_of_who_released_a_topic_is_left_to_it():
    archive, clock = released_archive(), Clock()
    mine, other = application(archive, clock, HOUR), application(archive, clock, RetentionPolicy(hold="x"), "other")
    visit_all(mine)
    clock.now += 11 * MINUTE_MS
    visit_all(other)
    assert other.deletion.marked() == [TOPIC]
    visit_all(mine)
    assert sum(each.segments for each in archive.catalogs.head(TOPIC).removed.ranges) == 5


def test_where_nobody_knows_who_had_it_nothing_goes_but_on_request():
    archive, clock = released_archive(before_the_field=True), Clock()
    claim = archive.catalogs.head(TOPIC).claim
    assert claim is not None
    archive.store.delete([layout.record_key(TOPIC, claim.former)])
    one = application(archive, clock, HOUR)
    visit_all(one)
    assert archive.catalogs.head(TOPIC).removal is None
    assert "6 segments" in one.delete(TOPIC, "me")


def test_whoever_takes_over_an_application_decides_of_what_that_released():
    archive, clock = released_archive(), Clock()
    with Journal.open(archive.store, APPLICATION, archive.token):
        pass
    takeover(archive.store, APPLICATION, "heir", archive.token, NOW)
    claim = archive.catalogs.head(TOPIC).claim
    assert claim is not None
    assert (claim.application, claim.released_by) == ("", "heir")
    takeover(archive.store, APPLICATION, "heir", archive.token, NOW + 1)
    assert archive.catalogs.head(TOPIC).claim == claim
    assert "5 segments" in application(archive, clock, HOUR, "heir").visit(TOPIC)


def test_what_is_only_not_known_yet_neither_goes_nor_is_taken_back():
    archive, clock = incarnations(), Clock()
    append(archive, TopicGone(2, OLD))
    policy = RetentionPolicy(gone_minutes=60)
    assert "6 segments" in application(archive, clock, policy, gone=OLD).visit(TOPIC)
    slots = archive.catalogs.head(TOPIC).next_slot
    clock.now += 11 * MINUTE_MS
    doubtful = application(archive, clock, policy, gone=GoneDoubt.NOT_KNOWN_YET)
    for _ in range(20):
        assert "not known yet" in doubtful.visit(TOPIC)
    assert archive.catalogs.head(TOPIC).next_slot == slots
    held = replace(policy, hold="case 4711")
    assert "is done" in application(archive, clock, policy, gone=OLD).visit(TOPIC)
    assert "held by" not in application(archive, clock, held, gone=GoneDoubt.NOT_KNOWN_YET).visit(TOPIC)


@pytest.mark.parametrize("change", ["hold", "back", "claimed"])
def test_what_is_disproven_is_taken_back_also_while_it_is_not_known_whether_the_topic_is_gone(change):
    archive, clock = incarnations(), Clock()
    append(archive, TopicGone(2, OLD))
    policy = RetentionPolicy(gone_minutes=60)
    application(archive, clock, policy, gone=OLD).visit(TOPIC)
    gone: GoneDoubt | None = GoneDoubt.NOT_KNOWN_YET
    if change == "hold":
        policy = replace(policy, hold="case 4711")
    if change == "back":
        gone = None
    if change == "claimed":
        claim = archive.catalogs.head(TOPIC).claim
        assert claim is not None
        append(archive, replace(claim, at=NOW + 1))
    assert "is undone" in application(archive, clock, policy, gone=gone).visit(TOPIC)


def test_what_does_not_depend_on_whether_the_topic_is_gone_goes_meanwhile():
    archive, clock = incarnations(), Clock()
    append(archive, TopicGone(2, OLD))
    one = application(archive, clock, HOUR, gone=GoneDoubt.NOT_KNOWN_YET)
    assert "5 segments" in one.visit(TOPIC)
    clock.now += 11 * MINUTE_MS
    assert "is done" in one.visit(TOPIC)


def chunk(entry: int, number: int) -> Stored:
    metadata = MessageMetadata(
        producer_name="p",
        sequence_id=7,
        publish_time=1_700_000_000_000,
        uuid="p-7",
        num_chunks_from_msg=2,
        chunk_id=number,
        total_chunk_msg_size=100,
    )
    return Stored(0, entry, checksummed(metadata, b"x" * 50))


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("longer", [False, True])
def test_a_segment_stays_in_which_a_message_begins_that_was_sealed_in_the_grace(asked, longer):
    """`longer`: more goes by now than was recorded, but that is not what is about to go."""
    archive, clock = Archive(sealed_at=OLD), Clock()
    archive.claim(0)
    archive.add([*stream(0, 0, 8), chunk(9, 0)])
    archive.sealed_at = NOW - 55 * MINUTE_MS if longer else NOW
    archive.add(stream(0, 10, 19))
    if asked:
        one = application(archive, clock, RetentionPolicy())
        one.delete(TOPIC, "me")
    else:
        one = application(archive, clock, HOUR)
        one.visit(TOPIC)
    assert told(archive) == [("0:0", "0:9")]
    archive.sealed_at = NOW + MINUTE_MS
    archive.add([chunk(20, 1), *stream(0, 21, 29)])
    archive.add(stream(0, 30, 39))
    clock.now += 11 * MINUTE_MS
    assert "is undone: a message begins in it" in one.visit(TOPIC)
    for _ in range(3):
        clock.now += 11 * MINUTE_MS
        one.visit(TOPIC)
    got = [item.position.place for item in topic_of(archive.store).items() if isinstance(item, ArchivedEntry)]
    assert ((0, 9) in got) == ((0, 20) in got)


class PausedStore(ForwardingStore):
    """Before the first call that `wanted` chooses, something else happens."""

    def __init__(
        self, store: ObjectStore, wanted: Callable[[Verb, str], bool], meanwhile: Callable[[], object]
    ) -> None:
        super().__init__(store)
        self._wanted, self._meanwhile, self.paused = wanted, meanwhile, False

    def _call(self, verb: Verb, key: str, work: Callable[[], T]) -> T:
        if not self.paused and self._wanted(verb, key):
            self.paused = True
            self._meanwhile()
        return work()


def is_note_forgotten(verb: Verb, key: str) -> bool:
    return verb == "delete" and key == layout.archive_deletion_key("memory", TOPIC)


@pytest.mark.parametrize("step", ["undo", "carry out", "visit"])
def test_whoever_was_paused_and_forgets_late_leaves_the_note_of_another_deletion(step):
    archive, clock = incarnations(), Clock()
    successor = application(archive, clock, RetentionPolicy())
    store = PausedStore(archive.store, is_note_forgotten, lambda: successor.delete(TOPIC, "me again"))
    paused = application(archive, clock, RetentionPolicy(), store=store)
    if step == "visit":
        paused.deletion.note(TOPIC)
    else:
        application(archive, clock, RetentionPolicy(minutes=10**9) if step == "undo" else HOUR).delete(TOPIC, "me")
        if step == "carry out":
            archive.sealed_at = NOW
            archive.add(stream(20, 20, 29))
            archive.add(stream(20, 30, 39))
            clock.now += 11 * MINUTE_MS
    paused.undelete(TOPIC, "me") if step == "undo" else paused.visit(TOPIC)
    assert store.paused
    assert archive.catalogs.head(TOPIC).removed.pending is not None
    assert successor.deletion.marked() == [TOPIC]


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("killed", [False, True])
def test_a_deletion_that_has_begun_survives_a_rebuild_beside_an_undo_that_never_counted(lost, killed):
    """The undo's object was written. Its process was killed before the slot, or lost that to the second look."""
    archive, clock = incarnations(), Clock()
    one = application(archive, clock, HOUR)
    one.visit(TOPIC)
    clock.now += 11 * MINUTE_MS

    def begins() -> None:
        if killed:
            raise KilledError
        head = archive.catalogs.head(TOPIC)
        assert head.removed.pending is not None
        one.deletion.begin(head, head.removed.pending)

    store = PausedStore(archive.store, lambda verb, key: verb == "put" and f"/{layout.CATALOG}/" in key, begins)
    with pytest.raises(KilledError if killed else IntegrityError):
        application(archive, clock, HOUR, store=store).undelete(TOPIC, "me")

    def dies() -> None:
        raise KilledError

    dying = PausedStore(archive.store, lambda verb, key: verb == "put" and key.endswith(layout.RECORD), dies)
    head = archive.catalogs.head(TOPIC)
    if killed:
        assert head.removed.pending is not None
        head = one.deletion.begin(head, head.removed.pending)
    pending = head.removed.pending
    assert pending is not None
    one.deletion.catalogs.keep_deleting(head)
    with pytest.raises(KilledError):  # data and indexes are gone, no tombstone stands
        application(archive, clock, HOUR, store=dying).deletion.carry_out(head, pending)
    before = archive.catalogs.head(TOPIC)
    if lost:
        archive.store.delete([key for key, _ in archive.store.list(layout.generations_folder(TOPIC))])
    rebuild(archive.store, TOPIC, Given(APPLICATION, NOW), archive.token)
    after = archive.catalogs.head(TOPIC)
    assert (after.removed.pending, after.removed.begun) == (before.removed.pending, before.removed.begun)
    assert (after.generation == before.generation) == (not lost), "nothing was to be done"
    assert {finding.kind for finding in verify(archive.store).findings} <= {FindingKind.UNCOMMITTED_RECORD}
    assert "is done" in one.visit(TOPIC)
