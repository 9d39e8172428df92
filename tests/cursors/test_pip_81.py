"""The five tests that PIP-81 names, each through a bucket: what one owner wrote, the next one reads."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from types import MappingProxyType

from offloader.cursors.core.ledger_acks import LedgerAcks
from offloader.cursors.core.piece_codec import encode_piece
from offloader.cursors.core.records import FirstState, LedgerKey
from offloader.cursors.durable import DurableCursor
from offloader.cursors.log import CursorLog
from offloader.model import KIB, MIB, Position
from offloader.storage.memory import MemoryStore
from tests.fakes.faulty import FaultyStore, StoreFaults

LEDGER_COST = 500

FOLDER = "public/default/t/_subscriptions/a/"
TOKENS = itertools.count()
NONE: Mapping[LedgerKey, bytes] = MappingProxyType({})
HUNDRED_BYTES = (1, 799)  # entries: one bit each
THREE_HUNDRED_BYTES = (1, 2_399)


class Bucket:
    """What is in the bucket, and how many records were read."""

    def __init__(self) -> None:
        self.faults = StoreFaults()
        self.store = FaultyStore(MemoryStore(), self.faults)

    def open(
        self, cache_bytes: int = 3 * MIB, pieces: Mapping[LedgerKey, bytes] = MappingProxyType({})
    ) -> DurableCursor:
        """`pieces`: with what it begins."""
        first = FirstState(Position(0, 0, -1), pieces=pieces)
        return DurableCursor.open(self.store, FOLDER, lambda: first, lambda: str(next(TOKENS)), cache_bytes=cache_bytes)

    def named(self) -> set[tuple[int, int]]:
        """The ledgers that the newest marker names."""
        found = CursorLog(self.store, FOLDER, lambda: "").newest()
        assert found is not None
        return set(found.record.marker.pieces)

    def reads_of(self, cursor: DurableCursor, ledger: int) -> int:
        """How many records it costs to ask for a ledger: none where that is in memory."""
        before = self.faults.calls["read"]
        assert cursor.is_acknowledged(Position(0, ledger, 1))
        return self.faults.calls["read"] - before

    def written(self, *ledgers: tuple[int, tuple[int, int]], cache_bytes: int) -> DurableCursor:
        """A cursor that has acknowledged these, each in a record of its own."""
        cursor = self.open(cache_bytes)
        for ledger, (first, last) in ledgers:
            cursor.acknowledge((0, ledger), first, last)
            cursor.flush()
        return cursor


def test_1_acknowledgements_are_saved_and_restored() -> None:
    bucket, choice = Bucket(), random.Random(81)
    done = {(choice.randrange(20), choice.randrange(500)) for _ in range(3_000)}
    cursor = bucket.open()
    for ledger, entry in done:
        cursor.acknowledge((0, ledger), entry, entry)
    cursor.acknowledge_part(Position(0, 20, 7), 10, 0b1100)
    cursor.flush()
    again = bucket.open()
    found = {place for place in itertools.product(range(20), range(500)) if again.is_acknowledged(Position(0, *place))}
    assert found == done
    left = again.left_of(Position(0, 20, 7))
    assert left is not None
    assert left.left == 0b1100


def test_2_the_marker_names_no_ledger_that_the_mark_delete_position_has_passed() -> None:
    bucket = Bucket()
    cursor = bucket.written(*((ledger, HUNDRED_BYTES) for ledger in range(5)), cache_bytes=MIB)
    assert bucket.named() == {(0, ledger) for ledger in range(5)}
    cursor.acknowledge_up_to(Position(0, 3, 1))
    cursor.flush()
    assert bucket.named() == {(0, 3), (0, 4)}
    again = bucket.open()
    assert again.mark_delete == Position(0, 3, 1)
    assert again.is_acknowledged(Position(0, 3, 799))
    assert not again.is_acknowledged(Position(0, 3, 800))


def test_3_a_ledger_larger_than_the_bound_and_than_an_entry_is_saved_and_restored() -> None:
    """The PIP leaves the second part out: an entry of BookKeeper has 5 MiB at most."""
    bucket, choice = Bucket(), random.Random(3)
    holes = LedgerAcks(0, choice.randbytes(6 * MIB))  # 50 million entries, every other one, at random
    cursor = bucket.open(KIB, {(0, 1): encode_piece(holes)})
    assert cursor.is_acknowledged(Position(0, 1, 7)) == holes.is_acknowledged(7)
    assert cursor.memory > 5 * MIB, "one ledger stays, however large it is"
    cursor.acknowledge((0, 2), 3, 3)
    cursor.flush()
    assert cursor.memory <= KIB
    more = [choice.randrange(60_000_000) for _ in range(100)]
    for entry in more:
        cursor.acknowledge((0, 1), entry, entry)
    cursor.flush()
    assert max(size for _, size in bucket.store.list(FOLDER)) > 5 * MIB
    again = bucket.open(KIB)
    for entry in (*more, *(choice.randrange(60_000_000) for _ in range(10_000))):
        assert again.is_acknowledged(Position(0, 1, entry)) == (entry in more or holes.is_acknowledged(entry))
    assert again.is_acknowledged(Position(0, 2, 3))


def test_4_the_least_recently_used_ledger_makes_room() -> None:
    bucket = Bucket()
    cursor = bucket.written(*((ledger, HUNDRED_BYTES) for ledger in range(4)), cache_bytes=3 * LEDGER_COST + 300)
    assert cursor.memory <= 3 * LEDGER_COST + 300
    assert bucket.reads_of(cursor, 1) == 0
    assert bucket.reads_of(cursor, 0) == 1, "it was written first, and swapped out"
    assert bucket.reads_of(cursor, 2) == 1, "it was the least recently used one then"
    assert [bucket.reads_of(cursor, ledger) for ledger in (0, 1, 2)] == [0, 0, 0]
    assert cursor.memory <= 3 * LEDGER_COST + 300


def test_5_one_ledger_that_is_swapped_in_may_need_the_room_of_two() -> None:
    bucket = Bucket()
    wide = (9, (1, 4_799))  # 600 bytes
    cursor = bucket.written(
        wide, *((ledger, THREE_HUNDRED_BYTES) for ledger in range(3)), cache_bytes=3 * LEDGER_COST + 1_000
    )
    assert bucket.reads_of(cursor, 0) == 0
    assert bucket.reads_of(cursor, 9) == 1
    assert cursor.memory <= 3 * LEDGER_COST + 1_000
    assert [bucket.reads_of(cursor, ledger) for ledger in (9, 0)] == [0, 0]
    assert [bucket.reads_of(cursor, ledger) for ledger in (1, 2)] == [1, 1], "both had gone for it"
