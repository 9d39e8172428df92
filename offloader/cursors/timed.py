"""A folder of records that are named by their time: put-if-absent, the newest has the highest number."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from offloader.errors import OutcomeUnknownError
from offloader.metadata.layout import parse_slot, slot_name
from offloader.metadata.log import read_record
from offloader.ports.object_store import ObjectStore

TRIES = 1000  # milliseconds that others may have taken


class TimedRecords:
    """`folder`: with the closing slash. Times are in ms since 1970."""

    def __init__(self, store: ObjectStore, folder: str) -> None:
        self._store = store
        self._folder = folder

    def times(self) -> list[int]:
        """Of all records, in order; one listing call a thousand."""
        names = (key.removeprefix(self._folder) for key, _ in self._store.list(self._folder))
        return [time for time in map(parse_slot, names) if time is not None]

    def key(self, time: int) -> str:
        """Where the record of this time stands."""
        return self._folder + slot_name(time)

    def read(self, time: int) -> bytes:
        """Raises ObjectNotFoundError, DamagedRecordError."""
        return read_record(self._store, self.key(time))

    def write(self, time: int, encoded: Callable[[int], bytes]) -> int:
        """Write a record at this time, or at the first ms behind it that nobody has taken; returns which. `encoded`:
        the bytes, with a token of this very write, for the time that they get."""
        for number in range(time, time + TRIES):
            if self._store.put(self.key(number), encoded(number), if_absent=True) is not None:
                return number
        raise OutcomeUnknownError(f"{self._folder}: others take every millisecond from {time} on")

    def remove(self, times: Iterable[int]) -> None:
        """Delete records; one that is gone is no error."""
        keys = [self.key(time) for time in times]
        if keys:
            self._store.delete(keys)
