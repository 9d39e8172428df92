"""What was found of a ledger, and what came of closing it. Frozen values."""

from __future__ import annotations

from dataclasses import dataclass

from offloader.bookkeeper.model import LedgerMetadata, Versioned
from offloader.bookkeeper.recovery.dangers import Danger, Reports
from offloader.bookkeeper.recovery.evidence import Evidence
from offloader.bookkeeper.recovery.machine import Aborted, Done
from offloader.bookkeeper.recovery.replacing import Replaced, replaced
from offloader.errors import RecoveryAbortedError


@dataclass(frozen=True)
class RecoveryOutcome:
    """How a recovery ended. `before`: the metadata that it went by, None where the ledger was closed already."""

    ledger: int
    phase: Done | Aborted
    evidence: Evidence
    before: LedgerMetadata | None = None

    @property
    def metadata(self) -> LedgerMetadata:
        """The closed ledger's. Raises RecoveryAbortedError."""
        if isinstance(self.phase, Aborted):
            raise RecoveryAbortedError(self.message)
        return self.phase.metadata

    @property
    def replaced(self) -> tuple[Replaced, ...]:
        """Who took whose place."""
        if self.before is None or isinstance(self.phase, Aborted):
            return ()
        return tuple(replaced(self.before, self.phase.metadata))

    @property
    def message(self) -> str:
        """One line: what came of it, and what to do."""
        if isinstance(self.phase, Done):
            metadata = self.phase.metadata
            end = f"{self.phase.ending}, last entry {metadata.last_entry}, {metadata.length} bytes"
            return "; ".join([f"ledger {self.ledger}: {end}", *map(str, self.replaced)])
        bookies = self.phase.missing.bookies
        reasons = "; ".join(f"{b}: {why}" for b in bookies if (why := self.evidence.problems(b)))
        back = f"; {self.phase.missing}" if bookies else ""
        return f"ledger {self.ledger} is not closed: {self.phase.reason}{back}" + (f" ({reasons})" if reasons else "")


@dataclass(frozen=True)
class Inspection:
    """`versioned`: the metadata as it was found. `reports`: none where a closed ledger was only taken as it is.
    `distrusted`: bookies whose *no such entry* was not believed. `dry`: nothing was written back."""

    ledger: int
    versioned: Versioned
    reports: Reports
    dangers: tuple[Danger, ...]
    distrusted: frozenset[str]
    outcome: RecoveryOutcome
    dry: bool = True
