"""A subscription's state against a plain one: acknowledged, written, swapped, lost, read back."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.cursors.core import cursor as cursor_module
from offloader.cursors.core.cursor import Cursor, LedgerLength, SwappedOutError
from offloader.cursors.core.ledger_acks import BatchLeft
from offloader.cursors.core.records import CursorMarker, LedgerKey, PieceRecord
from offloader.model import Position

MOST_NAMED = 64

LEDGERS = 6
ENTRIES = 12
START = Position(0, 0, -1)
LENGTHS = [LedgerLength((0, n), ENTRIES - 1) for n in range(LEDGERS - 1)] + [LedgerLength((0, LEDGERS - 1), None)]


class Written:
    """The records of one log, as a store has them."""

    def __init__(self) -> None:
        self.records: list[PieceRecord] = [PieceRecord(CursorMarker(START))]

    def write(self, cursor: Cursor, most: int = 10**9) -> None:
        """All, or as many as are written before the owner is killed."""
        moved = {key: self.piece(key, at.slot) for key, at in cursor.to_move().items()}
        for record in cursor.records(1, len(self.records), moved)[:most]:
            self.records.append(record)
            cursor.written(record)

    def piece(self, key: LedgerKey, slot: int) -> bytes:
        return self.records[slot].inline[key]

    def swap_in(self, cursor: Cursor, key: LedgerKey) -> None:
        cursor.swap_in(key, self.piece(key, cursor.named[key].slot))

    def recovered(self, cache_bytes: int) -> Cursor:
        return Cursor(self.records[-1].marker, cache_bytes=cache_bytes)


class Plain:
    """All positions and messages that are acknowledged."""

    def __init__(self) -> None:
        self.entries: set[tuple[int, int]] = set()
        self.batches: dict[tuple[int, int], int] = {}
        self.mark = START

    def copy(self) -> Plain:
        found = Plain()
        found.entries, found.batches, found.mark = set(self.entries), dict(self.batches), self.mark
        return found

    def add(self, place: tuple[int, int]) -> None:
        self.entries.add(place)
        self.batches.pop(place, None)

    def has(self, place: tuple[int, int]) -> bool:
        return place <= self.mark.place or place in self.entries

    def advance(self) -> None:
        for length in LENGTHS:
            for entry in range(ENTRIES):
                if not self.has((length.key[1], entry)):
                    return
                self.mark = max(self.mark, Position(0, length.key[1], entry))


PLACES = [(ledger, entry) for ledger in range(LEDGERS) for entry in range(ENTRIES)]


class World:
    """One owner after another, each with a cache that holds next to nothing."""

    def __init__(self, seed: int) -> None:
        self.choice = random.Random(seed)
        self.log = Written()
        self.cursor = self.log.recovered(self.cache)
        self.now = Plain()
        self.durable = [Plain()]  # what each record's state may be: from this one on

    @property
    def cache(self) -> int:
        return self.choice.choice([0, 3, 300])

    def asked(self, call):
        while True:
            try:
                return call()
            except SwappedOutError as error:
                self.log.swap_in(self.cursor, error.key)

    def step(self) -> None:
        choice, cursor = self.choice, self.cursor
        ledger, entry = choice.choice(PLACES)
        match choice.randrange(8):
            case 0 | 1:
                last = min(entry + choice.randrange(4), ENTRIES - 1)
                self.asked(lambda: cursor.acknowledge((0, ledger), entry, last))
                for one in range(entry, last + 1):
                    self.now.add((ledger, one))
            case 2:
                left = choice.getrandbits(5)
                self.asked(lambda: cursor.acknowledge_part(Position(0, ledger, entry), 5, left))
                if not self.now.has((ledger, entry)):
                    both = self.now.batches.get((ledger, entry), 31) & left
                    if both == 0:
                        self.now.add((ledger, entry))
                    elif both != 31:
                        self.now.batches[ledger, entry] = both
            case 3 if choice.random() < 0.2:
                cursor.acknowledge_up_to(Position(0, ledger, entry))
                self.now.mark = max(self.now.mark, Position(0, ledger, entry))
            case 4:
                self.asked(lambda: cursor.advance(lambda first: [each for each in LENGTHS if each.key >= first]))
                self.now.advance()
            case 5:
                self.log.write(cursor)
                self.durable = [self.now.copy()]
                cursor.swap_out()
            case 6 if choice.random() < 0.3:
                self.killed()
            case 7 if choice.random() < 0.1:
                cursor.begin_anew(Position(0, ledger, entry))
                self.now = Plain()
                self.now.mark = Position(0, ledger, entry)
                self.log.write(cursor)
                self.durable = [self.now.copy()]

    def killed(self) -> None:
        """In the middle of writing, or between."""
        if self.choice.random() < 0.5:
            self.log.write(self.cursor, self.choice.randrange(3))
        self.cursor = self.log.recovered(self.cache)
        found, least, most = self.seen(), self.durable[0], self.now
        assert least.mark <= self.cursor.mark_delete <= most.mark
        for place in PLACES:
            entry, left = found[place]
            assert entry or not least.has(place), "what was durable is not forgotten"
            assert not entry or most.has(place), "nothing is invented"
            if not entry:
                mine = 31 if left is None else left.left
                assert mine & ~least.batches.get(place, 31) == 0
                assert most.has(place) or most.batches.get(place, 31) & ~mine == 0
        self.now = Plain()
        self.now.mark = self.cursor.mark_delete
        self.now.entries = {place for place in PLACES if found[place][0]}
        self.now.batches = {place: left.left for place, (entry, left) in found.items() if left is not None}
        self.durable = [self.now.copy()]

    def seen(self) -> dict[tuple[int, int], tuple[bool, BatchLeft | None]]:
        found = {}
        for place in PLACES:
            position = Position(0, *place)
            found[place] = (
                self.asked(lambda at=position: self.cursor.is_acknowledged(at)),
                self.asked(lambda at=position: self.cursor.left_of(at)),
            )
        return found

    def check(self) -> None:
        assert self.cursor.mark_delete == self.now.mark
        for place, (entry, left) in self.seen().items():
            assert entry == self.now.has(place)
            wanted = None if entry else self.now.batches.get(place)
            assert (None if left is None else left.left) == wanted


@given(st.integers(0, 2**32))
def test_no_acknowledgement_is_invented_and_none_that_was_durable_is_lost(seed: int) -> None:
    world = World(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cursor_module, "RECORD_BYTES", 12)
        patch.setattr(cursor_module, "MOST_NAMED", 3)
        for _ in range(60):
            world.step()
            if world.choice.random() < 0.1:
                world.check()
        world.check()
        named = {at.slot for at in world.log.records[-1].marker.pieces.values()}
        assert len(named) <= 3 + LEDGERS, "what a marker names is bounded"


def test_only_ledgers_that_changed_are_written_and_the_marker_names_the_others() -> None:
    log = Written()
    cursor = log.recovered(10**6)
    for ledger in range(5):
        cursor.acknowledge((0, ledger), 3, 4)
    log.write(cursor)
    cursor.acknowledge((0, 2), 7, 7)
    log.write(cursor)
    assert log.records[-1].inline.keys() == {(0, 2)}
    assert {key: at.slot for key, at in log.records[-1].marker.pieces.items()} == {
        (0, ledger): 2 if ledger == 2 else 1 for ledger in range(5)
    }
    assert not cursor.changed


def test_a_marker_names_a_bounded_number_of_records() -> None:
    log = Written()
    cursor = log.recovered(10**6)
    for ledger in range(4 * MOST_NAMED):
        cursor.acknowledge((0, ledger), 3, 4)
        log.write(cursor)
        assert len(log.records[-1].marker.records) <= MOST_NAMED + 1
    again = log.recovered(10**6)
    for key in again.swapped_out:
        log.swap_in(again, key)
        assert again.is_acknowledged(Position(*key, 4))
        assert not again.is_acknowledged(Position(*key, 5))
