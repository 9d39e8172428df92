"""Restores one topic: reads the archive, publishes, and goes on after whatever breaks off in between."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from offloader.archive.items import Item
from offloader.errors import BrokerUnavailableError, IntegrityError, OffloadError, OutcomeUnknownError, RetryableError
from offloader.model import Position
from offloader.operations.restore.ports import RestoreTarget
from offloader.operations.restore.progress import Counts, RateLimiter, RestoreProgress
from offloader.operations.restore.tail import Tail

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0  # seconds before the target is tried again
SILENCE = 60.0  # seconds after which a broker that confirms nothing is given up


@dataclass(frozen=True)
class Tools:
    """Times in seconds. `advance` hears of stored bytes. A target may fail for `retry_for` while nothing is stored."""

    now: Callable[[], float]
    sleep: Callable[[float], None]
    advance: Callable[[int], None] = lambda _: None
    retry_for: float = 300.0


class Restore:
    """`feed` gives the archived items after a position; `begin` starts the progress at the target's tail."""

    def __init__(
        self,
        target: RestoreTarget,
        feed: Callable[[Position | None], Iterator[Item]],
        begin: Callable[[Tail], RestoreProgress],
        limiter: RateLimiter,
        tools: Tools,
    ) -> None:
        self._target = target
        self._feed = feed
        self._begin = begin
        self._limiter = limiter
        self._tools = tools
        self._items: Iterator[Item] = iter(())
        self._progress: RestoreProgress | None = None
        self._exhausted = False
        self._archive_failed = False

    def run(self) -> Counts:
        """Until everything is stored. Raises what is not worth another try, or goes on for longer than `retry_for`."""
        pause, since, stored = FIRST_PAUSE, self._tools.now(), -1
        while True:
            try:
                return self._run_once()
            except (RetryableError, OutcomeUnknownError) as error:
                sent = self._progress.counts.sent if self._progress is not None else 0
                if sent > stored:
                    pause, since, stored = FIRST_PAUSE, self._tools.now(), sent
                if self._archive_failed or self._tools.now() - since > self._tools.retry_for:
                    raise
                log.warning("%s; the target is tried again in %s s", error, pause, extra={"see": "target-retried"})
            self._tools.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _run_once(self) -> Counts:
        progress = self._resumed(self._target.attach())
        while self._fill(progress):
            self._hear(progress)
        if self._target.tail() != progress.tail:
            raise IntegrityError(
                "the target does not end with the entry that was confirmed last: delete it and restore it again"
            )
        return progress.counts

    def _resumed(self, tail: Tail) -> RestoreProgress:
        if self._progress is None:
            progress = self._begin(tail)
            self._items = self._feed(tail.position)
            self._progress = progress  # last: without its items it would look finished
        else:
            self._tools.advance(self._progress.resume(tail))
        return self._progress

    def _fill(self, progress: RestoreProgress) -> bool:
        """Send what may go now; whether there is anything left to do."""
        while not progress.full and self._limiter.wait(self._tools.now()) == 0:
            if not progress.waiting and not self._take(progress):
                break
            if progress.waiting:
                entry = progress.next()
                self._target.send(entry)
                self._limiter.spend(len(entry.data), self._tools.now())
        return bool(progress.pending or progress.waiting or not self._exhausted)

    def _take(self, progress: RestoreProgress) -> bool:
        try:
            item = next(self._items, None)
        except OffloadError:  # a store is tried again by whoever reads it; these items are at their end
            self._archive_failed = True
            raise
        self._exhausted = item is None
        if item is not None:
            progress.take(item)
        return item is not None

    def _hear(self, progress: RestoreProgress) -> None:
        goes_on = not progress.full and (progress.waiting or not self._exhausted)  # only the rate holds it up
        numbers = self._target.receipts(self._limiter.wait(self._tools.now()) if goes_on else SILENCE)
        if not numbers and not goes_on:
            raise BrokerUnavailableError(f"the broker has not confirmed anything for {SILENCE:.0f} s")
        for number in numbers:
            self._tools.advance(progress.confirm(number))
