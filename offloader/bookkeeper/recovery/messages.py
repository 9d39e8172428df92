"""What the recovery asks for and what it hears. Frozen values.

`Answer` here: POSITIVE: done, or the entry is there. NEGATIVE: not there. UNKNOWN: no answer, or one that says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from offloader.bookkeeper.model import NO_ENTRY, LedgerMetadata, Versioned
from offloader.bookkeeper.status import Answer


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
