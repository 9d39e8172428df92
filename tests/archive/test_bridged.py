"""Where segments were handed over to brokers, the archive reads their objects: each position once, or told."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from offloader.archive.archive import Archive as ReadArchive
from offloader.archive.findings import FindingKind
from offloader.archive.items import ArchivedEntry, Missing
from offloader.archive.ledgers.ledger_bucket import LedgerBucket
from offloader.archive.opened import OpenArchive
from offloader.archive.reading.reader import ReadOptions
from offloader.archive.reading.stores import Stores
from offloader.archive.reading.verifier import OnDamage
from offloader.archive.selection import Selection
from offloader.archive.topic import ArchivedTopic
from offloader.errors import DamagedObjectError, PlanOutdatedError
from offloader.metadata import layout
from offloader.metadata.catalog import Catalogs
from offloader.metadata.deletions import PulsarTrimmed
from offloader.model import GapKind, Position
from offloader.operations.rebuild.remains import Given
from offloader.operations.rebuild.write import rebuild
from offloader.operations.verify.verify import verify
from offloader.ports.object_store import ObjectStore
from offloader.storage.forwarding import ForwardingStore, Verb
from offloader.storage.settings import StoreSettings
from tests.archive.bridges import Bridging, fresh_bucket, hand_over, opened
from tests.archive.support import APPLICATION, TOPIC, Archive, gap, message, stream

ENTRIES = 10  # of each segment, two to a ledger
Place = tuple[int, int]
T = TypeVar("T")


def archived(segments: int = 5) -> Archive:
    archive = Archive()
    archive.claim()
    for number in range(segments):
        ledger, half = divmod(number, 2)
        first = ENTRIES * half
        last = first + ENTRIES - 1
        archive.add(stream(ledger, first, last), closed={ledger: last} if half else {})
    return archive


def whole(ledger: int, last: int = 2 * ENTRIES - 1) -> list[bytes]:
    return [entry.data for entry in stream(ledger, 0, last)]


def topic_of(archive: Archive) -> ArchivedTopic:
    return ReadArchive(OpenArchive(Stores.of(archive.store))).topic(TOPIC)


def entries(archive: Archive, selection: Selection = Selection()) -> dict[Place, bytes]:  # noqa: B008 (frozen)
    found = [item for item in topic_of(archive).items(selection) if isinstance(item, ArchivedEntry)]
    assert len({each.position.place for each in found}) == len(found)
    assert [each.position for each in found] == sorted(each.position for each in found)
    return {each.position.place: each.data for each in found}


def missing(archive: Archive) -> list[Missing]:
    return [item for item in topic_of(archive).items() if isinstance(item, Missing)]


class Asked(ForwardingStore):
    """Knows the keys that it was asked for."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.keys: list[str] = []

    def _call(self, verb: Verb, key: str, work: Callable[[], T]) -> T:
        self.keys.append(key)
        return work()


WHOLE = {(e.ledger, e.entry): e.data for ledger in range(2) for e in stream(ledger, 0, 19)} | {
    (2, e.entry): e.data for e in stream(2, 0, 9)
}


@pytest.mark.parametrize("step", ["deleting", "begun", "removed", "deleted"])
def test_what_was_handed_over_is_read_from_the_brokers_objects_at_each_step(step: str):
    archive = archived()
    bridging = Bridging(archive)
    bridging.bridge({0: whole(0)})
    bridging.bridge({1: whole(1)})
    hand_over(archive, 3, up_to=step)
    assert entries(archive) == WHOLE
    assert missing(archive) == []
    assert verify(archive.store).findings == ()


def test_a_ledger_of_which_only_the_beginning_went_is_read_in_two_pieces():
    archive = archived()
    Bridging(archive).bridge({0: whole(0)})
    hand_over(archive, 1)
    planned = list(topic_of(archive).records.plan())
    assert [(item.object.is_bridged, str(item.start), str(item.end)) for item in planned[:2]] == [  # type: ignore[union-attr]
        (True, "0:0", "0:9"),
        (False, "0:10", "0:19"),
    ]
    assert entries(archive) == WHOLE


@pytest.mark.parametrize("size", [1024, 4096, 1 << 20])
@pytest.mark.parametrize(("first", "last"), [((0, 3), (0, 3)), ((0, 7), (1, 4)), ((1, 19), (2, 0)), ((0, 0), (2, 9))])
def test_any_range_of_it_can_be_read(first: Place, last: Place, size: int):
    archive = archived()
    Bridging(archive).bridge({0: whole(0), 1: whole(1)})
    hand_over(archive, 4)
    read = ReadArchive(OpenArchive(Stores.of(archive.store)), options=ReadOptions(read_size=size)).topic(TOPIC)
    selection = Selection(Position(0, *first), Position(0, *last))
    assert [each.position.place for each in read.entries(selection)] == [p for p in WHOLE if first <= p <= last]
    assert read.peek(Position(0, *first)).stored is not None


