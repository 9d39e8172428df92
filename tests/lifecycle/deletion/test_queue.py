"""The queue: the bucket is the truth, one of several changes a record, and nothing grows for ever."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from random import Random

import pytest

from offloader.errors import DamagedRecordError, FatalError, OutcomeUnknownError, OvertakenError, StoreUnavailableError
from offloader.lifecycle.deletion.machine import undone
from offloader.lifecycle.deletion.queue import DamagedRecord, DeletionQueue
from offloader.lifecycle.deletion.records import DeletionState, DeletionSwitch, PendingDeleteLedgerInfo
from offloader.metadata.layout import deletion_folder, parse_deletion_key
from offloader.metadata.records import StoredRecord
from offloader.storage.memory import MemoryStore
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults

from .support import NOW, candidate

NAME = candidate().name


def tokens() -> Callable[[], str]:
    numbers = count()
    return lambda: f"t{next(numbers)}"


def queue(store: MemoryStore | FaultyStore, check_owner: Callable[[], None] = lambda: None) -> DeletionQueue:
    return DeletionQueue(store, "main", tokens(), check_owner)


def deleting(record: PendingDeleteLedgerInfo) -> PendingDeleteLedgerInfo:
    return replace(record, state=DeletionState.DELETING, tries=record.tries + 1)


def keys(store: MemoryStore) -> list[str]:
    return [key for key, _ in store.list("")]


def test_a_record_is_read_back_in_its_newest_version():
    store = MemoryStore()
    q = queue(store)
    assert q.read(NAME) is None
    first = q.write(candidate(), None)
    assert first == StoredRecord(0, candidate())
    second = q.write(deleting(candidate()), first)
    assert second == q.read(NAME) == StoredRecord(1, deleting(candidate()))
    assert keys(store) == [f"_deletion/main/records/{NAME}/{slot:020d}" for slot in (0, 1)]


def test_of_undo_and_deletion_one_is_first_and_the_other_is_told():
    store = MemoryStore()
    service, command = queue(store), queue(store)
    service.write(candidate(), None)
    seen, seen_too = service.read(NAME), command.read(NAME)
    assert seen
    assert seen_too
    assert command.write(undone(seen_too.record, NOW), seen_too)
    assert service.write(deleting(seen.record), seen) is None
    with pytest.raises(FatalError, match="undone"):
        command.change(NAME, lambda record: undone(record, NOW))


def test_two_who_mark_the_same_ledger_make_one_record():
    store = MemoryStore()
    assert queue(store).write(candidate(), None)
    other = DeletionQueue(store, "main", lambda: "another token")
    assert other.write(replace(candidate(), marked_by="command"), None) is None
    assert len(keys(store)) == 1


def test_whoever_was_stopped_before_its_write_revives_nothing_that_was_removed():
    store = MemoryStore()
    q = queue(store)
    first = q.write(candidate(), None)
    assert first
    ended = q.write(undone(candidate(), NOW), first)
    assert ended
    q.remove(ended)
    assert queue(store).write(deleting(candidate()), ended) is None
    assert queue(store).write(deleting(candidate()), first) is None
    assert keys(store) == []


def test_a_version_that_later_ones_cover_counts_for_nothing():
    """A writer that was stopped writes where a version was tidied away."""
    store = MemoryStore()
    q = queue(store)
    versions = [q.write(candidate(), None)]
    for n in range(4):
        versions.append(q.write(candidate(tries=n), versions[-1]))
    q.tidy()
    assert queue(store).write(undone(candidate(), NOW), versions[0]) is None
    assert q.read(NAME) == StoredRecord(4, candidate(tries=3))


def test_tidying_between_a_write_and_its_check_takes_nothing_back():
    store = MemoryStore()
    hook = StoreFault("put", Effect.HOOK, then=lambda: queue(store).tidy() and None)
    q = queue(FaultyStore(store, StoreFaults([hook], seed=1)))
    q.write(candidate(), None)
    stored = q.read(NAME)
    assert stored
    assert q.write(deleting(candidate()), stored)


def test_tidying_leaves_two_versions_at_most():
    store = MemoryStore()
    q = queue(store)
    for ledger in range(3):
        stored = q.write(candidate(ledger), None)
        for n in range(5):
            stored = q.write(candidate(ledger, tries=n), stored)
    assert q.tidy() == 12
    assert len(keys(store)) == 6
    assert q.tidy() == 0
    assert [it.record.tries for it in q.readable()] == [4, 4, 4]


def test_a_removal_that_is_cut_short_begins_nothing_again():
    """Whatever is left of it, the version that ended it is the last to go."""
    store = MemoryStore()
    q = queue(store)
    first = q.write(candidate(), None)
    ended = q.write(undone(candidate(), NOW), first)
    assert ended
    cut = queue(FaultyStore(store, StoreFaults([StoreFault("delete", after=1)])))
    with pytest.raises(Exception, match="a fault of the test"):
        cut.remove(ended)
    assert q.read(NAME) == ended
    q.remove(ended)
    assert keys(store) == []


def test_what_was_marked_again_meanwhile_is_not_removed():
    store = MemoryStore()
    q = queue(store)
    ended = q.write(undone(candidate(), NOW), q.write(candidate(), None))
    assert ended
    again = q.write(candidate(marked_at=NOW + 1), ended)
    q.remove(ended)
    assert q.read(NAME) == again


@pytest.mark.parametrize("effect", [Effect.LOST, Effect.BEFORE])
def test_after_an_answer_that_was_lost_the_bucket_says_what_is(effect: Effect):
    q = queue(FaultyStore(MemoryStore(), StoreFaults([StoreFault("put", effect)])))
    with pytest.raises(OutcomeUnknownError if effect is Effect.LOST else StoreUnavailableError):
        q.write(candidate(), None)
    there = q.read(NAME)
    assert (there is None) == (effect is Effect.BEFORE)
    assert q.write(deleting(candidate()) if there else candidate(), there)


def test_a_write_that_the_client_repeats_by_itself_stands():
    q = queue(FaultyStore(MemoryStore(), StoreFaults([StoreFault("put", Effect.REPEATED)])))
    assert q.write(candidate(), None) == q.read(NAME)


def test_one_application_at_a_time():
    """The journal's fence: whoever lost it learns so from its write, before anything follows from it."""
    store = MemoryStore()
    ended = queue(store).write(undone(candidate(), NOW), queue(store).write(candidate(), None))
    assert ended

    def overtaken() -> None:
        raise OvertakenError("another process")

    former = queue(store, overtaken)
    for act in (lambda: former.write(candidate(), ended), lambda: former.remove(ended), former.tidy):
        with pytest.raises(OvertakenError):
            act()
    with pytest.raises(OvertakenError):
        former.set_switch(on=True, now=NOW)


