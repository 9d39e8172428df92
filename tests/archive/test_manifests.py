"""A long catalog with manifests: readers plan the same as from all of it, from little of it; what is wrong with a
manifest is found."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import pytest

from offloader.archive.findings import FindingKind
from offloader.archive.reading.plan import plan
from offloader.archive.records import LazyTopicRecords, TopicRecords
from offloader.archive.selection import Selection
from offloader.archive.snapshot import TopicSnapshot
from offloader.metadata.catalog import Catalogs
from offloader.metadata.compaction import compact, mend
from offloader.metadata.layout import generations_folder, manifest_key, newest_key, records_key, slot_key
from offloader.metadata.manifest import FAN
from offloader.metadata.state import CatalogHead, Claim
from offloader.model import EntryStats, Position
from offloader.operations.rebuild.remains import Given
from offloader.operations.rebuild.write import rebuild
from offloader.operations.verify.verify import verify
from offloader.storage.memory import MemoryBacking, MemoryStore
from tests.archive.support import SMALL, TOPIC, Archive, stream, uuid_of
from tests.fakes.faulty import FaultyStore, StoreFaults

NUMBER = 3 * FAN + 20
HOUR = 3_600_000


def topic_of(number: int, *, lost: int = -1) -> Archive:
    """A segment an hour, of one ledger each; one of them lost."""
    archive = Archive()
    archive.claim()
    template = archive.made(stream(0, 0, 1), [], {0: 1}, SMALL)[0]
    catalogs, head = archive.catalogs, archive.catalogs.head(TOPIC)
    for n in range(number):
        start, end = Position(0, n, 0), Position(0, n, 1)
        if n == lost:
            archive.lose(start, end)
            archive.closed(n, 1)
            head = catalogs.head(TOPIC)
            continue
        held = replace(template.ledgers[0], ledger=n)
        stats = EntryStats(2, n * HOUR, n * HOUR + HOUR - 1)
        part = replace(template.parts[0], ledgers=(replace(template.parts[0].ledgers[0], ledger=n),), stats=stats)
        newest = head.newest
        segment = replace(
            template,
            uuid=uuid_of(n),
            start=start,
            end=end,
            ledgers=(held,),
            parts=(part,),
            predecessor_uuid="" if newest is None else newest.uuid,
            predecessor_end=None if newest is None else newest.end,
            former_ledger_last=None if n == 0 else 1,
        )
        head = catalogs.append(head, segment)
    return archive


@cache
def built() -> tuple[MemoryBacking, CatalogHead]:
    archive = topic_of(NUMBER, lost=100)
    head = archive.catalogs.head(TOPIC)
    compact(archive.store, head)
    return archive.store.backing, head


@pytest.fixture
def store() -> MemoryStore:
    """A copy: tests damage it."""
    backing, _ = built()
    return MemoryStore(MemoryBacking(dict(backing.objects)))


def records(store: MemoryStore) -> TopicRecords:
    return LazyTopicRecords(Catalogs(store, "").history(TOPIC))


def at(ledger: int, entry: int = 0) -> Position:
    return Position(0, ledger, entry)


@pytest.mark.parametrize(
    "selection",
    [
        Selection(),
        Selection(at(0), at(0)),
        Selection(at(70, 1), at(75)),
        Selection(at(70, 1), at(180)),
        Selection(at(99), at(101)),
        Selection(at(100, 1), at(100, 1)),
        Selection(at(NUMBER - 2, 1)),
        Selection(end=at(3)),
        Selection(at(NUMBER + 7)),
    ],
)
@pytest.mark.parametrize("step", [1, 3, 64])
def test_a_selection_of_positions_is_planned_as_from_all_records(
    store: MemoryStore, selection: Selection, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offloader.archive.records.STEP", step)
    found = records(store)
    assert list(found.plan(selection)) == plan(TopicSnapshot.of(Catalogs(store, "").load(TOPIC)), selection)


@pytest.mark.parametrize("first", [0, 64, 127, 150, NUMBER - 1])
def test_a_selection_of_times_is_planned_as_from_all_records(store: MemoryStore, first: int) -> None:
    selection = Selection(published_from=first * HOUR, published_to=(first + 2) * HOUR)
    found = records(store)
    assert list(found.plan(selection)) == plan(TopicSnapshot.of(Catalogs(store, "").load(TOPIC)), selection)


def asked(store: MemoryStore, selection: Selection) -> int:
    faults = StoreFaults()
    list(LazyTopicRecords(Catalogs(FaultyStore(store, faults), "").history(TOPIC)).plan(selection))
    return sum(faults.calls.values())


@pytest.mark.parametrize(
    "selection", [Selection(at(5), at(6)), Selection(published_from=5 * HOUR, published_to=6 * HOUR)]
)
def test_a_plan_asks_for_as_much_of_a_long_topic_as_of_a_short_one(selection: Selection) -> None:
    found = []
    for number in (2 * FAN - 1, 3 * FAN - 1, 8 * FAN - 1):
        archive = topic_of(number)
        compact(archive.store, archive.catalogs.head(TOPIC))
        found.append(asked(archive.store, selection))
    assert found[0] == found[1] == found[2] < 12


def test_an_entry_s_first_and_last_positions_need_no_plan_of_everything(store: MemoryStore) -> None:
    found = records(store)
    assert next(view.catalog.segments[0].start for view, _ in found.first()) == at(0)
    assert next(view.catalog.segments[-1].end for view, _ in found.before()) == at(NUMBER - 1, 1)


def test_what_is_behind_a_position(store: MemoryStore) -> None:
    view = records(store).behind(at(170))
    assert view.catalog.segments[0].start == at(170)
    assert records(store).behind(at(170, 1)).catalog.segments[0].start == at(170)
    assert records(store).behind(at(NUMBER - 1, 1)).catalog.segments[-1].end == at(NUMBER - 1, 1)
    assert records(store).behind(None).catalog == Catalogs(store, "").load(TOPIC)


def test_positions_are_found_in_their_incarnations() -> None:
    archive = Archive()
    for incarnation in range(3):
        archive.incarnation = incarnation
        archive.claim(10 * incarnation)
        for ledger in range(10 * incarnation, 10 * incarnation + 3):
            archive.add(stream(ledger, 0, 1), closed={ledger: 1})
    whole, found = TopicRecords(TopicSnapshot.of(archive.catalog)), records(archive.store)
    for ledger in range(35):
        assert found.located(Position(0, ledger, 0)) == whole.located(Position(0, ledger, 0))
    assert found.last_position == whole.last_position
    assert [r.incarnation for r, _ in found.extents(Selection())] == [0, 1, 2]


# Verify


def of_manifests(store: MemoryStore) -> list[str]:
    return sorted(
        found.key for found in verify(store, [TOPIC], quick=True).findings if found.kind is FindingKind.DAMAGED_MANIFEST
    )


def test_manifests_are_checked_against_records(store: MemoryStore) -> None:
    assert of_manifests(store) == []
    assert all(found.kind is not FindingKind.STRAY_OBJECT for found in verify(store, [TOPIC], quick=True).findings)


@pytest.mark.parametrize("change", ["gone", "damaged", "other"])
@pytest.mark.parametrize("which", [lambda: manifest_key(TOPIC, 0, 0, 1), lambda: records_key(TOPIC, 0, 0)])
def test_a_manifest_that_is_not_as_it_should_be_is_found(
    store: MemoryStore, which: Callable[[], str], change: str
) -> None:
    other = store.read(manifest_key(TOPIC, 0, 0, 2))[0]
    store.delete([which()])
    if change != "gone":
        store.put(which(), b"garbage" if change == "damaged" else other)
    assert of_manifests(store) == [which()]
    assert list(records(store).plan()) == plan(TopicSnapshot.of(Catalogs(store, "").load(TOPIC)))


def test_what_is_missing_or_damaged_is_mended_and_nothing_else_is_written(store: MemoryStore) -> None:
    sound = {key: store.read(key)[0] for key, _ in store.list()}
    changed = [records_key(TOPIC, 0, 0), manifest_key(TOPIC, 0, 0, 1), manifest_key(TOPIC, 0, 0, 2)]
    other = store.read(manifest_key(TOPIC, 0, 0, 2))[0]
    store.put(changed[0], sound[changed[0]] + b"more")
    store.put(changed[1], other)  # sound, and of another place
    store.delete([changed[2], newest_key(TOPIC, 0)])
    writes = store.backing.writes
    assert mend(store, Catalogs(store, "").head(TOPIC)) == changed
    assert store.backing.writes == writes + len(changed) + 1
    assert {key: store.read(key)[0] for key, _ in store.list()} == sound
    assert mend(store, Catalogs(store, "").head(TOPIC)) == []


def test_one_of_records_that_are_not_there_is_found(store: MemoryStore) -> None:
    store.put(manifest_key(TOPIC, 0, 0, 9), b"")
    assert manifest_key(TOPIC, 0, 0, 9) in of_manifests(store)


def test_a_manifest_of_records_that_are_lost_is_told_as_a_lost_end_which_no_compaction_mends(
    store: MemoryStore,
) -> None:
    next_slot = Catalogs(store, "").head(TOPIC).next_slot
    store.delete([newest_key(TOPIC, 0), *(slot_key(TOPIC, 0, slot) for slot in range(2 * FAN + 10, next_slot))])
    assert mend(store, Catalogs(store, "").head(TOPIC)) == []
    (found,) = (
        each for each in verify(store, [TOPIC], quick=True).findings if each.kind is FindingKind.DAMAGED_MANIFEST
    )
    assert found.key == manifest_key(TOPIC, 0, 0, 2)
    assert f"the catalog has lost its end: `offloader catalog rebuild {TOPIC}` brings it back; " in found.message


class Beside(MemoryStore):
    """An application goes on right after the first listing of a catalog's folder."""

    archive: Archive | None = None

    def list(self, prefix: str = "", start_after: str = "") -> Iterator[tuple[str, int]]:
        found = list(super().list(prefix, start_after))
        if prefix == generations_folder(TOPIC) and self.archive is not None:
            archive, self.archive = self.archive, None
            for number in range(2 * FAN):
                archive.add(stream(9, number, number))
            compact(archive.store, archive.catalogs.head(TOPIC))
        return iter(found)


