"""What nobody can get counts as acknowledged; what was acknowledged is not delivered again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from offloader.cursors.core.records import CursorMarker
from offloader.gateway.core.events import EntryAck
from offloader.gateway.topics.acks import SubscriptionAcks, VolatileCursor, position_of
from offloader.gateway.values import ServedEntries, ServedEntry
from offloader.model import Position

BEFORE_ALL = (-1, -1)

LEDGERS = [(0, 1, 9), (0, 3, 4), (1, 7, 9)]
PLACES = [(ledger, entry) for _, ledger, last in LEDGERS for entry in range(last + 1)]


def acks() -> SubscriptionAcks:
    return SubscriptionAcks(VolatileCursor(CursorMarker(position_of(BEFORE_ALL, LEDGERS)), most_bytes=1 << 62))


def entry(place: tuple[int, int], messages: int = 1) -> ServedEntry:
    return ServedEntry(place, b"", 0, messages, 0)


@given(st.sets(st.sampled_from(PLACES)), st.sampled_from(PLACES), st.data())
def test_mark_delete_ends_before_the_first_entry_that_is_left(
    deliverable: set[tuple[int, int]], covered: tuple[int, int], data: st.DataObject
) -> None:
    """Whatever lies between is acknowledged by what was read alone."""
    found = acks()
    there = sorted(place for place in deliverable if place <= covered)
    after, at = BEFORE_ALL, 0
    while at < len(there):  # in reads of any size
        end = data.draw(st.integers(at + 1, len(there)))
        read = ServedEntries([entry(place) for place in there[at:end]], there[end - 1] if end < len(there) else covered)
        assert found.not_acknowledged(read, after, LEDGERS).entries == read.entries
        after, at = read.covered or after, end
    if not there:
        found.not_acknowledged(ServedEntries([], covered), after, LEDGERS)
    done = data.draw(st.sets(st.sampled_from(there))) if there else set()
    found.apply([EntryAck(place) for place in done], LEDGERS, {})
    mark_delete = found.advance(LEDGERS)
    left = [place for place in there if place not in done]
    behind = [place for place in PLACES if place > mark_delete and place <= covered]
    assert behind[:1] == left[:1]
    again = found.not_acknowledged(ServedEntries([entry(place) for place in there], covered), BEFORE_ALL, LEDGERS)
    assert [each.place for each in again.entries] == left


def test_of_a_batch_what_is_left_is_delivered() -> None:
    found = acks()
    found.apply([EntryAck((3, 2), 0b0110)], LEDGERS, {(3, 2): 4})
    (left,) = found.left_of([entry((3, 2), 4)], LEDGERS)
    assert left.left == 0b0110
    found.apply([EntryAck((3, 2), 0b0010)], LEDGERS, {(3, 2): 4})
    assert found.left_of([entry((3, 2), 4)], LEDGERS)[0].left == 0b0010
    found.apply([EntryAck((3, 2))], LEDGERS, {})
    assert found.left_of([entry((3, 2), 4)], LEDGERS) == []


def test_a_set_that_is_larger_than_the_batch_acknowledges_nothing() -> None:
    found = acks()
    found.apply([EntryAck((1, 0), 0b11110), EntryAck((1, 1), 0b1)], LEDGERS, {(1, 0): 4})
    found.apply_up_to((1, 0), 1 << 10**6, LEDGERS, {(1, 0): 4})
    assert [each.left for each in found.left_of([entry((1, 0), 4), entry((1, 1), 4)], LEDGERS)] == [None, None]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 2**2000)), max_size=50))
def test_a_reader_s_memory_has_a_bound(parts: list[tuple[int, int]]) -> None:
    """And each ledger that is left fits into it, with one more batch."""
    bound = 2_000
    cursor = VolatileCursor(CursorMarker(position_of(BEFORE_ALL, LEDGERS)), most_bytes=bound)
    found = SubscriptionAcks(cursor)
    for number, left in parts:
        place = LEDGERS[number % 3][1], number
        found.apply([EntryAck(place, left)], LEDGERS, {place: 2_001})
        assert cursor.memory < bound + 500


def test_acknowledgements_of_nobody_change_nothing() -> None:
    found = acks()
    found.apply([EntryAck((2, 0)), EntryAck((99, 1)), EntryAck((1, -1)), EntryAck((-1, -1))], LEDGERS, {})
    assert found.advance(LEDGERS) == (1, -1)


def test_acknowledgements_that_no_client_can_mean_change_nothing() -> None:
    """Of entries behind the end, and of batches that no entry can hold: they must not be written, either."""
    found = acks()
    found.apply([EntryAck((7, 2**62)), EntryAck((7, 10)), EntryAck((3, 1), 1)], LEDGERS, {(3, 1): 2**31 - 1})
    found.apply_up_to((7, 10), 0, LEDGERS, {})
    found.apply_up_to((99, 0), 0b1, LEDGERS, {})
    assert found.advance(LEDGERS) == (1, -1)
    assert found.left_of([entry((3, 1), 2)], LEDGERS) == [entry((3, 1), 2)]


def test_up_to_a_batch_of_which_a_part_is_left() -> None:
    found = acks()
    found.apply_up_to((3, 1), 0b10, LEDGERS, {(3, 1): 2})
    assert found.advance(LEDGERS) == (3, 0)
    assert found.left_of([entry((3, 0)), entry((3, 1), 2)], LEDGERS)[0].left == 0b10


def test_a_place_that_is_not_served_has_the_nearest_ledger_s_incarnation() -> None:
    assert position_of((0, 5), LEDGERS) == Position(0, 1, -1)
    assert position_of((5, 0), LEDGERS) == Position(0, 5, 0)
    assert position_of((9, 0), LEDGERS) == Position(1, 9, 0)
    assert position_of(BEFORE_ALL, []) == Position(0, 0, -1)
