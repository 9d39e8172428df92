"""The second phase: what is marked is looked at again, ruled upon, recorded, and only then deleted.

A pass reads all records, page by page, and goes on in rounds. Each takes up a bounded share of those that were due: one
second look for all of them on each side, then each by itself in a pool of its own. What a side must read of everything
it reads in the first round. Whatever ends a pass in between, the records tell the next one how far it was: a try is
recorded before it is made, and what somebody else has changed meanwhile is left to the next pass."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import TypeVar

from offloader.errors import OffloadError, OutcomeUnknownError, OvertakenError
from offloader.lifecycle.deletion.machine import (
    DeletionRuling,
    DeletionStep,
    DeletionTry,
    DeletionTurn,
    FailedLook,
    SecondLook,
    closed_and_looked_at,
    rule,
    tried,
    turn,
)
from offloader.lifecycle.deletion.queue import DeletionQueue, StoredDeletion
from offloader.lifecycle.deletion.records import (
    DeletionState,
    DeletionSwitch,
    LedgerNode,
    LedgerType,
    PendingDeleteLedgerInfo,
)
from offloader.lifecycle.deletion.remembered import RememberedDeletions
from offloader.lifecycle.deletion.rounds import DeletionRound, FoundDeletions
from offloader.lifecycle.deletion.side import DeletionSide, SideLooks
from offloader.lifecycle.deletion.timing import DeletionBounds, DeletionTiming
from offloader.lifecycle.deletion.watcher import DeletionWatcher, PendingDeletions
from offloader.lifecycle.record_queue import DamagedRecord

log = logging.getLogger(__name__)

REMOVALS = 1000  # of ended records, a round

_T = TypeVar("_T")

Announce = Callable[[PendingDeleteLedgerInfo], object]
"""Hears of each try once it is recorded, and before it is made. Raises no OffloadError."""


@dataclass(frozen=True, slots=True)
class DeletionRules:
    """`parallelism`: deletions that are made at a time. `stopping`: whether to begin nothing more."""

    timing: DeletionTiming = field(default_factory=DeletionTiming)
    bounds: DeletionBounds = field(default_factory=DeletionBounds)
    parallelism: int = 4
    stopping: Callable[[], bool] = lambda: False


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
        taken = self._every_side(found, switch) if switch is not None and switch.on else 0
        refusals = tuple(why for each in self._refused.values() for why in each)
        self._watcher.refused(dict(self._refused))
        left = sum(len(due) for kind, due in found.due.items() if kind not in self._refused)
        if left:
            self._found = found
        else:
            self._tidy()
        removed, found.removed = found.removed, 0  # each is told once
        return DeletionRound(taken, left, removed, refusals)

    def _every_side(self, found: FoundDeletions, switch: DeletionSwitch) -> int:
        """A round. Returns how many were taken up."""
        taken = 0
        for kind, side in self._sides.items():
            due = found.due.get(kind, [])
            if not due or kind in self._refused or self._rules.stopping():
                continue
            share = due[: self._rules.bounds.a_round]
            refusals = self._second_phase(side, share, switch, goes_on=found.goes_on(kind))
            if refusals:
                self._refused[kind] = refusals
            else:
                taken += len(share)
            del due[: len(share)]
            found.looked.add(kind)
        return taken

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
            match turn(one.record, now, self._rules.timing, switch):
                case DeletionTurn.REMOVE if found.removed < REMOVALS:
                    self._queue.remove(one)
                    self._remembered.forget(one.record.name)
                    found.removed += 1
                case DeletionTurn.LOOK if one.record.ledger_type in self._sides:
                    self._take(found, one)
                case DeletionTurn.NOTHING:
                    self._remembered.note(one, now)
        for kind in found.due:
            self._cut(found, kind)
        return found

    def _take(self, found: FoundDeletions, one: StoredDeletion) -> None:
        """Those that have waited longest come first, whatever their names."""
        kind = one.record.ledger_type
        found.due.setdefault(kind, []).append(one)
        if len(found.due[kind]) >= 2 * self._rules.bounds.number:
            self._cut(found, kind)

    def _cut(self, found: FoundDeletions, kind: LedgerType) -> None:
        due = found.due[kind]
        due.sort(key=lambda one: max(one.record.marked_at, one.record.next_at))
        del due[self._rules.bounds.number :]

    def _second_phase(
        self, side: DeletionSide, due: Sequence[StoredDeletion], switch: DeletionSwitch, *, goes_on: bool
    ) -> list[str]:
        pending = self._pending.in_flight(due[0].record.ledger_type)
        looks = side.look([one.record for one in due], goes_on=goes_on)
        refusals = self._refusals(looks, pending)
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
        return refusals

    def _refusals(self, looks: SideLooks, pending: int) -> list[str]:
        too_many = self._rules.bounds.refusal(pending, looks.things)
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
        self._announce(written.record)
        outcome, why = side.delete(written.record)
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
            log.info("deletion of ledger %d: %s", ruling.record.ledger_id, error)
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
