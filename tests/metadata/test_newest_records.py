"""Numbered records of which the newest counts: who replaces it, and what is read while others go on."""

from __future__ import annotations

from itertools import count

import pytest

from offloader.errors import DamagedRecordError, ObjectNotFoundError, OutcomeUnknownError
from offloader.metadata.record_codec import codec_of
from offloader.metadata.records import Records, StoredRecord
from offloader.metadata.rescue_log import RESCUE
from offloader.metadata.rescues import RescueForgotten
from offloader.model import Loss, Position
from offloader.ports.object_store import ObjectStore
from offloader.storage.memory import MemoryStore
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults

TOKENS = map(str, count())
NOWHERE = Position(0, 0, 0)


def records(store: ObjectStore) -> Records[RescueForgotten]:
    return Records(store, "f/", codec_of({"rescue_forgotten": RescueForgotten}))


def written(at: int) -> RescueForgotten:
    return RescueForgotten(at, "me")


def store_with(*slots: int) -> MemoryStore:
    store = MemoryStore()
    for slot in slots:
        assert records(store).write(slot, next(TOKENS), written(slot))
    return store


def test_the_newest_counts_and_the_newest_until_then():
    found = records(store_with(2, 5, 9))
    assert records(MemoryStore()).newest() is None
    assert found.newest() == StoredRecord(9, written(9))
    assert [found.newest(until=slot) for slot in (1, 2, 8, 9)] == [
        None, StoredRecord(2, written(2)), StoredRecord(5, written(5)), StoredRecord(9, written(9)),
    ]  # fmt: skip


def test_one_that_is_known_is_not_read_again_while_it_is_the_newest():
    store, faults = store_with(0), StoreFaults()
    found = records(FaultyStore(store, faults))
    known = found.newest()
    assert found.newest(known) is known
    assert faults.calls["read"] == 1
    records(store).write(1, next(TOKENS), written(1))
    assert found.newest(known) == StoredRecord(1, written(1))


def test_of_two_who_replace_it_one_does_and_is_told_what_is_before_it():
    found = records(store_with(0, 1))
    assert found.replace(2, next(TOKENS), written(2)) == [0, 1]
    assert found.replace(2, next(TOKENS), written(2)) is None
    found.remove([0, 1])
    assert found.replace(1, next(TOKENS), written(1)) is None, "the number was used, and is free again"
    assert found.newest() == StoredRecord(2, written(2))


def test_the_first_number_that_is_free_is_taken():
    found = records(store_with(7, 8))
    assert found.write_from(7, lambda: next(TOKENS), written) == StoredRecord(9, written(9))
    assert found.newest() == StoredRecord(9, written(9))


def test_an_outcome_that_is_unknown_takes_no_second_number():
    store = MemoryStore()
    found = records(FaultyStore(store, StoreFaults([StoreFault("put", Effect.LOST)])))
    with pytest.raises(OutcomeUnknownError):
        found.write_from(7, lambda: next(TOKENS), written)
    assert records(store).slots() == [7]


def test_what_is_removed_while_it_is_read_is_looked_for_again():
    store = store_with(0)

    def replaced() -> None:
        records(store).replace(1, next(TOKENS), written(1))
        records(store).remove([0])

    faults = StoreFaults([StoreFault("read", Effect.HOOK, hook=replaced)])
    assert records(FaultyStore(store, faults)).newest() == StoredRecord(1, written(1))
    faults = StoreFaults([StoreFault("read", Effect.HOOK, hook=lambda: records(store).remove([1]))])
    assert records(FaultyStore(store, faults)).newest() is None


def test_what_is_listed_and_never_there_is_damage():
    faults = StoreFaults([StoreFault("read", error=lambda: ObjectNotFoundError("gone"), times=2)])
    found = records(FaultyStore(store_with(3), faults))
    with pytest.raises(DamagedRecordError, match="it is listed, and is not there"):
        found.newest()
    assert found.newest() == StoredRecord(3, written(3))


def test_a_record_of_another_kind_is_damage():
    with pytest.raises(DamagedRecordError, match="k: a loss record does not belong here"):
        RESCUE.decode("k", codec_of({"loss": Loss}).encode("t", Loss(NOWHERE, NOWHERE, "", "me", 0)))
