"""The second phase with the bookies: read on from the last confirmed entry, and write back what is found. Pure.

It asks for several entries at once and decides on them in order. What lies behind an entry that is not there does not
belong to the ledger. It writes an entry back only when all entries before it are known to belong to the ledger. If too
few bookies take an entry back, others replace those that did not, from the first entry on that is not safe yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import NamedTuple

from offloader.bookkeeper.model import LedgerMetadata
from offloader.bookkeeper.recovery.decisions import (
    EntryVerdict,
    MissingBookies,
    covers,
    judge,
    judge_write_back,
    missing,
)
from offloader.bookkeeper.recovery.messages import Answered, BookieRequest, Held, ReadEntry, ReadLast, WriteBack
from offloader.bookkeeper.recovery.replacing import with_others
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


class Reading(NamedTuple):
    """How the forward reads are done. `window`: entries asked for at once. A dry run neither fences nor writes back: it
    only asks each bookie whether it would take an entry."""

    window: int = 8
    dry: bool = False


class Stop(NamedTuple):
    """Why the ledger cannot be closed now, and who must come back; nobody where that would not help."""

    reason: str
    missing: MissingBookies = MissingBookies(0, ())


@dataclass(frozen=True, slots=True)
class Forward:
    """`metadata`: as it was read; it says who may have an entry. `written`: the same with the ensembles that the ledger
    is to be closed with; it says who is to hold one. `spares`: bookies that can take another's place, in order; those
    that lost theirs come last.

    `end`: the last entry that is safe, `length` its length where it was seen. `sealed`: the entry that is not there;
    behind it only write-backs are waited for. `confirmed`: the highest LAC heard of. `stop`: it does not go on.
    """

    metadata: LedgerMetadata
    written: LedgerMetadata
    spares: tuple[str, ...]
    reading: Reading
    end: int
    length: int | None
    confirmed: int
    candidates: tuple[Candidate, ...] = ()
    sealed: Candidate | None = None
    stop: Stop | None = None

    @property
    def ended(self) -> bool:
        """Whether `end` is the ledger's last entry."""
        return self.sealed is not None and not self.candidates

    def begin(self) -> Advance:
        """The first requests."""
        return _extend(self, ())

    def hearing(self, event: Answered) -> Forward:
        """With what it says, however late, of acknowledged entries: none of them may have been left out."""
        confirmed = max(self.confirmed, event.heard)
        stop = lost(self.sealed) if self.sealed is not None and self.sealed.entry <= confirmed else self.stop
        return replace(self, confirmed=confirmed, stop=stop)

    def after(self, event: Answered) -> Advance:
        """With one answer more. An answer that nothing waits for any more changes no verdict."""
        forward = self.hearing(event)
        if forward.stop is not None or isinstance(event.request, ReadLast):
            return forward, ()
        entry = event.request.entry
        candidates = tuple(c.after(event) if c.entry == entry else c for c in self.candidates)
        return (forward, ()) if candidates == self.candidates else _advance(replace(forward, candidates=candidates))


Advance = tuple[Forward, tuple[BookieRequest, ...]]


def _advance(forward: Forward) -> Advance:
    """Decide in order, as far as the answers allow."""
    decided: list[Candidate] = []
    writes: list[BookieRequest] = []
    for number, candidate in enumerate(forward.candidates):
        acknowledged = candidate.entry <= forward.confirmed
        match candidate.proven if acknowledged else candidate.verdict:
            case EntryVerdict.RECOVERABLE:
                placed, sent = _placed(forward, candidate)
                writes += sent
                decided.append(placed)
            case EntryVerdict.UNRECOVERABLE:
                forward = replace(forward, sealed=candidate)
                break
            case EntryVerdict.ABORT:
                return replace(forward, stop=lost(candidate) if acknowledged else _undecided(candidate)), ()
            case EntryVerdict.UNDECIDED:
                decided += forward.candidates[number:]
                break
    forward, more = _replace(_keep(forward, decided))
    forward = _keep(forward, list(forward.candidates))  # one that has its place again may have taken entries before
    return _extend(forward, (*writes, *more))