def test_positions_that_were_gaps_stay_gaps_though_brokers_have_their_entries():
    archive = Archive()
    archive.claim()
    kept = [e for e in stream(0, 0, 9) if e.entry not in (3, 4, 8)]
    archive.add(kept, [gap(0, 3, 4), gap(0, 8, 8, GapKind.MARKER)], closed={0: 9})
    archive.add(stream(1, 0, 9))
    before = list(topic_of(archive).items())
    Bridging(archive).bridge({0: whole(0, 9)})
    hand_over(archive, 1)
    assert list(topic_of(archive).items()) == before


def test_a_record_that_pulsar_has_deleted_it_is_told_and_never_damage():
    archive = archived()
    bridging = Bridging(archive)
    first = bridging.bridge({0: whole(0)})
    bridging.bridge({1: whole(1)})
    hand_over(archive, 3)
    bridging.delete_in_pulsar(first, 0)
    assert entries(archive) == {place: data for place, data in WHOLE.items() if place >= (1, 0)}
    told = missing(archive)
    assert all(each.deleted and not each.damaged and each.why.startswith("deleted by Pulsar") for each in told)
    assert [(str(each.start), str(each.end)) for each in told] == [("0:0", "0:9"), ("0:10", "0:19")]
    peeked = topic_of(archive).peek(Position(0, 0, 3))
    assert peeked.missing is not None
    assert peeked.missing.deleted


def trimmed(incarnation: int, first: int) -> Archive:
    """Both ledgers are handed over, and Pulsar had none below `first` of this incarnation any more."""
    archive = archived()
    Bridging(archive).bridge({0: whole(0), 1: whole(1)})
    hand_over(archive, 4)
    catalogs = Catalogs(archive.store, APPLICATION)
    catalogs.append(catalogs.head(TOPIC), PulsarTrimmed(incarnation, first, 86_400_000))
    return archive


def test_what_pulsar_has_trimmed_is_told_from_records_alone():
    archive = trimmed(0, 1)
    planned = [item for item in topic_of(archive).records.plan() if isinstance(item, Missing)]
    assert [(str(each.start), str(each.end), each.deleted) for each in planned] == [("0:0", "0:19", True)]
    assert planned[0].why == "deleted by Pulsar: it had no ledger below 1 any more on 1970-01-02T00:00:00Z"
    assert topic_of(archive).first_position() == Position(0, 1, 0)
    assert entries(archive) == {place: data for place, data in WHOLE.items() if place >= (1, 0)}


def test_what_a_later_incarnation_has_no_more_the_former_one_has_not_either():
    archive = trimmed(1, 7)
    planned = [item for item in topic_of(archive).records.plan() if isinstance(item, Missing)]
    assert [(str(each.start), str(each.end), each.deleted) for each in planned] == [("0:0", "1:19", True)]


def test_of_what_pulsar_has_let_go_of_no_record_is_read_but_the_last():
    archive = Archive()
    archive.claim()
    archive.add(stream(0, 0, 1))
    for ledger in range(200):  # each segment has parts of two
        archive.add([*stream(ledger, 2, 3), *stream(ledger + 1, 0, 1)], closed={ledger: 3})
    Bridging(archive).bridge({ledger: whole(ledger, 3) for ledger in range(200)})
    hand_over(archive, 200)
    catalogs = Catalogs(archive.store, APPLICATION)
    catalogs.append(catalogs.head(TOPIC), PulsarTrimmed(0, 190, 86_400_000))
    asked = Asked(archive.store)
    items = list(ReadArchive(OpenArchive(Stores.of(asked))).topic(TOPIC).items())
    assert len([item for item in items if isinstance(item, Missing)]) == 2, "and what its segment has beside"
    assert next(item.position.place for item in items if isinstance(item, ArchivedEntry)) == (190, 0)
    assert len([key for key in asked.keys if key.endswith("-record")]) < 12


@pytest.mark.parametrize("rebuilt", [False, True])
def test_no_bridge_log_is_needed_to_read_what_was_handed_over(rebuilt: bool):
    archive = archived()
    Bridging(archive).bridge({0: whole(0), 1: whole(1)})
    hand_over(archive, 4)
    for key, _ in list(archive.store.list(f"{TOPIC.tenant}/")):
        if "/_bridge/" in key or (rebuilt and "/_catalog/" in key):
            archive.store.delete([key])
    if rebuilt:
        rebuild(archive.store, TOPIC, Given(APPLICATION, 10**6, created=1), iter(map(str, range(99))).__next__)
    assert entries(archive) == WHOLE
    assert missing(archive) == []


def test_of_an_archive_that_was_handed_over_only_the_selected_tombstones_are_read():
    archive = archived()
    Bridging(archive).bridge({0: whole(0), 1: whole(1)})
    hand_over(archive, 4)
    asked = Asked(archive.store)
    topic = ReadArchive(OpenArchive(Stores.of(asked))).topic(TOPIC)
    assert list(topic.entries(Selection(start=Position(0, 1, 12), end=Position(0, 1, 13))))
    beside = [key for key in asked.keys if key.endswith("-record") or "/_bridge/" in key]
    assert beside == [layout.record_key(TOPIC, archive.catalog.segments[3].uuid)]


