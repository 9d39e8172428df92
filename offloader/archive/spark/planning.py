"""From topics' records to tasks: splits of bounded size, a topic's in their order.

Reads catalogs from the store, some records at a time as the iterators are taken, and no data objects."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

from offloader.archive.items import Missing
from offloader.archive.messages.lookback import LOOK_BACK
from offloader.archive.object_range import ObjectRange, PlanItem
from offloader.archive.reading.plan import plan, split, until
from offloader.archive.records import TopicRecords
from offloader.archive.selection import Selection
from offloader.archive.snapshot import TopicSnapshot
from offloader.archive.spark.filters import UNNARROWED, Narrowing, narrowed_selection
from offloader.archive.spark.intervals import intervals
from offloader.archive.spark.options import SourceOptions
from offloader.errors import ConfigError, DamagedRecordError, DataLostError
from offloader.model import MIB, Position, TopicName, Transaction

log = logging.getLogger("offloader.archive.spark")

LOOK_BACK_STEP = 4 * MIB
TASKS = 8  # a number that most numbers of cores divide
LEAST_TASK = 16 * MIB


@dataclass(frozen=True, slots=True)
class TopicSplit:
    """Consecutive items of a topic. Can be pickled.

    `before`: the ranges before them, for messages' first chunks. `aborted`: transactions whose entries are no messages.
    """

    topic: TopicName
    items: tuple[PlanItem, ...]
    before: tuple[PlanItem, ...] = ()
    aborted: frozenset[Transaction] = frozenset()

    @property
    def size(self) -> int:
        return size_of(self.items)


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """What is read of a topic, in order, before it is split into tasks.

    Plans of messages also have `for_chunks`: a wider plan, which begins earlier and leaves nothing out, so that tasks
    find the first chunks of their messages. `aborted`: transactions whose entries are no messages.
    """

    topic: TopicName
    items: Sequence[PlanItem]
    for_chunks: Sequence[PlanItem] = ()
    aborted: frozenset[Transaction] = frozenset()

    @classmethod
    def of(cls, snapshot: TopicSnapshot, items: Sequence[PlanItem], *, look_back: bool) -> Self:
        """These items of a topic; with `look_back` for rows of messages."""
        if not look_back or not items:
            return cls(snapshot.topic, items)
        return cls(snapshot.topic, items, _whole(snapshot, items[0].start, items[-1].end), snapshot.aborted)


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
        yield TopicPlan.of(snapshot, items, look_back=look_back)


def check_losses(topic: TopicName, items: Iterable[PlanItem]) -> None:
    """Refuse what is lost, or not proven to be complete. Raises DataLostError naming the first such positions."""
    for item in items:
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
        return [TopicSplit(planned.topic, group) for group in split(planned.items, max_bytes)]
    past = LookBackPlan(planned.for_chunks)
    groups = (group for each in intervals(planned.items, planned.for_chunks) for group in split(each, max_bytes))
    return [TopicSplit(planned.topic, group, past.before(group[0].start), planned.aborted) for group in groups]


class LookBackPlan:
    """What lies before a topic's splits. `whole`: a plan that leaves nothing out and begins far enough back."""

    def __init__(self, whole: Iterable[PlanItem]) -> None:
        self._groups = split((item for item in whole if isinstance(item, ObjectRange)), LOOK_BACK_STEP)
        self._firsts = [group[0].start for group in self._groups]

    def before(self, first: Position, max_bytes: int = LOOK_BACK) -> tuple[PlanItem, ...]:
        """The last `max_bytes` before a position or a little more, in order."""
        count = bisect_left(self._firsts, first)
        kept: list[tuple[PlanItem, ...]] = []
        left = max_bytes + LOOK_BACK_STEP  # an object has headers and padding beside its entries
        for group in reversed(self._groups[:count]):
            if left <= 0:
                break
            kept.append(group if group[-1].end < first else tuple(until(group, first.previous_entry)))
            left -= size_of(kept[-1])
        return tuple(item for group in reversed(kept) for item in group)


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


def sized_spans(snapshot: TopicSnapshot) -> list[tuple[Position, Position, int]]:
    """First and last position and size of each segment and ledger."""
    segments = [(segment.start, segment.end, segment.size) for segment in snapshot.catalog.segments]
    return segments + [(ledger.start, ledger.end, ledger.size) for ledger in snapshot.ledgers]


def size_of(items: Iterable[PlanItem]) -> int:
    """The bytes to be read, about."""
    return sum(item.size for item in items if isinstance(item, ObjectRange))


def _whole(snapshot: TopicSnapshot, first: Position, last: Position) -> list[PlanItem]:
    """Everything between two positions, and enough before it to look back."""
    try:
        return plan(snapshot, Selection(_far_enough_back(snapshot, first, LOOK_BACK + LOOK_BACK_STEP), last))
    except DamagedRecordError as error:  # in records before the first position, which can be read without them
        log.warning(
            "%s: chunks before %s are not looked for: %s", snapshot.topic, first, error, extra={"see": "chunks-unknown"}
        )
        return plan(snapshot, Selection(first, last))


def _far_enough_back(snapshot: TopicSnapshot, end: Position, max_bytes: int) -> Position | None:
    """The start of the last segment or ledger with `max_bytes` between it and `end`, else the first start."""
    left = max_bytes
    found: Position | None = None
    for start, last, size in sorted((each for each in sized_spans(snapshot) if each[0] <= end), reverse=True):
        found = start
        if left <= 0:
            break
        left -= size if last <= end else 0  # of the one that `end` lies in, nobody knows how much is before it
    return found
