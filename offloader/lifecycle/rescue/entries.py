"""All entries of a closed ledger, in order, as its bookies have them; what no bookie gives; and single entries of what
was rescued before, which may be the only copies that are left.

A bookie that does not answer is no loss by itself. Nor is one of which an operator says that it is gone for good while
it may still come back: it must have neither a registration nor a cookie, without which it does not start."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from offloader.bookkeeper.api import EntryBookies, LedgerMetadataStore
from offloader.bookkeeper.model import LedgerMetadata
from offloader.bookkeeper.reading import LedgerReader
from offloader.bookkeeper.status import NoEntryError
from offloader.errors import (
    DamagedObjectError,
    EntryNotFoundError,
    FatalError,
    IntegrityError,
    LedgerNotFoundError,
    ObjectNotFoundError,
    OffloadError,
)
from offloader.format.blocks import entries, read_blocks
from offloader.lifecycle.rescue.objects import sound
from offloader.metadata.rescues import RescuedLedger
from offloader.model import MIB, EntryRange, Segment
from offloader.ports.entry_source import RawEntry
from offloader.ports.object_store import ObjectStore

READ_AHEAD = 32 * MIB
READ_SECONDS = 1.0
_GONE = (EntryNotFoundError, LedgerNotFoundError, IntegrityError)


def entries_of(
    bookies: EntryBookies,
    ledger: int,
    metadata: LedgerMetadata,
    instead: Callable[[int, OffloadError], RawEntry | None],
    read_ahead: int = READ_AHEAD,
) -> Iterator[list[RawEntry]]:
    """Each digest is checked. `instead` is asked for an entry that no bookie has, or has sound; None: it is left out;
    it may raise. What a bookie that does not answer may have is an error in any case.

    Raises BookieUnavailableError, and what `instead` raises."""
    at, after = 0, metadata.last_entry + 1
    alone = False  # after an entry that is gone, the next one may be, too: nothing is read ahead for nothing
    while at < after:
        span = EntryRange(ledger, at, at + 1 if alone else after)
        with closing(LedgerReader(bookies, span, metadata, max_bytes=read_ahead)) as reader:
            try:
                while not reader.finished:
                    found = reader.read(READ_SECONDS)
                    if found:
                        yield found
                at, alone = reader.position, False
            except _GONE as error:
                found_elsewhere = instead(reader.position, error)
                if found_elsewhere is not None:
                    yield [found_elsewhere]
                at, alone = reader.position + 1, True


def check_gone(gone: Iterable[str], ledgers: LedgerMetadataStore) -> None:
    """Raises FatalError for the first one that may come back."""
    for bookie in gone:
        if bookie in ledgers.available():
            raise FatalError(f"{bookie} is not gone: it is registered. Without --gone {bookie} it is asked")
        if ledgers.cookie(bookie) is not None:
            raise FatalError(
                f"{bookie} may come back: it has a cookie. Where it is gone for good, take it out of service first: "
                f"`bookkeeper shell decommissionbookie -bookieid {bookie}`, or `cookie_delete {bookie}`"
            )


@dataclass(frozen=True, slots=True)
class WithoutGone:
    """`bookies`, but those that are `gone` are not asked: they have nothing. `by`: who says so."""

    bookies: EntryBookies
    gone: Collection[str]
    by: str

    @property
    def batches(self) -> bool:
        return self.bookies.batches

    def read(self, bookie: str, ledger: int, entry: int, *, fence: bytes | None = None) -> Future[bytes]:
        if bookie in self.gone:
            return self._nothing(bookie)
        return self.bookies.read(bookie, ledger, entry, fence=fence)

    def batch(self, bookie: str, ledger: int, first: int, *, count: int, size: int) -> Future[list[bytes]]:
        if bookie in self.gone:
            return self._nothing(bookie)
        return self.bookies.batch(bookie, ledger, first, count=count, size=size)

    def _nothing(self, bookie: str) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(NoEntryError(f"{bookie} is gone for good, says {self.by}"))
        return future


@dataclass
class FormerCopy:
    """`folder`: where its objects lie. One of these at a time is in memory."""

    store: ObjectStore
    folder: str
    record: RescuedLedger
    _uuid: str = ""
    _entries: Mapping[int, RawEntry] = field(default_factory=dict)

    def entry(self, number: int) -> RawEntry | None:
        """None: it has not got it, or its object is damaged or gone. Raises what the store raises."""
        segment = next((one for one in self.record.segments if one.start.entry <= number <= one.end.entry), None)
        if segment is None:
            return None
        if segment.uuid != self._uuid:
            self._uuid, self._entries = segment.uuid, self._read(segment)
        return self._entries.get(number)

    def _read(self, segment: Segment) -> Mapping[int, RawEntry]:
        try:
            data = sound(self.store, self.folder, segment)
            found = (each for block in read_blocks(data) for each in entries(block))
            return {each.entry: RawEntry(self.record.ledger, each.entry, bytes(each.data)) for each in found}
        except (ObjectNotFoundError, DamagedObjectError):
            return {}
