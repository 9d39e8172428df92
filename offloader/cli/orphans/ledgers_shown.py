"""A scan of ledgers as lines for people, and as fields for programs. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from offloader.lifecycle.candidates import OrphanCandidate, OrphanSide
from offloader.lifecycle.explaining.words import counted
from offloader.lifecycle.ledgers.evidence import Standing
from offloader.lifecycle.ledgers.kinds import LedgerKind
from offloader.lifecycle.ledgers.scanned import AGES, Heap, LedgerScan
from offloader.lifecycle.ledgers.told import leftover_told, missing_told, refusal_told
from offloader.model import GIB
from offloader.operations.cost.prices import PriceList

_ORPHANS = (Standing.CERTAIN, Standing.SUSPECT)


def candidate_fields(candidate: OrphanCandidate) -> dict[str, object]:
    """A ledger's id is a number, a key is text. `bytes` is null where nobody knows them."""
    ledger = candidate.side is OrphanSide.BOOKKEEPER
    return {
        "side": str(candidate.side),
        "id": int(candidate.id) if ledger else candidate.id,
        "kind": candidate.kind,
        "verdict": str(candidate.verdict),
        "bytes": candidate.size,
        "evidence": list(candidate.evidence),
        "createdMs": candidate.created_ms,
        "kept": candidate.kept,
    }


def missing_fields(scan: LedgerScan) -> list[dict[str, object]]:
    """What is referenced but missing, each ledger once."""
    missing: dict[int, list[str]] = {}
    for one in scan.missing:
        missing.setdefault(one.ledger, []).append(one.referee.node)
    return [{"id": ledger, "namedBy": nodes} for ledger, nodes in missing.items()]


def ledger_counts(scan: LedgerScan) -> dict[str, int]:
    """How many there are of what."""
    return {
        **{str(standing): scan.counts.get(standing, 0) for standing in Standing},
        "missing": len(missing_fields(scan)),
        "kept": sum(one.kept for one in scan.verdicts),
        "ledgers": scan.ledgers,
        "candidates": len(scan.verdicts),
    }


def leftover_fields(scan: LedgerScan) -> list[dict[str, object]]:
    """Managed ledgers that go as a whole."""
    return [
        {
            "name": one.name,
            "verdict": str(one.standing),
            "ledgers": list(one.ledgers),
            "bytes": one.size,
            "evidence": list(leftover_told(one)),
        }
        for one in scan.leftovers
    ]


def ledger_summary(scan: LedgerScan) -> list[dict[str, object]]:
    """Bytes by kind, verdict and age."""
    return [
        {
            "side": str(OrphanSide.BOOKKEEPER),
            "kind": str(key.kind),
            "verdict": str(key.standing),
            "age": key.age,
            "ledgers": heap.number,
            "bytes": None if key.standing is Standing.REFERENCED else heap.size,
            "bytesOfAllCopies": None if key.standing is Standing.REFERENCED else heap.stored,
            "open": None if key.standing is Standing.REFERENCED else heap.unsized,
        }
        for key, heap in sorted(scan.summary.heaps.items())
    ]


def ledger_lines(scan: LedgerScan, prices: PriceList) -> Iterator[str]:
    """The sums for people."""
    counts = {standing: scan.counts.get(standing, 0) for standing in Standing}
    yield (
        f"{counted(scan.ledgers, 'ledger')} in BookKeeper: {counts[Standing.REFERENCED]} in use, "
        f"{counts[Standing.CERTAIN]} certain orphans, {counts[Standing.SUSPECT]} suspect, "
        f"{counts[Standing.FOREIGN]} foreign"
    )
    yield from _counted("in use", scan, Standing.REFERENCED)
    yield from _counted("foreign", scan, Standing.FOREIGN)
    by_kind = scan.summary.grouped(lambda key: (key.kind, key.standing) if key.standing in _ORPHANS else None)
    if by_kind:
        yield "orphans by kind:"
    for (kind, standing), heap in sorted(by_kind.items()):
        yield f"  {kind}, {standing}: {_heap(heap, prices)}"
    by_age = scan.summary.grouped(lambda key: key.age if key.standing in _ORPHANS else None)
    if by_age:
        yield "orphans by age:"
    for age in AGES:
        if age in by_age:
            yield f"  {age}: {_heap(by_age[age], prices)}"


def _counted(title: str, scan: LedgerScan, standing: Standing) -> Iterator[str]:
    heaps = scan.summary.grouped(lambda key: key.kind if key.standing is standing else None)
    if set(heaps) - {LedgerKind.FOREIGN}:  # of what is foreign that mostly is all that is known
        yield f"{title}: {', '.join(f'{heap.number} {kind}' for kind, heap in sorted(heaps.items()))}"


def ledger_notes(scan: LedgerScan) -> Iterator[str]:
    """What else a scan of ledgers found, and what stands against a deletion."""
    for leftover in scan.leftovers:
        yield f"left over, {leftover.standing}: " + " ".join(leftover_told(leftover))
    for missing in scan.missing:
        yield "missing: " + " ".join(missing_told(missing))
    if scan.refusals:
        yield "nothing would be deleted:"
    yield from (f"  {refusal_told(one)}" for one in scan.refusals)


def candidate_line(candidate: OrphanCandidate) -> str:
    """One candidate, of whichever side."""
    size = "open" if candidate.size is None else f"{candidate.size} bytes"
    kept = ", kept" if candidate.kept else ""
    return (
        f"{candidate.verdict}  {candidate.side}  {candidate.id}  {candidate.kind}, {size}{kept}: "
        f"{' '.join(candidate.evidence)}"
    )


def _heap(heap: Heap, prices: PriceList) -> str:
    still_open = f", {heap.unsized} of them open" if heap.unsized else ""
    cost = prices.text(prices.on_bookies(heap.stored))
    monthly = cost and f", {cost} a month"
    copies = f", with all copies {heap.stored} bytes ({heap.stored / GIB:.2f} GiB){monthly}"
    return f"{counted(heap.number, 'ledger')}{still_open}, {heap.size} bytes ({heap.size / GIB:.2f} GiB){copies}"
