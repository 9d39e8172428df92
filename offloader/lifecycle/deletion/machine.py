"""The two phases of a deletion, and what an operator decides about one: pure, no I/O. Whoever runs the phases looks,
records what is ruled, and only then acts.

First phase: `marked`; nothing else changes. Second phase, when `turn` says so: a second look, of which `rule` says what
follows, as often as there are tries. A record is compared with what is there, never believed; *still in use*, *does not
match*, *already gone* and *invalid* are ends, not failures. A try counts before it is made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from offloader.errors import FatalError
from offloader.lifecycle.deletion.records import (
    DeletionAnswer,
    DeletionEvidence,
    DeletionState,
    DeletionSwitch,
    LedgerNode,
    LedgerType,
    PendingDeleteLedgerInfo,
)
from offloader.lifecycle.deletion.timing import DeletionTiming
from offloader.lifecycle.topics.cursors.saved import SavedCursor

HOLDS_DATA = "it holds data that no list has"


@dataclass(frozen=True, slots=True)
class UnreferencedLedger:
    """It is there, and the evidence says that nothing refers to it. `age` in ms, and `seen_at`, when that was: by the
    clock of what it is in, ZooKeeper's or the store's, as the record's `marked_at`.

    `holds_data`: it has entries that no list has and no trim explains. `saved`: the state of a subscription."""

    node: LedgerNode
    evidence: DeletionEvidence
    age: int
    seen_at: int
    is_open: bool = False
    holds_data: bool = False
    saved: SavedCursor | None = None


@dataclass(frozen=True, slots=True)
class ReferencedLedger:
    """Something refers to it."""

    by: str


@dataclass(frozen=True, slots=True)
class UnprovenLedger:
    """It is there; nothing refers to it, and nothing proves that nothing will."""

    why: str


@dataclass(frozen=True, slots=True)
class GoneLedger:
    """It is not there."""


@dataclass(frozen=True, slots=True)
class FailedLook:
    """Nobody could say, or something is in trouble."""

    why: str


@dataclass(frozen=True, slots=True)
class PostponedLook:
    """There was too much to be read at once: it stays due."""


SecondLook = UnreferencedLedger | ReferencedLedger | UnprovenLedger | GoneLedger | FailedLook | PostponedLook


class DeletionTurn(Enum):
    """What a record waits for."""

    NOTHING = "nothing"  # time, an operator, or nothing any more
    LOOK = "look"
    REMOVE = "remove"  # it has ended long ago


class DeletionStep(Enum):
    """What is done once the ruling's record is written."""

    NOTHING = "nothing"
    CLOSE = "close"  # safely; then `closed`
    DELETE = "delete"  # guarded by the record's node and evidence, and only if nobody has looked since; then `tried`


class DeletionTry(Enum):
    """What came of a guarded deletion."""

    DONE = "done"
    GONE = "gone"  # it was not there any more
    REFUSED = "refused"  # by the guard, or by a failure: nothing was done
    IN_USE = "in use"  # refused because it is used by now
    UNKNOWN = "unknown"  # its answer is lost


@dataclass(frozen=True, slots=True)
class DeletionRuling:
    """The record as it is to be written, unless it is the same as before; then what to do."""

    record: PendingDeleteLedgerInfo
    step: DeletionStep = DeletionStep.NOTHING


def marked(
    candidate: PendingDeleteLedgerInfo,
    former: PendingDeleteLedgerInfo | None,
    now: int,
    switch: DeletionSwitch | None = None,
    noted: int = 0,
) -> PendingDeleteLedgerInfo | None:
    """First phase: the record of a candidate, with all its evidence. None: it is pending already, or not valid. `now`:
    by the clock of what it is in; `noted`: by ours. `switch`: as it is set now."""
    if not candidate.is_valid or (former is not None and not former.has_ended):
        return None
    return _anew(candidate, candidate.node, candidate.evidence, now, switch, noted)


