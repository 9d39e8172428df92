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
from offloader.bookkeeper.recovery.candidate import NOBODY, Candidate
from offloader.bookkeeper.recovery.decisions import EntryVerdict, MissingBookies
from offloader.bookkeeper.recovery.messages import Answered, BookieRequest, ReadLast
from offloader.bookkeeper.recovery.replacing import with_others


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
