"""Sequences that go on for ever, read at once."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from threading import Event, Semaphore
from threading import enumerate as threads

import pytest

from offloader.archive.following.merge import as_they_come

WAITING_BYTES = 16 * 1024**2


def nothing(item: object) -> int:
    return 0


def test_each_sequence_comes_whole_and_in_its_order() -> None:
    sequences = {name: range(size) for name, size in (("a", 3000), ("b", 0), ("c", 2500))}
    found = list(as_they_come(sequences, nothing))
    for name, numbers in sequences.items():
        assert [number for of, number in found if of == name] == list(numbers)
    assert len(found) == 5500


def test_one_that_waits_keeps_no_other_from_coming() -> None:
    waiting = Event()

    def late() -> Iterator[str]:
        waiting.wait()
        yield "late"

    found = as_they_come({"late": late(), "soon": iter(["1", "2"])}, len)
    assert [next(found), next(found)] == [("soon", "1"), ("soon", "2")]
    waiting.set()
    assert list(found) == [("late", "late")]


def test_an_error_is_raised_where_it_comes() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    found = as_they_come({"broken": broken()}, nothing)
    assert next(found) == ("broken", 1)
    with pytest.raises(ValueError, match="broken"):
        next(found)


def test_a_slow_reader_lets_only_so_many_bytes_wait() -> None:
    large, given = WAITING_BYTES // 4, Semaphore(0)

    def sequence() -> Iterator[int]:
        for number in range(20):
            given.release()
            yield number

    found = as_they_come({"a": sequence(), "b": sequence()}, lambda item: large)
    taken = [next(found)]
    # One was taken, four wait, and each of the two threads holds the one that it would put next.
    for _ in range(7):
        assert given.acquire(timeout=10)
    assert not given.acquire(timeout=0.2)
    taken += found
    for name in "ab":
        assert [number for of, number in taken if of == name] == list(range(20))


def test_an_item_that_is_larger_than_all_room_comes() -> None:
    assert [item for _, item in as_they_come({"a": [1, 2]}, lambda item: 2 * WAITING_BYTES)] == [1, 2]


def test_threads_end_when_nobody_takes_more() -> None:
    found = as_they_come({number: iter(lambda: 0, 1) for number in range(3)}, nothing)
    assert next(found)[1] == 0
    reading = [thread for thread in threads() if thread.name.startswith("together-")]
    assert len(reading) == 3
    assert isinstance(found, Generator)
    found.close()
    for thread in reading:
        thread.join(10)
        assert not thread.is_alive()
