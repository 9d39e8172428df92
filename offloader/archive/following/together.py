"""Several sequences that go on for ever, read at once."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from queue import Queue
from threading import Event, Thread
from typing import TypeVar

K = TypeVar("K")
T = TypeVar("T")

WAITING = 1000  # items that are ahead of whoever takes them


class _Ended(Exception):  # noqa: N818 (no error)
    """A sequence has no more."""


def as_they_come(sequences: Mapping[K, Iterable[T]]) -> Iterator[tuple[K, T]]:
    """The items of all sequences with their names: each sequence's in its order, otherwise what comes first. A thread reads each.

    Raises what a sequence raises. A thread ends when its sequence has something to give after this was closed, or with the process.
    """
    found: Queue[tuple[K, T | Exception]] = Queue(WAITING)
    closed = Event()
    for name, items in sequences.items():
        Thread(target=_read, args=(name, items, found, closed), name=f"together-{name}", daemon=True).start()
    try:
        yield from _taken(found, len(sequences))
    finally:
        closed.set()
        while not found.empty():  # or a thread would wait for room
            found.get_nowait()


def _taken(found: Queue[tuple[K, T | Exception]], going: int) -> Generator[tuple[K, T]]:
    while going:
        name, item = found.get()
        if isinstance(item, _Ended):
            going -= 1
        elif isinstance(item, Exception):
            raise item
        else:
            yield name, item


def _read(name: K, items: Iterable[T], found: Queue[tuple[K, T | Exception]], closed: Event) -> None:
    end: Exception = _Ended()
    try:
        for item in items:
            if closed.is_set():
                return
            found.put((name, item))
    except Exception as error:  # noqa: BLE001 (it is the reader's to hear of)
        end = error
    if not closed.is_set():
        found.put((name, end))
