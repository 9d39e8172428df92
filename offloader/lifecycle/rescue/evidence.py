"""What a rescue says of a ledger: evidence for people, and for the second phase once it was read back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from offloader.errors import DamagedRecordError, FormatVersionError, StoreUnavailableError
from offloader.lifecycle.explaining.words import moment_text
from offloader.lifecycle.ledgers.evidence import Fact, LedgerEvidence, LedgerVerdict
from offloader.lifecycle.ledgers.scanned import LedgerScan
from offloader.lifecycle.rescue.objects import damage_of_rescue
from offloader.metadata.rescue_log import Rescues
from offloader.metadata.rescues import RescuedLedger


@dataclass(frozen=True, slots=True)
class RescueEvidence:
    """`open_rescues`: where they are recorded, opened only where something is asked. `stopping`: to end soon."""

    open_rescues: Callable[[], Rescues]
    stopping: Callable[[], bool] = lambda: False

    def told(self, scan: LedgerScan) -> LedgerScan:
        """A scan whose kept ledgers say whether they were rescued: by the records alone. Raises what the store does."""
        if not any(one.kept for one in scan.verdicts):
            return scan
        rescues = self.open_rescues()
        there = set(rescues.ledgers())
        verdicts = (self._by_record(rescues, one) if one.ledger.ledger in there else one for one in scan.verdicts)
        return replace(scan, verdicts=tuple(verdicts))

    def proven(self, verdict: LedgerVerdict) -> tuple[LedgerVerdict, int]:
        """The same of one ledger, where all that was rescued of it was read back just now; and the number of the record
        that says so. Raises DamagedRecordError, FormatVersionError, and what the store raises."""
        ledger, rescues = verdict.ledger.ledger, self.open_rescues()
        newest = rescues.newest(ledger)
        found = with_rescue(verdict, newest.rescued)
        if not found.rescued or newest.rescued is None:
            return verdict, newest.slot
        damage = damage_of_rescue(rescues.store, rescues.folder(ledger, newest.slot), newest.rescued, self._go_on)
        return verdict if damage else found, newest.slot

    def _go_on(self, _bytes: int) -> None:
        if self.stopping():
            raise StoreUnavailableError("the application ends: it is read back at its next start")

    def in_force(self, ledger: int, slot: int) -> bool:
        """Whether that record still is the last word. Raises what the store raises."""
        return self.open_rescues().last_slot(ledger) == slot

    def _by_record(self, rescues: Rescues, verdict: LedgerVerdict) -> LedgerVerdict:
        if not verdict.kept:
            return verdict
        try:
            return with_rescue(verdict, rescues.rescued(verdict.ledger.ledger))
        except (DamagedRecordError, FormatVersionError):  # `orphans rescued` tells it
            return verdict


def with_rescue(verdict: LedgerVerdict, record: RescuedLedger | None) -> LedgerVerdict:
    """A verdict that says whether the ledger, as it is now, was rescued. Pure."""
    seen = verdict.ledger
    if record is None or not record.is_of(seen.created_ms, seen.last_entry, seen.length):
        return verdict
    at = moment_text(record.at)
    fact = LedgerEvidence(Fact.RESCUED, text=at)
    if not record.whole:
        fact = LedgerEvidence(Fact.RESCUED_IN_PART, other=record.entries, text=at)
    return replace(verdict, evidence=(*verdict.evidence, fact))
