"""Sequences that go on for ever, read at once."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event
from threading import enumerate as threads

import pytest

from offloader.archive.following.together import as_they_come


def test_each_sequence_comes_whole_and_in_its_order() -> None:
    sequences = {name: range(size) for name, size in (("a", 3000), ("b", 0), ("c", 2500))}
    found = list(as_they_come(sequences))
    for name, numbers in sequences.items():
        assert [number for of, number in found if of == name] == list(numbers)
    assert len(found) == 5500


def test_one_that_waits_keeps_no_other_from_coming() -> None:
    waiting = Event()

    def late() -> Iterator[str]:
        waiting.wait()
        yield "late"

    found = as_they_come({"late": late(), "soon": iter(["1", "2"])})
    assert [next(found), next(found)] == [("soon", "1"), ("soon", "2")]
    waiting.set()
    assert list(found) == [("late", "late")]


def test_an_error_is_raised_where_it_comes() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    found = as_they_come({"broken": broken()})
    assert next(found) == ("broken", 1)
    with pytest.raises(ValueError, match="broken"):
        next(found)


def test_threads_end_when_nobody_takes_more() -> None:
    found = as_they_come({number: iter(lambda: 0, 1) for number in range(3)})
    assert next(found)[1] == 0
    reading = [thread for thread in threads() if thread.name.startswith("together-")]
    assert len(reading) == 3
    found.close()
    for thread in reading:
        thread.join(10)
        assert not thread.is_alive()
