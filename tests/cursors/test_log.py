"""Owners one after the other and at once, lost answers, pauses, damage: the records of a subscription in a bucket."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.cursors import log as log_module
from offloader.cursors.core import cursor as cursor_module
from offloader.cursors.core.cursor import Cursor, SwappedOutError
from offloader.cursors.core.records import CursorMarker, FirstState, PieceRecord, encode_record
from offloader.cursors.log import CursorLog
from offloader.errors import DamagedRecordError, OutcomeUnknownError, OvertakenError, StoreUnavailableError
from offloader.metadata.envelope import encode_fence
from offloader.metadata.layout import newest_first, slot_name
from offloader.model import Position
from offloader.storage.forwarding import ForwardingStore
from offloader.storage.memory import MemoryStore
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults

FORGOTTEN = (("offloader.forgotten", 1),)

FOLDER = "public/default/t/_cursors/a/"
START = FirstState(Position(0, 0, -1))
LEDGERS, ENTRIES = 5, 9


def key(epoch: int, slot: int) -> str:
    return f"{FOLDER}{newest_first(epoch)}/{slot_name(slot)}"


class Owner:
    """A process that has the subscription, or believes so. What it was told to be durable is in `told`."""

    def __init__(self, store, number: int) -> None:
        tokens = itertools.count()
        self.log = CursorLog(store, FOLDER, lambda: f"{number}-{next(tokens)}")
        self.cursor = Cursor(self.log.open(lambda: START).record.marker, cache_bytes=0)
        self.pending: list[PieceRecord] = []
        self.told: set[tuple[int, int]] = set()
        self.given: set[tuple[int, int]] = set()
        self.planned: set[tuple[int, int]] = set()

    def load(self, key) -> None:
        found = self.log.pieces([(key, self.cursor.named[key])])
        self.cursor.swap_in(key, found[key])

    def acknowledge(self, ledger: int, entry: int) -> None:
        while True:
            try:
                self.cursor.acknowledge((0, ledger), entry, entry)
                break
            except SwappedOutError as error:
                self.load(error.key)
        self.given.add((ledger, entry))

    def flush(self) -> None:
        """Raises what the store raises; then the same is gone on with."""
        if not self.pending:
            moved = self.log.pieces(self.cursor.to_move().items())
            self.pending = self.cursor.records(self.log.epoch, self.log.next_slot, moved)
            self.planned = set(self.given)
        while self.pending:
            self.log.append(self.pending[0])
            self.cursor.written(self.pending.pop(0))
        self.told |= self.planned
        self.cursor.swap_out()


def stored(store) -> set[tuple[int, int]]:
    """What whoever reads the bucket finds acknowledged."""
    log = CursorLog(store, FOLDER, lambda: "reader")
    found = log.newest()
    if found is None:
        return set()
    cursor = Cursor(found.record.marker)
    for key, piece in log.pieces(cursor.named.items()).items():
        cursor.swap_in(key, piece)
    return {
        (ledger, entry)
        for ledger in range(LEDGERS)
        for entry in range(ENTRIES)
        if cursor.is_acknowledged(Position(0, ledger, entry))
    }


@given(st.integers(0, 2**32))
def test_what_was_told_to_be_durable_is_found_and_nothing_else(seed: int) -> None:
    """Two or three processes at once: who was silent for long goes on as if nothing had happened."""
    choice = random.Random(seed)
    store = MemoryStore()
    faults = StoreFaults(seed=seed)
    faulty = FaultyStore(store, faults)
    faults.at_random(0.1, StoreFault("put", Effect.BEFORE), StoreFault("put", Effect.LOST))
    faults.at_random(0.1, StoreFault("delete", Effect.BEFORE), StoreFault("delete", Effect.LOST))
    owners: list[Owner] = []
    told: set[tuple[int, int]] = set()
    given_: set[tuple[int, int]] = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cursor_module, "RECORD_BYTES", 8)
        patch.setattr(cursor_module, "MOST_NAMED", 2)
        for number in range(80):
            owner = choice.choice(owners) if owners else None
            try:
                match choice.randrange(7):
                    case 0 if choice.random() < 0.4 or owner is None:
                        owners = [*owners[-2:], Owner(faulty, number)]
                    case 1 | 2 if owner is not None:
                        owner.flush()
                        told |= owner.told
                    case _ if owner is not None:
                        place = choice.randrange(LEDGERS), choice.randrange(ENTRIES)
                        given_.add(place)
                        owner.acknowledge(*place)
            except OvertakenError:
                if owner in owners:
                    owners.remove(owner)
            except (StoreUnavailableError, OutcomeUnknownError):
                pass
            now = stored(store)
            assert told <= now, "nothing durable is forgotten"
            assert now <= given_, "nothing is invented"


def test_a_paused_owner_that_wakes_after_a_compaction_wins_no_number_that_was_freed() -> None:
    store = MemoryStore()
    first = Owner(store, 1)
    first.acknowledge(1, 1)
    first.flush()
    for number in range(2, 6):
        owner = Owner(store, number)
        for entry in range(5):
            owner.acknowledge(2, entry)
            owner.flush()
    first.acknowledge(3, 3)
    with pytest.raises(OvertakenError):
        first.flush()
    assert stored(store) == {(1, 1), *((2, entry) for entry in range(5))}


def test_one_who_was_paused_before_it_began_its_epoch_does_not_begin_it_later() -> None:
    """The number was used, and is free again."""
    store, faults = MemoryStore(), StoreFaults()
    Owner(store, 1)

    def meanwhile() -> None:
        for number in (3, 4):
            owner = Owner(store, number)
            for entry in range(3):
                owner.acknowledge(1, entry)
                owner.flush()

    begins = key(2, 0)
    faults.add(StoreFault("put", Effect.HOOK, key=lambda key: key == begins, hook=meanwhile))
    with pytest.raises(OvertakenError):
        Owner(FaultyStore(store, faults), 2)
    assert stored(store) == {(1, 0), (1, 1), (1, 2)}


def deleted(owner: Owner) -> None:
    owner.log.append(PieceRecord(CursorMarker(owner.cursor.mark_delete, FORGOTTEN)))


def test_a_name_that_is_created_and_deleted_again_and_again_has_one_object() -> None:
    store = MemoryStore()
    for number in range(400):
        owner = Owner(store, number)
        owner.acknowledge(1, 1)
        owner.flush()
        deleted(owner)
        assert len(list(store.list(FOLDER))) == 1
    assert CursorLog(store, FOLDER, str).newest().record.marker.properties == FORGOTTEN


def test_a_deletion_frees_the_number_of_no_other_owner() -> None:
    store = MemoryStore()
    paused = Owner(store, 1)
    for number in range(2, 9):
        deleted(Owner(store, number))
    last = Owner(store, 9)
    last.acknowledge(1, 1)
    last.flush()
    paused.acknowledge(2, 2)
    with pytest.raises(OvertakenError):
        paused.flush()
    assert stored(store) == {(1, 1)}
    assert len(list(store.list(FOLDER))) == 3, "the fence of the one that was paused, and two markers"


def test_nothing_is_written_behind_a_deletion() -> None:
    store = MemoryStore()
    owner = Owner(store, 1)
    deleted(owner)
    Owner(store, 2).flush()  # removes the fence behind it
    owner.acknowledge(1, 1)
    with pytest.raises(OvertakenError):
        owner.flush()
    assert stored(store) == set()


def test_what_no_marker_names_is_removed_and_a_fence_of_each_owner_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "REMOVED_AT_ONCE", 1)
    store = MemoryStore()
    for number in range(1, 5):
        owner = Owner(store, number)
        for entry in range(8):
            owner.acknowledge(entry % 2, 10 * number + entry)
            owner.flush()
    keys = [key.removeprefix(FOLDER) for key, _ in store.list(FOLDER)]
    former = [key for key in keys if not key.startswith(newest_first(4))]
    assert len(former) == 3, former
    assert len(keys) - len(former) <= 4, "two markers, and what they name"


def test_the_newest_usable_marker_counts_where_a_record_is_half_written(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    owner = Owner(store, 1)
    owner.acknowledge(1, 1)
    owner.flush()
    owner.acknowledge(1, 2)
    owner.flush()
    newest = max(key for key, _ in store.list(FOLDER))
    data, _ = store.read(newest)
    store.delete([newest])
    store.put(newest, data[: len(data) // 2])
    assert stored(store) == {(1, 1)}
    assert "an older one is used instead" in caplog.text
    again = Owner(store, 2)
    again.acknowledge(1, 3)
    again.flush()
    assert stored(store) == {(1, 1), (1, 3)}
    for key, _ in list(store.list(FOLDER)):
        store.delete([key])
        store.put(key, b"nothing")
    with pytest.raises(DamagedRecordError, match="no record that can be used"):
        Owner(store, 3)


def test_a_fence_that_is_half_written_keeps_its_number() -> None:
    """It looks like any damaged record: a paused owner must not win its place once that is removed."""
    store = MemoryStore()
    paused = Owner(store, 1)
    store.put(key(1, 1), b"half")
    for number in (2, 3):
        owner = Owner(store, number)
        for entry in range(3):
            owner.acknowledge(1, entry)
            owner.flush()
    paused.acknowledge(2, 2)
    with pytest.raises(OvertakenError):
        paused.flush()
    assert stored(store) == {(1, 0), (1, 1), (1, 2)}


class Listed(ForwardingStore):
    """Counts what is asked of it, and the keys that are taken of its listings."""

    def __init__(self, store) -> None:
        super().__init__(store)
        self.calls: Counter[str] = Counter()
        self.keys = 0

    def _call(self, verb, key, work):
        self.calls[verb] += 1
        return work()

    def list(self, prefix="", start_after=""):
        for each in super().list(prefix, start_after):
            self.keys += 1
            yield each


def opened_often(store, times: int) -> None:
    """As so many owners leave it that have acknowledged nothing: a fence each."""
    for epoch in range(1, times):
        store.put(key(epoch, 1), encode_fence(f"fence-{epoch}"))
    first = PieceRecord(CursorMarker(START.mark_delete))
    store.put(key(times, 0), encode_record("newest", times, 0, first))


def test_to_open_a_subscription_costs_the_same_however_often_it_was_opened() -> None:
    costs = []
    for times in (600, 6_000):
        store = MemoryStore()
        opened_often(store, times)
        listed = Listed(store)
        owner = Owner(listed, 1)
        owner.acknowledge(1, 1)
        owner.flush()
        assert owner.log.epoch == times + 1
        assert stored(store) == {(1, 1)}
        costs.append((listed.calls, listed.keys))
    assert costs[0] == costs[1]
    assert costs[0][0]["list"] == 3
    assert costs[0][1] < 1_100, "the next page of a listing is not asked for"


def test_a_paused_owner_of_long_ago_wins_no_number_however_many_came_since(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "LOOKED_AT", 1)
    store = MemoryStore()
    owners = [Owner(store, number) for number in range(20)]
    owners[-1].acknowledge(1, 1)
    owners[-1].flush()
    for paused in owners[:-1]:
        paused.acknowledge(2, 2)
        with pytest.raises(OvertakenError):
            paused.flush()
    assert stored(store) == {(1, 1)}


def test_a_subscription_that_trickles_costs_a_request_a_flush_and_its_records_stay_few() -> None:
    store = MemoryStore()
    listed = Listed(store)
    owner = Owner(listed, 1)
    listed.calls.clear()
    flushes = 3_600 // 5
    for entry in range(flushes):
        owner.cursor.acknowledge_up_to(Position(0, 1, entry))
        owner.flush()
    assert listed.calls == {"put": flushes, "delete": flushes // log_module.REMOVED_AT_ONCE}
    assert len(list(store.list(FOLDER))) <= log_module.REMOVED_AT_ONCE + 2


def test_a_listing_that_has_a_fence_and_not_the_record_before_it_is_not_believed() -> None:
    """Both were written while it was made: a folder's files, or a page of keys, are not read in one moment."""
    store = MemoryStore()
    first = Owner(store, 1)

    class Scanned(ForwardingStore):
        is_first = True

        def list(self, prefix="", start_after=""):
            found = list(super().list(prefix, start_after))
            if self.is_first:
                self.is_first = False
                first.acknowledge(1, 1)
                first.flush()
                store.put(key(1, 2), encode_fence("of another, who has gone since"))
                found.append((key(1, 2), 1))
            return iter(found)

    Owner(Scanned(store), 2)
    assert stored(store) == {(1, 1)}, "it was durable before that fence"