def test_what_no_tombstone_tells_of_is_damage_and_no_deletion():
    archive = archived()
    hand_over(archive, 3)
    with pytest.raises(DamagedObjectError, match="tombstone"):
        entries(archive)
    options = ReadOptions(on_damage=OnDamage.SKIP)
    items = list(ReadArchive(OpenArchive(Stores.of(archive.store)), options=options).topic(TOPIC).items())
    read = {item.position.place for item in items if isinstance(item, ArchivedEntry)}
    assert read == {place for place in WHOLE if place >= (1, 10)}
    told = [item for item in items if isinstance(item, Missing)]
    keys = {layout.record_key(TOPIC, each.uuid) for each in archive.catalog.segments[:3]}
    assert {each.damaged for each in told} == keys
    assert not any(each.deleted for each in told)
    assert [(str(each.start), str(each.end)) for each in told] == [("0:0", "0:9"), ("0:10", "0:19"), ("1:0", "1:9")]


def test_a_plan_from_before_is_told_to_be_made_anew():
    archive = archived()
    Bridging(archive).bridge({0: whole(0)})
    topic = topic_of(archive)
    planned = list(topic.records.plan())
    hand_over(archive, 2)
    with pytest.raises(PlanOutdatedError, match="plan it anew"):  # nothing is missing
        list(topic.read(planned))
    assert entries(archive) == WHOLE


def test_times_leave_out_what_they_leave_out_of_segments():
    archive = Archive()
    archive.claim()
    archive.add(stream(0, 0, 9, size=60), closed={0: 9})
    archive.add(stream(1, 0, 9, size=90), closed={1: 9})
    archive.add(stream(2, 0, 9, size=60))
    late = Selection(published_from=1_700_000_000_080)
    before = list(topic_of(archive).messages(late))
    assert len(before) == ENTRIES
    Bridging(archive).bridge({0: whole(0, 9), 1: [message(f"1:{n} ".ljust(90, "x")) for n in range(10)]})
    hand_over(archive, 2)
    assert list(topic_of(archive).messages(late)) == before


def test_a_rebuild_from_tombstones_reads_the_same():
    archive = Archive()
    archive.claim()
    kept = [e for e in stream(0, 0, 9) if e.entry != 3]
    archive.add(kept, [gap(0, 3, 3)], closed={0: 9})
    archive.add(stream(1, 0, 9))
    before = list(topic_of(archive).items())
    Bridging(archive).bridge({0: whole(0, 9)})
    hand_over(archive, 1)
    for key, _ in list(archive.store.list(f"{TOPIC.tenant}/")):
        if "/_catalog/" in key:
            archive.store.delete([key])
    rebuild(archive.store, TOPIC, Given(APPLICATION, 10**6, created=1), iter(map(str, range(99))).__next__)
    assert list(topic_of(archive).items()) == before
    assert verify(archive.store).findings == ()


@pytest.mark.parametrize("step", ["building", "swapping", "finished", "withdrawing"])
def test_brokers_may_have_their_objects_in_the_archives_own_bucket(step: str):
    url = fresh_bucket()
    archive = Archive(store=opened(url))  # type: ignore[arg-type]
    archive.claim()
    archive.add(stream(0, 0, 9), closed={0: 9})
    archive.add(stream(1, 0, 9))
    bridging = Bridging(archive, url)
    bridging.begin({0: whole(0, 9)})
    bridging.build({0: whole(0, 9)}, index=step != "building")
    archive.store.begin("bbbbbbbb-0000-4000-8000-000000000001-ledger-0")
    if step != "building":
        bridging.swap()
    if step == "finished":
        bridging.finish()
    if step == "withdrawing":
        bridging.withdraw()
    assert verify(archive.store).findings == ()
    if step == "withdrawing":
        bridging.withdrawn()
        kinds = {(each.kind, each.key.partition("-")[0]) for each in verify(archive.store).findings}
        assert kinds == {(FindingKind.STRAY_OBJECT, "bbbbbbbb"), (FindingKind.OPEN_UPLOAD, "bbbbbbbb")}


def test_a_damaged_bridge_log_is_found():
    archive = archived()
    Bridging(archive).bridge({0: whole(0)})
    archive.store.put(f"{layout.bridge_folder(TOPIC)}{2:020d}", b"x")
    assert [each.kind for each in verify(archive.store).findings] == [FindingKind.DAMAGED_RECORD]


@pytest.mark.parametrize("index", [False, True])
def test_what_a_round_under_way_has_built_so_far_is_neither_damage_nor_a_second_copy(index: bool):
    archive = Archive()
    archive.claim()
    archive.add(stream(0, 0, 9))  # nothing records yet that it was closed with this
    bridging = Bridging(archive)
    bridging.begin({0: whole(0, 9)})
    bridging.build({0: whole(0, 9)}, index=index)
    bucket = LedgerBucket(StoreSettings(bridging.bucket))
    found = ReadArchive(OpenArchive(Stores.of(archive.store), bucket)).topic(TOPIC)
    assert [item.position.place for item in found.items() if isinstance(item, ArchivedEntry)] == [
        (0, entry) for entry in range(10)
    ]
    assert not [item for item in found.items() if isinstance(item, Missing)]
