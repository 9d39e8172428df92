"""From topics' records to tasks of bounded size. Iterators read catalogs as they are taken; no data is read.

A task looks for the first chunks of its messages before its items, and where a selection left ranges out.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

from offloader.archive.items import Missing
from offloader.archive.messages.chunks import LOOK_BACK
from offloader.archive.object_range import ObjectRange, PlanItem, Run, size_of
from offloader.archive.reading.plan import plan, split, until
from offloader.archive.records import TopicRecords
from offloader.archive.selection import Selection
from offloader.archive.snapshot import TopicSnapshot
from offloader.archive.spark.filters import UNNARROWED, Narrowing, narrowed_selection
from offloader.archive.spark.options import SourceOptions
from offloader.errors import ConfigError, DamagedRecordError, DataLostError
from offloader.model import MIB, Position, TopicName, Transaction

log = logging.getLogger("offloader.archive.spark")

TASKS = 8  # a number that most numbers of cores divide
LEAST_TASK = 16 * MIB
LOOK_BACK_STEP = 4 * MIB


def plan_for_chunks(snapshot: TopicSnapshot, first: Position, last: Position) -> list[PlanItem]:
    """Everything between two positions, and enough before it to look for chunks; nothing is left out."""
    try:
        return plan(snapshot, Selection(_far_enough_back(snapshot, first, LOOK_BACK + LOOK_BACK_STEP), last))
    except DamagedRecordError as error:  # in records before the first position, which can be read without them
        log.warning(
            "%s: chunks before %s are not looked for: %s", snapshot.topic, first, error, extra={"see": "chunks-unknown"}
        )
        return plan(snapshot, Selection(first, last))


class LookBackPlan:
    """Finds the ranges before each of a topic's splits, in the topic's `plan_for_chunks`."""

    def __init__(self, for_chunks: Iterable[PlanItem]) -> None:
        self._groups = split((item for item in for_chunks if isinstance(item, ObjectRange)), LOOK_BACK_STEP)
        self._firsts = [group[0].start for group in self._groups]

    def before(self, first: Position, max_bytes: int = LOOK_BACK) -> tuple[PlanItem, ...]:
        """The last `max_bytes` before a position or a little more, in order."""
        count = bisect_left(self._firsts, first)
        kept: list[tuple[PlanItem, ...]] = []
        left = max_bytes + LOOK_BACK_STEP  # an object has headers and padding beside its entries
        for group in reversed(self._groups[:count]):
            if left <= 0:
                break
            if group[-1].end < first:
                kept.append(group)
                left -= size_of(group)
            else:  # of its last part, which is read whole, perhaps next to nothing is wanted: it does not count
                kept.append(tuple(until(group, first.previous_entry)))
        return tuple(item for group in reversed(kept) for item in group)


def intervals(items: Iterable[PlanItem], for_chunks: Iterable[PlanItem]) -> Iterator[list[PlanItem]]:
    """The items, split where they leave out ranges that `for_chunks` has."""
    stored = (item for item in for_chunks if isinstance(item, ObjectRange))
    runs = [(item.start_of(run), item.end_of(run)) for item in stored for run in item.runs]
    successor = {last: first for (_, last), (first, _) in pairwise(runs)}
    interval: list[PlanItem] = []
    last: Position | None = None
    for item in items:
        for part in [item] if isinstance(item, Missing) else _unbroken(item, successor):
            if isinstance(part, ObjectRange):
                if last is not None and not _follows(successor, last, part.start):
                    yield interval
                    interval = []
                last = part.end
            interval.append(part)
    if interval:
        yield interval


def _follows(successor: Mapping[Position, Position], last: Position, first: Position) -> bool:
    return first == last.next_entry or successor.get(last) == first


def _unbroken(item: ObjectRange, successor: Mapping[Position, Position]) -> Iterator[ObjectRange]:
    """A range, split where a run does not follow on the one before."""
    begin = 0
    for number, (before, after) in enumerate(pairwise(item.runs), 1):
        if not _follows(successor, item.end_of(before), item.start_of(after)):
            yield _part(item, item.runs[begin:number], ends=False)
            begin = number
    yield _part(item, item.runs[begin:], ends=item.ends_object) if begin else item


def _part(item: ObjectRange, runs: tuple[Run, ...], *, ends: bool) -> ObjectRange:
    first, last = (runs[0].ledger, runs[0].first), (runs[-1].ledger, runs[-1].last)
    points = tuple(point for point in item.split_points if first <= point[:2] <= last)
    return replace(item, runs=runs, split_points=points, ends_object=ends)


def _far_enough_back(snapshot: TopicSnapshot, end: Position, max_bytes: int) -> Position | None:
    """The start of the last segment or ledger with `max_bytes` between it and `end`, else the first start."""
    left = max_bytes
    found: Position | None = None
    for start, last, size in sorted((each for each in snapshot.sized_spans if each[0] <= end), reverse=True):
        found = start
        if left <= 0:
            break
        left -= size if last <= end else 0  # of the one that `end` lies in, nobody knows how much is before it
    return found


@dataclass(frozen=True, slots=True)
class TopicSplit:
    """Consecutive items of a topic. `before`: ranges before them, for messages' first chunks. `aborted`: transactions
    whose entries are no messages. `from_begin`: as in plans. Can be pickled."""

    topic: TopicName
    items: tuple[PlanItem, ...]
    before: tuple[PlanItem, ...] = ()
    aborted: frozenset[Transaction] = frozenset()
    from_begin: bool = False

    @property
    def size(self) -> int:
        return size_of(self.items)


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """What is read of a topic, in order, before it is split into tasks. Plans of messages also have `for_chunks`, which
    begins earlier and leaves nothing out, so that tasks find their messages' first chunks; `aborted` as in splits.
    `from_begin`: nobody said from where on, so that it begins with what is not deleted."""

    topic: TopicName
    items: Sequence[PlanItem]
    for_chunks: Sequence[PlanItem] = ()
    aborted: frozenset[Transaction] = frozenset()
    from_begin: bool = False

    @classmethod
    def of(
        cls, snapshot: TopicSnapshot, items: Sequence[PlanItem], *, look_back: bool, from_begin: bool = False
    ) -> Self:
        """These items of a topic; with `look_back` for rows of messages."""
        if not look_back or not items:
            return cls(snapshot.topic, items, from_begin=from_begin)
        for_chunks = plan_for_chunks(snapshot, items[0].start, items[-1].end)
        return cls(snapshot.topic, items, for_chunks, snapshot.aborted, from_begin)


def check_positions(options: SourceOptions, topics: Collection[TopicName]) -> None:
    """Refuse positions of topics that are not read: they would be left out of account. Raises ConfigError."""
    for option, positions in options.positions:
        if positions.only is not None and len(topics) > 1:
            raise ConfigError(
                f"{option}: {options.topics[0]} has {len(topics)} partitions; write JSON with a position for each of "
                "them"
            )
        unknown = next((topic for topic, _ in positions.each if topic not in topics), None)
        if unknown is not None:
            raise ConfigError(f"{option}: {unknown} is not among the topics that are read")


def selection_of(records: TopicRecords, options: SourceOptions) -> Selection:
    """What the options select of a topic. Reads the catalog, to find the incarnation that a position is of."""
    start, end = options.starting_position.of(records.topic), options.ending_position.of(records.topic)
    return Selection(
        None if start is None else records.located(start),
        None if end is None else records.located(end),
        options.starting_time,
        options.ending_time,
    )


def topic_plans(
    records: TopicRecords, wanted: Selection, narrowing: Narrowing = UNNARROWED, *, look_back: bool = True
) -> Iterator[TopicPlan]:
    """What must be read of a topic, interval by interval. Raises DamagedRecordError."""
    narrowest = narrowed_selection(records.extents(wanted), wanted, narrowing)
    if narrowest is None:
        return
    back = LOOK_BACK + LOOK_BACK_STEP if look_back else 0
    for snapshot, part in records.excerpts(narrowest, back=back):
        items = plan(snapshot, part)
        if items and look_back:
            snapshot = replace(snapshot, also_aborted=records.aborted(items[0].start))
        from_begin = wanted.start is None and not wanted.is_timed
        yield TopicPlan.of(snapshot, items, look_back=look_back, from_begin=from_begin)


def check_losses(topic: TopicName, items: Iterable[PlanItem], *, from_begin: bool = False) -> None:
    """Refuse what is lost, deleted, or not proven to be complete. Raises DataLostError naming the first such positions.
    `from_begin`: who asks for no begin gets what is there, the log tells what is deleted."""
    for item in items:
        if isinstance(item, Missing) and item.deleted and from_begin:
            continue
        if isinstance(item, Missing) and item.kind is None and not item.damaged:  # damage is for the task that reads it
            raise DataLostError(
                f"{topic}: {item.start}..{item.end} is not in the archive ({item.why}); "
                f"option failOnDataLoss=false reads what is there, and the log tells what is not"
            )


def task_size(size: int, max_bytes: int) -> int:
    """Bytes that a task should read of `size`: at most `max_bytes`; few enough to keep all cores busy to the end, and
    enough that a task's own cost does not matter."""
    if size > TASKS * max_bytes:
        count = TASKS * -(-size // (TASKS * max_bytes))
    else:
        count = max(-(-size // max_bytes), min(TASKS, size // LEAST_TASK), 1)
    return max(1, -(-size // count))


def topic_splits(planned: TopicPlan, max_bytes: int) -> list[TopicSplit]:
    """The items in splits of at most `max_bytes`, as far as their split points allow."""
    if not planned.for_chunks:
        return [
            TopicSplit(planned.topic, group, from_begin=planned.from_begin) for group in split(planned.items, max_bytes)
        ]
    past = LookBackPlan(planned.for_chunks)
    groups = (group for each in intervals(planned.items, planned.for_chunks) for group in split(each, max_bytes))
    return [
        TopicSplit(planned.topic, group, past.before(group[0].start), planned.aborted, planned.from_begin)
        for group in groups
    ]


def tasks(splits: Iterable[TopicSplit], max_bytes: int) -> list[tuple[TopicSplit, ...]]:
    """Small splits together: a task costs 30-40 ms whatever it does."""
    packed: list[list[TopicSplit]] = []
    room = 0
    for each in splits:
        if not packed or each.size > room:
            packed.append([])
            room = max_bytes
        packed[-1].append(each)
        room -= each.size
    return [tuple(task) for task in packed]
