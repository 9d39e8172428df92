"""The catalog: each append is an exact compare-and-set, a repeated one is success, a foreign one is refused."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.errors import (
    ClaimedByOtherError,
    DamagedRecordError,
    IntegrityError,
    OutcomeUnknownError,
    StoreUnavailableError,
)
from offloader.metadata.catalog import Catalogs, released
from offloader.metadata.catalog_codec import plain
from offloader.metadata.layout import catalog_folder, data_key, record_key, slot_name
from offloader.metadata.log import NumberedLog
from offloader.metadata.state import CatalogFold, CatalogHead, LedgerClosed, NextStart, Said, TopicCatalog, record_uuid
from offloader.model import LedgerList, LedgerRange, LedgerSpan, Loss, Segment
from offloader.storage.memory import MemoryStore
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults

from .support import OTHER_TOPIC, TOPIC, claim, numbered_topic, offloaded, position


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def process(store: MemoryStore) -> Callable[..., Catalogs]:
    def one(application: str = "app", *faults: StoreFault) -> Catalogs:
        return Catalogs(FaultyStore(store, StoreFaults(faults)), application)

    return one


def claimed(catalogs: Catalogs) -> CatalogHead:
    return catalogs.append(catalogs.head(TOPIC), claim())


def records(store: MemoryStore) -> list[bytes]:
    """As they stand beside the segments."""
    return [plain(store.read(key)[0]) for key, _ in store.list(catalog_folder(TOPIC))]


def loss(first: int, last: int) -> Loss:
    return Loss(position(first), position(last), "trimmed", "joe", 9)


def test_a_topic_without_records_has_an_empty_catalog(process):
    assert process().load(TOPIC) == TopicCatalog.empty(TOPIC)


def test_what_was_appended_is_loaded(process):
    catalogs = process()
    catalog = claimed(catalogs)
    for record in (offloaded("a", 0, 9), LedgerClosed(0, 7, 20), loss(10, 12), offloaded("b", 13, 20)):
        catalog = catalogs.append(catalog, record)
    found = process().load(TOPIC)
    assert catalog == found.head == process().head(TOPIC)
    assert [s.uuid for s in found.segments] == ["a", "b"]
    assert (catalog.end, catalog.next_slot, found.closed) == (position(20), 5, {(0, 7): 20})


def test_several_catalogs_are_loaded_at_once(process):
    catalogs = process()
    names = [numbered_topic(n) for n in range(20)]
    written = {name: catalogs.append(catalogs.head(name), claim()) for name in names}
    assert process().heads(names) == (written, {})


def test_a_refresh_reads_only_what_was_written_since(store, process):
    head = claimed(process())
    for n in range(5):
        head = process().append(head, offloaded(f"known{n}", 10 * n, 10 * n + 9))
    known = process().load(TOPIC)
    process().append(process().append(head, LedgerClosed(0, 7, 90)), offloaded("new", 50, 59))
    faults = StoreFaults()
    reading = Catalogs(FaultyStore(store, faults), "app")
    newest = reading.refresh(known)
    assert newest == reading.refresh(newest) == process().load(TOPIC)
    assert (faults.calls["list"], faults.calls["read"]) == (2, 2)


def test_records_add_up_to_the_same_together_and_one_by_one():
    records = [
        claim(),
        offloaded("a", 0, 9),
        LedgerClosed(0, 7, 30),
        loss(10, 12),
        offloaded("b", 13, 20),
        claim(incarnation=1),
    ]
    one_by_one = TopicCatalog.empty(TOPIC)
    for record in records:
        one_by_one = one_by_one.apply(record)
    assert TopicCatalog.empty(TOPIC).apply(*records) == one_by_one
    head = one_by_one.head
    assert (head.segments, head.entries, head.size, head.next_slot) == (2, 18, 200, 6)


def test_a_refused_record_leaves_the_others_as_they_were():
    fold = CatalogFold(TopicCatalog.empty(TOPIC))
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
    before = TopicCatalog.empty(TOPIC).apply(claim(), LedgerClosed(0, 7, 30))
    before.apply(LedgerClosed(0, 8, 1), offloaded("a", 0, 9))
    assert (before.closed, before.segments, before.next_slot) == ({(0, 7): 30}, (), 2)


def test_a_segment_s_uuid_is_new():
    with pytest.raises(IntegrityError, match="segment a is in the catalog already"):
        TopicCatalog.empty(TOPIC).apply(claim(), offloaded("a", 0, 9), offloaded("a", 10, 19))


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


def following(ledger: int, entry: int, said: int | None = None, former: int | None = None) -> Segment:
    """A segment that starts there, and says what the ledger before its first one was closed with."""
    start = position(entry, ledger)
    held = (LedgerRange(ledger, entry, entry + 10, count=10, size=50),)
    segment = replace(offloaded("b", 0, 9), start=start, end=start._replace(entry=entry + 9), ledgers=held)
    return replace(segment, former_ledger_last=said, former_ledger=former)


@pytest.mark.parametrize(
    "hole",
    [
        following(7, 11),
        following(8, 0),
        following(8, 0, 8),
        following(8, 0, 10),
        following(8, 1, 9),
        following(9, 0, 9, 8),
        loss(11, 12),
    ],
)
def test_a_record_that_is_not_proven_to_follow_is_refused(store, process, hole):
    catalogs = process()
    catalog = catalogs.append(claimed(catalogs), offloaded("a", 0, 9))
    with pytest.raises(IntegrityError, match="would leave a hole"):
        catalogs.append(catalog, hole)
    assert len(records(store)) == 2


def test_the_first_record_begins_where_the_topic_was_claimed(process):
    with pytest.raises(IntegrityError, match="would leave a hole"):
        process().append(claimed(process()), offloaded("a", 1, 9))


def test_a_segment_itself_proves_that_it_follows_into_another_ledger(process):
    catalogs = process()
    catalog = catalogs.append(claimed(catalogs), offloaded("a", 0, 9))
    catalog = catalogs.append(catalog, following(8, 0, 9, 7))
    assert (catalog.end, process().load(TOPIC).closed) == (position(9, 8), {(0, 7): 9})


def test_what_follows_is_known_only_from_a_list_that_still_has_the_ledger_before():
    catalog = TopicCatalog.empty(TOPIC).apply(claim(), offloaded("a", 0, 9))
    spans = (LedgerSpan(7, 9), LedgerSpan(8, -1), LedgerSpan(9, None))
    assert catalog.head.next_start(LedgerList(spans)) == NextStart(position(0, 9), 9, 7)
    assert catalog.head.next_start(LedgerList(spans[2:])) is None
    assert catalog.head.next_start(LedgerList((LedgerSpan(7, 12), *spans[1:]))) == NextStart(position(10))


def test_a_ledger_that_nobody_wrote_to_may_be_replaced():
    catalog = TopicCatalog.empty(TOPIC).apply(claim())
    assert catalog.head.next_start(LedgerList((LedgerSpan(9, None),))) == NextStart(position(0, 9), -1, 7)


@pytest.mark.parametrize("record", [offloaded("a", 0, 9), loss(0, 9), LedgerClosed(0, 7, 9)])
def test_nothing_stands_before_a_claim(store, process, record):
    with pytest.raises(IntegrityError, match="stands before any claim"):
        process().append(CatalogHead(TOPIC), record)
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
    for known in (stale, first, later):
        assert process().append(known, offloaded("a", 0, 9)) in (first, later)
    assert (
        process().append(first, LedgerClosed(0, 7, 30)) == process().head(TOPIC) == later.after(LedgerClosed(0, 7, 30))
    )


def test_a_commit_has_the_same_bytes_however_often_it_runs(process):
    written = []
    for _ in range(2):
        other = MemoryStore()
        catalogs = Catalogs(other, "app")
        catalogs.append(claimed(catalogs), offloaded("a", 0, 9))
        written.append(records(other)[1])
    assert written[0] == written[1]


def test_a_segment_s_uuid_with_other_contents_is_an_alarm(process):
    catalogs = process()
    stale = claimed(catalogs)
    catalogs.append(stale, offloaded("a", 0, 9))
    with pytest.raises(IntegrityError, match="segment a has a record with other contents"):
        catalogs.append(stale, offloaded("a", 0, 8))


def test_a_ledger_is_closed_once(process):
    catalogs = process()
    catalog = catalogs.append(claimed(catalogs), LedgerClosed(0, 7, 20))
    with pytest.raises(IntegrityError, match="ledger 7 was closed with 20, not with 21"):
        catalogs.append(catalog, LedgerClosed(0, 7, 21))


@pytest.mark.parametrize("load", [True, False])
def test_a_lost_answer_is_found_out_by_loading_again_or_by_trying_the_same_again(store, process, load):
    stale = claimed(process())
    catalogs = process("app", StoreFault("put", Effect.LOST, key=lambda key: "_catalog" in key))
    with pytest.raises(OutcomeUnknownError):
        catalogs.append(stale, offloaded("a", 0, 9))
    for other in (LedgerClosed(0, 7, 1), offloaded("b", 0, 9)):  # nothing else is tried before
        with pytest.raises(OutcomeUnknownError):
            catalogs.append(stale, other)
    found = catalogs.load(TOPIC).head if load else catalogs.append(stale, offloaded("a", 0, 9))
    assert catalogs.load(TOPIC).segments == (offloaded("a", 0, 9),)
    assert catalogs.append(found, offloaded("a", 0, 9)) == found
    assert len(records(store)) == 2


def test_one_topic_s_unknown_outcome_does_not_stop_the_others(process):
    catalogs = process("app", StoreFault("put", Effect.LOST))
    with pytest.raises(OutcomeUnknownError):
        claimed(catalogs)
    assert catalogs.append(catalogs.head(OTHER_TOPIC), claim()).claim == claim()


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
    assert (process().load(TOPIC).segments, catalog.next_slot) == ((offloaded("a", 0, 9),), 3)


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
    processes = [Catalogs(store, "app") for n in range(3)]
    views = [processes[0].append(processes[0].head(TOPIC), claim())] * 3
    for number, (who, reload) in enumerate(steps):
        if reload:
            views[who] = processes[who].refresh_head(views[who])
            assert views[who] == processes[who].load(TOPIC).head
        first = 0 if views[who].end is None else views[who].end.entry + 1
        try:
            views[who] = processes[who].append(views[who], offloaded(f"u{number}", first, first + 4))
        except IntegrityError:
            views[who] = processes[who].head(TOPIC)
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
    process("other").take_over_claim(stale, "app", 7)
    with pytest.raises(ClaimedByOtherError, match="claimed by other, not by app"):
        process().append(stale, offloaded("a", 0, 9))
    assert process().load(TOPIC).segments == ()


def test_of_two_claims_the_first_counts(process):
    process("first").append(CatalogHead(TOPIC), claim("first"))
    with pytest.raises(ClaimedByOtherError):
        process("second").append(CatalogHead(TOPIC), claim("second"))


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


def test_who_only_reads_cannot_write_to_a_topic_that_nobody_claims(store, process):
    catalogs = process()
    head = catalogs.append(claimed(catalogs), offloaded("a", 0, 9))
    head = catalogs.append(head, released(head.claim, 11, "topics release"))
    with pytest.raises(ClaimedByOtherError, match="claimed by nobody"):
        Catalogs(store, "").append(head, offloaded("b", 10, 19))


def test_only_the_named_application_s_claim_is_adopted(process):
    catalog = claimed(process())
    assert process("heir").take_over_claim(catalog, "someone", 7) == catalog
    adopted = process("heir").take_over_claim(catalog, "app", 7)
    assert adopted.claim == replace(
        claim("heir"), at=7, reason="taken over from app", former=record_uuid(TOPIC, catalog.claim)
    )
    assert process("heir").take_over_claim(catalog, "app", 7) == adopted


def test_an_adoption_keeps_the_incarnation_that_was_claimed_last(process):
    stale = claimed(process())
    process().append(stale, claim(incarnation=4))
    assert process("heir").take_over_claim(stale, "app", 7).claim.incarnation == 4


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
        def put(self, key, data, *, meta=None, if_absent=False, as_upload=False):
            return None

    with pytest.raises(DamagedRecordError, match="refused as being there, but is not"):
        claimed(Catalogs(Broken(), "app"))


# The objects beside the segments


def begun(process: Callable[..., Catalogs], head: CatalogHead, record: Said) -> None:
    """Its process ends between its two writes."""
    fault = StoreFault("put", key=lambda key: "_catalog" in key)
    with pytest.raises(StoreUnavailableError):
        process("app", fault).append(head, record)


def test_each_record_has_an_object_of_its_own_with_the_same_bytes(store, process):
    head = claimed(process())
    for record in (offloaded("00000000-0000-4000-8000-000000000001", 0, 9), LedgerClosed(0, 7, 12), loss(10, 12)):
        head = process().append(head, record)
    beside = [store.read(key)[0] for key, _ in store.list() if key.endswith("-record")]
    assert sorted(beside) == sorted(records(store))


def test_a_claim_that_was_begun_is_finished_by_whoever_comes_next(process):
    begun(process, CatalogHead(TOPIC), claim())
    with pytest.raises(ClaimedByOtherError):
        process("other").append(CatalogHead(TOPIC), claim("other"))
    assert process().head(TOPIC).claim == claim()


def test_a_loss_that_was_begun_is_finished_before_another_one_in_its_place(process):
    head = process().append(claimed(process()), offloaded("a", 0, 9))
    begun(process, head, loss(10, 12))
    with pytest.raises(IntegrityError, match="does not continue"):
        process().append(head, loss(10, 14))
    found = process().load(TOPIC)
    assert [(each.start, each.end) for each in found.losses] == [(position(10), position(12))]
    assert process().append(found.head, loss(13, 14)).end == position(14)


def test_an_end_that_somebody_vouched_for_and_nobody_finished_is_recorded_once(process):
    head = process().append(claimed(process()), offloaded("a", 0, 9))
    vouched = LedgerClosed(0, 7, 9, "catalog rebuild --ended")
    begun(process, head, vouched)
    catalogs = process("app", StoreFault("put", key=lambda key: key.endswith(slot_name(5))))  # or it would never end
    found = catalogs.append(head, LedgerClosed(0, 7, 9))
    assert (found.closed, found.next_slot) == ((vouched,), head.next_slot + 1)
    assert process().append(found, LedgerClosed(0, 7, 9)) == found == process().head(TOPIC)


def test_a_segment_that_was_begun_is_committed_with_the_same_bytes(store, process):
    head = claimed(process())
    begun(process, head, offloaded("a", 0, 9))
    process().append(head, offloaded("a", 0, 9))
    assert store.read(record_key(TOPIC, "a"))[0] == records(store)[1]


def test_a_seal_that_is_repeated_from_a_root_of_another_name_is_the_same_segment(process):
    head = claimed(process())
    first = replace(offloaded("a", 0, 9), driver_properties=(("root", "s3://one"),))
    begun(process, head, first)
    process().append(head, replace(first, driver_properties=(("root", "s3://alias"),)))
    assert process().load(TOPIC).segments == (first,)


def test_a_record_follows_what_was_last_and_a_claim_the_claim_before(process):
    head = process().append(claimed(process()), offloaded("a", 0, 9))
    head = process().append(head, loss(10, 12))
    (lost,) = process().load(TOPIC).losses
    assert (lost.predecessor_uuid, lost.predecessor_end) == ("a", position(9))
    assert head.last == (record_uuid(TOPIC, lost), position(12))
    again = process().append(head, claim(incarnation=1)).claim
    assert again is not None
    assert again.former == record_uuid(TOPIC, claim())


def test_a_topic_whose_catalog_is_gone_is_not_begun_anew(store, process):
    claimed(process())
    store.put(data_key(TOPIC, "00000000-1111-2222-3333-444444444444"), b"")
    store.delete([key for key, _ in store.list(catalog_folder(TOPIC))])
    with pytest.raises(DamagedRecordError, match=r"has no catalog, though .* `offloader catalog rebuild"):
        claimed(process())


def test_a_claim_is_listed_before_it_stands_and_until_it_is_over(process):
    begun(process, CatalogHead(TOPIC), claim())
    assert process().claimed() == [TOPIC]
    head = claimed(process())
    assert head.claim is not None
    process().append(head, released(head.claim, 9, "done"))
    assert process().claimed() == []


def test_a_claim_is_listed_again_after_the_answer_to_its_end_was_lost(process):
    catalogs = process("app", StoreFault("delete", Effect.LOST))
    head = claimed(catalogs)
    with pytest.raises(OutcomeUnknownError):
        catalogs.append(head, released(head.claim, 9, "done"))
    head = catalogs.append(catalogs.head(TOPIC), claim())
    assert head.claim.application == "app"
    assert process().claimed() == [TOPIC]


@pytest.mark.parametrize(
    ("listed", "same"),
    [({7: 30, 8: 9}, True), ({7: 30}, False), ({7: 30, 8: 8}, False), ({7: 30, 8: None}, False), ({9: 1}, False)],
)
def test_without_a_creation_time_several_recorded_ends_say_which_topic_it_is(
    listed: dict[int, int | None], same: bool
) -> None:
    """One ledger id proves nothing: a rebuilt cluster gives it again. Nor is it proven that it is another topic."""
    head = CatalogHead(TOPIC, claim=replace(claim(), created=None)).after(offloaded("a", 0, 30))
    head = head.after(LedgerClosed(0, 7, 30)).after(LedgerClosed(0, 8, 9))
    ledgers = LedgerList(tuple(LedgerSpan(ledger, last) for ledger, last in listed.items()))
    assert head.is_of(1, ledgers) is same
    assert head.may_be_of(1, ledgers)


def test_the_creation_time_decides_which_topic_it_is_and_leaves_a_doubt_where_ledger_ids_are_the_same() -> None:
    head = CatalogHead(TOPIC, claim=claim()).after(offloaded("a", 0, 30))
    ours, created = LedgerList((LedgerSpan(7, 30),)), claim().created
    assert created is not None
    assert head.is_of(created, LedgerList(()))
    assert not head.is_of(created + 1, ours)
    assert head.may_be_of(created + 1, ours)
    assert not head.may_be_of(created + 1, LedgerList((LedgerSpan(8, None),)))
