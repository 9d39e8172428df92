"""What a scan found on both sides, as lines for people and as one object for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from offloader.cli.orphans.bucket import bucket_counts, bucket_lines, bucket_notes, bucket_summary
from offloader.cli.orphans.ledgers_shown import (
    candidate_fields,
    candidate_line,
    ledger_counts,
    ledger_lines,
    ledger_notes,
    ledger_summary,
    leftover_fields,
    missing_fields,
)
from offloader.lifecycle.bucket.orphans import ObjectScan
from offloader.lifecycle.candidates import OrphanCandidate, OrphanSide
from offloader.lifecycle.ledgers.scanned import LedgerScan
from offloader.lifecycle.ledgers.told import as_candidate, refusal_told
from offloader.operations.cost.prices import PriceList

_OF_BOTH = ("referenced", "certain", "suspect", "foreign", "kept", "candidates")


@dataclass(frozen=True, slots=True)
class FoundOrphans:
    """None: that side was not scanned."""

    ledgers: LedgerScan | None
    objects: ObjectScan | None

    @property
    def candidates(self) -> tuple[OrphanCandidate, ...]:
        """Ledgers first."""
        ledgers = () if self.ledgers is None else tuple(as_candidate(one) for one in self.ledgers.verdicts)
        return ledgers + (() if self.objects is None else self.objects.candidates)

    def fields(self) -> dict[str, object]:
        """The whole report."""
        return {
            "candidates": [candidate_fields(one) for one in self.candidates],
            "referencedButMissing": [] if self.ledgers is None else missing_fields(self.ledgers),
            "counts": self._counts(),
            "leftOverManagedLedgers": [] if self.ledgers is None else leftover_fields(self.ledgers),
            "summary": [
                *([] if self.ledgers is None else ledger_summary(self.ledgers)),
                *([] if self.objects is None else bucket_summary(self.objects)),
            ],
            "refusals": list(self._refusals()),
            "keepsVersions": None if self.objects is None else self.objects.keeps_versions,
        }

    def lines(self, prices: PriceList, most: int) -> Iterator[str]:
        """`most`: candidates that are shown one by one."""
        if self.ledgers is not None:
            yield from ledger_lines(self.ledgers, prices)
        if self.objects is not None:
            yield from bucket_lines(self.objects)
        candidates = self.candidates
        yield from (candidate_line(one) for one in candidates[:most])
        if len(candidates) > most:
            yield f"… and {len(candidates) - most} more: --show {len(candidates)}, or --output json, has all"
        if self.ledgers is not None:
            yield from ledger_notes(self.ledgers)
        if self.objects is not None:
            yield from bucket_notes(self.objects)

    def _counts(self) -> dict[str, object]:
        """Of both sides together, and of each."""
        sides = {
            **({} if self.ledgers is None else {str(OrphanSide.BOOKKEEPER): ledger_counts(self.ledgers)}),
            **({} if self.objects is None else {str(OrphanSide.BUCKET): bucket_counts(self.objects)}),
        }
        each = sides.values()
        return {
            **{what: sum(one[what] for one in each) for what in _OF_BOTH},
            **{what: sum(one.get(what, 0) for one in each) for what in ("missing", "ledgers", "objects")},
            "sides": sides,
        }

    def _refusals(self) -> Iterator[dict[str, object]]:
        for one in () if self.ledgers is None else self.ledgers.refusals:
            yield {"side": str(OrphanSide.BOOKKEEPER), "kind": str(one.kind), "message": refusal_told(one)}
        for message in () if self.objects is None else self.objects.refusals:
            yield {"side": str(OrphanSide.BUCKET), "kind": "bucket", "message": message}
