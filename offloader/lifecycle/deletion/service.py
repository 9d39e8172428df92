"""The second phase: what is marked is looked at again, ruled upon, recorded, and only then deleted.

A pass reads all records, page by page, and goes on in rounds. Each takes up a bounded share of those that were due: one
second look for all of them on each side, then each by itself in a pool of its own. What a side must read of everything
it reads in the first round. Whatever ends a pass in between, the records tell the next one how far it was: a try is
recorded before it is made, and what somebody else has changed meanwhile is left to the next pass. An idle round reads
no record again for which nothing is to be done yet."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import NamedTuple, TypeVar

from offloader.errors import OffloadError, OutcomeUnknownError, OvertakenError
from offloader.lifecycle.deletion.machine import (
    DeletionRuling,
    DeletionStep,
    DeletionTry,
    DeletionTurn,
    FailedLook,
    SecondLook,
    closed_and_looked_at,
    due_at,
    rule,
    tried,
    turn,
)
from offloader.lifecycle.deletion.queue import DamagedRecord, DeletionQueue, StoredDeletion
from offloader.lifecycle.deletion.records import (
    PIP_TYPES,
    DeletionState,
    DeletionSwitch,
    LedgerNode,
    LedgerType,
    PendingDeleteLedgerInfo,
)
from offloader.lifecycle.deletion.side import DeletionSide, SideLooks
from offloader.lifecycle.deletion.timing import DeletionBounds, DeletionTiming
from offloader.lifecycle.deletion.watcher import DeletionWatcher, PendingDeletions

log = logging.getLogger(__name__)

REMOVALS = 1000  # of ended records, a round
SUBSCRIPTIONS_AT_ONCE = 10
"""Whose records are held at a time: each has all that was acknowledged, which may be megabytes."""

_T = TypeVar("_T")

Announce = Callable[[PendingDeleteLedgerInfo], object]
"""Hears of each try at a ledger once it is recorded, and before it is made. Raises no OffloadError."""

MOST_REMEMBERED = 50_000  # records; others are read each time


class DueDeletion(NamedTuple):
    """Which version of a record is due, and since when. The record is read again when it is taken up."""

    since: int
    topic: str
    name: str
    slot: int


@dataclass
class FoundDeletions:
    """What a pass over the queue has found. `due`: those whose turn it is, by type: a side that refuses for months
    keeps no other from its turn; no more of each than may be pending at all. `looked`: of which types a round was."""

    pending: PendingDeletions = field(default_factory=PendingDeletions)
    due: dict[LedgerType, list[DueDeletion]] = field(default_factory=dict)
    looked: set[LedgerType] = field(default_factory=set)
    removed: int = 0

    def goes_on(self, kind: LedgerType) -> bool:
        """Whether a round of this pass has looked where such things are."""
        return not self.looked.isdisjoint(_BESIDE.get(kind, {kind}))


_BESIDE = dict.fromkeys(
    (LedgerType.LEDGER, LedgerType.MANAGED_LEDGER), frozenset({LedgerType.LEDGER, LedgerType.MANAGED_LEDGER})
)


@dataclass(frozen=True, slots=True)
class DeletionRound:
    """`looked_at`: records that were taken up. `left`: those that were due, too, and wait for the next round; neither
    counts those of a side that refused. `removed`: records that had ended long ago. `refusals`: why nothing was deleted
    on some side."""

    looked_at: int = 0
    left: int = 0
    removed: int = 0
    refusals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeletionRules:
    """`parallelism`: deletions that are made at a time. `stopping`: whether to begin nothing more. `subscriptions`:
    whether subscriptions go, whatever the switch of all others says."""

    timing: DeletionTiming = field(default_factory=DeletionTiming)
    bounds: DeletionBounds = field(default_factory=DeletionBounds)
    parallelism: int = 4
    stopping: Callable[[], bool] = lambda: False
    subscriptions: bool = True

    def switch_of(self, kind: LedgerType, switch: DeletionSwitch | None) -> DeletionSwitch | None:
        """The one that counts for records of this type. `switch`: that of the queue."""
        return DeletionSwitch(self.subscriptions, 0) if kind is LedgerType.SUBSCRIPTION else switch


class LedgerDeletionService:
    """One at a time in a process. Two processes at once delete nothing twice: of two who change a record, one does; of
    two who look, the later one alone deletes."""

    def __init__(
        self,
        queue: DeletionQueue,
        sides: Mapping[LedgerType, DeletionSide],
        rules: DeletionRules,
        watcher: DeletionWatcher,
        now_ms: Callable[[], int],
        announce: Announce = lambda _: None,
    ) -> None:
        self._queue = queue
        self._sides = sides
        self._rules = rules
        self._watcher = watcher
        self._now_ms = now_ms
        self._announce = announce
        self._remembered = RememberedDeletions(rules.timing)
        self._wrote = True  # at its start it does not know
        self._refused: dict[LedgerType, list[str]] = {}
        self._found: FoundDeletions | None = None
        self._pending = PendingDeletions()
        self._counting = Lock()

    def round(self, switch: DeletionSwitch | None = None, *, goes_on: bool = False) -> DeletionRound:
        """`switch`: in the place of the one in the queue. `goes_on`: right after a round that left something, with what
        it left: records and what sides have read of everything are not read again, sides that refused are not asked
        again. Raises OffloadError: what was done is recorded, the rest is done later; OvertakenError: nothing may
        follow."""
        switch = switch or self._queue.switch()
        former, self._found = self._found, None
        if not goes_on:
            self._refused.clear()
        found = former if goes_on and former is not None else self._pass(switch)
        if self._rules.stopping():
            return DeletionRound()
        self._pending = found.pending
        self._watcher.pending(found.pending.copy(), on=switch is not None and switch.on)
        taken = self._every_side(found, switch)
        refusals = tuple(why for each in self._refused.values() for why in each)
        self._watcher.refused(dict(self._refused))
        left = sum(len(due) for kind, due in found.due.items() if kind not in self._refused)
        if left:
            self._found = found
        else:
            self._tidy()
        removed, found.removed = found.removed, 0  # each is told once
        return DeletionRound(taken, left, removed, refusals)

    def go_on(self, stored: StoredDeletion, switch: DeletionSwitch | None = None) -> tuple[str, ...]:
        """The second phase of one record, if it is its turn; why nothing was deleted on its side. Raises as `round`."""
        kind, now = stored.record.ledger_type, self._now_ms()
        own = self._rules.switch_of(kind, switch or self._queue.switch())
        if turn(stored.record, now, self._rules.timing, own) is not DeletionTurn.LOOK or own is None:
            return ()
        return tuple(self._second_phase(self._sides[kind], [stored], own, goes_on=False))

    def _every_side(self, found: FoundDeletions, switch: DeletionSwitch | None) -> int:
        """A round. Returns how many were taken up."""
        taken = 0
        for kind in self._sides:
            due, own = found.due.get(kind, []), self._rules.switch_of(kind, switch)
            if not due or kind in self._refused or own is None or not own.on or self._rules.stopping():
                continue
            share = due[: self._rules.bounds.a_round]
            del due[: len(share)]
            refusals = self._take_up(found, kind, share, own)
            if refusals:
                self._refused[kind] = refusals
            else:
                taken += len(share)
        return taken

    def _take_up(
        self, found: FoundDeletions, kind: LedgerType, share: Sequence[DueDeletion], switch: DeletionSwitch
    ) -> list[str]:
        """Why nothing more of them may be deleted."""
        at_once = len(share)
        if kind is LedgerType.SUBSCRIPTION:  # a topic is loaded once for all of its own
            share, at_once = sorted(share, key=lambda one: one.topic), SUBSCRIPTIONS_AT_ONCE
        for begin in range(0, len(share), at_once):
            due = self._read_again(share[begin : begin + at_once], switch)
            if not due or self._rules.stopping():
                continue
            goes_on = found.goes_on(kind)
            found.looked.add(kind)
            refusals = self._second_phase(self._sides[kind], due, switch, goes_on=goes_on)
            if refusals:
                return refusals
        return []

    def _read_again(self, share: Sequence[DueDeletion], switch: DeletionSwitch) -> list[StoredDeletion]:
        """Those that are still due. One of another version by now is left to the next pass, as is one that was removed
        and marked again under the same number."""
        read = self._at_once([partial(self._queue.read_version, one.name, one.slot) for one in share])
        now, due = self._now_ms(), list[StoredDeletion]()
        for one in read:
            if isinstance(one, DamagedRecord):
                self._watcher.damaged(one.name, one.why)
            elif one is not None and turn(one.record, now, self._rules.timing, switch) is DeletionTurn.LOOK:
                due.append(one)
        return due

    def _pass(self, switch: DeletionSwitch | None) -> FoundDeletions:
        found, now = FoundDeletions(), self._now_ms()
        self._remembered.begin(switch)

        def passed_over(name: str, slot: int) -> bool:
            known = self._remembered.waits(name, slot, now)
            if known is not None:
                found.pending.add(*known)
            return known is not None

        for one in self._queue.records(passed_over=passed_over):
            if self._rules.stopping():
                break
            if isinstance(one, DamagedRecord):
                self._watcher.damaged(one.name, one.why)
                found.pending.damaged += 1
                continue
            found.pending.count(one.record)
            kind = one.record.ledger_type
            own = self._rules.switch_of(kind, switch)
            match turn(one.record, now, self._rules.timing, own):
                case DeletionTurn.REMOVE if found.removed < REMOVALS:
                    self._queue.remove(one)
                    self._remembered.forget(one.record.name)
                    found.removed += 1
                case DeletionTurn.LOOK if kind in self._sides:
                    self._take(found, one)
                case DeletionTurn.NOTHING if one.record.state is not DeletionState.UNDOING:
                    self._remembered.note(one, now, own)
        for kind in found.due:
            self._cut(found, kind)
        return found

    def _take(self, found: FoundDeletions, one: StoredDeletion) -> None:
        """Those that have waited longest come first, whatever their names."""
        record = one.record
        kind, since = record.ledger_type, max(record.marked_at, record.next_at)
        found.due.setdefault(kind, []).append(DueDeletion(since, record.topic_name, record.name, one.slot))
        if len(found.due[kind]) >= 2 * self._rules.bounds.number:
            self._cut(found, kind)

    def _cut(self, found: FoundDeletions, kind: LedgerType) -> None:
        due = found.due[kind]
        due.sort(key=lambda one: one.since)
        del due[self._rules.bounds.number :]

    def _second_phase(
        self, side: DeletionSide, due: Sequence[StoredDeletion], switch: DeletionSwitch, *, goes_on: bool
    ) -> list[str]:
        kind = due[0].record.ledger_type
        pending = self._pending.in_flight(kind)
        looks = side.look([one.record for one in due], goes_on=goes_on)
        refusals = self._refusals(looks, pending, kind)
        if refusals:
            return refusals
        closing: list[StoredDeletion] = []
        for wave in sorted({one.record.wave for one in due}):
            jobs = [
                partial(self._begin, side, one, _look_of(looks, one), switch) for one in due if one.record.wave == wave
            ]
            closing += [one for one in self._at_once(jobs) if one is not None]
        if closing and not self._rules.stopping():
            refusals = self._close(side, closing, switch)
        return [*refusals, *filter(None, [looks.cut_short])]

    def _refusals(self, looks: SideLooks, pending: int, kind: LedgerType) -> list[str]:
        what = kind.many if kind is LedgerType.SUBSCRIPTION else "ledgers"
        too_many = self._rules.bounds.refusal(pending, looks.things, what)
        return [*looks.refusals, *([too_many] if too_many and not looks.refusals else [])]

    def _begin(
        self, side: DeletionSide, former: StoredDeletion, look: SecondLook, switch: DeletionSwitch
    ) -> StoredDeletion | None:
        """The record that is to be closed next, if it is."""
        ruling = rule(former.record, look, self._now_ms(), self._rules.timing, switch)
        if isinstance(look, FailedLook):
            self._watcher.failed(former.record, look.why)
        return self._act(side, former, ruling)

    def _act(self, side: DeletionSide, former: StoredDeletion, ruling: DeletionRuling) -> StoredDeletion | None:
        written = self._write(ruling, former)
        if written is None or ruling.step is DeletionStep.NOTHING:
            return None
        if ruling.step is DeletionStep.CLOSE:
            return written
        if written.record.ledger_type in PIP_TYPES:
            self._announce(written.record)
        outcome, why = side.delete(written.record, lambda: self._now_ms() < written.record.next_at)
        self._note(written, outcome, why)
        return None

    def _close(self, side: DeletionSide, closing: Sequence[StoredDeletion], switch: DeletionSwitch) -> list[str]:
        """Close, look again at what was closed: what is in it shows only then."""
        done = self._at_once([partial(self._close_one, side, one) for one in closing])
        closed = [(one, node) for one, node in zip(closing, done, strict=True) if node is not None]
        if not closed or self._rules.stopping():
            return []
        looks = side.look([one.record for one, _ in closed], goes_on=True)
        if looks.refusals:  # how many go at once was asked before any of them went
            return list(looks.refusals)
        now, timing = self._now_ms(), self._rules.timing
        rulings = [
            closed_and_looked_at(one.record, node, _look_of(looks, one), now, timing, switch) for one, node in closed
        ]
        self._at_once([partial(self._act, side, one, it) for (one, _), it in zip(closed, rulings, strict=True)])
        return []

    def _close_one(self, side: DeletionSide, one: StoredDeletion) -> LedgerNode | None:
        try:
            return side.close(one.record)
        except OvertakenError:
            raise
        except OffloadError as error:
            self._note(one, DeletionTry.REFUSED, str(error))
            return None

    def _note(self, one: StoredDeletion, outcome: DeletionTry, why: str) -> None:
        """What came of a try. Where this cannot be written, the next look finds it out."""
        if outcome in (DeletionTry.REFUSED, DeletionTry.UNKNOWN):
            self._watcher.failed(one.record, why)
        record = tried(one.record, outcome, why, self._now_ms(), self._rules.timing)
        self._write(DeletionRuling(record), one)

    def _write(self, ruling: DeletionRuling, former: StoredDeletion) -> StoredDeletion | None:
        """None: somebody else has changed it, or may have: the next round goes by what is there then."""
        if ruling.record == former.record:
            return former
        self._wrote = True
        try:
            written = self._queue.write(ruling.record, former)
        except OutcomeUnknownError as error:
            log.info("deletion of %s: %s", ruling.record.name, error)
            return None
        if written is not None:
            with self._counting:
                self._pending.become(former.record, ruling.record)
            if ruling.record.has_ended:
                self._watcher.ended(ruling.record)
            elif ruling.record.state is DeletionState.GIVEN_UP:
                self._watcher.gave_up(ruling.record)
        return written

    def _at_once(self, jobs: Iterable[Callable[[], _T]]) -> list[_T | None]:
        """In order. What was not begun before the end is None. Raises the first error, once all that began are done."""

        def unless_stopping(job: Callable[[], _T]) -> _T | None:
            return None if failed or self._rules.stopping() else watched(job)

        def watched(job: Callable[[], _T]) -> _T:
            try:
                return job()
            except BaseException as error:
                failed.append(error)
                raise

        failed: list[BaseException] = []
        with ThreadPoolExecutor(self._rules.parallelism, "deletion") as pool:
            futures = [pool.submit(unless_stopping, job) for job in jobs]
        overtaken = next((one for one in failed if isinstance(one, OvertakenError)), None)
        if overtaken is not None:
            raise overtaken
        return [one.result() for one in futures]

    def _tidy(self) -> None:
        if self._wrote and not self._rules.stopping():
            self._queue.tidy()
            self._wrote = False


def _look_of(looks: SideLooks, one: StoredDeletion) -> SecondLook:
    return looks.looks.get(one.record.name) or FailedLook("nobody looked at it")


class _Waiting(NamedTuple):
    slot: int
    kind: LedgerType
    state: DeletionState
    since: int
    until: float


@dataclass
class RememberedDeletions:
    """By name. A version of a record never changes, so its number is enough."""

    timing: DeletionTiming
    _switch: DeletionSwitch | None = None
    _waiting: dict[str, _Waiting] = field(default_factory=dict)

    def begin(self, switch: DeletionSwitch | None) -> None:
        """A round begins. Another switch makes other records due."""
        if switch != self._switch:
            self._waiting.clear()
        self._switch = switch

    def waits(self, name: str, slot: int, now: int) -> tuple[LedgerType, DeletionState] | None:
        """Type and state of a record that need not be read again at that time."""
        known = self._waiting.get(name)
        waits = known and known.slot == slot and known.since <= now < known.until
        return (known.kind, known.state) if known and waits else None

    def note(self, stored: StoredDeletion, now: int, switch: DeletionSwitch | None) -> None:
        """A record of which nothing is to be done now. A clock that goes back afterwards has it read again."""
        record = stored.record
        until: float = math.inf  # somebody must decide
        if record.has_ended and not record.stays:
            until = record.ended_at + self.timing.kept + 1
        elif record.is_in_flight and switch is not None and switch.on:
            until = due_at(record, self.timing)
        if len(self._waiting) < MOST_REMEMBERED or record.name in self._waiting:
            self._waiting[record.name] = _Waiting(stored.slot, record.ledger_type, record.state, now, until)

    def forget(self, name: str) -> None:
        """It was removed, or is dealt with."""
        self._waiting.pop(name, None)
