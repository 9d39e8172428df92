"""Ledgers that no list names, copied into the archive: what their records say, and which of them counts. Pure.

A rescue writes its objects first, below the number of the next record, and then that record, if nobody has. So objects
below a number that is taken, and not by a record that names them, are nobody's for ever: of two rescues at once one
counts, and what was forgotten is not brought back by a process that was paused.
"""

from __future__ import annotations

from dataclasses import dataclass

from offloader.metadata.layout import INDEX
from offloader.model import Loss, Segment


@dataclass(frozen=True, slots=True)
class RescuedLedger:
    """A ledger's entries, as they were copied: each is in one of the segments or of the losses.

    `created`: its node's time (ms), by ZooKeeper's clock: with `last_entry` and `length` it says which ledger this is.
    `kind`, `managed_ledger`, `custom`: what the ledger says that it is for. `sha256`: of each entry's length (4 bytes,
    big-endian) and its bytes, one after the other.
    """

    ledger: int
    created: int
    last_entry: int
    length: int
    kind: str
    managed_ledger: str
    digest_type: str
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    custom: tuple[tuple[str, bytes], ...]
    segments: tuple[Segment, ...]
    losses: tuple[Loss, ...]
    sha256: bytes
    at: int
    by: str

    @property
    def entries(self) -> int:
        return sum(one.entries for one in self.segments)

    @property
    def payload(self) -> int:
        """Bytes of the entries."""
        return sum(held.size for one in self.segments for held in one.ledgers)

    @property
    def size(self) -> int:
        """Bytes of the data objects."""
        return sum(one.size for one in self.segments)

    @property
    def whole(self) -> bool:
        return not self.losses and self.entries == self.last_entry + 1

    def is_of(self, created: int | None, last_entry: int | None, length: int) -> bool:
        """Whether it is a copy of the ledger that is there now."""
        return self.created == created and self.may_be_of(last_entry, length)

    def may_be_of(self, last_entry: int | None, length: int) -> bool:
        """The same of one whose node may have been made again: by an undo, or from a backup."""
        return (self.last_entry, self.length) == (last_entry, length)


@dataclass(frozen=True, slots=True)
class RescueForgotten:
    """What was rescued before counts no more, and no rescue that was under way may end."""

    at: int
    by: str


RescueRecord = RescuedLedger | RescueForgotten


@dataclass(frozen=True, slots=True)
class NewestRescue:
    """The record that counts, and its slot; -1 and None: there is none."""

    slot: int = -1
    record: RescueRecord | None = None

    @property
    def rescued(self) -> RescuedLedger | None:
        return self.record if isinstance(self.record, RescuedLedger) else None

    def names(self, slot: int, uuid: str) -> bool:
        """Whether it names an object that lies below a slot."""
        rescued = self.rescued
        return rescued is not None and slot == self.slot and any(one.uuid == uuid for one in rescued.segments)


def data_and_index(folder: str, uuid: str) -> tuple[str, str]:
    """The keys of one segment's objects."""
    return folder + uuid, folder + uuid + INDEX
