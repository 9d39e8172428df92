from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from offloader.ahead import map_ahead, unawaited_pool


def test_results_come_in_order_and_no_more_than_the_bound_is_begun() -> None:
    taken: list[int] = []

    def work() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    with ThreadPoolExecutor(4) as pool:
        results = map_ahead(pool, lambda number: number * 2, work(), 5)
        for number, result in enumerate(results):
            assert result == number * 2
            assert len(taken) <= number + 1 + 5


def test_what_fails_is_raised_in_its_place_and_nothing_else_is_begun() -> None:
    begun: list[int] = []

    def call(number: int) -> int:
        begun.append(number)
        if number == 3:
            raise ValueError("three")
        return number

    with ThreadPoolExecutor(1) as pool:
        results = map_ahead(pool, call, range(1_000), 2)
        assert [next(results) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(ValueError, match="three"):
            next(results)
    assert len(begun) <= 6


def test_whoever_stops_to_read_has_nothing_more_begun() -> None:
    go_on, begun = threading.Event(), []

    def call(number: int) -> int:
        begun.append(number)
        if number:
            go_on.wait(60)
        return number

    with ThreadPoolExecutor(1) as pool:
        results = map_ahead(pool, call, range(1_000), 10)
        assert next(results) == 0
        results.close()  # type: ignore[attr-defined]
        go_on.set()
    assert len(begun) <= 2


def test_a_generator_that_is_given_up_does_not_wait_for_its_threads() -> None:
    go_on = threading.Event()

    def results() -> Iterator[int]:
        with unawaited_pool(1, "given-up") as pool:
            yield from map_ahead(pool, lambda number: number and go_on.wait(60), range(3), 3)

    given_up = results()
    assert next(given_up) == 0
    given_up.close()  # type: ignore[attr-defined]
    assert not go_on.is_set()
    go_on.set()