def test_records_are_listed_by_name_and_in_pages():
    store = MemoryStore()
    q = queue(store)
    for ledger in (30, 4, 111):
        q.write(deleting(candidate(ledger)), q.write(candidate(ledger), None))
    found = [it.record.ledger_id for it in q.readable()]
    assert found == [4, 30, 111]
    other = DeletionQueue(store, "_other", tokens())
    assert list(other.records()) == []
    other.write(candidate(), None)
    assert keys(store)[0].startswith("_deletion/%5Fother/records/")
    assert len(list(q.records())) == 3


def test_a_damaged_record_is_told_and_keeps_no_other_from_being_read():
    store = MemoryStore()
    q = queue(store)
    for ledger in (1, 2, 3):
        q.write(candidate(ledger), None)
    key = deletion_folder("main", candidate(2).name) + f"{1:020d}"
    store.put(key, b"damaged")
    swapped, _ = store.read(deletion_folder("main", candidate(1).name) + f"{0:020d}")
    store.put(deletion_folder("main", candidate(3).name) + f"{1:020d}", swapped)
    one, two, three = q.records()
    assert isinstance(one, StoredRecord)
    assert isinstance(two, DamagedRecord)
    assert isinstance(three, DamagedRecord)
    assert "is the record of" in three.why
    with pytest.raises(DamagedRecordError):
        q.read(candidate(2).name)


def test_the_switch_is_written_only_where_it_is_news():
    store = MemoryStore()
    q = queue(store)
    assert q.switch() is None
    assert q.set_switch(on=False, now=1) == DeletionSwitch(False, 1)
    assert keys(store) == []
    assert q.set_switch(on=True, now=2) == q.set_switch(on=True, now=3) == q.switch() == DeletionSwitch(True, 2, 1)
    assert q.set_switch(on=False, now=4) == DeletionSwitch(False, 4, 2)
    assert q.set_switch(on=True, now=5) == q.switch() == DeletionSwitch(True, 5, 3)
    assert len(keys(store)) == 1
    assert list(q.records()) == []


def test_keys_are_told_from_others():
    assert parse_deletion_key("main", f"_deletion/main/records/{NAME}/{3:020d}") == (NAME, 3)
    for other in (f"_deletion/main/records/{NAME}/x", f"_deletion/other/records/{NAME}/{3:020d}", "acme/x/y"):
        assert parse_deletion_key("main", other) is None


def test_of_many_who_change_one_record_at_random_each_change_that_stands_follows_the_one_before():
    rng = Random(12)
    store = MemoryStore()
    queues = [DeletionQueue(store, "main", lambda n=n: f"{n}-{rng.random()}") for n in range(4)]  # type: ignore[misc]
    queues[0].write(candidate(), None)
    seen: list[StoredRecord[PendingDeleteLedgerInfo] | None] = [None] * 4
    stood = 0
    for _ in range(2000):
        n = rng.randrange(4)
        former = seen[n]
        if former is None or rng.random() < 0.3:
            seen[n] = queues[n].read(NAME)
        elif rng.random() < 0.1:
            queues[0].tidy()
        else:
            newest = queues[0].read(NAME)
            seen[n] = queues[n].write(replace(former.record, tries=former.record.tries + 1), former)
            assert (seen[n] is not None) == (newest == former)
            stood += seen[n] is not None
    newest = queues[0].read(NAME)
    assert newest
    assert newest.record.tries == stood
