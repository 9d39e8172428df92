"""Threads that acknowledge while others flush; a cache that holds next to nothing; a store that fails."""

from __future__ import annotations

import itertools
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from offloader.cursors import log as log_module
from offloader.cursors.core.cursor import LedgerLength
from offloader.cursors.core.records import FirstState
from offloader.cursors.durable import DurableCursor
from offloader.errors import DamagedRecordError, OutcomeUnknownError, OvertakenError, StoreUnavailableError
from offloader.model import Position
from offloader.storage.memory import MemoryStore
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults

LEDGER_COST = 500

FOLDER = "public/default/t/_cursors/a/"
START = FirstState(Position(0, 0, -1))
TOKENS = itertools.count()


def opened(store, cache_bytes: int = 10**6) -> DurableCursor:
    return DurableCursor.open(store, FOLDER, lambda: START, lambda: str(next(TOKENS)), cache_bytes=cache_bytes)


def test_threads_acknowledge_while_others_flush_and_every_one_counts() -> None:
    store = MemoryStore()
    cursor = opened(store, cache_bytes=LEDGER_COST + 300)
    places = [(ledger, entry) for ledger in range(10) for entry in range(1, 2_000, 3)]
    random.Random(1).shuffle(places)
    over = threading.Event()

    def flush() -> None:
        while not over.is_set():
            cursor.flush()

    with ThreadPoolExecutor(4) as pool:
        flushes = [pool.submit(flush) for _ in range(2)]
        list(pool.map(lambda place: cursor.acknowledge((0, place[0]), place[1], place[1]), places))
        over.set()
        for each in flushes:
            each.result()
    cursor.flush()
    again = opened(store, cache_bytes=LEDGER_COST + 300)
    found = {
        (ledger, entry)
        for ledger in range(10)
        for entry in range(2_000)
        if again.is_acknowledged(Position(0, ledger, entry))
    }
    assert found == set(places)
    assert again.memory <= LEDGER_COST + 300


@pytest.mark.parametrize("effect", [Effect.BEFORE, Effect.LOST])
def test_a_flush_that_fails_is_gone_on_with_and_what_came_meanwhile_follows(effect: Effect) -> None:
    store, faults = MemoryStore(), StoreFaults()
    cursor = opened(FaultyStore(store, faults))
    cursor.acknowledge((0, 1), 3, 3)
    faults.add(StoreFault("put", effect, times=2))
    for _ in range(2):
        with pytest.raises((StoreUnavailableError, OutcomeUnknownError)):
            cursor.flush()
        cursor.acknowledge((0, 1), 5, 5)
    cursor.flush()
    assert not cursor.changed
    again = opened(store)
    assert [entry for entry in range(9) if again.is_acknowledged(Position(0, 1, entry))] == [3, 5]


def test_the_former_owner_is_told_that_it_is_none() -> None:
    store = MemoryStore()
    cursor = opened(store)
    opened(store)
    cursor.acknowledge((0, 1), 3, 3)
    with pytest.raises(OvertakenError):
        cursor.flush()


def test_the_newest_ledgers_are_read_at_a_start_as_many_as_memory_has_room_for() -> None:
    store, faults = MemoryStore(), StoreFaults()
    cursor = opened(store)
    for ledger in range(10):
        cursor.acknowledge((0, ledger), 1, 800)  # 100 bytes
        cursor.flush()
    again = opened(FaultyStore(store, faults), cache_bytes=4 * LEDGER_COST + 500)
    before = faults.calls["read"]
    assert again.is_acknowledged(Position(0, 9, 800))
    assert faults.calls["read"] == before, "it is in memory"
    assert again.is_acknowledged(Position(0, 0, 800))
    assert faults.calls["read"] == before + 1
    assert again.memory <= 4 * LEDGER_COST + 500


def test_the_mark_delete_position_passes_ledgers_that_are_swapped_out() -> None:
    store = MemoryStore()
    cursor = opened(store, cache_bytes=0)
    for ledger in (2, 1, 0):
        cursor.acknowledge((0, ledger), 0, 9)
    cursor.acknowledge((0, 4), 0, 4)
    cursor.flush()
    lengths = [LedgerLength((0, ledger), 9) for ledger in range(3)]
    lengths += [LedgerLength((0, 3), -1), LedgerLength((0, 4), None)]
    assert cursor.advance(lambda first: (each for each in lengths if each.key >= first))
    assert cursor.mark_delete == Position(0, 4, 4)
    cursor.flush()
    assert opened(store).mark_delete == Position(0, 4, 4)


def test_a_subscription_that_was_deleted_begins_anew() -> None:
    store = MemoryStore()
    cursor = opened(store)
    cursor.acknowledge((0, 1), 5, 9)
    cursor.forget()
    cursor.flush()
    again = opened(store)
    assert not again.is_acknowledged(Position(0, 1, 5))
    again.acknowledge((0, 1), 7, 7)
    again.flush()
    assert opened(store).is_acknowledged(Position(0, 1, 7)), "it is not deleted any more"


def test_what_is_counted_of_a_deleted_subscription_before_that_is_written_does_not_bring_it_back() -> None:
    """Retention deletes, and counts, between the last word of its only consumer and the write."""
    store = MemoryStore()
    cursor = opened(store)
    cursor.acknowledge((0, 1), 5, 9)
    cursor.flush()
    cursor.forget()
    cursor.count_property("offloader.deleted.2026-11-26", 7)
    cursor.flush()
    again = opened(store)
    assert not again.properties
    assert not again.is_acknowledged(Position(0, 1, 5))


def test_a_former_owner_that_misses_what_the_next_one_removed_is_told_that_it_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_module, "REMOVED_AT_ONCE", 1)
    store = MemoryStore()
    former = opened(store, cache_bytes=0)
    for ledger in (1, 2):
        former.acknowledge((0, ledger), 1, 1)
        former.flush()
    later = opened(store)
    for entry in (3, 5):
        for ledger in (1, 2):
            later.acknowledge((0, ledger), entry, entry)
        later.flush()
    with pytest.raises(OvertakenError):
        former.acknowledge((0, 1), 7, 7)


def test_a_piece_that_is_damaged_is_told_and_not_taken_for_nothing_acknowledged() -> None:
    store = MemoryStore()
    cursor = opened(store)
    cursor.acknowledge((0, 1), 1, 1)
    cursor.flush()
    cursor.acknowledge((0, 2), 1, 1)
    cursor.flush()
    piece = sorted(key for key, _ in store.list(FOLDER))[-2]
    store.delete([piece])
    with pytest.raises(DamagedRecordError, match="is missing, though a marker names it"):
        opened(store)
