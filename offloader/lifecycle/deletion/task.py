"""The deletion service as a task of the application."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from offloader.lifecycle.deletion.configured import OpenedForALook
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import LedgerType
from offloader.lifecycle.deletion.service import Announce, DeletionRules, LedgerDeletionService
from offloader.lifecycle.deletion.watcher import DeletionWatcher

SOON = 1.0  # seconds; more is due


@dataclass
class DeletionTask:
    """Runs the second phase where it is switched on. Off with deletions pending, it counts them. `interval`: seconds
    between two passes. After each round there is a pause of the time that it took, so that ZooKeeper is left alone for
    half of the time. `clock`: seconds."""

    on: bool
    interval: float
    queue: DeletionQueue
    sides: Mapping[LedgerType, OpenedForALook]
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
