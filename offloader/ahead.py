"""Work done by a pool, in order and not all at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def map_ahead(pool: Executor, call: Callable[[T], R], work: Iterable[T], ahead: int) -> Iterator[R]:
    """`pool.map` with a bound: what `call` makes of each piece of work, in order, with no more than `ahead` of them
    begun or waiting to be taken. Raises what `call` raises."""
    left = iter(work)
    begun: deque[Future[R]] = deque(pool.submit(call, each) for each in islice(left, ahead))
    try:
        while begun:
            result = begun.popleft().result()
            begun.extend(pool.submit(call, each) for each in islice(left, 1))
            yield result
    finally:
        for future in begun:
            future.cancel()
