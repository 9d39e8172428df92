"""Nothing is passed over: what an entry is to who expects a position, and how long silence may last."""

from __future__ import annotations

import random

from offloader.model import EntryRange, LedgerList, LedgerSpan, Position, Silence, Turn, Walk, unbroken

LEDGERS = LedgerList((LedgerSpan(3, 4), LedgerSpan(5, -1), LedgerSpan(7, 2), LedgerSpan(9, None)))


def entries(*places: tuple[int, int]) -> list[tuple[int, int, bytes]]:
    return [(ledger, entry, b"x") for ledger, entry in places]


def walk(ledger: int, entry: int, bound: tuple[int, int] | None = None) -> Walk:
    return Walk(LEDGERS, Position(0, ledger, entry), bound)


def test_an_entry_is_expected_or_seen_or_behind_a_gap() -> None:
    assert walk(3, 2).turn_of((3, 2)) is Turn.EXPECTED
    assert walk(3, 2).turn_of((3, 1)) is walk(7, 0).turn_of((3, 4)) is Turn.SEEN
    assert walk(3, 2).turn_of((3, 4)) == EntryRange(3, 2, 4)


def test_a_gap_ends_with_its_ledger_and_goes_on_in_the_next_one_that_is_not_empty() -> None:
    assert walk(3, 2).turn_of((7, 1)) == EntryRange(3, 2, 5)
    assert walk(3, 2).reached(4).turn_of((7, 1)) == EntryRange(7, 0, 1)


def test_a_gap_goes_no_further_than_the_bound() -> None:
    assert walk(3, 2, (3, 3)).turn_of((7, 1)) == walk(3, 2, (3, 3)).rest() == EntryRange(3, 2, 4)
    assert walk(9, 2, (9, 6)).turn_of((11, 0)) == EntryRange(9, 2, 7)
    assert walk(9, 7, (9, 6)).done
    assert walk(9, 7, (9, 6)).rest() is None


def test_where_an_open_ledger_ends_nobody_knows() -> None:
    assert walk(9, 7).turn_of((11, 0)) is walk(9, 7).stopped().turn_of((9, 7)) is Turn.UNKNOWN
    assert walk(9, 7, (11, 3)).rest() is None
    assert not walk(9, 7, (11, 3)).done
    assert walk(8, 1).reached(1).done, "a ledger that is not listed is followed by nothing"


def test_a_run_is_in_turn_up_to_its_ledgers_end_or_the_bound() -> None:
    found = entries((3, 3), (3, 4), (7, 0), (7, 1), (7, 2))
    assert walk(3, 3).in_turn(found, 0) == 2
    assert walk(7, 0).in_turn(found, 2) == 3
    assert walk(7, 0, (7, 1)).in_turn(found, 2) == 2
    assert walk(7, 1).in_turn(found, 2) == walk(7, 3, (7, 2)).in_turn(found, 2) == 0
    assert unbroken(found, 2) == 3
    assert unbroken(found, 0, 1) == 1


def test_whatever_is_left_out_is_told_once_and_in_order() -> None:
    everything = (
        [(3, entry) for entry in range(5)] + [(7, entry) for entry in range(3)] + [(9, entry) for entry in range(6)]
    )
    rng = random.Random(1)
    for _ in range(200):
        delivered = sorted(rng.choices(everything, k=rng.randrange(1, len(everything))))
        assert accounted(delivered) == everything[: everything.index(delivered[-1]) + 1]


def accounted(delivered: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found, at, number = [], walk(3, 0, (9, 5)), 0
    while number < len(delivered):
        turn = at.turn_of(delivered[number])
        if isinstance(turn, EntryRange):
            found += [(turn.ledger, entry) for entry in range(turn.first, turn.after)]
            at = at.reached(turn.last)
        elif turn is Turn.EXPECTED:
            count = at.in_turn(entries(*delivered), number)
            found += delivered[number : number + count]
            at, number = at.reached(found[-1][1]), number + count
        else:
            assert turn is Turn.SEEN
            number += 1
    return found


def test_silence_is_minded_again_and_again_until_something_comes() -> None:
    silence = Silence.begin(1.0, 10.0)
    assert not silence.too_long(10.9)
    assert silence.too_long(11.0)
    looked = silence.looked_into(11.0)
    assert not looked.too_long(11.9)
    assert looked.too_long(12.0)
    assert looked.lasted(12.0) == 2.0
    assert not looked.broken(12.0).too_long(12.9)
    assert looked.broken(12.0).lasted(12.0) == 0
