"""Copies one ledger's entries into the archive. Whatever happens on the way, nothing counts before its record, which
comes last; and a rescue that was cut short is begun anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from offloader.bookkeeper.api import Bookies, LedgerMetadataStore
from offloader.bookkeeper.model import LedgerMetadata, LedgerState
from offloader.errors import (
    FatalError,
    IntegrityError,
    LedgerNotFoundError,
    OffloadError,
    OutcomeUnknownError,
    VersionConflictError,
)
from offloader.lifecycle.explaining.words import moment_text
from offloader.lifecycle.ledgers.evidence import LedgerVerdict, Standing
from offloader.lifecycle.rescue.entries import READ_AHEAD, FormerCopy, WithoutGone, check_gone, entries_of
from offloader.lifecycle.rescue.objects import RescueCuts, RescueWriter, damage_of_rescue
from offloader.metadata.rescue_log import Rescues
from offloader.metadata.rescues import NewestRescue, RescuedLedger
from offloader.ports.entry_source import RawEntry

Advance = Callable[[int], None]


class RescueOutcome(StrEnum):
    """What came of it. In all cases the record that is told counts, if there is one."""

    RESCUED = "rescued"
    ALREADY = "rescued already"
    OVERTAKEN = "rescued by somebody else"
    NO_BETTER = "not better than what was rescued before"


@dataclass(frozen=True, slots=True)
class DoneRescue:
    """`damage`: what was wrong with an earlier copy, which this one replaces."""

    outcome: RescueOutcome
    record: RescuedLedger | None
    damage: str = ""


def rescue_refusal(verdict: LedgerVerdict) -> str:
    """Why nothing of a ledger is to be rescued, and what to do; "": something is. Pure."""
    ledger = verdict.ledger
    if verdict.standing is Standing.REFERENCED:
        return "it is in use: nothing has to be rescued"
    if verdict.standing is Standing.FOREIGN:
        return "it does not say in full that it is this cluster's Pulsar's: whoever wrote it must copy it"
    if ledger.state is not LedgerState.CLOSED or ledger.last_entry is None:
        return f"it is not closed, and what is in it shows only then: `offloader ledgers close {ledger.ledger}`"
    return "it has no entries" if ledger.empty else ""


@dataclass(frozen=True, slots=True)
class LedgerRescue:
    """`by`: who asks, as the record has it. `with_losses`: entries that no bookie gives are left out, and recorded;
    otherwise they are an error, unless an earlier copy has them. `gone`: bookies that, as `by` says, never come back.
    `new_uuid`: for the names of objects."""

    rescues: Rescues
    ledgers: LedgerMetadataStore
    bookies: Bookies
    new_uuid: Callable[[], str]
    clock_ms: Callable[[], int]
    by: str
    with_losses: bool = False
    gone: frozenset[str] = frozenset()
    cuts: RescueCuts = field(default_factory=RescueCuts)
    read_ahead: int = READ_AHEAD

    def run(self, verdict: LedgerVerdict, advance: Advance) -> DoneRescue:
        """Copy a ledger that `rescue_refusal` has nothing against. `advance` hears bytes of entries, twice over.

        Raises OffloadError: nothing counts that did not before; OutcomeUnknownError: that must be looked up."""
        check_gone(self.gone, self.ledgers)
        ledger = verdict.ledger.ledger
        metadata = self._same(verdict)
        newest = self.rescues.newest(ledger)
        former, damage = newest.rescued, ""
        if former is not None and not former.may_be_of(metadata.last_entry, metadata.length):
            raise _another(former)
        again = former is not None and former.created != metadata.listed_ms
        if former is not None and not again:
            damage = damage_of_rescue(self.rescues.store, self.rescues.folder(ledger, newest.slot), former, advance)
            if not damage and former.whole:
                return DoneRescue(RescueOutcome.ALREADY, former)
        record = self._copied(verdict, metadata, newest, advance)
        check_gone(self.gone, self.ledgers)  # still: it may have what was just left out
        if former is not None and again and record.sha256 != former.sha256:
            raise _another(former)
        if former is not None and not (again or damage) and record.entries <= former.entries:
            return DoneRescue(RescueOutcome.NO_BETTER, former)
        wrong = damage_of_rescue(self.rescues.store, self.rescues.folder(ledger, newest.slot + 1), record, advance)
        if wrong:
            raise IntegrityError(f"ledger {ledger}: what was just written cannot be read back: {wrong}")
        return self._recorded(record, newest, damage)

    def _same(self, verdict: LedgerVerdict) -> LedgerMetadata:
        """The metadata, if they are those that were judged. Raises LedgerNotFoundError, VersionConflictError."""
        metadata = self.ledgers.read(verdict.ledger.ledger).metadata
        if (metadata.listed_ms, metadata.state) != (verdict.ledger.created_ms, LedgerState.CLOSED):
            raise VersionConflictError(f"ledger {verdict.ledger.ledger} was changed meanwhile: look again")
        return metadata

    def _copied(
        self, verdict: LedgerVerdict, metadata: LedgerMetadata, newest: NewestRescue, advance: Advance
    ) -> RescuedLedger:
        ledger, folder = verdict.ledger.ledger, self.rescues.folder(verdict.ledger.ledger, newest.slot + 1)
        writer = RescueWriter(self.rescues.store, folder, metadata.last_entry, self.new_uuid, self.clock_ms, self.cuts)
        former = self._former(newest, metadata)

        def instead(entry: int, error: OffloadError) -> RawEntry | None:
            try:
                self._same(verdict)
            except (LedgerNotFoundError, VersionConflictError) as gone:  # whoever deleted it has its bookies forget it
                raise LedgerNotFoundError(f"ledger {ledger} was deleted while it was copied: {gone}") from gone
            found = None if former is None else former.entry(entry)
            if found is None:
                if not self.with_losses:
                    raise error
                writer.lose(ledger, entry, str(error), self.by)
            return found

        bookies = WithoutGone(self.bookies, self.gone, self.by)
        for run in entries_of(bookies, ledger, metadata, instead, self.read_ahead):
            writer.take(run)
            advance(sum(len(one.data) for one in run))
        writer.end_object()
        return self._checked(_record(verdict, metadata, writer, self.clock_ms(), self.by))

    def _former(self, newest: NewestRescue, metadata: LedgerMetadata) -> FormerCopy | None:
        """What was rescued of this very ledger before: what it has, no later rescue may lack."""
        record = newest.rescued
        if record is None or not record.is_of(metadata.listed_ms, metadata.last_entry, metadata.length):
            return None
        return FormerCopy(self.rescues.store, self.rescues.folder(record.ledger, newest.slot), record)

    def _checked(self, record: RescuedLedger) -> RescuedLedger:
        if not record.segments:
            raise IntegrityError(f"ledger {record.ledger}: none of its entries can be read")
        if not record.losses and (record.entries, record.payload) != (record.last_entry + 1, record.length):
            raise IntegrityError(
                f"ledger {record.ledger}: its bookies gave {record.entries} entries with {record.payload} bytes, its "
                f"metadata say {record.last_entry + 1} with {record.length}"
            )
        return record

    def _recorded(self, record: RescuedLedger, former: NewestRescue, damage: str) -> DoneRescue:
        """Write the record, if nobody else has written one since."""
        try:
            ours = self.rescues.write(record.ledger, former.slot + 1, record, self.new_uuid)
        except OutcomeUnknownError:
            if self.rescues.rescued(record.ledger) != record:
                raise
            ours = True
        if ours:
            return DoneRescue(RescueOutcome.RESCUED, record, damage)
        return DoneRescue(RescueOutcome.OVERTAKEN, self.rescues.rescued(record.ledger))


def _another(former: RescuedLedger) -> FatalError:
    return FatalError(
        f"ledger {former.ledger}: the archive has a copy of another ledger that had this id, made on "
        f"{moment_text(former.created)}, or of this one before its node was made again. It may be the only one, and "
        f"nothing replaces it. Where it may go: `offloader orphans forget {former.ledger} --yes`"
    )


def _record(
    verdict: LedgerVerdict, metadata: LedgerMetadata, writer: RescueWriter, now_ms: int, by: str
) -> RescuedLedger:
    return RescuedLedger(
        ledger=verdict.ledger.ledger,
        created=metadata.listed_ms or 0,
        last_entry=metadata.last_entry,
        length=metadata.length,
        kind=str(verdict.kind),
        managed_ledger=verdict.ledger.purpose.managed_ledger,
        digest_type=metadata.digest.name,
        ensemble_size=metadata.ensemble_size,
        write_quorum=metadata.write_quorum,
        ack_quorum=metadata.ack_quorum,
        custom=tuple(sorted(metadata.custom.items())),
        segments=tuple(writer.segments),
        losses=tuple(writer.losses),
        sha256=writer.sha256,
        at=now_ms,
        by=by,
    )
