"""What is known of a topic's ledgers that a stock broker offloaded. Frozen values, no I/O."""

from __future__ import annotations

from dataclasses import dataclass

from offloader.archive.findings import Finding
from offloader.archive.read_model import OffloadedLedger
from offloader.model import LedgerList, TopicName


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Two complete copies of a ledger with different entries: the uuid of the one that is taken, and of the other."""

    ledger: int
    taken: str
    other: str


@dataclass(frozen=True, slots=True)
class FoundLedgers:
    """A topic's offloaded ledgers in order; which incarnation they are of is known only together with a catalog
    (`joined`).

    `listed`: every ledger that the topic's managed ledger names; None where only the bucket was asked, which cannot
    prove that none is missing. `created` identifies the incarnation where Pulsar says it. `doubtful`: what the bucket
    has of ledgers of which nothing says whose they are.
    """

    topic: TopicName
    ledgers: tuple[OffloadedLedger, ...] = ()
    listed: LedgerList | None = None
    created: int | None = None
    findings: tuple[Finding, ...] = ()
    doubtful: tuple[OffloadedLedger, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()
