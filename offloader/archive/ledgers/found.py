"""What a topic's ledgers are that stock brokers offloaded, and these with its own catalog as one sequence. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from offloader.archive.findings import Finding
from offloader.archive.read_model import OffloadedLedger
from offloader.archive.view import TopicSnapshot
from offloader.metadata.state import TopicCatalog
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


def joined(catalog: TopicCatalog, found: FoundLedgers) -> TopicSnapshot:
    """What can be read of the topic. Where Pulsar lists its ledgers, one that is neither offloaded nor in a segment (it
    may still be in Pulsar) is missing.

    Entries that are in a segment as well are read from the segment: its record says more about them.
    """
    held = (*found.ledgers, *_doubtful(catalog, found))
    ledgers = tuple(sorted((_placed(catalog, found, ledger) for ledger in held), key=lambda one: one.start))
    return TopicSnapshot(catalog.topic, catalog, ledgers, found.listed)


def _doubtful(catalog: TopicCatalog, found: FoundLedgers) -> Iterator[OffloadedLedger]:
    """Those that may be this topic's, where there is one. Between our segments none is missing, or the catalog shows
    it."""
    if catalog.claim is None and not found.ledgers:
        return
    known = {held.start.ledger for held in found.ledgers}
    for one in found.doubtful:
        ledger, segments = one.start.ledger, catalog.segments
        inside = bool(segments) and segments[0].start.ledger <= ledger <= segments[-1].end.ledger
        if ledger not in known and not inside:
            yield one


def _placed(catalog: TopicCatalog, found: FoundLedgers, ledger: OffloadedLedger) -> OffloadedLedger:
    """With the incarnation that the ledger is of."""
    incarnation = (
        _present(catalog, found) if found.listed is not None else _incarnation_of(catalog, ledger.start.ledger)
    )
    return replace(
        ledger, start=ledger.start._replace(incarnation=incarnation), end=ledger.end._replace(incarnation=incarnation)
    )


def _present(catalog: TopicCatalog, found: FoundLedgers) -> int:
    """Pulsar lists the ledgers of the present incarnation only; it may be one that the catalog has not heard of."""
    if catalog.claim is None:
        return 0
    same = found.created is None or found.listed is None or catalog.head.is_of(found.created, found.listed)
    return catalog.claim.incarnation + (not same)


def _incarnation_of(catalog: TopicCatalog, ledger: int) -> int:
    """Ledger ids grow over incarnations: the last one that is known to have begun before, or else the first known."""
    begun = {s.start.incarnation: s.start.ledger for s in reversed(catalog.segments)}
    if catalog.claim is not None:
        begun.setdefault(catalog.claim.incarnation, catalog.claim.begin.ledger)
    before = [incarnation for incarnation, first in begun.items() if first <= ledger]
    return max(before) if before else min(begun, default=0)
