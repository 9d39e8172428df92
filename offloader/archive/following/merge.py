"""Several sequences that go on for ever, read at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import Condition, Lock, Thread
from typing import Generic, TypeVar

from offloader.model import MIB

K = TypeVar("K")
T = TypeVar("T")

# What is ahead of whoever takes it, and one item more.
WAITING = 1000
WAITING_BYTES = 16 * MIB


class _Ended(Exception):  # noqa: N818 (no error)
    """A sequence has no more."""


def as_they_come(sequences: Mapping[K, Iterable[T]], size: Callable[[T], int]) -> Iterator[tuple[K, T]]:
    """The items of all sequences with their names, each sequence's in its order. A thread reads each.

    `size`: bytes of memory that an item takes. Raises what a sequence raises. A thread ends when its sequence has
    something to give after this was closed, or with the process.
    """
    found = _Found[K, T]()
    for name, items in sequences.items():
        Thread(target=_read, args=(name, items, size, found), name=f"together-{name}", daemon=True).start()
    try:
        going = len(sequences)
        while going:
            name, item = found.get()
            if isinstance(item, _Ended):
                going -= 1
            elif isinstance(item, Exception):
                raise item
            else:
                yield name, item
    finally:
        found.close()


class _Found(Generic[K, T]):
    """A queue that is full by items or by bytes, and takes nothing more once it is closed."""

    def __init__(self) -> None:
        self._items: deque[tuple[K, T | Exception, int]] = deque()
        self._bytes = 0
        self._closed = False
        lock = Lock()
        self._room, self._something = Condition(lock), Condition(lock)

    def put(self, name: K, item: T | Exception, size: int = 0) -> bool:
        """Once there is room; False: it is closed."""
        with self._room:
            self._room.wait_for(lambda: self._closed or (len(self._items) < WAITING and self._bytes < WAITING_BYTES))
            if not self._closed:
                self._items.append((name, item, size))
                self._bytes += size
                self._something.notify()
            return not self._closed

    def get(self) -> tuple[K, T | Exception]:
        """Once there is something."""
        with self._something:
            self._something.wait_for(lambda: self._items)
            name, item, size = self._items.popleft()
            self._bytes -= size
            self._room.notify()
            return name, item

    def close(self) -> None:
        """Nobody takes any more."""
        with self._room:
            self._closed = True
            self._room.notify_all()


def _read(name: K, items: Iterable[T], size: Callable[[T], int], found: _Found[K, T]) -> None:
    end: Exception = _Ended()
    try:
        for item in items:
            if not found.put(name, item, size(item)):
                return
    except Exception as error:  # noqa: BLE001 (it is the reader's to hear of)
        end = error
    found.put(name, end)
