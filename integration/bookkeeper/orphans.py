"""Ledgers whose writer goes away in the middle of pipelined adds, and what must hold once somebody has closed them."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from integration.bookkeeper.contents import Contents
from integration.bookkeeper.official import HURRIED, OfficialClient, OfficialError, ReadEntry, Shape
from integration.processes import HANGS
from offloader.bookkeeper.bookies import BookieClient
from offloader.bookkeeper.entry_codec import decode, digest_for
from offloader.bookkeeper.metadata import MetadataTree
from offloader.bookkeeper.model import LedgerMetadata
from offloader.bookkeeper.reading import LedgerReader
from offloader.model import MIB, EntryRange

LARGEST_WINDOW = 50  # entries in flight
MOST_ENTRIES = 3000  # more than a writer that is killed gets to
_SEEDS = itertools.count(1)


class Closed(NamedTuple):
    """The end that a ledger was closed with."""

    last: int
    length: int


@dataclass
class Orphan:
    """A ledger and its writer. `adding` is done once the writer is gone, or finds itself fenced, or has written
    enough."""

    ledger: int
    shape: Shape
    contents: Contents
    writer: OfficialClient
    adding: Future[Any] = field(repr=False)

    @property
    def acknowledged(self) -> int:
        """The last entry of which the writer has been told that it is safe, as far as we heard."""
        return self.writer.acknowledged.get(self.ledger, -1)


def begin_writing(writer: OfficialClient, shapes: Sequence[Shape], choice: random.Random) -> list[Orphan]:
    """A ledger of each shape, all of them written at once."""
    orphans = []
    for shape in shapes:
        ledger = _created(writer, shape)
        contents = Contents(next(_SEEDS), largest=choice.choice((0, 100, 1000)))
        adding = writer.add(ledger, MOST_ENTRIES, contents, window=choice.choice((1, 5, 20, LARGEST_WINDOW)))
        orphans.append(Orphan(ledger, shape, contents, writer, adding))
    return orphans


def _created(writer: OfficialClient, shape: Shape) -> int:
    """A client may hear a little later than we that a bookie is back."""
    deadline = time.monotonic() + HANGS
    while True:
        try:
            return writer.create(shape, timeout=HURRIED)
        except OfficialError as error:
            if error.kind != "BKNotEnoughBookiesException" or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@dataclass(frozen=True)
class Witness:
    """Looks at closed ledgers: through the official client, through ours, and bookie by bookie."""

    official: OfficialClient
    store: MetadataTree
    bookies: BookieClient

    def check(self, orphan: Orphan, closed: Closed, *, by_us: bool) -> None:
        """All of its bookies must run. `closed`: what whoever closed it said, which may have been our client."""
        metadata = self.store.read(orphan.ledger).metadata
        expected = [orphan.contents.of(entry) for entry in range(closed.last + 1)]
        assert metadata.closed, orphan
        assert (metadata.last_entry, metadata.length) == closed, orphan
        assert closed.last >= orphan.acknowledged, (
            f"{orphan}: acknowledged {orphan.acknowledged}, closed at {closed.last}"
        )
        if not expected:
            assert closed == (-1, 0), orphan
            return
        last = self.check_readers(orphan, metadata, expected)
        assert closed.length in _lengths(orphan, last, sum(map(len, expected)), by_us=by_us), f"{orphan}: {closed}"
        self._check_copies(orphan, metadata, expected)

    def check_readers(self, orphan: Orphan, metadata: LedgerMetadata, expected: list[bytes]) -> ReadEntry:
        """Both clients read the same, from whatever bookies run. Returns the last entry."""
        by_official = self.official.read(orphan.ledger, 0, len(expected) - 1, orphan.shape)
        assert [entry.payload for entry in by_official] == expected, orphan
        assert self._by_us(orphan, metadata, len(expected) - 1) == expected, orphan
        return by_official[-1]

    def _by_us(self, orphan: Orphan, metadata: LedgerMetadata, last: int) -> list[bytes]:
        found: list[bytes] = []
        reader = LedgerReader(self.bookies, EntryRange.closed(orphan.ledger, 0, last), metadata, max_bytes=MIB)
        with closing(reader):
            while not reader.finished:
                entries = reader.read(HANGS)
                assert entries, f"{orphan}: nothing after {len(found)} entries"
                found += [entry.data for entry in entries]
        return found

    def _check_copies(self, orphan: Orphan, metadata: LedgerMetadata, expected: list[bytes]) -> None:
        """Every entry is on so many of its bookies as acknowledge one."""
        held = {bookie: self._held(bookie, orphan, metadata) for f in metadata.fragments for bookie in f.ensemble}
        for entry, payload in enumerate(expected):
            copies = [bookie for bookie in metadata.write_set(entry) if held[bookie].get(entry) == payload]
            assert len(copies) >= metadata.ack_quorum, f"{orphan}: entry {entry} of {len(expected)} is only on {copies}"

    def _held(self, bookie: str, orphan: Orphan, metadata: LedgerMetadata) -> dict[int, bytes]:
        answers = self.official.ask(bookie, orphan.ledger, 0, metadata.last_entry)
        digest = digest_for(metadata)
        return {
            entry: decode(stored, digest, orphan.ledger, entry).payload
            for entry, stored in enumerate(answers)
            if isinstance(stored, bytes)
        }


def _lengths(orphan: Orphan, last: ReadEntry, size: int, *, by_us: bool) -> Iterator[int]:
    """What may be said of a ledger that has `size` bytes.

    An entry that the official client writes after others have failed counts these as if they had never been. And where
    it recovers nothing, it takes the length of the entry that told it the last confirmed one, which comes later and may
    not belong to the ledger.
    """
    yield size
    yield last.length
    if not by_us:
        later = (len(orphan.contents.of(last.entry + n)) for n in range(1, 2 + LARGEST_WINDOW))
        yield from itertools.accumulate(later, initial=size)