def turn(
    record: PendingDeleteLedgerInfo, now: int, timing: DeletionTiming, switch: DeletionSwitch | None
) -> DeletionTurn:
    """What comes next. Nothing ever, but the removal of what has ended, while deletion is switched off."""
    if record.has_ended:
        long_ago = now > record.ended_at + timing.kept and not record.stays
        return DeletionTurn.REMOVE if long_ago else DeletionTurn.NOTHING
    if switch is None or not switch.on or not record.is_in_flight:
        return DeletionTurn.NOTHING
    due = due_at(record, timing)
    # No clock that is right can have written a later time: a look has the right one.
    waits = now < due <= now + timing.longest
    if not record.is_valid or (_began_before(record, switch) and not record.in_doubt):
        return DeletionTurn.LOOK
    return DeletionTurn.NOTHING if waits else DeletionTurn.LOOK


def rule(
    record: PendingDeleteLedgerInfo, look: SecondLook, now: int, timing: DeletionTiming, switch: DeletionSwitch
) -> DeletionRuling:
    """Second phase: what follows from a second look. The switch is one that is on."""
    if not record.is_valid:
        return DeletionRuling(kept(record, DeletionAnswer.INVALID, "the record lacks what a deletion needs", now))
    match look:
        case GoneLedger():
            return DeletionRuling(gone(record, now, by_us=record.in_doubt))
        case FailedLook(why):
            counted = replace(record, tries=min(record.tries, timing.max_tries) + 1)  # whatever a record says
            return DeletionRuling(_again(counted, why, now, timing))
        case ReferencedLedger(by):
            return DeletionRuling(kept(record, DeletionAnswer.STILL_IN_USE, by, now))
        case UnprovenLedger(why):
            return DeletionRuling(kept(record, DeletionAnswer.DOES_NOT_MATCH, why, now))
        case PostponedLook():
            return DeletionRuling(record)
        case UnreferencedLedger():
            return _rule_unreferenced(record, look, now, timing, switch)


def closed(record: PendingDeleteLedgerInfo, node: LedgerNode) -> DeletionRuling:
    """What follows once the ledger is closed: its node is another one now."""
    return DeletionRuling(replace(record, node=node, closing=False, in_doubt=True), DeletionStep.DELETE)


def closed_and_looked_at(
    record: PendingDeleteLedgerInfo,
    node: LedgerNode,
    look: SecondLook,
    now: int,
    timing: DeletionTiming,
    switch: DeletionSwitch,
) -> DeletionRuling:
    """What follows once the ledger is closed and was looked at again: what is in it shows only then."""
    if (
        isinstance(look, UnreferencedLedger)
        and look.node == node
        and look.evidence.is_same(record.evidence)
        and not (look.is_open or look.holds_data)
    ):
        return closed(replace(record, evidence=look.evidence), node)
    if isinstance(look, FailedLook):  # the try has counted, and the next one is due already
        return DeletionRuling(replace(record, reason=look.why))
    return rule(record, look, now, timing, switch)


def tried(
    record: PendingDeleteLedgerInfo, outcome: DeletionTry, why: str, now: int, timing: DeletionTiming
) -> PendingDeleteLedgerInfo:
    """What follows from a try. Where its answer is lost, the next look decides, and not at once: the request may still
    be on its way until the session has ended. So it is where we were stopped in between. Also a last try that was
    refused is followed by a look: an earlier one may have been done."""
    match outcome:
        case DeletionTry.DONE:
            return gone(record, now, by_us=True)
        case DeletionTry.GONE:  # it was there at the look, which outdated all tries before it
            return gone(record, now, by_us=False)
        case DeletionTry.REFUSED:
            return replace(record, next_at=now + timing.wait_after(record.tries), reason=why, in_doubt=False)
        case DeletionTry.IN_USE:
            return kept(record, DeletionAnswer.STILL_IN_USE, why, now)
        case DeletionTry.UNKNOWN:
            return replace(record, reason=why)