def test_what_is_summed_up_while_it_is_checked_is_sound() -> None:
    backing = MemoryBacking()
    archive = Archive(MemoryStore(backing))
    archive.claim(9)
    store = Beside(backing)
    store.archive = archive
    assert of_manifests(store) == []
    assert of_manifests(MemoryStore(backing)) == []
    assert archive.catalog.head.segments == 2 * FAN


def test_a_topic_without_records_has_no_claim() -> None:
    assert records(MemoryStore()).head == CatalogHead(TOPIC)
    assert list(records(MemoryStore()).plan()) == []
    assert isinstance(built()[1].claim, Claim)


def test_a_rebuild_takes_no_number_of_which_manifests_are_left() -> None:
    archive = topic_of(FAN + 20)
    store, tokens = archive.store, map(str, itertools.count())

    def lost_and_made_again() -> CatalogHead:
        store.delete([key for key, _ in store.list(generations_folder(TOPIC))])
        rebuild(store, TOPIC, Given("app", 5), lambda: next(tokens))
        return archive.catalogs.head(TOPIC)

    head = lost_and_made_again()
    compact(store, head)
    assert head.claim is not None
    Catalogs(store, "heir").take_over_claim(
        head, head.claim.application, 9
    )  # in the next numbering it stands before the segments
    again = lost_and_made_again()
    assert again.generation > head.generation
    view = records(store)
    assert (
        len(view.whole.catalog.segments) == again.segments == sum(len(v.catalog.segments) for v, _ in view.excerpts())
    )


def test_manifests_of_a_generation_whose_first_record_is_not_there_yet_are_sound() -> None:
    archive = topic_of(FAN + 20)
    store = archive.store
    store.delete([slot_key(TOPIC, 0, 50)])
    rebuild(store, TOPIC, Given("app", 5), iter("ab").__next__)
    begun = archive.catalogs.head(TOPIC).generation
    store.delete([slot_key(TOPIC, begun, 0)])  # the rebuild was interrupted right before it
    head = archive.catalogs.head(TOPIC)
    assert (head.generation, compact(store, head)) == (begun, 1)
    assert not [
        finding for finding in verify(store, quick=True).findings if finding.kind is FindingKind.DAMAGED_MANIFEST
    ]
