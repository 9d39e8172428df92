"""Reading what a plan names: ranges are fetched ahead, and everything that comes is checked before it is given."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import NamedTuple

from offloader.ahead import unawaited_pool
from offloader.archive.items import Missing, ReadItem
from offloader.archive.messages.message import DEFAULT_LIMITS, MessageLimits
from offloader.archive.object_range import ObjectRange, PlanItem
from offloader.archive.reading.range_reader import SHARED, IndexCache, RangeRead, ReadStats, Submit
from offloader.archive.reading.stores import Stores
from offloader.archive.reading.verifier import OnDamage
from offloader.errors import ConfigError
from offloader.model import KIB, MIB

__all__ = ["MessageLimits", "OnDamage", "PlannedReader", "ReadOptions", "ReadStats"]

SMALLEST_READ = 1 * KIB


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How an archive is read. Raises ConfigError.

    `read_size`: bytes that a request asks for, at least 1 KiB. `prefetch`: requests under way ahead of the one in use.
    `on_damage`: what becomes of entries that cannot be read. `limits`: how large messages may be.

    >>> skipping = ReadOptions(on_damage=OnDamage.SKIP)
    >>> Archive("s3://pulsar-archive/production", options=skipping).topic("orders").size() > 0
    True
    """

    read_size: int = 4 * MIB
    prefetch: int = 2
    on_damage: OnDamage = OnDamage.FAIL
    limits: MessageLimits = DEFAULT_LIMITS

    def __post_init__(self) -> None:
        if self.read_size < SMALLEST_READ:
            raise ConfigError(f"read_size: {self.read_size} bytes are too few; at least {SMALLEST_READ}")
        if self.prefetch < 0:
            raise ConfigError(f"prefetch: {self.prefetch} is not a number of fetches")


DEFAULTS = ReadOptions()


class _Step(NamedTuple):
    """What is done in its turn. `fetching`: a request of it is under way."""

    fetching: bool
    run: Callable[[], Iterator[ReadItem]]


class PlannedReader:
    """Reads object ranges, in their order. For one thread: readers share nothing but the cache of indexes.

    It holds at most

    * `prefetch` + 1 times `read_size`,
    * one part: it gives what it fetched of a part when it has checked all of it,
    * one more entry that is longer than a fetch.

    The caller may keep the runs that it was given: they come on top.
    """

    def __init__(self, stores: Stores, options: ReadOptions = DEFAULTS, indexes: IndexCache = SHARED) -> None:
        self._stores = stores
        self._options = options
        self._indexes = indexes
        self.stats = ReadStats()

    def read(self, items: Iterable[PlanItem]) -> Iterator[ReadItem]:
        """The entries that were planned and what is missing, every position once.

        Raises DamagedObjectError naming object, offset and position; ObjectNotFoundError; what the store raises.
        """
        if self._options.prefetch == 0:
            yield from self._read(items, lambda call: call)
            return
        with unawaited_pool(self._options.prefetch, "archive-reader") as pool:
            yield from self._read(items, lambda call: pool.submit(call).result)

    def _read(self, items: Iterable[PlanItem], submit: Submit) -> Iterator[ReadItem]:
        with closing(self._steps(items, submit)) as steps:
            # A step leaves the window when it is used: the window holds only what is fetched ahead.
            window = deque(islice(steps, 1))
            while window:
                step = window.popleft()
                self._top_up(window, steps)
                # No name of ours may keep the bytes of a step that is over.
                yield from map(self.stats.give, step.run())
                del step
                window.extend(islice(steps, 0 if window else 1))

    def _top_up(self, window: deque[_Step], steps: Iterator[_Step]) -> None:
        ahead = sum(step.fetching for step in window)
        while ahead < self._options.prefetch and (following := next(steps, None)) is not None:
            window.append(following)
            ahead += following.fetching

    def _steps(self, items: Iterable[PlanItem], submit: Submit) -> Generator[_Step]:
        for work in self._opened(items, submit):
            if isinstance(work, Missing):
                yield _Step(False, partial(self._tell, work))
                continue
            yield _Step(False, work.begin)
            for fetch in work.fetches(self._options.read_size):
                yield _Step(True, partial(work.take, fetch, submit(partial(work.read, fetch))))
            yield _Step(False, work.finish)

    def _tell(self, item: Missing) -> Iterator[Missing]:
        """What was known to be missing before anything was read: damage is what it is elsewhere."""
        if item.damaged and self._options.on_damage is OnDamage.FAIL:
            raise item.as_error()
        yield item

    def _opened(self, items: Iterable[PlanItem], submit: Submit) -> Iterator[RangeRead | Missing]:
        """Each item, once the index of the one after it is on its way."""
        before: RangeRead | Missing | None = None
        for item in items:
            work = item if isinstance(item, Missing) else self._range_read(item, submit)
            if before is not None:
                yield before
            before = work
        if before is not None:
            yield before

    def _range_read(self, wanted: ObjectRange, submit: Submit) -> RangeRead:
        opened = self._stores.open(wanted.object.store)
        return RangeRead(wanted, opened, self._options.on_damage, self._indexes, self.stats, submit)
