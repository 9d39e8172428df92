"""Numbered records of one kind, of which the newest counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from offloader.errors import DamagedRecordError, ObjectNotFoundError, OutcomeUnknownError
from offloader.metadata.log import NumberedLog, read_record
from offloader.metadata.record_codec import RecordCodec
from offloader.ports.object_store import ObjectStore

TRIES = 1000  # numbers that others may have taken

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class StoredRecord(Generic[Record]):
    """A record and its number."""

    slot: int
    record: Record


class Records(NumberedLog, Generic[Record]):
    """The records of one folder, each of which replaces those before it."""

    def __init__(self, store: ObjectStore, folder: str, codec: RecordCodec[Record]) -> None:
        super().__init__(store, folder)
        self._codec = codec

    def read(self, slot: int) -> StoredRecord[Record]:
        """Raises ObjectNotFoundError, DamagedRecordError, FormatVersionError."""
        key = self.key(slot)
        return StoredRecord(slot, self._codec.decode(key, read_record(self._store, key)))

    def newest(
        self, known: StoredRecord[Record] | None = None, until: int | None = None
    ) -> StoredRecord[Record] | None:
        """None: there is no record. `known`: is not read again while it is the newest. `until`: later records do not
        count. Raises DamagedRecordError, FormatVersionError."""
        missing = None
        while slots := [slot for slot in self.slots() if until is None or slot <= until]:
            if known is not None and known.slot == slots[-1]:
                return known
            try:
                return self.read(slots[-1])
            except ObjectNotFoundError as error:  # a later one replaces it, or it was removed
                if missing == slots[-1]:
                    raise DamagedRecordError(f"{self.key(missing)}: it is listed, and is not there") from error
                missing = slots[-1]
        return None

    def write(self, slot: int, token: str, record: Record) -> bool:
        """Whether it has this number now; else another record has it. Raises OutcomeUnknownError."""
        return self.append(slot, self._codec.encode(token, record)) is None

    def replace(self, slot: int, token: str, record: Record) -> list[int] | None:
        """Write the newest record; returns the numbers of those before it. None: it is not the newest one now, because
        another record has its number, or a later one is there and the number had become free again."""
        if not self.write(slot, token, record):
            return None
        *before, newest = self.slots() or [-1]
        return before if newest == slot else None

    def write_from(
        self, slot: int, new_token: Callable[[], str], record_of: Callable[[int], Record]
    ) -> StoredRecord[Record]:
        """Write a record at this number, or at the first one behind it that no record has."""
        for number in range(slot, slot + TRIES):
            record = record_of(number)
            if self.write(number, new_token(), record):
                return StoredRecord(number, record)
        raise OutcomeUnknownError(f"{self.key(slot)}: other processes take this number and all {TRIES} behind it")