def test_who_opens_what_has_trickled_does_not_read_all_that_is_to_be_removed() -> None:
    """A gateway that takes many over would read a hundred records of each."""
    store = MemoryStore()
    owner = Owner(store, 1)
    for entry in range(log_module.REMOVED_AT_ONCE - 1):
        owner.cursor.acknowledge_up_to(Position(0, 1, entry))
        owner.flush()
    listed = Listed(store)
    Owner(listed, 2)
    assert listed.calls["read"] <= 5
    assert len(list(store.list(FOLDER))) == 3, "the newest record and the one before it, and a fence"


def test_a_listing_that_has_nothing_but_fences_does_not_say_that_there_is_no_subscription() -> None:
    """Folders were listed before a new owner began, and their records after that: of files, say."""
    store = MemoryStore()
    Owner(store, 1)
    Owner(store, 2)
    log = CursorLog(store, FOLDER, lambda: "reader")
    found = log.newest([(1, 1)])
    assert found is not None
    assert found.place == (2, 0)
    store.delete([key(1, 0), key(2, 0)])
    with pytest.raises(DamagedRecordError, match="fences alone"):
        log.newest()
    with pytest.raises(DamagedRecordError, match="fences alone"):
        Owner(store, 3)


def test_what_an_earlier_build_or_another_has_put_there_is_no_record() -> None:
    """Epochs counted up."""
    store = MemoryStore()
    for name in (f"{slot_name(1)}/{slot_name(0)}", f"{slot_name(0)}/{slot_name(7)}"):
        store.put(FOLDER + name, encode_record("earlier", 1, 0, START.record(1)))
    assert CursorLog(store, FOLDER, lambda: "reader").newest() is None
    for number in (1, 2):
        owner = Owner(store, number)
        owner.acknowledge(1, number)
        owner.flush()
    assert owner.log.epoch == 2
    assert stored(store) == {(1, 1), (1, 2)}


def test_whoever_looks_is_not_given_an_older_state_than_it_has_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that holds a ledger's piece stays; those that were listed behind it are removed meanwhile."""
    monkeypatch.setattr(log_module, "REMOVED_AT_ONCE", 1)
    store = MemoryStore()
    owner = Owner(store, 1)
    owner.acknowledge(1, 1)
    owner.flush()
    owner.acknowledge(2, 2)
    owner.flush()
    listed = [(1, slot) for slot in range(owner.log.next_slot)]
    for entry in (4, 6):
        owner.acknowledge(2, entry)
        owner.flush()
    found = CursorLog(store, FOLDER, lambda: "reader").newest(listed)
    assert found is not None
    assert found.place == (1, owner.log.next_slot - 1)
