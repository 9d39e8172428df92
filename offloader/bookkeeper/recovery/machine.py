"""Recovery, step by step: a frozen state and an event give the next state and what to do. Pure.

Compare-and-set OPEN to IN_RECOVERY; fence; read forward and write back; compare-and-set CLOSED, with the ensembles that
changed meanwhile. Whoever finds the metadata changed reads it again and begins anew; whoever finds the ledger CLOSED
takes it as it is. Nothing is cut off: what cannot be proven ends the attempt, and the ledger stays IN_RECOVERY.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from offloader.bookkeeper.model import NO_ENTRY, LedgerMetadata, LedgerState, Versioned
from offloader.bookkeeper.recovery.decisions import EntryVerdict, MissingBookies, fence_covers, missing
from offloader.bookkeeper.recovery.forward import Candidate, Forward, Reading, Stop, lost
from offloader.bookkeeper.recovery.messages import (
    Answered,
    Distrusted,
    Event,
    MetadataRead,
    MetadataUnsettled,
    MetadataWritten,
    ReadEntry,
    ReadLast,
    ReadMetadata,
    Request,
    WriteMetadata,
)
from offloader.bookkeeper.recovery.replacing import spares
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


@dataclass(frozen=True, slots=True)
class RecoveryRules:
    """How to recover one ledger.

    `distrusted`: bookies that seem to have lost disks; their *no such entry* counts for nothing. `confirmed`: an entry
    that was acknowledged, whatever the bookies say now. `rounds`: how often the metadata may change under us.
    `writable`: registered bookies that take entries, in the order in which they replace those that do not.
    """

    reading: Reading = field(default_factory=Reading)
    distrusted: frozenset[str] = frozenset()
    confirmed: int = NO_ENTRY
    rounds: int = 20
    writable: tuple[str, ...] = ()


class HowClosed(StrEnum):
    """How it ended well."""

    CLOSED = "closed"
    ADOPTED = "was closed already"
    WOULD_CLOSE = "would be closed"  # a dry run


@dataclass(frozen=True, slots=True)
class Looking:
    """The metadata is being read."""


@dataclass(frozen=True, slots=True)
class Marking:
    """IN_RECOVERY is being written."""

    metadata: LedgerMetadata


@dataclass(frozen=True, slots=True)
class Measuring:
    """No entry was recovered, so the length is asked for: that of the last entry, which was acknowledged."""

    candidate: Candidate
    forward: Forward


@dataclass(frozen=True, slots=True)
class Closing:
    """CLOSED is to be written. What `forward` hears counts until the write is under way; then only its answer does."""

    metadata: LedgerMetadata
    forward: Forward


@dataclass(frozen=True, slots=True)
class Done:
    """The ledger is CLOSED (or would be: `forward` then still hears what late answers say of its end)."""

    metadata: LedgerMetadata
    ending: HowClosed
    forward: Forward | None = None


@dataclass(frozen=True, slots=True)
class Aborted:
    """Too little is known. The ledger stays as it is."""

    reason: str
    missing: MissingBookies


Phase = Looking | Marking | Fencing | Forward | Measuring | Closing | Done | Aborted


@dataclass(frozen=True, slots=True)
class Recovery:
    """The whole state. `versioned`: the metadata that this round goes by."""

    rules: RecoveryRules
    phase: Phase = Looking()
    versioned: Versioned | None = None
    round: int = 0

    @property
    def over(self) -> bool:
        return isinstance(self.phase, Done | Aborted)


Step = tuple[Recovery, tuple[Request, ...]]


def start(rules: RecoveryRules) -> Step:
    """The first step."""
    return Recovery(rules), (ReadMetadata(),)


def step(state: Recovery, event: Event) -> Step:
    """The next step. What comes too late, for a phase that is over, changes nothing."""
    match state.phase, event:
        case Looking(), MetadataRead(versioned):
            return _looked(state, versioned)
        case ((Marking() | Closing()), MetadataUnsettled()):
            return replace(state, phase=Looking(), versioned=None), (ReadMetadata(),)
        case Marking(metadata), MetadataWritten(version):
            return _fence(state, Versioned(metadata, version))
        case Closing(), Distrusted(bookies):
            rules = replace(state.rules, distrusted=state.rules.distrusted | bookies)
            return replace(state, rules=rules, phase=Looking(), versioned=None), (ReadMetadata(),)
        case Closing(metadata), MetadataWritten():
            return _done(state, metadata, HowClosed.CLOSED)
        case Fencing() as fencing, Answered(request=ReadLast()):
            return _fenced(state, fencing.after(_trusted(state.rules, event)))
        case Forward() as forward, Answered():
            return _advanced(state, *forward.after(_trusted(state.rules, event)))
        case ((Measuring() | Closing() | Done(forward=Forward())) as phase, Answered()):
            return _answered_late(state, phase, _trusted(state.rules, event))
        case _:
            return state, ()


def _looked(state: Recovery, versioned: Versioned) -> Step:
    metadata = versioned.metadata
    if metadata.closed:
        return _done(state, metadata, HowClosed.ADOPTED)
    if metadata.ack_quorum > metadata.write_quorum:  # no answers at all would seem to be enough
        quorums = f"the ack quorum of {metadata.ack_quorum} is larger than the write quorum of {metadata.write_quorum}"
        return _aborted(state, Stop(f"{quorums}: its metadata is damaged, and what was acknowledged cannot be told"))
    if state.round == state.rules.rounds:
        return _aborted(state, Stop(f"the ledger's metadata changed {state.round} times meanwhile; try again later"))
    state = replace(state, round=state.round + 1)
    if metadata.state is LedgerState.IN_RECOVERY or state.rules.reading.dry:
        return _fence(state, versioned)
    marked = replace(metadata, state=LedgerState.IN_RECOVERY)
    return replace(state, phase=Marking(marked)), (WriteMetadata(marked, versioned.version),)


def _fence(state: Recovery, versioned: Versioned) -> Step:
    fencing = Fencing(versioned.metadata, state.rules.confirmed)
    return replace(state, phase=fencing, versioned=versioned), fencing.requests(fence=not state.rules.reading.dry)


def _trusted(rules: RecoveryRules, event: Answered) -> Answered:
    if event.answer is Answer.NEGATIVE and event.request.bookie in rules.distrusted:
        return replace(event, answer=Answer.UNKNOWN, why=f"{event.why} (not trusted)")
    return event


def _answered_late(state: Recovery, phase: Measuring | Closing | Done, event: Answered) -> Step:
    """The end is known, and an answer tells whether it holds."""
    assert phase.forward is not None
    forward = phase.forward.hearing(event)
    if forward.stop is not None:
        return _aborted(state, forward.stop)
    match replace(phase, forward=forward), event.request:
        case Measuring(candidate) as measuring, ReadEntry(entry=entry) if entry == candidate.entry:
            return _measured(state, replace(measuring, candidate=candidate.after(event)))
        case heard, _:
            return replace(state, phase=heard), ()


def _fenced(state: Recovery, fencing: Fencing) -> Step:
    if fencing.verdict is EntryVerdict.UNDECIDED:
        return replace(state, phase=fencing), ()
    if fencing.verdict is EntryVerdict.ABORT:
        why = "too few bookies answered to keep the writer from acknowledging more"
        return _aborted(state, Stop(why, fencing.missing))
    metadata, floor = fencing.metadata, fencing.floor
    length = 0 if floor == NO_ENTRY else None
    others = spares(metadata, state.rules.writable)
    forward, requests = Forward(metadata, metadata, others, state.rules.reading, floor, length, floor).begin()
    return replace(state, phase=forward), requests


def _advanced(state: Recovery, forward: Forward, requests: tuple[Request, ...]) -> Step:
    if forward.stop is not None:
        return _aborted(state, forward.stop)
    if not forward.ended:
        return replace(state, phase=forward), requests
    if forward.length is not None:
        return _close(state, forward, forward.length)
    candidate = Candidate(forward.end, forward.metadata.write_set(forward.end), forward.metadata.ack_quorum)
    return replace(state, phase=Measuring(candidate, forward)), candidate.reads(fence=False)


def _measured(state: Recovery, phase: Measuring) -> Step:
    candidate = phase.candidate
    if candidate.held is not None:
        return _close(state, phase.forward, candidate.held.length)
    if candidate.proven is EntryVerdict.ABORT:
        return _aborted(state, lost(candidate))
    return replace(state, phase=phase), ()


def _close(state: Recovery, forward: Forward, length: int) -> Step:
    assert state.versioned is not None
    closed = replace(forward.written, state=LedgerState.CLOSED, last_entry=forward.end, length=length)
    if state.rules.reading.dry:
        return replace(state, phase=Done(closed, HowClosed.WOULD_CLOSE, forward)), ()
    return replace(state, phase=Closing(closed, forward)), (WriteMetadata(closed, state.versioned.version),)


def _done(state: Recovery, metadata: LedgerMetadata, ending: HowClosed) -> Step:
    return replace(state, phase=Done(metadata, ending)), ()


def _aborted(state: Recovery, stop: Stop) -> Step:
    return replace(state, phase=Aborted(stop.reason, stop.missing)), ()
