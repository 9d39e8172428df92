"""What was read of the metadata service, until it changes there."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Generic, TypeVar

from offloader.bookkeeper.nodes import Fired

_Value = TypeVar("_Value")


class Watched(Generic[_Value]):
    """What `read` found, until what was given to it is called. Safe to use from several threads."""

    def __init__(self, read: Callable[[Fired], _Value]) -> None:
        self._read = read
        self._seen: tuple[_Value, Event] | None = None

    def get(self) -> _Value:
        """Raises what `read` raises; then the next call reads again."""
        seen = self._seen
        if seen is None or seen[1].is_set():
            expired = Event()
            self._seen = seen = self._read(expired.set), expired  # may have expired already
        return seen[0]
