"""Numbered records: one writer wins a slot, and everybody knows who."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from offloader.errors import ObjectNotFoundError, OutcomeUnknownError, StoreUnavailableError
from offloader.metadata.log import NumberedLog
from offloader.storage.memory import MemoryStore
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults


def test_records_are_read_back_in_order():
    log = NumberedLog(MemoryStore(), "f/")
    for slot in range(25):
        assert log.append(slot, b"%d" % slot) is None
    assert list(log.load()) == [(slot, b"%d" % slot) for slot in range(25)]
    assert list(log.load(after=22)) == [(23, b"23"), (24, b"24")]
    assert log.slots(after=23) == [24]


def test_a_slot_that_is_taken_tells_by_what():
    log = NumberedLog(MemoryStore(), "f/")
    log.append(0, b"theirs")
    assert log.append(0, b"ours") == b"theirs"
    assert log.append(0, b"theirs") is None
    assert not log.is_empty(0)
    assert log.is_empty(1)


def test_exactly_one_of_several_racing_writers_wins_each_slot():
    store, start = MemoryStore(), Barrier(8)

    def write(name: int) -> list[bool]:
        start.wait()
        return [NumberedLog(store, "f/").append(slot, b"%d" % name) is None for slot in range(50)]

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(write, range(8)))
    assert [sum(slot) for slot in zip(*won, strict=True)] == [1] * 50


def test_a_writer_whose_first_try_was_repeated_by_its_client_has_won():
    faults = StoreFaults([StoreFault("put", Effect.REPEATED)])
    assert NumberedLog(FaultyStore(MemoryStore(), faults), "f/").append(0, b"ours") is None


@pytest.mark.parametrize("load", [True, False])
def test_after_an_unknown_outcome_only_the_same_bytes_may_be_tried_until_the_log_is_loaded(load: bool):
    store = MemoryStore()
    log = NumberedLog(FaultyStore(store, StoreFaults([StoreFault("put", Effect.LOST)])), "f/")
    with pytest.raises(OutcomeUnknownError):
        log.append(0, b"ours")
    for slot, data in ((1, b"more"), (0, b"other"), (1, b"ours")):
        with pytest.raises(OutcomeUnknownError, match="load the log again"):
            log.append(slot, data)
    if load:
        assert list(log.load()) == [(0, b"ours")]
    else:
        assert log.append(0, b"ours") is None
    assert log.append(1, b"more") is None
    assert list(log.load()) == [(0, b"ours"), (1, b"more")]


def test_what_certainly_did_not_happen_may_be_tried_again():
    log = NumberedLog(FaultyStore(MemoryStore(), StoreFaults([StoreFault("put")])), "f/")
    with pytest.raises(StoreUnavailableError):
        log.append(0, b"ours")
    assert log.append(0, b"ours") is None


def test_a_record_that_was_there_and_is_gone_was_another_s():
    store = MemoryStore()
    NumberedLog(store, "f/").append(0, b"theirs")
    vanish = StoreFault("read", Effect.HOOK, hook=lambda: NumberedLog(store, "f/").remove([0]))
    assert NumberedLog(FaultyStore(store, StoreFaults([vanish])), "f/").append(0, b"ours") == b""


def test_a_record_that_vanishes_while_it_is_loaded_is_noticed():
    store = MemoryStore()
    for slot in range(3):
        NumberedLog(store, "f/").append(slot, b"x")
    vanish = StoreFault("read", Effect.HOOK, hook=lambda: NumberedLog(store, "f/").remove([0, 1, 2]))
    with pytest.raises(ObjectNotFoundError):
        list(NumberedLog(FaultyStore(store, StoreFaults([vanish])), "f/").load())
