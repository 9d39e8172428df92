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
    """What a reader has asked of stores (indexes included), given, and skipped: positions that are archived but could
    not be read.

    `damaged` has what was skipped, the first so many of it.
    """

    requests: int = 0
    bytes_read: int = 0
    entries: int = 0
    skipped: int = 0
    damaged: list[Missing] = field(default_factory=list)


class Meter:
    """Fills the statistics; requests from any thread."""

    def __init__(self) -> None:
        self.stats = ReadStats()
        self._lock = threading.Lock()

    def read(self, body: tuple[bytes, Stat]) -> tuple[bytes, Stat]:
        """Count a request's answer."""
        with self._lock:
            self.stats.requests += 1
            self.stats.bytes_read += len(body[0])
        return body

    def give(self, item: ReadItem) -> ReadItem:
        """Count what is given."""
        if not isinstance(item, Missing):
            self.stats.entries += item.count
        elif item.damaged:
            self.stats.skipped += item.entries.span
            if len(self.stats.damaged) < MOST_DAMAGE:
                self.stats.damaged.append(item)
        return item
