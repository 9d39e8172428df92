"""One ledger's entries in order, read ahead from its bookies within a bound of bytes. Bookies that were slow or gone
lately are asked last."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from functools import partial
from math import inf
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from offloader.bookkeeper.api import EntryBookies
from offloader.bookkeeper.entry_codec import digest_for, raw_entries
from offloader.bookkeeper.model import LedgerMetadata
from offloader.bookkeeper.reading.fetch import Budget, RunFetch, Sizes, run_at, striped, verdict
from offloader.bookkeeper.status import Answer, TooManyRequestsError, answer
from offloader.errors import IntegrityError, OffloadError
from offloader.model import MIB, EntryRange
from offloader.ports.entry_source import RawEntry

_SECONDS = 10.0
# One answer's limits. Bookies allow batches of 5 MiB unless configured otherwise; more entries than these were not
# faster.
BATCH_ENTRIES = 1000
BATCH_BYTES = 5 * MIB
# Requests under way at once: a second batch is read by the bookie while the first one is checked here.
BATCHES = 2
SINGLES = 500


class Slowness:
    """Remembers for a while which bookies were slow. Readers may share it. `clock` is in seconds."""

    def __init__(self, seconds: float = _SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._until: dict[str, float] = {}

    def note(self, bookie: str) -> None:
        """It did not answer as fast as it should."""
        self._until[bookie] = self._clock() + self._seconds

    def quickest(self, bookies: Sequence[str]) -> str | None:
        """The first one that was not slow lately, or else the one whose trouble is longest ago; None of none."""
        if not self._until and bookies:
            return bookies[0]
        now = self._clock()
        return min(bookies, key=lambda bookie: max(self._until.get(bookie, now) - now, 0.0), default=None)


class _Arrival(NamedTuple):
    """A bookie's answer; neither `stored` nor `error`: it was dropped."""

    fetch: RunFetch
    bookie: str
    stored: list[bytes] | None
    error: BaseException | None


