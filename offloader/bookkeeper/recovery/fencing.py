"""The first phase with the bookies: fence the ledger on enough of them, and hear where to begin reading. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from offloader.bookkeeper.model import NO_ENTRY, LedgerMetadata
from offloader.bookkeeper.recovery.decisions import EntryVerdict, MissingBookies, fence_covers, missing
from offloader.bookkeeper.recovery.messages import Answered, ReadLast
from offloader.bookkeeper.status import Answer


@dataclass(frozen=True, slots=True)
class Fencing:
    """`fenced`: bookies that take no more entries of the writer (in a dry run: that answered). `confirmed`: the highest
    LAC heard of. Entries carry one that lags behind, so it only says where to begin."""

    metadata: LedgerMetadata
    confirmed: int = NO_ENTRY
    fenced: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()

    def requests(self, *, fence: bool) -> tuple[ReadLast, ...]:
        """What to send: to all bookies of the last ensemble."""
        return tuple(ReadLast(bookie, fence) for bookie in sorted(set(self.metadata.fragments[-1].ensemble)))

    def after(self, event: Answered) -> Fencing:
        """With one answer more. No ledger and no entry are good answers: the bookie fenced an empty ledger."""
        bookie = event.request.bookie
        if event.answer is Answer.UNKNOWN:
            return replace(self, unknown=self.unknown | {bookie})
        return replace(self, fenced=self.fenced | {bookie}, confirmed=max(self.confirmed, event.heard))

    @property
    def verdict(self) -> EntryVerdict:
        """RECOVERABLE: the writer can acknowledge nothing more than what the forward reads will find or fence."""
        if fence_covers(self.metadata, self.fenced):
            return EntryVerdict.RECOVERABLE
        ensemble = self.metadata.fragments[-1].ensemble
        return EntryVerdict.ABORT if (self.fenced | self.unknown).issuperset(ensemble) else EntryVerdict.UNDECIDED

    @property
    def missing(self) -> MissingBookies:
        """Who must answer before the fence covers every write quorum."""
        absent = set(self.metadata.fragments[-1].ensemble) - self.fenced
        return missing(absent, lambda back: fence_covers(self.metadata, self.fenced | back))

    @property
    def floor(self) -> int:
        """The last entry that needs no recovery. Earlier fragments are complete: a writer changes its ensemble right
        behind its last acknowledged entry."""
        return max(self.confirmed, self.metadata.fragments[-1].first_entry - 1)
