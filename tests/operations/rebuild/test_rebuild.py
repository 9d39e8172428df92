"""A catalog is made again from the records beside its segments, as it was; where records are lost, too, what is missing
is told, and nothing stands in a wrong place."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest
from hypothesis import given as examples
from hypothesis import strategies as st

from offloader.archive.findings import FindingKind
from offloader.errors import DamagedRecordError, IntegrityError, OffloadError, OutcomeUnknownError
from offloader.metadata.catalog import Catalogs
from offloader.metadata.state import TopicCatalog
from offloader.model import Loss, Position, Segment
from offloader.operations.verify.verify import verify
from offloader.storage.memory import MemoryBacking, MemoryStore
from tests.archive.support import TOPIC
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults
from tests.operations.rebuild.history import (
    History,
    again,
    catalog_keys,
    look,
    manifest_keys,
    missing,
    plain,
    read,
    record_keys,
)

randoms = st.integers(0, 2**32).map(Random)


def some(random: Random, keys: list[str]) -> list[str]:
    share = random.choice([0.1, 0.5, 1.0])
    return [key for key in keys if random.random() < share]


def lost(store: MemoryStore) -> TopicCatalog | None:
    """None: nobody can read it."""
    try:
        return Catalogs(store, "reader").load(TOPIC)
    except DamagedRecordError:
        return None


@examples(randoms)
def test_a_catalog_that_lost_any_of_its_objects_is_made_again_as_it_was(random: Random) -> None:
    history = History(random).steps(random.randint(0, 12))
    before = history.catalog
    store = history.store
    for _ in range(2):  # a generation that a rebuild made can be lost as well
        store.delete(some(random, catalog_keys(store)))
        again(store)
        assert plain(history.catalog) == plain(before)
        assert read(store, history.catalog) == history.truth
        assert look(store).in_force
    assert {f.kind for f in verify(store).findings} <= {
        FindingKind.LEFT_OVER,
        FindingKind.UNCOMMITTED_RECORD,
        FindingKind.STRAY_OBJECT,
    }


@examples(randoms)
def test_a_segment_that_was_never_committed_is_the_last_one_or_none(random: Random) -> None:
    history = History(random).steps(random.randint(0, 6))
    before = history.catalog
    history.dangle()
    history.store.delete(some(random, catalog_keys(history.store)))
    again(history.store)
    after = history.catalog
    assert after.segments[: len(before.segments)] == before.segments
    assert (after.losses, after.closed) == (before.losses, before.closed)
    assert len(after.segments) <= len(before.segments) + 1


@examples(randoms)
def test_where_records_are_lost_too_what_is_missing_is_told(random: Random) -> None:
    history = History(random).steps(random.randint(1, 12))
    before, store = history.catalog, history.store
    store.delete([*some(random, catalog_keys(store)), *some(random, record_keys(store))])
    if not look(store).records:
        return
    again(store)
    after = history.catalog
    have = read(store, after)
    assert have.items() <= history.copied.items()
    reported = missing(after)
    for position in history.truth.keys() - have.keys():
        begin, end = (
            after.begins.get(position.incarnation),
            max((s.end for s in _spans(after)), default=None),
        )
        inside = begin is not None and end is not None and begin <= position <= end
        first = min(
            (s.start for s in _spans(after) if s.start.incarnation == position.incarnation),
            default=None,
        )
        if inside and first is not None and first <= position:
            assert any(start <= position <= last for start, last in reported) or _behind(after, before, position), (
                position
            )
    assert look(store).in_force, "what was made stays"


def _spans(catalog: TopicCatalog) -> list[Segment | Loss]:
    return [*catalog.segments, *catalog.losses]


def _behind(after: TopicCatalog, before: TopicCatalog, position) -> bool:
    """Of an incarnation whose last records are lost: nothing that is left says how long it was."""
    mine = [s.end for s in _spans(after) if s.end.incarnation == position.incarnation]
    return position > max(mine)


@examples(randoms)
def test_what_is_there_twice_is_no_loss(random: Random) -> None:
    history = History(random).steps(random.randint(2, 12))
    before = history.catalog
    history.store.delete(catalog_keys(history.store))
    assert all(note.kind != "lost" for note in look(history.store).notes)
    again(history.store)
    assert history.catalog.losses == before.losses


@examples(randoms, st.integers(0, 60), st.sampled_from([Effect.BEFORE, Effect.LOST]))
def test_an_interruption_anywhere_changes_nothing_or_is_finished_by_trying_again(
    random: Random, passed: int, effect: Effect
) -> None:
    history = History(random).steps(random.randint(0, 6))
    before, store = history.catalog, history.store
    store.delete(some(random, catalog_keys(store)))
    readable = lost(store)
    fault = StoreFault("put", effect, after=passed, times=1000)
    try:
        again(FaultyStore(store, StoreFaults([fault])))
    except OffloadError:
        seen = lost(store)
        assert seen is None or plain(seen) in [plain(c) for c in (readable, before) if c is not None]
        again(store)
    assert plain(history.catalog) == plain(before)
    assert look(store).in_force


@pytest.mark.parametrize("stalls_at", range(30))
@pytest.mark.parametrize("whole", [False, True])
def test_of_two_rebuilds_at_once_the_later_one_never_hides_what_was_written_since(stalls_at: int, whole: bool) -> None:
    history = History(Random(5)).steps(6)
    before, store = history.catalog, history.store
    store.delete(catalog_keys(store) if whole else catalog_keys(store)[2:4])

    def meanwhile() -> None:
        again(store)
        history._segment()

    fault = StoreFault("put", Effect.HOOK, hook=meanwhile, after=stalls_at)
    try:
        again(FaultyStore(store, StoreFaults([fault])))
    except (IntegrityError, OutcomeUnknownError):
        again(store)
    if fault.times:  # it never stalled
        meanwhile()
    after = history.catalog
    assert after.segments[: len(before.segments)] == before.segments
    assert read(store, after) == history.truth


def test_who_writes_on_an_older_generation_goes_on_in_the_new_one() -> None:
    history = History(Random(3)).steps(5)
    stale, store = history.catalog.head, history.store
    store.delete(catalog_keys(store)[1:2])
    again(store)
    catalogs = Catalogs(store, history.application)
    after = stale.accounted
    assert after is not None
    loss = Loss(after._replace(entry=after.entry + 1), after._replace(entry=after.entry + 2), "gone", "me", 1)
    found = catalogs.append(stale, loss)
    assert found.generation > stale.generation
    assert found == catalogs.head(TOPIC) == catalogs.refresh_head(stale)


def test_a_writer_that_was_paused_while_everything_was_lost_does_not_touch_the_new_catalog() -> None:
    history = History(Random(3)).steps(5)
    stale, store = history.catalog.head, history.store
    store.delete(catalog_keys(store))
    again(store)
    before = history.catalog
    after = stale.accounted
    assert after is not None
    loss = Loss(after._replace(entry=after.entry + 1), after._replace(entry=after.entry + 2), "gone", "me", 1)
    Catalogs(store, history.application).append(stale, loss)
    assert history.catalog == before
    again(store)
    assert (history.catalog.losses[-1].start, history.catalog.losses[-1].end) == (loss.start, loss.end)


@examples(randoms, st.integers(2, 4))
def test_what_is_lost_again_and_again_is_never_made_again_under_a_number_that_a_writer_knows(
    random: Random, times: int
) -> None:
    history = History(random).steps(5)
    store, known, now = history.store, [history.catalog.head], 1000
    for _ in range(times):
        store.delete([*catalog_keys(store), *manifest_keys(store)])
        beside = record_keys(store)
        store.delete(random.sample(beside, random.choice([0, 0, 1, 2]) if len(beside) > 4 else 0))
        now += random.randint(1, 10**9)
        again(store, at=now)
        known.append(history.catalog.head)
    assert len({head.generation for head in known}) == len(known)
    before, stale = history.catalog, random.choice(known[:-1])
    after = stale.accounted or Position(0, 0, -1)
    loss = Loss(after._replace(entry=after.entry + 1), after._replace(entry=after.entry + 2), "gone", "me", 1)
    with suppress(OffloadError):
        Catalogs(store, history.application).append(stale, loss)
    assert history.catalog == before


def test_a_reader_that_knows_an_older_generation_sees_the_new_one() -> None:
    history = History(Random(3)).steps(5)
    known = history.catalog
    history.store.delete(catalog_keys(history.store)[1:2])
    again(history.store)
    assert plain(Catalogs(history.store, "reader").refresh(known)) == plain(known)


def test_a_rebuild_of_a_whole_catalog_writes_nothing() -> None:
    history = History(Random(1)).steps(5)
    before = {key: history.store.read(key)[0] for key, _ in history.store.list()}
    assert again(history.store).in_force
    assert {key: history.store.read(key)[0] for key, _ in history.store.list()} == before


def test_a_copy_beside_that_is_lost_is_written_again() -> None:
    history = History(Random(1)).steps(5)
    keys = record_keys(history.store)
    history.store.put(keys[0], b"rubbish")
    history.store.delete(keys[1:3])
    assert {f.kind for f in verify(history.store).findings} >= {FindingKind.MISSING_RECORD, FindingKind.DAMAGED_RECORD}
    again(history.store)
    assert {f.kind for f in verify(history.store).findings} <= {
        FindingKind.UNCOMMITTED_RECORD,
        FindingKind.STRAY_OBJECT,
    }


def test_a_copy_of_the_store_is_untouched_by_a_proposal() -> None:
    history = History(Random(2)).steps(5)
    history.store.delete(catalog_keys(history.store)[:2])
    copy = MemoryStore(MemoryBacking(dict(history.store.backing.objects)))
    look(copy)
    assert [key for key, _ in copy.list()] == [key for key, _ in history.store.list()]