class LedgerReader:
    """Reads `entries`, each of which must have been acknowledged. Never fences. Not thread safe.

    It asks one of an entry's bookies, and the next one if that is gone, has no such entry, has it damaged, or does not
    answer within `speculate_after` seconds. It checks every digest. `max_bytes` bounds what it holds; one entry may be
    larger. Readers of the same bookies may share `slowness`.
    """

    def __init__(
        self,
        bookies: EntryBookies,
        entries: EntryRange,
        metadata: LedgerMetadata,
        *,
        max_bytes: int,
        speculate_after: float = 1.0,
        slowness: Slowness | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.position = entries.first  # the next entry that `read` returns
        self._bookies = bookies
        self._ledger = entries.ledger
        self._metadata = metadata
        self._after = entries.after
        self._speculate_after = speculate_after
        self._slowness = slowness or Slowness(clock=clock)
        self._clock = clock
        self._digest = digest_for(metadata)
        self._sizes = Sizes(metadata)
        self._batches = bookies.batches
        self._batch_bytes = max(1, min(BATCH_BYTES, max_bytes // (BATCHES + 1)))
        self._budget = Budget(max_bytes - self._batch_bytes)  # there is always room for the answer that is needed next
        self._most = SINGLES  # requests under way; fewer once a bookie had too many
        self._unplanned = entries.first
        self._fetches: deque[RunFetch] = deque()  # without a hole from `position` on
        self._idle: deque[RunFetch] = deque()  # those to be asked for
        self._waiting: dict[RunFetch, None] = {}  # those under way
        self._needed: RunFetch | None = None  # the first one, without which nothing can be returned
        self._arrivals: SimpleQueue[_Arrival] = SimpleQueue()

    @property
    def finished(self) -> bool:
        """Whether everything was returned."""
        return self.position >= self._after

    def read(self, timeout: float) -> list[RawEntry]:
        """The entries that have arrived, at least one; empty after `timeout` seconds without any, and once `finished`.

        Raises EntryNotFoundError or LedgerNotFoundError where all bookies of an entry say so, IntegrityError where none
        has a sound copy, otherwise BookieUnavailableError.
        """
        deadline = self._clock() + timeout
        while True:
            self._drain()
            self._speculate()
            entries = self._ready()
            self._ask_more()
            if entries or self.finished or not self._heard(deadline):
                return entries

    def close(self) -> None:
        """Drop everything. Never raises."""
        for fetch in self._fetches:
            fetch.cancel()

    # What has arrived

    def _drain(self) -> None:
        with suppress(Empty):
            while True:
                self._handle(self._arrivals.get_nowait())

    def _heard(self, deadline: float) -> bool:
        """Wait until there is something to do; False: nothing came by the deadline."""
        now = self._clock()
        try:
            self._handle(self._arrivals.get(timeout=max(0.0, min(deadline, self._late_at()) - now)))
        except Empty:
            return self._clock() < deadline
        return True

    def _ready(self) -> list[RawEntry]:
        entries: list[RawEntry] = []
        while self._fetches and (arrived := self._fetches[0].entries) is not None:
            self._budget.release(self._fetches.popleft().held)
            entries += arrived
        if entries:
            self.position = entries[-1].entry + 1
        elif self._fetches and self._fetches[0].failed:
            raise verdict(self._metadata, self._ledger, self.position, self._fetches[0].said)
        return entries

    def _handle(self, arrival: _Arrival) -> None:
        fetch, bookie, stored, error = arrival
        if fetch not in self._waiting:
            return  # somebody else was faster
        if stored is not None:
            self._take(fetch, bookie, stored)
        elif error is None:
            self._ask_later(fetch)
        elif isinstance(error, OffloadError):
            self._refused(fetch, bookie, error)
        else:
            raise error

    def _take(self, fetch: RunFetch, bookie: str, stored: list[bytes]) -> None:
        try:
            fetch.entries = raw_entries(stored, self._digest, self._ledger, fetch.run.first)
        except IntegrityError as error:
            fetch.give_back(self._budget)
            self._refused(fetch, bookie, IntegrityError(f"{bookie}: {error}"))
            return
        del self._waiting[fetch]
        fetch.cancel()
        self._sizes.saw(fetch.held, len(stored))
        if len(stored) < fetch.run.span:
            self._plan_rest(fetch, fetch.run.first + len(stored))

    def _plan_rest(self, fetch: RunFetch, first: int) -> None:
        """A bookie gave less than asked for: as much as fits, or as it has without a hole."""
        rest = RunFetch(run_at(self._metadata, first, fetch.run.after, BATCH_ENTRIES), batch=fetch.batch)
        self._fetches.insert(self._fetches.index(fetch) + 1, rest)
        self._idle.append(rest)

    def _refused(self, fetch: RunFetch, bookie: str, error: OffloadError) -> None:
        if isinstance(error, TooManyRequestsError) and len(self._waiting) > 1:
            self._most = max(1, len(self._waiting) // 2)
            self._ask_later(fetch)
            return
        fetch.said[bookie] = error
        if answer(error) is Answer.UNKNOWN:
            self._slowness.note(bookie)
        if fetch.asked:
            return  # another one is at it
        if fetch.others:
            self._ask(fetch)
        elif fetch.failed:
            del self._waiting[fetch]
            fetch.give_back(self._budget)
            if fetch.batch:
                self._split(fetch)

    def _split(self, fetch: RunFetch) -> None:
        """No bookie gave the batch: ask all bookies of each entry for it by itself, so that each may be judged."""
        if any(answer(error) is Answer.UNKNOWN for error in fetch.said.values()):
            self._batches = False  # perhaps these bookies do not know them
        at = self._fetches.index(fetch)
        del self._fetches[at]
        for entry in reversed(range(fetch.run.first, fetch.run.after)):
            single = RunFetch(run_at(self._metadata, entry, entry + 1, 1), batch=False)
            self._fetches.insert(at, single)
            self._idle.appendleft(single)

    # What is asked for

    def _ask_more(self) -> None:
        while (fetch := self._next_idle()) is not None:
            self._needed = self._fetches[0]
            expected = min(self._batch_bytes, fetch.run.span * self._sizes.expected)
            full = len(self._waiting) >= self._limit(fetch) or not self._budget.room(expected)
            if full and fetch is not self._needed:
                break
            self._idle.remove(fetch)
            self._budget.expect(expected)
            fetch.expected = expected
            self._ask(fetch)
        self._needed = self._fetches[0] if self._fetches else None

    def _next_idle(self) -> RunFetch | None:
        if self._idle:
            return self._fetches[0] if self._fetches[0] in self._idle else self._idle[0]
        if self._unplanned >= self._after:
            return None
        most = min(BATCH_ENTRIES, max(1, self._batch_bytes // self._sizes.expected)) if self._batches else 1
        fetch = RunFetch(run_at(self._metadata, self._unplanned, self._after, most), batch=self._batches)
        self._unplanned = fetch.run.after
        self._fetches.append(fetch)
        self._idle.append(fetch)
        return fetch

    def _limit(self, fetch: RunFetch) -> int:
        many = not fetch.batch or striped(self._metadata, fetch.run.first)
        return min(self._most, SINGLES if many else BATCHES)

    def _ask(self, fetch: RunFetch) -> None:
        bookie = self._slowness.quickest(fetch.others)
        assert bookie is not None
        run = fetch.run
        future: Future[Any]
        if fetch.batch:
            future = self._bookies.batch(bookie, self._ledger, run.first, count=run.span, size=self._batch_bytes)
        else:
            future = self._bookies.read(bookie, self._ledger, run.first)
        fetch.asked[bookie] = future
        fetch.asked_at = self._clock()
        self._waiting[fetch] = None
        future.add_done_callback(partial(self._on_answer, fetch, bookie))

    def _ask_later(self, fetch: RunFetch) -> None:
        """Again, as soon as there is room."""
        if not fetch.asked:
            del self._waiting[fetch]
            fetch.give_back(self._budget)
            self._idle.append(fetch)

    def _on_answer(self, fetch: RunFetch, bookie: str, future: Future[Any]) -> None:
        """Called by the bookies' thread: what there is no room for must not wait in the queue."""
        try:
            error = future.exception()
        except CancelledError:
            return
        if error is not None:
            fetch.asked.pop(bookie, None)
            self._arrivals.put(_Arrival(fetch, bookie, None, error))
            return
        result = future.result()
        stored = fetch.answered(bookie, result if fetch.batch else [result], self._budget, needed=fetch is self._needed)
        self._arrivals.put(_Arrival(fetch, bookie, stored, None))

    # Who is too slow

    def _late_at(self) -> float:
        """When the answer that is needed first is late."""
        first = self._needed
        return first.asked_at + self._speculate_after if first is not None and first in self._waiting else inf

    def _speculate(self) -> None:
        """Once the first answer is late, ask elsewhere for all that are as late."""
        now = self._clock()
        if self._late_at() > now:
            return
        for fetch in [fetch for fetch in self._waiting if fetch.asked_at + self._speculate_after <= now]:
            for bookie in list(fetch.asked):
                self._slowness.note(bookie)
            fetch.asked_at = self._clock()
            if fetch.others:
                self._ask(fetch)
