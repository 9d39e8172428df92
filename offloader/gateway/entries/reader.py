"""A reader that stands somewhere in a topic and goes on from there, call by call."""

from __future__ import annotations

from collections.abc import Callable, Generator

from offloader.archive.items import EntryRun, Missing, ReadItem
from offloader.errors import OffloadError
from offloader.gateway.entries.missing import Passing, covered_by
from offloader.gateway.entries.read_run import ReadRun
from offloader.gateway.values import ServedEntries, ServedEntry
from offloader.model import Place

ENOUGH = 64  # entries; for more than these, a call does not wait for the store a second time: the first one for none


class TopicReader:
    """Reads on behind `after`, for one thread at a time. Between `since` and `covered` nothing can be delivered.

    `sticky`: whether keys are hashed. `is_over`: nothing more can be read with it."""

    def __init__(
        self,
        after: Place,
        items: Generator[ReadItem],
        decoded: Callable[[EntryRun], ReadRun],
        passing: Passing,
        *,
        at_begin: bool,
        sticky: bool,
    ) -> None:
        self.since = self.covered = after
        self.sticky = sticky
        self.is_over = False
        self._items = items
        self._decoded = decoded
        self._passing = passing
        self._at_begin = at_begin
        self._has_given = False
        self._run: ReadRun | None = None
        self._at = 0  # the next one of the run

    def stands_at(self, after: Place) -> bool:
        """Whether it goes on behind this place."""
        return self.since <= after <= self.covered

    def read(self, most_entries: int, most_bytes: int) -> ServedEntries:
        """See the port. What is raised ends the reader."""
        before, found, left = self.covered, list[ServedEntry](), most_bytes
        enough = min(ENOUGH if self._has_given else 1, most_entries)
        while True:
            if self._run is not None:
                left -= self._take(found, most_entries, left)
            if self._run is not None or len(found) >= enough or left <= 0 or self.is_over:
                break
            try:
                self._go_on()
            except OffloadError:
                self.close()
                if not found:
                    raise
                break  # who reads on behind these meets it again, or it is over
        self._has_given = self._has_given or bool(found)
        return ServedEntries(found, self.covered if self.covered > before else None)

    def _take(self, found: list[ServedEntry], most_entries: int, most_bytes: int) -> int:
        """Add entries of the run, which is left behind once it has no more. Returns their bytes."""
        run, first = self._run, self._at
        assert run is not None
        after = run.up_to(first, most_entries - len(found), most_bytes)
        if not found:
            after = max(after, min(first + 1, len(run)))
        if after > first:
            found += run.entries(first, after)
            self.since = self.covered = found[-1].place
        self._at = after
        if after == len(run):
            self.covered, self._run, self._at = run.covered, None, 0
        return run.bytes_between(first, after)

    def _go_on(self) -> None:
        item = next(self._items, None)
        if item is None:
            self.close()
        elif isinstance(item, Missing):
            if item.kind is None and not (item.deleted and self._at_begin):
                self._passing.meet(item)
            self.covered = max(self.covered, covered_by(item))
        else:
            self._at_begin = False
            self._run = self._decoded(item)

    def close(self) -> None:
        """What was read ahead is given up."""
        self.is_over = True
        self._items.close()