def _rule_unreferenced(
    record: PendingDeleteLedgerInfo,
    look: UnreferencedLedger,
    now: int,
    timing: DeletionTiming,
    switch: DeletionSwitch,
) -> DeletionRuling:
    if look.holds_data:
        return DeletionRuling(kept(record, DeletionAnswer.HOLDS_DATA, HOLDS_DATA, now))
    if not look.evidence.is_complete:
        return DeletionRuling(kept(record, DeletionAnswer.INVALID, "the evidence names no referee", now))
    if look.node != record.node and not _changed_by_our_closing(record, look):
        return DeletionRuling(kept(record, DeletionAnswer.DOES_NOT_MATCH, _difference(record.node, look.node), now))
    if look.is_open:  # where our closing came only so far, the next try goes on with it
        record = replace(record, node=look.node)
    changed = look.node != record.node or not look.evidence.is_same(record.evidence)
    if changed or _began_before(record, switch) or record.marked_at > look.seen_at:
        return DeletionRuling(_anew(record, look.node, look.evidence, look.seen_at, switch, now))
    waits = _delay(record, timing) - min(look.age, look.seen_at - record.marked_at)
    if waits > 0:  # whatever our own clock says
        return DeletionRuling(replace(record, next_at=now + waits))
    if record.tries >= timing.max_tries:
        return DeletionRuling(_again(record, record.reason or "its last try was cut short", now, timing))
    return _begin_try(record, look, now, timing)


def _begin_try(
    record: PendingDeleteLedgerInfo, look: UnreferencedLedger, now: int, timing: DeletionTiming
) -> DeletionRuling:
    begun = replace(
        record,
        state=DeletionState.DELETING,
        evidence=look.evidence,
        tries=record.tries + 1,
        next_at=now + timing.wait_after(record.tries + 1),
        closing=look.is_open,
        in_doubt=not look.is_open,
        subscription=look.saved or record.subscription,
    )
    return DeletionRuling(begun, DeletionStep.CLOSE if look.is_open else DeletionStep.DELETE)


def due_at(record: PendingDeleteLedgerInfo, timing: DeletionTiming) -> int:
    """When a record that is in flight is looked at next, at the earliest: by our own clock. So the delay is over by two
    clocks before anything goes, and one that was a day behind, and is right again, shortens nothing."""
    return record.next_at or max(record.marked_at, record.noted_at) + _delay(record, timing)


def _delay(record: PendingDeleteLedgerInfo, timing: DeletionTiming) -> int:
    """No compaction reads a subscription."""
    subscription = record.ledger_type is LedgerType.SUBSCRIPTION
    return replace(timing, longest_compaction=0).effective_delay if subscription else timing.effective_delay


def _began_before(record: PendingDeleteLedgerInfo, switch: DeletionSwitch) -> bool:
    """Deletion was switched off since: evidence and delay begin anew."""
    return record.switch != switch.number


def _changed_by_our_closing(record: PendingDeleteLedgerInfo, look: UnreferencedLedger) -> bool:
    """It was open, and we were about to close it when we were stopped, or when a bookie did not answer."""
    return record.closing and look.node.ctime == record.node.ctime


def _difference(recorded: LedgerNode, there: LedgerNode) -> str:
    if recorded.ctime != there.ctime:
        return "another one has this name: it was created at another time than the record says"
    if recorded.below != there.below:
        return "the nodes below it are not those of the record"
    return f"the ledger's metadata are not those of the record: version {there.version}, recorded {recorded.version}"


def _anew(
    record: PendingDeleteLedgerInfo,
    node: LedgerNode,
    evidence: DeletionEvidence,
    now: int,
    switch: DeletionSwitch | None,
    noted: int,
) -> PendingDeleteLedgerInfo:
    return replace(
        record,
        node=node,
        evidence=evidence,
        state=DeletionState.MARKED,
        marked_at=now,
        noted_at=noted,
        tries=0,
        next_at=0,
        closing=False,
        answer=None,
        reason="",
        ended_at=0,
        in_doubt=False,
        switch=0 if switch is None else switch.number,
    )


def _again(record: PendingDeleteLedgerInfo, why: str, now: int, timing: DeletionTiming) -> PendingDeleteLedgerInfo:
    """One more try later; after the last one, none."""
    if record.tries >= timing.max_tries:
        return replace(record, state=DeletionState.GIVEN_UP, reason=why)
    return replace(record, next_at=now + timing.wait_after(record.tries), reason=why)


def gone(record: PendingDeleteLedgerInfo, now: int, *, by_us: bool) -> PendingDeleteLedgerInfo:
    """It is not there. `by_us`: we have deleted it, or may have: an answer was lost, or we were."""
    answer = DeletionAnswer.DELETED if by_us else DeletionAnswer.ALREADY_GONE
    return _ended(record, DeletionState.DELETED, answer, "", now)


