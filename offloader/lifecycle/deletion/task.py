"""The deletion service as a task of the application, with sides that are opened only where something is due."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from offloader.errors import OffloadError
from offloader.lifecycle.deletion.machine import DeletionTry, FailedLook
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import LedgerNode, LedgerType, PendingDeleteLedgerInfo
from offloader.lifecycle.deletion.service import Announce, DeletionRules, LedgerDeletionService
from offloader.lifecycle.deletion.side import DeletionSide, OpenSide, SideLooks
from offloader.lifecycle.deletion.watcher import DeletionWatcher

SOON = 1.0  # seconds; more is due


@dataclass
class LazySide:
    """A side that is reached only where something is due: a service without work asks nobody. One thread looks."""

    open_side: OpenSide
    _stack: ExitStack = field(default_factory=ExitStack)
    _side: DeletionSide | None = None

    def look(self, records: Sequence[PendingDeleteLedgerInfo], *, goes_on: bool = False) -> SideLooks:
        try:
            side = self._side = self._side or self.open_side(self._stack)
        except OffloadError as error:
            return SideLooks({one.name: FailedLook(str(error)) for one in records}, 0, (str(error),))
        return side.look(records, goes_on=goes_on)

    def close(self, record: PendingDeleteLedgerInfo) -> LedgerNode:
        return self._looked().close(record)

    def delete(self, record: PendingDeleteLedgerInfo, in_time: Callable[[], bool]) -> tuple[DeletionTry, str]:
        return self._looked().delete(record, in_time)

    def end(self) -> None:
        """Until the next look."""
        self._side = None
        self._stack.close()

    def _looked(self) -> DeletionSide:
        if self._side is None:
            raise RuntimeError("nothing is done without a look")
        return self._side


@dataclass
class DeletionTask:
    """Runs the second phase where it is switched on. Off with deletions pending, it counts them. `interval`: seconds
    between two passes. After each round there is a pause of the time that it took, so that ZooKeeper is left alone for
    half of the time. `clock`: seconds."""

    on: bool
    interval: float
    queue: DeletionQueue
    sides: Mapping[LedgerType, LazySide]
    rules: DeletionRules
    watcher: DeletionWatcher
    now_ms: Callable[[], int]
    announce: Announce = lambda _: None
    clock: Callable[[], float] = time.monotonic
    name: str = "deletion"

    def __post_init__(self) -> None:
        self._service = LedgerDeletionService(
            self.queue, self.sides, self.rules, self.watcher, self.now_ms, self.announce
        )

        self._goes_on = False

    def run(self) -> float:
        goes_on, self._goes_on = self._goes_on, False
        begun = self.clock()
        try:
            switch = self.queue.set_switch(on=self.on, now=self.now_ms())
            done = self._service.round(switch, goes_on=goes_on)
            self._goes_on = done.left > 0
        finally:
            if not self._goes_on:
                self.end()
        return max(SOON if self._goes_on else self.interval, self.clock() - begun)

    def end(self) -> None:
        """Give up what the sides have open."""
        for side in self.sides.values():
            side.end()
