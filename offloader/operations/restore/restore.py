"""Restores one topic: reads the archive, publishes, and goes on after whatever breaks off in between."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from offloader.archive.items import Item
from offloader.errors import BrokerUnavailableError, IntegrityError, OffloadError, OutcomeUnknownError, RetryableError
from offloader.model import Position
from offloader.operations.restore.ports import RestoreTarget
from offloader.operations.restore.progress import Counts, RestoreProgress
from offloader.operations.restore.rate_limiter import RateLimiter
from offloader.operations.restore.tail import Tail

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0  # seconds before the target is tried again
SILENCE = 60.0  # seconds after which a broker that confirms nothing is given up


@dataclass(frozen=True)
class Tools:
    """Time in seconds; `advance` hears of stored bytes; `patience`: how long a target may fail without anything being
    stored."""

    now: Callable[[], float]
    sleep: Callable[[float], None]
    advance: Callable[[int], None] = lambda _: None
    patience: float = 300.0


class Restore:
    """`feed` gives the archived items after a position; `begin` what a course needs, once the tail is known."""

    def __init__(
        self,
        target: RestoreTarget,
        feed: Callable[[Position | None], Iterator[Item]],
        begin: Callable[[Tail], RestoreProgress],
        pace: RateLimiter,
        tools: Tools,
    ) -> None:
        self._target = target
        self._feed = feed
        self._begin = begin
        self._pace = pace
        self._tools = tools
        self._items: Iterator[Item] = iter(())
        self._course: RestoreProgress | None = None
        self._exhausted = False
        self._archive_failed = False

    def run(self) -> Counts:
        """Until everything is stored. Raises what is not worth another try, or is still there after `patience`."""
        pause, since, stored = FIRST_PAUSE, self._tools.now(), -1
        while True:
            try:
                return self._run_once()
            except (RetryableError, OutcomeUnknownError) as error:
                sent = self._course.counts.sent if self._course is not None else 0
                if sent > stored:
                    pause, since, stored = FIRST_PAUSE, self._tools.now(), sent
                if self._archive_failed or self._tools.now() - since > self._tools.patience:
                    raise
                log.warning("%s; the target is tried again in %s s", error, pause, extra={"see": "target-retried"})
            self._tools.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _run_once(self) -> Counts:
        course = self._resumed(self._target.attach())
        while self._fill(course):
            self._hear(course)
        if self._target.tail() != course.tail:
            raise IntegrityError(
                "the target does not end with the entry that was confirmed last: delete it and restore it again"
            )
        return course.counts

    def _resumed(self, tail: Tail) -> RestoreProgress:
        if self._course is None:
            course = self._begin(tail)
            self._items = self._feed(tail.position)
            self._course = course  # last: a course without its items would look finished
        else:
            self._tools.advance(self._course.resume(tail))
        return self._course

    def _fill(self, course: RestoreProgress) -> bool:
        """Send what may go now; whether there is anything left to do."""
        while not course.full and self._pace.wait(self._tools.now()) == 0:
            if course.waiting:
                entry = course.next()
                self._target.send(entry)
                self._pace.spend(len(entry.data), self._tools.now())
            elif not self._take(course):
                break
        return bool(course.pending or course.waiting or not self._exhausted)

    def _take(self, course: RestoreProgress) -> bool:
        try:
            item = next(self._items, None)
        except OffloadError:  # a store is tried again by whoever reads it; these items are at their end
            self._archive_failed = True
            raise
        if item is None:
            self._exhausted = True
            return False
        course.take(item)
        return True

    def _hear(self, course: RestoreProgress) -> None:
        goes_on = not course.full and (course.waiting or not self._exhausted)  # only the pace holds it up
        numbers = self._target.receipts(self._pace.wait(self._tools.now()) if goes_on else SILENCE)
        if not numbers and not goes_on:
            raise BrokerUnavailableError(f"the broker has not confirmed anything for {SILENCE:.0f} s")
        for number in numbers:
            self._tools.advance(course.confirm(number))
