"""Numbered records, written with put-if-absent: the one mechanism under journal and catalog."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from offloader.errors import ObjectNotFoundError, OutcomeUnknownError
from offloader.metadata.layout import parse_slot, slot_name
from offloader.storage.base import ObjectStore

READERS = 8


class NumberedLog:
    """The records of one folder. After an append whose outcome is unknown it takes no more until it is loaded again."""

    def __init__(self, store: ObjectStore, folder: str) -> None:
        self._store = store
        self._folder = folder
        self._unknown = ""

    def key(self, slot: int) -> str:
        """Where a record lies."""
        return self._folder + slot_name(slot)

    def append(self, slot: int, data: bytes) -> bytes | None:
        """Write a record: None when these bytes hold the slot now, else the bytes of whoever was there before.

        `data` carries a fresh token; whoever tries a slot again passes the same bytes. Raises OutcomeUnknownError.
        """
        if self._unknown:
            raise OutcomeUnknownError(f"{self._unknown}: the outcome of this write is still unknown; load the log again")
        key = self.key(slot)
        try:
            written = self._store.put(key, data, if_absent=True)
            there = data if written is not None else self._store.read(key)[0]
        except OutcomeUnknownError:
            self._unknown = key
            raise
        except ObjectNotFoundError:
            there = b""  # written by another, and removed since
        return None if there == data else there

    def is_empty(self, slot: int) -> bool:
        """Whether nobody has written the slot yet."""
        return self._store.stat(self.key(slot)) is None

    def slots(self, after: int = -1) -> list[int]:
        """The numbers of the records that are there, in order."""
        start_after = self.key(after) if after >= 0 else ""
        names = (key.removeprefix(self._folder) for key, _ in self._store.list(self._folder, start_after=start_after))
        return [slot for slot in map(parse_slot, names) if slot is not None]

    def load(self, after: int = -1) -> Iterator[tuple[int, bytes]]:
        """All records after a slot, in order; not all at once. Raises ObjectNotFoundError where one is removed meanwhile."""
        self._unknown = ""
        slots = self.slots(after)
        return zip(slots, _read(self._store, [self.key(slot) for slot in slots]), strict=True)

    def remove(self, slots: Iterable[int]) -> None:
        """Remove records that a later one covers."""
        self._store.delete([self.key(slot) for slot in slots])


def _read(store: ObjectStore, keys: list[str]) -> Iterator[bytes]:
    """Objects, read several at a time, in the order of the keys. Raises ObjectNotFoundError."""
    if len(keys) <= 1:
        yield from (store.read(key)[0] for key in keys)
        return
    with ThreadPoolExecutor(min(READERS, len(keys)), "log-reader") as pool:
        for data, _ in pool.map(store.read, keys):
            yield data
