"""The second phase with the bookies: read on from the last confirmed entry, entry by entry, and write back what is found. Pure.

Several entries are asked for at once, but decided in order: what lies behind an entry that is not there does not belong to the ledger,
and nothing is written back before all entries before it are known to belong to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from offloader.bookkeeper.model import LedgerMetadata
from offloader.bookkeeper.recovery.candidate import Candidate
from offloader.bookkeeper.recovery.decisions import Missing, Verdict
from offloader.bookkeeper.recovery.messages import Answered, BookieRequest, ReadLast


class Reading(NamedTuple):
    """How the forward reads are done. `window`: entries asked for at once. A dry run neither fences nor writes back."""

    window: int = 8
    dry: bool = False


class Stop(NamedTuple):
    """Why the ledger cannot be closed now, and who must come back; nobody where that would not help."""

    reason: str
    missing: Missing = Missing(0, ())


@dataclass(frozen=True, slots=True)
class Forward:
    """`end`: the last entry that is safe, `length` its length where it was seen. `sealed`: the entry that is not there;
    once it was found, only write-backs are still waited for. `confirmed`: the highest LAC heard of. `stop`: it does not go on."""

    metadata: LedgerMetadata
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
        """With what it says of acknowledged entries: one that was left out must not be among them, however late that is said."""
        confirmed = max(self.confirmed, event.heard)
        stop = lost(self.sealed) if self.sealed is not None and self.sealed.entry <= confirmed else self.stop
        return replace(self, confirmed=confirmed, stop=stop)

    def after(self, event: Answered) -> Advance:
        """With one answer more. An answer to a question that is not open any more changes no verdict."""
        forward = self.hearing(event)
        if forward.stop is not None:
            return forward, ()
        if isinstance(event.request, ReadLast):
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
            case Verdict.RECOVERABLE:
                writes += () if candidate.writing or forward.reading.dry else candidate.writes()
                decided.append(replace(candidate, writing=True))
            case Verdict.UNRECOVERABLE:
                forward = replace(forward, sealed=candidate)
                break
            case Verdict.ABORT:
                return replace(forward, stop=lost(candidate) if acknowledged else _undecided(candidate)), ()
            case Verdict.UNDECIDED:
                decided += forward.candidates[number:]
                break
    return _extend(_keep(forward, decided), writes)


def _keep(forward: Forward, candidates: list[Candidate]) -> Forward:
    """These are left; the first ones of them that are safe become part of the ledger."""
    end, length = forward.end, forward.length
    while candidates and (held := candidates[0].held) is not None and _is_safe(forward.reading, candidates[0]):
        end, length = held.entry, held.length
        candidates = candidates[1:]
    unsafe = next((c for c in candidates if c.writing and c.safe is Verdict.ABORT), None)
    stop = None if unsafe is None else _unsafe(unsafe)
    return replace(forward, end=end, length=length, candidates=tuple(candidates), stop=stop)


def _is_safe(reading: Reading, candidate: Candidate) -> bool:
    return candidate.writing and (reading.dry or candidate.safe is Verdict.RECOVERABLE)


def _extend(forward: Forward, writes: Iterable[BookieRequest]) -> Advance:
    """Ask for as many entries as the window has room for."""
    if forward.stop is not None:
        return forward, ()
    if forward.sealed is not None:
        return forward, tuple(writes)
    metadata, candidates = forward.metadata, forward.candidates
    first = candidates[-1].entry + 1 if candidates else forward.end + 1
    entries = range(first, first + forward.reading.window - len(candidates))
    added = tuple(Candidate(entry, metadata.write_set(entry), metadata.ack_quorum) for entry in entries)
    reads = (read for candidate in added for read in candidate.reads(fence=not forward.reading.dry))
    return replace(forward, candidates=(*candidates, *added)), (*writes, *reads)


def _undecided(candidate: Candidate) -> Stop:
    return Stop(f"entry {candidate.entry} can be neither found nor ruled out", candidate.missing_answers)


def _unsafe(candidate: Candidate) -> Stop:
    taken = f"{len(candidate.accepted)} of {candidate.ack_quorum} bookies"
    return Stop(f"entry {candidate.entry} was found, but only {taken} that must hold it took it", candidate.missing_copies)


def lost(candidate: Candidate) -> Stop:
    """An entry that was acknowledged, and that nobody gave. Bookies that deny it have lost it: the others must come back."""
    others = tuple(sorted(set(candidate.write_set) - candidate.negative))
    back = Missing(1 if others else 0, others)
    liars = ", ".join(sorted(candidate.negative))
    if not liars:
        return Stop(f"entry {candidate.entry} was acknowledged but cannot be read", back)
    return Stop(
        f"entry {candidate.entry} was acknowledged, but {liars} answered that they do not have it: some have lost their disks",
        back,
    )
