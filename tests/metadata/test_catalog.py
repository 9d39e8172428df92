"""The catalog: each append is an exact compare-and-set, a repeated one is success, a foreign one is refused."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.errors import ClaimedByOtherError, DamagedRecordError, IntegrityError, OutcomeUnknownError, StoreUnavailableError
from offloader.metadata.catalog import Catalogs, released
from offloader.metadata.layout import catalog_folder, data_key, slot_name
from offloader.metadata.log import NumberedLog
from offloader.metadata.state import CatalogFold, LedgerClosed, TopicCatalog
from offloader.model import Loss
from offloader.storage.memory import MemoryStore
from offloader.testing.faulty import Effect, FaultyStore, StoreFault, StoreFaults

from .support import OTHER_TOPIC, TOPIC, claim, numbered_topic, offloaded, position, tokens


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def process(store: MemoryStore) -> Callable[..., Catalogs]:
    def one(application: str = "app", *faults: StoreFault) -> Catalogs:
        return Catalogs(FaultyStore(store, StoreFaults(faults)), application, tokens(application))

    return one


def claimed(catalogs: Catalogs) -> TopicCatalog:
    return catalogs.append(catalogs.load(TOPIC), claim())


def records(store: MemoryStore) -> list[bytes]:
    return [store.read(key)[0] for key, _ in store.list(catalog_folder(TOPIC))]


def loss(first: int, last: int) -> Loss:
    return Loss(position(first), position(last), "trimmed", "joe", 9)


def test_a_topic_without_records_has_an_empty_catalog(process):
    assert process().load(TOPIC) == TopicCatalog(TOPIC)


def test_what_was_appended_is_loaded(process):
    catalogs = process()
    catalog = claimed(catalogs)
    for record in (offloaded("a", 0, 9), LedgerClosed(0, 7, 20), loss(10, 12), offloaded("b", 13, 20)):
        catalog = catalogs.append(catalog, record)
    assert catalog == process().load(TOPIC)
    assert [s.uuid for s in catalog.segments] == ["a", "b"]
    assert (catalog.end, catalog.next_slot, catalog.closed) == (position(20), 5, {(0, 7): 20})


def test_several_catalogs_are_loaded_at_once(process):
    catalogs = process()
    names = [numbered_topic(n) for n in range(20)]
    written = {name: catalogs.append(catalogs.load(name), claim()) for name in names}
    assert process().load_all(names) == written


def test_a_refresh_reads_only_what_was_written_since(store, process):
    known = claimed(process())
    for n in range(5):
        known = process().append(known, offloaded(f"known{n}", 10 * n, 10 * n + 9))
    newest = process().append(process().append(known, LedgerClosed(0, 7, 90)), offloaded("new", 50, 59))
    faults = StoreFaults()
    reading = Catalogs(FaultyStore(store, faults), "app", tokens())
    assert reading.refresh(known) == newest == reading.refresh(newest)
    assert (faults.calls["list"], faults.calls["read"]) == (2, 2)


def test_records_add_up_to_the_same_together_and_one_by_one():
    records = [claim(), offloaded("a", 0, 9), LedgerClosed(0, 7, 30), loss(10, 12), offloaded("b", 13, 20), claim(incarnation=1)]
    one_by_one = TopicCatalog(TOPIC)
    for record in records:
        one_by_one = one_by_one.apply(record)
    assert TopicCatalog(TOPIC).apply(*records) == one_by_one
    assert (one_by_one.entries, one_by_one.size, one_by_one.next_slot) == (18, 200, 6)


def test_a_refused_record_leaves_the_others_as_they_were():
    fold = CatalogFold(TopicCatalog(TOPIC))
    for record in (claim(), offloaded("a", 0, 9), LedgerClosed(0, 7, 30)):
        fold.add(record)
    before = fold.catalog()
    for refused in (offloaded("b", 5, 19), offloaded("a", 10, 19)):
        with pytest.raises(IntegrityError):
            fold.add(refused)
    assert fold.catalog() == before
    fold.add(offloaded("b", 10, 19))
    assert (fold.catalog().end, before.end) == (offloaded("b", 10, 19).end, offloaded("a", 0, 9).end)


def test_a_catalog_does_not_change_when_records_are_added_to_it():
    before = TopicCatalog(TOPIC).apply(claim(), LedgerClosed(0, 7, 30))
    before.apply(LedgerClosed(0, 8, 1), offloaded("a", 0, 9))
    assert (before.closed, before.segments, before.next_slot) == ({(0, 7): 30}, (), 2)


def test_a_segment_s_uuid_is_new():
    with pytest.raises(IntegrityError, match="segment a is in the catalog already"):
        TopicCatalog(TOPIC).apply(claim(), offloaded("a", 0, 9), offloaded("a", 10, 19))


def test_the_topics_are_those_with_a_catalog(store, process):
    claimed(process())
    store.put(data_key(OTHER_TOPIC, "00000000-1111-2222-3333-444444444444"), b"")
    assert list(process().topics()) == [TOPIC]


def test_a_record_that_does_not_continue_the_catalog_is_not_written(store, process):
    catalogs = process()
    catalog = catalogs.append(claimed(catalogs), offloaded("a", 0, 9))
    for wrong in (offloaded("b", 5, 12), offloaded("b", 10, 12, incarnation=1), loss(9, 9)):
        with pytest.raises(IntegrityError, match="does not continue"):
            catalogs.append(catalog, wrong)
    assert len(records(store)) == 2


@pytest.mark.parametrize("record", [offloaded("a", 0, 9), loss(0, 9), LedgerClosed(0, 7, 9)])
def test_nothing_stands_before_a_claim(store, process, record):
    with pytest.raises(IntegrityError, match="stands before any claim"):
        process().append(TopicCatalog(TOPIC), record)
    assert records(store) == []


# Repeats


@pytest.mark.parametrize("record", [claim(incarnation=1), offloaded("a", 0, 9), loss(0, 9), LedgerClosed(0, 7, 9)])
def test_a_record_that_is_there_already_is_success(store, process, record):
    stale = claimed(process())
    first = process().append(stale, record)
    before = records(store)
    assert process().append(stale, record) == first  # computed on what was loaded before
    assert process().append(first, record) == first  # computed on what it has become
    assert records(store) == before


def test_a_commit_repeated_after_a_crash_is_found_behind_later_records(process):
    stale = claimed(process())
    first = process().append(stale, offloaded("a", 0, 9))
    later = process().append(first, offloaded("b", 10, 19))
    assert process().append(stale, offloaded("a", 0, 9)) == first  # what its writer knows, as when it had returned at once
    assert process().append(first, LedgerClosed(0, 7, 30)) == process().load(TOPIC) == later.apply(LedgerClosed(0, 7, 30))


def test_a_commit_has_the_same_bytes_however_often_it_runs(process):
    written = []
    for _ in range(2):
        other = MemoryStore()
        catalogs = Catalogs(other, "app", tokens())
        catalogs.append(claimed(catalogs), offloaded("a", 0, 9))
        written.append(records(other)[1])
    assert written[0] == written[1]


def test_a_segment_s_uuid_with_other_contents_is_an_alarm(process):
    catalogs = process()
    stale = claimed(catalogs)
    catalogs.append(stale, offloaded("a", 0, 9))
    with pytest.raises(IntegrityError, match="segment a is in the catalog with other contents"):
        catalogs.append(stale, offloaded("a", 0, 8))


def test_a_ledger_is_closed_once(process):
    catalogs = process()
    catalog = catalogs.append(claimed(catalogs), LedgerClosed(0, 7, 20))
    with pytest.raises(IntegrityError, match="ledger 7 was closed with 20, not with 21"):
        catalogs.append(catalog, LedgerClosed(0, 7, 21))


def test_a_lost_answer_is_found_out_by_loading_again(store, process):
    stale = claimed(process())
    catalogs = process("app", StoreFault("put", Effect.LOST))
    for _ in range(2):  # nothing more is tried before
        with pytest.raises(OutcomeUnknownError):
            catalogs.append(stale, offloaded("a", 0, 9))
    with pytest.raises(OutcomeUnknownError):
        catalogs.append(stale, LedgerClosed(0, 7, 1))
    found = catalogs.load(TOPIC)
    assert found.segments == (offloaded("a", 0, 9),)
    assert catalogs.append(found, offloaded("a", 0, 9)) == found
    assert len(records(store)) == 2


def test_one_topic_s_unknown_outcome_does_not_stop_the_others(process):
    catalogs = process("app", StoreFault("put", Effect.LOST))
    with pytest.raises(OutcomeUnknownError):
        claimed(catalogs)
    assert catalogs.append(catalogs.load(OTHER_TOPIC), claim()).claim == claim()


def test_what_did_not_happen_is_tried_again(process):
    catalogs = process("app", StoreFault("put"))
    with pytest.raises(StoreUnavailableError):
        claimed(catalogs)
    assert claimed(catalogs).claim == claim()


# Conflicts


def test_a_record_that_still_continues_the_catalog_goes_into_the_next_slot(process):
    stale = claimed(process())
    process().append(stale, LedgerClosed(0, 6, 3))
    catalog = process().append(stale, offloaded("a", 0, 9))
    assert (catalog.segments, catalog.next_slot) == ((offloaded("a", 0, 9),), 3)


def test_a_record_that_continues_no_more_is_dropped(store, process):
    stale = claimed(process())
    process().append(stale, offloaded("a", 0, 9))
    with pytest.raises(IntegrityError, match="does not continue"):
        process().append(stale, offloaded("b", 0, 12))
    assert len(records(store)) == 2


def test_of_racing_commits_exactly_one_is_in_the_catalog(process):
    stale = claimed(process())

    def commit(name: int) -> bool:
        try:
            process().append(stale, offloaded(f"u{name}", 0, 9))
        except IntegrityError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(commit, range(8))) == 1
    assert len(process().load(TOPIC).segments) == 1


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=20))
def test_processes_with_stale_views_never_fork_the_catalog(steps: list[tuple[int, bool]]):
    """Each works on whatever it loaded last; the catalog is always one chain without overlaps."""
    store = MemoryStore()
    processes = [Catalogs(store, "app", tokens(str(n))) for n in range(3)]
    views = [processes[0].append(processes[0].load(TOPIC), claim())] * 3
    for number, (who, reload) in enumerate(steps):
        if reload:
            views[who] = processes[who].refresh(views[who])
            assert views[who] == processes[who].load(TOPIC)
        first = 0 if views[who].end is None else views[who].end.entry + 1
        try:
            views[who] = processes[who].append(views[who], offloaded(f"u{number}", first, first + 4))
        except IntegrityError:
            views[who] = processes[who].load(TOPIC)
    chain = processes[0].load(TOPIC).segments
    assert [s.start.entry for s in chain] == [5 * n for n in range(len(chain))]


# Claims


@pytest.mark.parametrize("record", [offloaded("a", 0, 9), loss(0, 9), LedgerClosed(0, 7, 9), claim("other")])
def test_another_application_s_topic_is_not_touched(store, process, record):
    catalog = claimed(process())
    with pytest.raises(ClaimedByOtherError, match=r"claimed by app, not by other: `offloader takeover`"):
        process("other").append(catalog, record)
    assert len(records(store)) == 1


def test_a_claim_that_changed_meanwhile_is_noticed_before_anything_is_written(process):
    stale = claimed(process())
    process("other").adopt(stale, "app", 7)
    with pytest.raises(ClaimedByOtherError, match="claimed by other, not by app"):
        process().append(stale, offloaded("a", 0, 9))
    assert process().load(TOPIC).segments == ()


def test_of_two_claims_the_first_counts(process):
    process("first").append(TopicCatalog(TOPIC), claim("first"))
    with pytest.raises(ClaimedByOtherError):
        process("second").append(TopicCatalog(TOPIC), claim("second"))


def test_a_new_incarnation_is_a_new_claim_of_the_same_application(process):
    catalogs = process()
    catalog = catalogs.append(catalogs.append(claimed(catalogs), offloaded("a", 0, 9)), claim(incarnation=1))
    assert catalog.end is None
    assert catalogs.append(catalog, offloaded("b", 0, 4, incarnation=1)).end == position(4, incarnation=1)


def test_a_released_topic_is_anybody_s_to_claim_but_nobody_s_to_write(process):
    catalogs = process()
    catalog = catalogs.append(claimed(catalogs), offloaded("a", 0, 9))
    catalog = catalogs.append(catalog, released(catalog.claim, 11, "topics release"))
    with pytest.raises(ClaimedByOtherError, match="claimed by nobody"):
        catalogs.append(catalog, offloaded("b", 10, 19))
    taken = process("other").append(catalog, replace(claim("other"), begin=position(30)))
    assert (taken.claim.application, taken.end) == ("other", position(9))


def test_only_the_named_application_s_claim_is_adopted(process):
    catalog = claimed(process())
    assert process("heir").adopt(catalog, "someone", 7) == catalog
    adopted = process("heir").adopt(catalog, "app", 7)
    assert adopted.claim == replace(claim("heir"), at=7, reason="taken over from app")
    assert process("heir").adopt(catalog, "app", 7) == adopted


def test_an_adoption_keeps_the_incarnation_that_was_claimed_last(process):
    stale = claimed(process())
    process().append(stale, claim(incarnation=4))
    assert process("heir").adopt(stale, "app", 7).claim.incarnation == 4


# Damage


def test_a_missing_record_is_damage(store, process):
    catalogs = process()
    catalogs.append(claimed(catalogs), offloaded("a", 0, 9))
    store.delete([catalog_folder(TOPIC) + slot_name(0)])
    with pytest.raises(DamagedRecordError, match=f"{slot_name(0)} is missing, though .*{slot_name(1)} is there"):
        catalogs.load(TOPIC)


def test_a_damaged_record_names_its_key(store, process):
    NumberedLog(store, catalog_folder(TOPIC)).append(0, b"garbage")
    with pytest.raises(DamagedRecordError, match=f"{catalog_folder(TOPIC)}{slot_name(0)}: 7 bytes"):
        process().load(TOPIC)


def test_a_store_that_refuses_what_is_not_there_does_not_hang_us(process):
    class Broken(MemoryStore):
        def put(self, key, data, *, meta=None, if_absent=False):
            return None

    with pytest.raises(DamagedRecordError, match="refused as being there, but is not"):
        claimed(Catalogs(Broken(), "app", tokens()))
