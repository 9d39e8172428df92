"""What a scan tells of one orphan, on whichever side it is. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class OrphanSide(StrEnum):
    """Where it is."""

    BOOKKEEPER = "bookkeeper"
    BUCKET = "bucket"


class OrphanVerdict(StrEnum):
    """Only what is certain may ever be deleted."""

    CERTAIN = "certain"
    SUSPECT = "suspect"


@dataclass(frozen=True, slots=True)
class OrphanCandidate:
    """`id`: a ledger's number, or a key below the archive's root. `size`: bytes, one copy; None: not known.

    `created_ms`: by the clock of the one who keeps it. `evidence`: one sentence each. `kept`: it holds data, and is
    never deleted.
    """

    side: OrphanSide
    id: str
    kind: str
    verdict: OrphanVerdict
    size: int | None
    created_ms: int | None
    evidence: tuple[str, ...]
    kept: bool = False
