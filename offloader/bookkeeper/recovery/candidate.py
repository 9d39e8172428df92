"""One entry that may belong to the ledger: what its bookies said of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from offloader.bookkeeper.recovery.decisions import (
    EntryVerdict,
    MissingBookies,
    covers,
    judge,
    judge_write_back,
    missing,
)
from offloader.bookkeeper.recovery.messages import Answered, Held, ReadEntry, WriteBack
from offloader.bookkeeper.status import Answer

NOBODY: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Candidate:
    """An entry, its write set and the answers so far. `holders`: the bookies that are to hold it once the ledger is
    closed; none until it and all entries before it are known to be recoverable."""

    entry: int
    write_set: tuple[str, ...]
    ack_quorum: int
    negative: frozenset[str] = NOBODY
    unknown: frozenset[str] = NOBODY
    held: Held | None = None
    holders: tuple[str, ...] = ()
    accepted: frozenset[str] = NOBODY
    refused: frozenset[str] = NOBODY

    @property
    def writing(self) -> bool:
        """Whether it is being written back."""
        return bool(self.holders)

    def reads(self, *, fence: bool) -> tuple[ReadEntry, ...]:
        """What to send to learn of it: to all of its write set at once."""
        return tuple(ReadEntry(bookie, self.entry, fence) for bookie in sorted(set(self.write_set)))

    def placed(self, holders: tuple[str, ...], *, dry: bool) -> tuple[Candidate, tuple[WriteBack, ...]]:
        """To be held by these, and what to send: to nobody twice, but also to those that have it."""
        assert self.held is not None
        more = sorted(set(holders).difference(self.holders, self.accepted))
        return replace(self, holders=holders), tuple(WriteBack(bookie, self.held, dry) for bookie in more)

    def after(self, event: Answered) -> Candidate:
        """With one answer more; those that come after the first positive one change nothing."""
        bookie = event.request.bookie
        if isinstance(event.request, WriteBack):
            if event.answer is Answer.POSITIVE:
                return replace(self, accepted=self.accepted | {bookie})
            return replace(self, refused=self.refused | {bookie})
        if self.held is not None or bookie in self.negative or bookie in self.unknown:
            return self
        if event.answer is Answer.POSITIVE and event.held is not None:
            return replace(self, held=event.held, negative=NOBODY, unknown=NOBODY)
        if event.answer is Answer.NEGATIVE:
            return replace(self, negative=self.negative | {bookie})
        return replace(self, unknown=self.unknown | {bookie})

    @property
    def verdict(self) -> EntryVerdict:
        """Whether it belongs to the ledger."""
        positive = NOBODY if self.held is None else self.write_set
        return judge(self.write_set, self.ack_quorum, positive=positive, negative=self.negative, unknown=self.unknown)

    @property
    def proven(self) -> EntryVerdict:
        """The same for an acknowledged entry, which denials only show to be lost. ABORT: nobody has it."""
        if self.held is not None:
            return EntryVerdict.RECOVERABLE
        heard = self.negative | self.unknown
        return EntryVerdict.ABORT if heard.issuperset(self.write_set) else EntryVerdict.UNDECIDED

    @property
    def safe(self) -> EntryVerdict:
        """Whether its write-backs have come to enough of its holders. What others took counts no more."""
        return judge_write_back(self.holders, self.ack_quorum, accepted=self.accepted, refused=self.refused)

    @property
    def missing_answers(self) -> MissingBookies:
        """Who must answer, in place of *unknown*, before there is a verdict."""
        return missing(self.unknown, lambda back: covers(self.write_set, self.ack_quorum, self.negative | back))

    @property
    def missing_copies(self) -> MissingBookies:
        """Who must take the entry before it is safe."""
        kept = self.accepted.intersection(self.holders)
        return missing(self.refused, lambda back: len(kept | back) >= self.ack_quorum)