def kept(record: PendingDeleteLedgerInfo, answer: DeletionAnswer, why: str, now: int) -> PendingDeleteLedgerInfo:
    """It ends without a deletion."""
    return _ended(record, DeletionState.KEPT, answer, why, now)


def _ended(
    record: PendingDeleteLedgerInfo, state: DeletionState, answer: DeletionAnswer, why: str, now: int
) -> PendingDeleteLedgerInfo:
    return replace(record, state=state, answer=answer, reason=why, ended_at=now)


def undone(record: PendingDeleteLedgerInfo, now: int) -> PendingDeleteLedgerInfo:
    """Costs nothing as long as it is known to be there: while it is marked, after a try that was refused, when it was
    given up. Raises FatalError for what has ended, and for what is in doubt: see `taken_back`."""
    if record.has_ended:
        raise FatalError(f"{record.thing} is {record.state}: nothing is left to undo")
    if record.in_doubt:
        raise FatalError(f"{record.thing} is {record.state}, and may be gone: it has to be looked at first")
    return replace(record, state=DeletionState.UNDONE, answer=None, reason="", ended_at=now)


def taken_back(record: PendingDeleteLedgerInfo, *, there: bool | None, now: int) -> PendingDeleteLedgerInfo:
    """Of a try nobody knows what came; `there`: whether a look that outdates it has found the thing, None: nobody can
    look. What is gone ends as deleted by us."""
    if there is False:
        return gone(record, now, by_us=True)
    taken = undone(replace(record, in_doubt=False), now)
    return taken if there else replace(taken, reason="whether it had been deleted before is not known")


def recreated(record: PendingDeleteLedgerInfo, now: int, says: str = "") -> PendingDeleteLedgerInfo:
    """The second chance: what we had deleted is there again. `says`: what of it is not as it was."""
    _check_ours(record)
    return replace(record, state=DeletionState.UNDONE, reason=says or record.reason, ended_at=now)


def undoing(record: PendingDeleteLedgerInfo) -> PendingDeleteLedgerInfo:
    """What we deleted is put back in several steps: until the last one, what is there is ours, and unfinished."""
    _check_ours(record)
    return replace(record, state=DeletionState.UNDOING, ended_at=0)


def _check_ours(record: PendingDeleteLedgerInfo) -> None:
    if record.answer is not DeletionAnswer.DELETED:
        raise FatalError(f"{record.thing} is {record.state}: only what we deleted can be created again")


def retried(record: PendingDeleteLedgerInfo, now: int) -> PendingDeleteLedgerInfo:
    """An operator wants more tries for what was given up: its next look is due at once."""
    _check_given_up(record)
    return replace(record, state=DeletionState.MARKED, tries=0, next_at=now)


def dropped(record: PendingDeleteLedgerInfo, now: int) -> PendingDeleteLedgerInfo:
    """An operator wants no more tries for what was given up. Raises FatalError also for what is in doubt: see
    `let_be`."""
    _check_given_up(record)
    if record.in_doubt:
        raise FatalError(f"{record.thing} was given up, and may be gone: it has to be looked at first")
    return kept(record, DeletionAnswer.DROPPED, record.reason, now)


def let_be(record: PendingDeleteLedgerInfo, *, there: bool | None, now: int) -> PendingDeleteLedgerInfo:
    """The same, where nobody knows what came of a try; `there`: as of `taken_back`."""
    _check_given_up(record)
    return gone(record, now, by_us=True) if there is False else dropped(replace(record, in_doubt=False), now)


def abandoned_undo(record: PendingDeleteLedgerInfo, now: int) -> PendingDeleteLedgerInfo:
    """An operator ends an undo that cannot be finished: what is there stays as it is."""
    return kept(record, DeletionAnswer.DROPPED, "its undo was not finished", now)


def _check_given_up(record: PendingDeleteLedgerInfo) -> None:
    if record.state is not DeletionState.GIVEN_UP:
        raise FatalError(f"{record.thing} is {record.state}, not given up")
