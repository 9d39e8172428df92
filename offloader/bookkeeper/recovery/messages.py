"""What the recovery asks for and what it hears: frozen values, and how they follow from bookies' answers. Pure.

`Answer` here: POSITIVE: done, or the entry is there. NEGATIVE: not there. UNKNOWN: no answer, or one that says nothing.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from offloader.bookkeeper.api import LastConfirmed
from offloader.bookkeeper.entry_codec import decode, decode_lac, digest_for
from offloader.bookkeeper.model import NO_ENTRY, LedgerMetadata, Versioned
from offloader.bookkeeper.status import Answer, answer
from offloader.errors import IntegrityError, OffloadError


class Held(NamedTuple):
    """An entry that a bookie holds, its digest checked. `stored`: all its bytes, as they are written back."""

    entry: int
    last_confirmed: int
    length: int
    stored: bytes


@dataclass(frozen=True, slots=True)
class ReadMetadata:
    """Read the ledger's metadata."""


@dataclass(frozen=True, slots=True)
class WriteMetadata:
    """Compare-and-set the ledger's metadata."""

    metadata: LedgerMetadata
    version: int


@dataclass(frozen=True, slots=True)
class ReadLast:
    """Fence the ledger on a bookie, and read the last entry that it has; only read it where `fence` is off."""

    bookie: str
    fence: bool


@dataclass(frozen=True, slots=True)
class ReadEntry:
    """Read an entry, and fence."""

    bookie: str
    entry: int
    fence: bool


@dataclass(frozen=True, slots=True)
class WriteBack:
    """Write a recovered entry to a bookie that is to hold it; `dry`: only find out whether it would take it."""

    bookie: str
    held: Held
    dry: bool = False

    @property
    def entry(self) -> int:
        return self.held.entry


BookieRequest = ReadLast | ReadEntry | WriteBack
Request = ReadMetadata | WriteMetadata | BookieRequest


@dataclass(frozen=True, slots=True)
class MetadataRead:
    """What the metadata service has."""

    versioned: Versioned


@dataclass(frozen=True, slots=True)
class MetadataWritten:
    """The compare-and-set was done; the new version."""

    version: int


@dataclass(frozen=True, slots=True)
class MetadataUnsettled:
    """Somebody else wrote, or nobody knows whether we did: only reading again tells."""

    why: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Answered:
    """A bookie's answer. `held`: the entry that it has; `confirmed`: of its last entry, the LAC that it knows; `why`:
    for people; `damaged`: it has it, with a digest that is wrong."""

    request: BookieRequest
    answer: Answer
    held: Held | None = None
    why: str = field(default="", compare=False)
    confirmed: int = NO_ENTRY
    damaged: bool = False

    @property
    def heard(self) -> int:
        """The last entry that it says was acknowledged."""
        return self.confirmed if self.held is None else max(self.confirmed, self.held.last_confirmed)


@dataclass(frozen=True, slots=True)
class Distrusted:
    """Just before closing it came out that these bookies have lost their disks: what they deny counts for nothing."""

    bookies: frozenset[str]


Event = MetadataRead | MetadataWritten | MetadataUnsettled | Answered | Distrusted


def unanswered(request: BookieRequest, timeout: float) -> Answered:
    """Nothing came in time."""
    return Answered(request, Answer.UNKNOWN, why=f"no answer within {timeout:g} s")


def answered(ledger: int, request: BookieRequest, future: Future[Any], metadata: LedgerMetadata) -> Answered:
    """What a future that is done says."""
    error = future.exception()
    if error is not None:
        return _failed(request, error)
    result = future.result()
    match request:
        case WriteBack():
            return Answered(request, Answer.POSITIVE)
        case ReadEntry(entry=entry):
            return _entry(ledger, request, entry, result, metadata)
        case ReadLast():
            return _last(ledger, request, result, metadata)


def _failed(request: BookieRequest, error: BaseException) -> Answered:
    if not isinstance(error, OffloadError):
        raise error
    kind = answer(error)
    if isinstance(request, WriteBack):  # a dry one only asks for the end: a bookie without one would take an entry
        kind = Answer.POSITIVE if request.dry and kind is Answer.NEGATIVE else Answer.UNKNOWN
    return Answered(request, kind, why="" if kind is Answer.POSITIVE else str(error))


def _entry(ledger: int, request: ReadEntry, entry: int, stored: bytes, metadata: LedgerMetadata) -> Answered:
    """Bytes that are damaged say nothing: the bookie had the entry once."""
    try:
        return Answered(request, Answer.POSITIVE, held(ledger, entry, stored, metadata))
    except IntegrityError as error:
        return Answered(request, Answer.UNKNOWN, why=f"damaged: {error}", damaged=True)


def _last(ledger: int, request: ReadLast, result: LastConfirmed | bytes | None, metadata: LedgerMetadata) -> Answered:
    """However damaged its last entry is, the bookie has fenced the ledger."""
    last = result if isinstance(result, LastConfirmed) else LastConfirmed(None, result)
    if last.explicit is None and last.last_entry is None:
        return Answered(request, Answer.NEGATIVE, why="has no entry of this ledger")
    said = Answered(request, Answer.POSITIVE)
    try:
        if last.last_entry is not None:
            said = replace(said, held=held(ledger, None, last.last_entry, metadata)._replace(stored=b""))
        if last.explicit is not None:
            said = replace(said, confirmed=max(decode_lac(last.explicit, digest_for(metadata), ledger), NO_ENTRY))
    except IntegrityError as error:
        said = replace(said, why=f"damaged: {error}", damaged=True)
    return said


def held(ledger: int, entry: int | None, stored: bytes, metadata: LedgerMetadata) -> Held:
    """The stored entry; `entry` None: any. Raises IntegrityError."""
    found = decode(stored, digest_for(metadata), ledger, entry)
    return Held(found.entry, found.last_confirmed, found.length, bytes(stored))
