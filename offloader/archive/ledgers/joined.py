"""A topic's ledgers that stock brokers offloaded, and its own catalog, as one sequence. Pure."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from offloader.archive.ledgers.found import FoundLedgers
from offloader.archive.stored import OffloadedLedger
from offloader.archive.view import TopicView
from offloader.metadata.state import TopicCatalog
from offloader.model import LedgerList


def joined(catalog: TopicCatalog, found: FoundLedgers) -> TopicView:
    """What can be read of the topic. It is *proven* where Pulsar's own list shows that between the ledgers nothing is missing; a ledger
    that is neither offloaded nor in a segment (it may still be in Pulsar) is missing.

    Entries that are in a segment as well are read from the segment: its record says more about them.
    """
    ledgers = tuple(sorted((_placed(catalog, found, ledger) for ledger in found.ledgers), key=lambda held: held.start))
    return TopicView(catalog.topic, catalog, ledgers, found.listed is not None and _proven(catalog, found, found.listed))


def _placed(catalog: TopicCatalog, found: FoundLedgers, ledger: OffloadedLedger) -> OffloadedLedger:
    """With the incarnation that the ledger is of."""
    incarnation = _present(catalog, found) if found.listed is not None else _incarnation_of(catalog, ledger.start.ledger)
    return replace(ledger, start=replace(ledger.start, incarnation=incarnation), end=replace(ledger.end, incarnation=incarnation))


def _present(catalog: TopicCatalog, found: FoundLedgers) -> int:
    """Pulsar lists the ledgers of the present incarnation only; it may be one that the catalog has not heard of."""
    if catalog.claim is None:
        return 0
    another = found.created not in ("", catalog.claim.created)
    return catalog.claim.incarnation + another


def _incarnation_of(catalog: TopicCatalog, ledger: int) -> int:
    """Ledger ids grow over incarnations: the last one that is known to have begun before, or else the first known."""
    begun = {s.start.incarnation: s.start.ledger for s in reversed(catalog.segments)}
    if catalog.claim is not None:
        begun.setdefault(catalog.claim.incarnation, catalog.claim.begin.ledger)
    before = [incarnation for incarnation, first in begun.items() if first <= ledger]
    return max(before) if before else min(begun, default=0)


def _proven(catalog: TopicCatalog, found: FoundLedgers, listed: LedgerList) -> bool:
    """Whether each offloaded ledger's neighbours in the archive are its neighbours in Pulsar's list. That segments follow on,
    their own records prove."""
    incarnation = _present(catalog, found)
    offloaded = {held.start.ledger for held in found.ledgers}
    ours = {held.ledger for s in catalog.segments if s.start.incarnation == incarnation for held in s.ledgers}
    archived = sorted(offloaded | ours)
    neighbours = [(a, b) for a, b in pairwise(archived) if a in offloaded or b in offloaded]
    return all(a in listed and listed.next_ledger(a) == b for a, b in neighbours)
