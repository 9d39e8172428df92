"""What the application does for the end of data, beside offloading: one task after the other, in a thread of their own.
Nothing of the driver waits for it.

There is no such thread where nothing of it is switched on.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from offloader.errors import OffloadError, OvertakenError
from offloader.offload.driver.work import foreseen

log = logging.getLogger(__name__)

FIRST_RETRY, LAST_RETRY = 10.0, 600.0  # seconds
STOP_WITHIN = 10.0  # seconds; what is under way is repeated by the next start


class LifecycleTask(Protocol):
    """One thing that is done again and again. `name`: as logs and metrics have it."""

    name: str

    def run(self) -> float:
        """Do what is due, and no more than a bounded share of it. Returns after how many seconds it wants to be called
        again. Raises OffloadError: it is called again after its interval; OvertakenError ends the application."""
        ...


class LifecycleThread:
    """Runs tasks one after the other, each at its time. `failed`: takes what ends the application.

    A task that fails is tried again, less and less often."""

    def __init__(
        self,
        tasks: Sequence[LifecycleTask],
        failed: Callable[[BaseException], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._failed = failed
        self._clock = clock
        self._stop = threading.Event()
        self._due = [(clock(), number) for number in range(len(tasks))]
        self._tasks = tasks
        self._failures = [0] * len(tasks)
        self._thread = threading.Thread(target=self._run, name="lifecycle", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Begin nothing more, and wait a while for what is under way."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(STOP_WITHIN)

    @property
    def stopping(self) -> bool:
        """Whether tasks should end soon."""
        return self._stop.is_set()

    def _run(self) -> None:
        try:
            while not self._stop.wait(max(self._due[0][0] - self._clock(), 0.0)):
                _, number = heapq.heappop(self._due)
                heapq.heappush(self._due, (self._clock() + self._one(number), number))
        except BaseException as error:  # noqa: BLE001 (handed to the main thread, which raises it)
            self._failed(error)

    def _one(self, number: int) -> float:
        """Run a task. Returns after how many seconds it is run again."""
        task = self._tasks[number]
        try:
            wait = task.run()
        except OvertakenError:
            raise
        except Exception as error:  # noqa: BLE001 (the others go on)
            self._failures[number] += 1
            wait = min(FIRST_RETRY * 2.0 ** min(self._failures[number] - 1, 9), LAST_RETRY)
            _tell(task.name, error, wait)
            return wait
        self._failures[number] = 0
        return wait


def _tell(name: str, error: Exception, wait: float) -> None:
    found = error if isinstance(error, OffloadError) else foreseen(error)
    log.warning("%s: nothing is lost, tried again in %d s: %s", name, wait, found, extra={"see": "lifecycle-waits"})
