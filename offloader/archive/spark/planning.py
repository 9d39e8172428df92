"""From topics' records to tasks of bounded size. Iterators read catalogs as they are taken; no data is read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

from offloader.archive.items import Missing
from offloader.archive.messages.lookback import LOOK_BACK
from offloader.archive.object_range import PlanItem, size_of
from offloader.archive.reading.plan import plan, split
from offloader.archive.records import TopicRecords
from offloader.archive.selection import Selection
from offloader.archive.snapshot import TopicSnapshot
from offloader.archive.spark.filters import UNNARROWED, Narrowing, narrowed_selection
from offloader.archive.spark.look_back_plan import LOOK_BACK_STEP, LookBackPlan, intervals, plan_for_chunks
from offloader.archive.spark.options import SourceOptions
from offloader.errors import ConfigError, DataLostError
from offloader.model import MIB, TopicName, Transaction

TASKS = 8  # a number that most numbers of cores divide
LEAST_TASK = 16 * MIB


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
