"""A topic's ledgers that stock brokers offloaded, which of them are bridged, and these with its own catalog as one
sequence. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from offloader.archive.findings import Finding
from offloader.archive.snapshot import OffloadedLedger, TopicSnapshot
from offloader.bridge.core.rounds import BridgedLedgers
from offloader.metadata.state import TopicCatalog
from offloader.model import LedgerList, LedgerSpan, Position, TopicName
from offloader.state.managed_ledger import ManagedLedger


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


def found_in(topic: TopicName, listed: ManagedLedger, url_of: Callable[[str], str] = lambda _: "") -> FoundLedgers:
    """The ledgers with a complete copy. `url_of`: the URL of the store with a bucket's objects ("": none is named)."""
    lasts = [listed.last_entry(one) for one in listed.ledgers]
    offloaded = (
        OffloadedLedger(
            Position(0, one.ledger, 0), Position(0, one.ledger, last), one.copy.uuid, one.size, url_of(one.copy.bucket)
        )
        for one, last in zip(listed.ledgers, lasts, strict=True)
        if one.copy.complete and one.copy.uuid and last is not None and last >= 0
    )
    spans = (LedgerSpan(one.ledger, last) for one, last in zip(listed.ledgers, lasts, strict=True))
    return FoundLedgers(topic, tuple(offloaded), LedgerList(tuple(spans)), listed.created_ms)


def joined(catalog: TopicCatalog, found: FoundLedgers) -> TopicSnapshot:
    """What can be read of the topic, from segments where they have it: their records say more.

    Where Pulsar lists its ledgers, one that is neither offloaded nor in a segment is missing.
    """
    held = (*found.ledgers, *_doubtful(catalog, found))
    ledgers = tuple(sorted((_placed(catalog, found, ledger) for ledger in held), key=lambda one: one.start))
    return TopicSnapshot(catalog.topic, catalog, ledgers, found.listed)


def _doubtful(catalog: TopicCatalog, found: FoundLedgers) -> Iterator[OffloadedLedger]:
    """Those that may be this topic's. Between our own segments none is missing, or the catalog shows it."""
    if catalog.claim is None and not found.ledgers:
        return
    known = {held.start.ledger for held in found.ledgers}
    for one in found.doubtful:
        ledger, segments = one.start.ledger, catalog.segments
        inside = bool(segments) and segments[0].start.ledger <= ledger <= segments[-1].end.ledger
        if ledger not in known and not inside:
            yield one


def _placed(catalog: TopicCatalog, found: FoundLedgers, ledger: OffloadedLedger) -> OffloadedLedger:
    """With the incarnation that the ledger is of: Pulsar lists the ledgers of the present one only."""
    if found.listed is None:
        incarnation = _incarnation_of(catalog, ledger.start.ledger)
    elif catalog.claim is None:
        incarnation = 0
    else:  # the catalog may not have heard of the present one
        same = found.created is None or catalog.head.is_of(found.created, found.listed)
        incarnation = catalog.claim.incarnation + (not same)
    start, end = (position._replace(incarnation=incarnation) for position in (ledger.start, ledger.end))
    return replace(ledger, start=start, end=end)


def _incarnation_of(catalog: TopicCatalog, ledger: int) -> int:
    """Ledger ids grow over incarnations: the last one that is known to have begun before, or else the first known."""
    begun = {s.start.incarnation: s.start.ledger for s in reversed(catalog.segments)}
    if catalog.claim is not None:
        begun.setdefault(catalog.claim.incarnation, catalog.claim.begin.ledger)
    before = [incarnation for incarnation, first in begun.items() if first <= ledger]
    return max(before) if before else min(begun, default=0)


def without_bridged(found: FoundLedgers, bridged: BridgedLedgers) -> FoundLedgers:
    """Without the objects of a round that is under way, which may be there in part. Those of finished rounds are as our
    log says, whatever became of them: brokers own them."""
    ours = bridged.uuids
    if not ours:
        return found
    known = (_known(each, bridged) for each in found.ledgers if each.uuid not in bridged.under_way)
    told = tuple(each for each in found.contradictions if not {each.taken, each.other} & ours)
    return replace(found, ledgers=tuple(known), contradictions=told)


def _known(found: OffloadedLedger, bridged: BridgedLedgers) -> OffloadedLedger:
    ours = bridged.ledgers.get(found.start.ledger)
    if ours is None or ours.ledger.uuid != found.uuid:
        return found
    return replace(OffloadedLedger.of(ours), store=found.store)