def _placed(forward: Forward, candidate: Candidate) -> tuple[Candidate, Sequence[BookieRequest]]:
    """It belongs to the ledger: on those bookies that are to hold it."""
    return candidate.placed(forward.written.write_set(candidate.entry), dry=forward.reading.dry)


def _keep(forward: Forward, candidates: list[Candidate]) -> Forward:
    """These are left; the first ones of them that are safe become part of the ledger."""
    safe = list(takewhile(lambda c: c.writing and c.safe is EntryVerdict.RECOVERABLE, candidates))
    forward = replace(forward, candidates=tuple(candidates[len(safe) :]))
    last = safe[-1].held if safe else None
    return forward if last is None else replace(forward, end=last.entry, length=last.length)


def _replace(forward: Forward) -> Advance:
    """Put other bookies in the place of those that refuse an entry that is not safe, and ask none twice to take it."""
    writes: list[BookieRequest] = []
    while (unsafe := _unsafe_in(forward)) is not None:
        refusing = NOBODY.union(*(candidate.refused for candidate in forward.candidates))
        usable = tuple(bookie for bookie in forward.spares if bookie not in refusing)
        written, taken, replaced = with_others(forward.written, forward.end + 1, unsafe.refused, usable)
        if not taken:
            return replace(forward, stop=_unsafe(unsafe, forward.reading)), ()
        left = tuple(bookie for bookie in forward.spares if bookie not in taken)
        forward = replace(forward, written=written, spares=(*left, *replaced))
        candidates = []
        for candidate in forward.candidates:
            placed, sent = _placed(forward, candidate) if candidate.writing else (candidate, ())
            candidates.append(placed)
            writes += sent
        forward = replace(forward, candidates=tuple(candidates))
    return forward, tuple(writes)


def _unsafe_in(forward: Forward) -> Candidate | None:
    return next((c for c in forward.candidates if c.writing and c.safe is EntryVerdict.ABORT), None)


def _extend(forward: Forward, writes: Iterable[BookieRequest]) -> Advance:
    """Ask for as many entries as the window has room for."""
    if forward.stop is not None:
        return forward, ()
    if forward.sealed is not None:
        return forward, tuple(writes)
    candidates = forward.candidates
    first = candidates[-1].entry + 1 if candidates else forward.end + 1
    entries = range(first, first + forward.reading.window - len(candidates))
    added = tuple(Candidate(entry, _asked(forward, entry), forward.metadata.ack_quorum) for entry in entries)
    reads = (read for candidate in added for read in candidate.reads(fence=not forward.reading.dry))
    return replace(forward, candidates=(*candidates, *added)), (*writes, *reads)


def _asked(forward: Forward, entry: int) -> tuple[str, ...]:
    """Those that may have it: bookies that have just taken another's place have nothing."""
    return forward.metadata.write_set(entry)


def _undecided(candidate: Candidate) -> Stop:
    return Stop(f"entry {candidate.entry} can be neither found nor ruled out", candidate.missing_answers)


def _unsafe(candidate: Candidate, reading: Reading) -> Stop:
    accepted = len(candidate.accepted.intersection(candidate.holders))
    taken = (
        f"only {accepted} of {candidate.ack_quorum} bookies that must hold it {'would take' if reading.dry else 'took'}"
    )
    why = f"entry {candidate.entry} was found, but {taken} it, and no other bookie is left to"
    return Stop(why, candidate.missing_copies)


def lost(candidate: Candidate) -> Stop:
    """An acknowledged entry that nobody gave. Bookies that deny it have lost it: the others must come back."""
    others = tuple(sorted(set(candidate.write_set) - candidate.negative))
    back = MissingBookies(1 if others else 0, others)
    liars = ", ".join(sorted(candidate.negative))
    if not liars:
        return Stop(f"entry {candidate.entry} was acknowledged but cannot be read", back)
    denied = f"{liars} answered that they do not have it: some have lost their disks"
    return Stop(f"entry {candidate.entry} was acknowledged, but {denied}", back)
