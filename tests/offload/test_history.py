"""A topic's history is cut into segments with fixed ends, which are read at the same time and committed in order; the
live end waits for them. Pure, but for the last ones, which are simulated."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from offloader.model import ENTRY_OVERHEAD, LedgerList, LedgerSpan, LedgerSums, Position
from offloader.offload.core.borders import BorderSearch, ClosedLedgers, end_of_history

LEAST = 0.125

small = st.integers(0, 8)
sized = st.tuples(st.integers(0, 40), st.integers(0, 500))  # entries, bytes of each


@st.composite
def topics(draw: st.DrawFn) -> tuple[LedgerList, dict[int, tuple[int, int]]]:
    """Closed ledgers, of which some are empty, and an open one."""
    held = draw(st.lists(sized, min_size=1, max_size=12))
    spans = [LedgerSpan(3 * i, entries - 1) for i, (entries, _) in enumerate(held)]
    sizes = {3 * i: (entries, entries * each) for i, (entries, each) in enumerate(held)}
    return LedgerList((*spans, LedgerSpan(3 * len(held), None))), {**sizes, 3 * len(held): (5, 500)}


def everything(ledgers: LedgerList, begin: Position, end: Position) -> list[Position]:
    """All positions, one by one."""
    found = [Position(0, s.ledger, e) for s in ledgers.spans if s.last is not None for e in range(s.last + 1)]
    return [position for position in found if begin <= position <= end]


@given(topics(), st.data())
def test_segments_of_history_are_full_but_for_the_last_and_none_is_too_large(topic, data) -> None:
    ledgers, sizes = topic
    last = end_of_history(ledgers, Position(0, 10**6, 0))
    if last is None:
        return
    begin = data.draw(st.sampled_from(everything(ledgers, Position(0, 0, 0), last)))
    first, each = data.draw(st.integers(1, 4_000)), data.draw(st.integers(1, 4_000))
    closed = ClosedLedgers(LedgerSums(sizes), begin, last)
    ends = list(closed.cut(first, each, 10**6).ends)

    places = everything(ledgers, begin, last)
    assert ends == sorted(set(ends))
    assert set(ends) <= set(places)
    before = -1
    for number, end in enumerate(ends):
        at, most = places.index(end), first if number == 0 else each
        held = [sizes[p.ledger][1] // sizes[p.ledger][0] + ENTRY_OVERHEAD for p in places[before + 1 : at + 2]]
        assert at > before, "a segment holds an entry"
        assert at == before + 1 or sum(held[: at - before]) <= most, "it is not too large"
        assert len(held) == at - before or sum(held) > most - 1, "another entry would not fit"
        before = at
    rest = places[before + 1 :]
    size = sum(sizes[p.ledger][1] / sizes[p.ledger][0] + ENTRY_OVERHEAD for p in rest)
    assert size < (each if ends else first) + 1, "what is left is smaller than a segment"


@given(topics())
def test_what_closed_ledgers_take_is_what_is_estimated_of_them(topic) -> None:
    ledgers, sizes = topic
    last = end_of_history(ledgers, Position(0, 10**6, 0))
    if last is not None:
        begin = Position(0, 0, 0)
        assert ClosedLedgers(LedgerSums(sizes), begin, last).size == LedgerSums(sizes).object_bytes(begin, last)


def test_history_ends_before_an_open_ledger_and_before_whatever_limits_it() -> None:
    ledgers = LedgerList(
        (LedgerSpan(1, 9), LedgerSpan(2, -1), LedgerSpan(4, 7), LedgerSpan(5, -1), LedgerSpan(6, None))
    )
    assert end_of_history(ledgers, Position(0, 6, 3)) == Position(0, 4, 7)
    assert end_of_history(ledgers, Position(2, 4, 3)) == Position(2, 4, 3)
    assert end_of_history(ledgers, None) is None
    assert end_of_history(LedgerList((LedgerSpan(6, None),)), Position(0, 6, 3)) is None


@given(st.integers(0, 10**6))
def test_a_position_and_the_one_before_it_belong_together(seed: int) -> None:
    rng = random.Random(seed)
    ledgers = LedgerList(tuple(LedgerSpan(i, rng.choice([-1, 0, 3])) for i in range(rng.randint(1, 8))))
    places = everything(ledgers, Position(0, 0, 0), Position(0, 99, 0))
    for before, after in pairwise(places):
        assert ledgers.predecessor(after) == before
        assert ledgers.successor(before) == after
    assert not places or ledgers.predecessor(places[0]) is None


HOUR = 3_600_000


def searched(closed: ClosedLedgers, each: float, span_ms: int, time_of: Callable[[Position], int | None]) -> Asked:
    """The borders, and how many look-ups they took."""
    search, times = BorderSearch(closed, each, each, 10**6, span_ms), dict[Position, int | None]()
    while wanted := search.cut(times).wanted:
        assert not set(wanted) & times.keys(), "nothing is asked twice"
        times.update({position: time_of(position) for position in wanted})
    return Asked(search.cut(times).ends, len(times))


class Asked(NamedTuple):
    ends: tuple[Position, ...]
    lookups: int


@given(st.lists(st.integers(0, 3 * HOUR), min_size=400, max_size=400), st.integers(1, 48))
def test_entries_of_a_segment_are_no_further_apart_than_wanted_unless_it_is_small(pauses, hours) -> None:
    published = list(accumulate(pauses))
    sizes = dict.fromkeys(range(4), (100, 100 * 88))  # 100 bytes an entry
    closed = ClosedLedgers(LedgerSums(sizes), Position(0, 0, 0), Position(0, 3, 99))
    number = {Position(0, ledger, entry): 100 * ledger + entry for ledger in range(4) for entry in range(100)}
    each, least = 16_000, 16_000 * LEAST
    ends, lookups = searched(closed, each, hours * HOUR, lambda position: published[number[position]])
    begin = 0
    for end in ends:
        after = number[end] + 1
        size = 100 * (after - begin)
        assert size <= each
        span = published[after - 1] - published[begin]
        assert span <= hours * HOUR or size <= least, "it ends in time, or it is as small as it may be"
        close = begin + (after - begin) + int(least * LEAST) // 100 + 1
        if size < each and close < 400:
            assert published[close] - published[begin] > hours * HOUR, "it does not end long before the time"
        begin = after
    assert 100 * (400 - begin) < each
    assert lookups <= 10 * (len(ends) + 1), "a border takes a few look-ups"
    alone = closed.cut(each, each, 10**6)
    assert len(ends) <= len(alone.ends) / LEAST + 1, "there are few objects whatever the times say"


def test_where_nobody_says_a_time_size_alone_decides() -> None:
    closed = ClosedLedgers(LedgerSums({0: (100, 8_800)}), Position(0, 0, 0), Position(0, 0, 99))
    ends, lookups = searched(closed, 2_000, HOUR, lambda _: None)
    assert ends == closed.cut(2_000, 2_000, 99).ends
    assert lookups == 2 * len(ends)


def test_an_estimate_looks_at_no_ledger_one_by_one() -> None:
    """Built once a list of ledgers; a round asks for many estimates, of topics with many ledgers."""
    sums = LedgerSums({7 * number: (10, 1000) for number in range(10_000)})
    assert sums.object_bytes(Position(0, 700, 5), Position(0, 714, 4)) == 20 * 100 + 20 * 12
    assert sums.object_bytes(Position(0, 701, 0), Position(0, 713, 4)) == 10 * 100 + 10 * 12
    assert sums.object_bytes(Position(0, 7, 3), Position(0, 7, 2)) == 0
    for lists in (name for name in vars(sums) if name.startswith("_")):
        setattr(sums, lists, Unwalked(getattr(sums, lists)))
    assert sums.object_bytes(Position(0, 0, 0), Position(0, 69_993, 9)) == 10_000 * 1_120
    closed = ClosedLedgers(sums, Position(0, 0, 5), Position(0, 69_993, 9))
    assert len(closed.cut(112_000, 112_000, 7).ends) == 7


class Unwalked(list[float]):
    """Nobody may walk through it."""

    def __iter__(self) -> Iterator[float]:
        raise AssertionError("all of them are looked through")


def test_what_ledgers_say_of_themselves_needs_no_look_up() -> None:
    """A day of ledgers of four hours: borders are at their ends. Only in one that was written for longer than a day,
    or of which nobody knows, entries are asked for."""
    four = [(4 * HOUR * number, 4 * HOUR * (number + 1)) for number in range(30)]
    sizes = dict.fromkeys(range(30), (100, 8_800))
    sums = LedgerSums(sizes, dict(enumerate(four)))
    closed = ClosedLedgers(sums, Position(0, 0, 0), Position(0, 29, 99))

    def nobody(position: Position) -> int:
        raise AssertionError(f"{position} is asked for")

    ends, _ = searched(closed, 100_000, 24 * HOUR, nobody)
    assert [end.ledger for end in ends] == [5, 11, 17, 23]
    asked: list[Position] = []

    def published(position: Position) -> int:
        asked.append(position)
        return four[position.ledger][0] + position.entry

    later = {number: (at, end + (30 * HOUR if number == 8 else 0)) for number, (at, end) in enumerate(four)}
    long = ClosedLedgers(LedgerSums(sizes, later), Position(0, 0, 0), Position(0, 29, 99))
    searched(long, 100_000, 24 * HOUR, published)
    assert {position.ledger for position in asked} <= {8}
