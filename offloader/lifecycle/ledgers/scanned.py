"""What a scan of a cluster's ledgers found, and who scans. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from offloader.lifecycle.ledgers.evidence import LedgerVerdict, Standing
from offloader.lifecycle.ledgers.leftovers import LeftoverManagedLedger
from offloader.lifecycle.ledgers.missing import MissingLedger
from offloader.lifecycle.ledgers.refusals import Refusal
from offloader.lifecycle.ledgers.summary import LedgerSummary


@dataclass(frozen=True, slots=True)
class LedgerScan:
    """`begun_ms`: by ZooKeeper's clock. `ledgers`: how many the cluster has, by the last count of all of them.

    `verdicts`: of every orphan; where the scan was for some ledgers only, of each of these that is there, whatever it
    is. `gone`: those of them that are not. `refusals`: why nothing may be deleted by this scan; none: something may.
    `store`: which of the verdicts' stores is ours, and the only one whose nodes can guard a deletion; `root`: the path
    that its referees' nodes are below. `summary`: of all ledgers that were judged.
    """

    begun_ms: int
    ledgers: int
    counts: Mapping[Standing, int]
    verdicts: tuple[LedgerVerdict, ...]
    gone: frozenset[int] = frozenset()
    missing: tuple[MissingLedger, ...] = ()
    leftovers: tuple[LeftoverManagedLedger, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    store: str = ""
    root: str = ""
    summary: LedgerSummary = field(default_factory=LedgerSummary)


class LedgerScanner(Protocol):
    """Ids first, then references, then each candidate's node again."""

    def scan(self, only: Collection[int] | None = None) -> LedgerScan:
        """All ledgers, or only these, by all that refers to any. Raises MetadataUnavailableError."""
        ...

    def look_again(self, only: Collection[int], leftovers: Collection[str] = ()) -> LedgerScan | None:
        """The same for a few ledgers, and a few left-over managed ledgers, without a scan: their own nodes and those
        that would name them, or named them at the last scan, are read now. Of all others, which name none of these by
        what that scan saw, nothing is read: a ledger is named by nobody but whom it says that it is made for.

        None: there was no such scan of some ledgers, it found something against deletion, it is too old, or other
        stores are to be read by now. Raises MetadataUnavailableError."""
        ...
