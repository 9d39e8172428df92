"""The application's scheduled scan for orphans, by its configuration, and what it reports."""

from __future__ import annotations

import logging

from offloader.lifecycle.candidates import OrphanSide
from offloader.lifecycle.orphan_scan import CLASSES, ScannedSide
from offloader.metrics import Metrics

log = logging.getLogger(__name__)


class OrphanScanReport:
    """Metrics and alarms of scans. What stays the same from scan to scan is logged once."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._refused: dict[OrphanSide, tuple[str, ...]] = {}
        self._waiting: dict[OrphanSide, int] = {}

    def __call__(self, found: ScannedSide) -> None:
        orphans = [(name, found.numbers[name], found.sizes[name]) for name in CLASSES]
        self._metrics.orphans_scanned(found.side, orphans, found.quarantined, len(found.refusals))
        if found.quarantined:
            log.info("the orphan scan quarantined %d orphans of the %s", found.quarantined, found.side)
        if found.refusals and found.refusals != self._refused.get(found.side):
            log.warning(
                "the orphan scan quarantines nothing of the %s: %s",
                found.side, " ".join(found.refusals), extra={"see": "orphan-scan-refused"},
            )  # fmt: skip
        self._refused[found.side] = found.refusals
        waiting = found.numbers.total() - found.pending - found.quarantined
        if waiting > self._waiting.get(found.side, 0):
            log.warning(
                "the orphan scan found %d orphans of the %s that it does not quarantine (%s)",
                waiting, found.side, ", ".join(f"{number} {name}" for name, number, _ in orphans if number),
                extra={"see": "orphans-found"},
            )  # fmt: skip
        self._waiting[found.side] = waiting
