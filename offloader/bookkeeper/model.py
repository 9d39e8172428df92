"""What a ledger is: its metadata, its ensembles, its entries. Frozen values, no I/O."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

NO_ENTRY = -1  # what BookKeeper writes for "none": the last entry of an empty ledger, the LAC before the first entry


class LedgerState(IntEnum):
    """One way: OPEN, IN_RECOVERY, CLOSED. The values are those of LedgerMetadataFormat.State."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


class DigestType(IntEnum):
    """How each entry is protected. The values are those of LedgerMetadataFormat.DigestType."""

    CRC32 = 1
    HMAC = 2
    CRC32C = 3
    DUMMY = 4


@dataclass(frozen=True, slots=True)
class Fragment:
    """From `first_entry` up to the next fragment's, entries are on these bookies (ids, which need not be addresses)."""

    first_entry: int
    ensemble: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """A ledger's metadata. `last_entry` and `length` (payload bytes) count only once it is CLOSED.

    `raw`: the whole record it was read from, so that fields that we do not know survive a rewrite; empty for a new one.
    `created_ms`: its own time of creation, by its writer's clock, or, where it has none, its node's. `listed_ms`:
    always its node's, by the metadata service's clock: the one to compare with times of other nodes.
    """

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    state: LedgerState
    fragments: tuple[Fragment, ...]
    digest: DigestType = DigestType.CRC32C
    password: bytes = field(default=b"", repr=False)
    last_entry: int = NO_ENTRY
    length: int = 0
    created_ms: int | None = None
    custom: Mapping[str, bytes] = field(default_factory=dict, hash=False)
    format_version: int = 3
    raw: bytes = field(default=b"", repr=False, compare=False)
    listed_ms: int | None = field(default=None, compare=False)

    @property
    def closed(self) -> bool:
        return self.state is LedgerState.CLOSED

    def fragment_of(self, entry: int) -> Fragment:
        """The fragment that holds `entry`: the last one that begins at or before it."""
        return self.fragments[
            max(bisect_right(self.fragments, entry, key=lambda fragment: fragment.first_entry) - 1, 0)
        ]

    def write_set(self, entry: int) -> tuple[str, ...]:
        """The bookies that hold `entry`, in the order in which a reader asks them (BookKeeper's round robin)."""
        ensemble = self.fragment_of(entry).ensemble
        return tuple(ensemble[(entry + i) % len(ensemble)] for i in range(self.write_quorum))


class Versioned(NamedTuple):
    """A ledger's metadata and the version that a compare-and-set must name."""

    metadata: LedgerMetadata
    version: int


class StoredEntry(NamedTuple):
    """An entry as a bookie keeps it, its digest checked.

    `last_confirmed`: the last acknowledged entry that its writer knew of then. `length`: payload bytes of the ledger so
    far, this entry's included.
    """

    ledger: int
    entry: int
    last_confirmed: int
    length: int
    payload: bytes
