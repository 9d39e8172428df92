"""Threads that work ahead of whoever takes what they make, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


@contextmanager
def unawaited_pool(threads: int, name: str) -> Iterator[ThreadPoolExecutor]:
    """A pool for a generator: its end waits for no thread.

    The garbage collector ends a generator that a caller has given up, and may do so in a thread that just starts: to
    wait for that thread there would be for ever.
    """
    pool = ThreadPoolExecutor(threads, name)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def map_ahead(pool: Executor, call: Callable[[T], R], work: Iterable[T], ahead: int) -> Iterator[R]:
    """`pool.map` with a bound: at most `ahead` results are begun or wait to be taken. Raises what `call` raises."""
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
