"""Numbered records, written with put-if-absent: the one mechanism under journal and catalog."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

from offloader.ahead import map_ahead, unawaited_pool
from offloader.errors import DamagedRecordError, ObjectNotFoundError, OffloadError, OutcomeUnknownError
from offloader.metadata.envelope import LARGEST
from offloader.metadata.layout import parse_slot, slot_name
from offloader.model import MIB
from offloader.ports.object_store import ObjectStore
from offloader.storage.bounded_reads import read_whole

log = logging.getLogger(__name__)

READERS = 8
LARGEST_RECORD = LARGEST + MIB  # with what stands around its body


class NumberedLog:
    """The records of one folder.

    After an append with an unknown outcome it takes nothing but the same record, until the outcome is known or the log
    is loaded again.
    """

    def __init__(self, store: ObjectStore, folder: str) -> None:
        self._store = store
        self._folder = folder
        self._unknown: tuple[str, bytes] | None = None

    def key(self, slot: int) -> str:
        """Where a record lies."""
        return self._folder + slot_name(slot)

    def append(self, slot: int, data: bytes) -> bytes | None:
        """Write a record. None: these bytes hold the slot now; else the bytes that did before, empty if gone since.

        `data` carries a fresh token; whoever tries a slot again passes the same bytes. Raises OutcomeUnknownError,
        DamagedRecordError.
        """
        key = self.key(slot)
        if self._unknown is not None and self._unknown != (key, data):
            raise OutcomeUnknownError(
                f"{self._unknown[0]}: the outcome of this write is still unknown; load the log again"
            )
        try:
            written = self._store.put(key, data, if_absent=True)
            there = data if written is not None else self._there(key)
        except OutcomeUnknownError:
            self._unknown = key, data
            raise
        self._unknown = None
        return None if there == data else there

    def is_empty(self, slot: int) -> bool:
        """Whether nobody has written the slot yet."""
        return self._store.stat(self.key(slot)) is None

    def held_by(self, slot: int) -> bytes | None:
        """The bytes in a slot. None: nobody has written it; empty: it is gone since. Raises DamagedRecordError."""
        return None if self.is_empty(slot) else self._there(self.key(slot))

    def _there(self, key: str) -> bytes:
        try:
            return read_record(self._store, key)
        except ObjectNotFoundError:
            return b""

    def nearly_all(self, within: int) -> int:
        """A lower bound of the number of records, less than `within` below it. Tries a logarithmic number of slots."""
        low = 0
        step = within
        while not self.is_empty(low + step - 1):
            low, step = low + step, 2 * step
        while step > within:
            step //= 2
            if not self.is_empty(low + step - 1):
                low += step
        return low

    def known(self) -> None:
        """The caller has looked what is there: the log takes records again, also after an unknown outcome."""
        self._unknown = None

    def slots(self, after: int = -1) -> list[int]:
        """The numbers of the records that are there, in order; then as `known`."""
        self.known()
        start_after = self.key(after) if after >= 0 else ""
        names = (key.removeprefix(self._folder) for key, _ in self._store.list(self._folder, start_after=start_after))
        return [slot for slot in map(parse_slot, names) if slot is not None]

    def load(self, after: int = -1) -> Iterator[tuple[int, bytes]]:
        """All records after a slot, in order. Raises ObjectNotFoundError where one is removed meanwhile."""
        slots = self.slots(after)
        with unawaited_pool(READERS, "log-reader") as pool:
            data = map_ahead(pool, partial(read_record, self._store), map(self.key, slots), 2 * READERS)
            yield from zip(slots, data, strict=True)

    def remove(self, slots: Iterable[int]) -> None:
        """Remove records that a later one covers."""
        if keys := [self.key(slot) for slot in slots]:
            self._store.delete(keys)


def read_record(store: ObjectStore, key: str) -> bytes:
    """A record's bytes. Raises ObjectNotFoundError; DamagedRecordError for an object larger than any record."""
    return read_whole(store, key, LARGEST_RECORD, DamagedRecordError)[0]


@contextmanager
def removing_old_records(owner: str) -> Iterator[None]:
    """Records that are not needed any more, and cannot be removed, are no failure: the next removal includes them."""
    try:
        yield
    except OffloadError as error:
        log.warning("%s: old records could not be removed: %s", owner, error, extra={"see": "old-records"})
