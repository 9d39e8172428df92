"""All entries of a closed ledger, in order, as its bookies have them; and what no bookie gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

from offloader.bookkeeper.api import EntryBookies
from offloader.bookkeeper.model import LedgerMetadata
from offloader.bookkeeper.reading import LedgerReader
from offloader.errors import EntryNotFoundError, IntegrityError, LedgerNotFoundError, OffloadError
from offloader.model import MIB, EntryRange
from offloader.ports.entry_source import RawEntry

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
