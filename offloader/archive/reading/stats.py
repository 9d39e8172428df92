"""Counting what reading costs and gives."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from offloader.archive.items import Missing
from offloader.archive.read_model import ReadItem
from offloader.ports.object_store import Stat

# More reports than this would help nobody.
MOST_DAMAGE = 1000


@dataclass(slots=True)
class ReadStats:
    """What a reader has asked of stores (indexes included), given, and skipped: archived positions that it could not
    read. `damaged` has the first so many of these. Any thread may count a request."""

    requests: int = 0
    bytes_read: int = 0
    entries: int = 0
    skipped: int = 0
    damaged: list[Missing] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    def read(self, body: tuple[bytes, Stat]) -> tuple[bytes, Stat]:
        """Count a request's answer."""
        with self._lock:
            self.requests += 1
            self.bytes_read += len(body[0])
        return body

    def give(self, item: ReadItem) -> ReadItem:
        """Count what is given."""
        if not isinstance(item, Missing):
            self.entries += item.count
        elif item.damaged:
            self.skipped += item.entries.span
            if len(self.damaged) < MOST_DAMAGE:
                self.damaged.append(item)
        return item
