"""From views to tasks: what is read, in portions of bounded size, a topic's portions in order. Reads records, and no
data."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

from offloader.archive.items import Missing
from offloader.archive.messages.lookback import LOOK_BACK
from offloader.archive.read_model import ObjectRange, PlanItem, Selection
from offloader.archive.reading.plan import plan, split, until
from offloader.archive.records import TopicRecords
from offloader.archive.spark.filters import EVERYTHING, Narrowing, selection
from offloader.archive.spark.intervals import stretches
from offloader.archive.spark.options import SourceOptions
from offloader.archive.view import TopicSnapshot
from offloader.errors import ConfigError, DamagedRecordError, DataLostError
from offloader.model import MIB, Position, TopicName, Transaction

log = logging.getLogger("offloader.archive.spark")

STEP = 4 * MIB
TASKS = 8  # a number that most numbers of cores divide
LEAST_TASK = 16 * MIB


@dataclass(frozen=True, slots=True)
class TopicSplit:
    """Consecutive items of one topic; `before` is what may be read back for chunks, in order; `aborted` are
    transactions whose entries are no messages. Can be pickled."""

    topic: TopicName
    items: tuple[PlanItem, ...]
    before: tuple[PlanItem, ...] = ()
    aborted: frozenset[Transaction] = frozenset()

    @property
    def size(self) -> int:
        return size_of(self.items)


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """What is read of a topic, in order, before it is cut into tasks.

    Only where messages are read: `whole` is everything between the items too, and so far before them that chunks can be
    looked for; `aborted` are transactions whose entries are no messages.
    """

    topic: TopicName
    items: Sequence[PlanItem]
    whole: Sequence[PlanItem] = ()
    aborted: frozenset[Transaction] = frozenset()

    @classmethod
    def of(cls, view: TopicSnapshot, items: Sequence[PlanItem], *, look_back: bool) -> Self:
        """These items of a topic; with `look_back` for rows of messages."""
        if not look_back or not items:
            return cls(view.topic, items)
        return cls(view.topic, items, _whole(view, _first_of(items), _last_of(items)), view.aborted)

    @property
    def size(self) -> int:
        return size_of(self.items)


def check_positions(options: SourceOptions, topics: Collection[TopicName]) -> None:
    """Refuse positions of topics that are not read: they would be left out of account. Raises ConfigError."""
    for option, positions in (
        ("startingPosition", options.starting_position),
        ("endingPosition", options.ending_position),
    ):
        if positions.only is not None and len(topics) > 1:
            raise ConfigError(
                f"{option}: {options.topics[0]} has {len(topics)} partitions; write JSON with a position for each of "
                "them"
            )
        unknown = next((topic for topic, _ in positions.each if topic not in topics), None)
        if unknown is not None:
            raise ConfigError(f"{option}: {unknown} is not among the topics that are read")


def wanted(records: TopicRecords, options: SourceOptions) -> Selection:
    """What the options ask of a topic."""
    start, end = options.starting_position.of(records.topic), options.ending_position.of(records.topic)
    return Selection(
        None if start is None else records.located(start),
        None if end is None else records.located(end),
        options.starting_time,
        options.ending_time,
    )


def asked_of(
    records: TopicRecords, asked: Selection, narrowing: Narrowing = EVERYTHING, *, look_back: bool = True
) -> Iterator[TopicPlan]:
    """What must be read of a topic, stretch by stretch. Raises DamagedRecordError."""
    narrowest = selection(records.extents(asked), asked, narrowing)
    if narrowest is None:
        return
    back = LOOK_BACK + STEP if look_back else 0
    for view, part in records.views(narrowest, back=back):
        items = plan(view, part)
        if items and look_back:
            view = replace(view, also_aborted=records.aborted(_first_of(items)))
        yield TopicPlan.of(view, items, look_back=look_back)


def check_losses(topic: TopicName, items: Iterable[PlanItem]) -> None:
    """Refuse what is lost, or not proven to be complete. Raises DataLostError naming the first such positions."""
    for item in items:
        if isinstance(item, Missing) and item.kind is None and not item.damaged:  # damage is for the task that reads it
            raise DataLostError(
                f"{topic}: {item.start}..{item.end} is not in the archive ({item.why}); "
                f"option failOnDataLoss=false reads what is there, and the log tells what is not"
            )


def task_size(size: int, max_bytes: int) -> int:
    """How many bytes a task should read of `size`, at most `max_bytes`.

    So many that the tasks keep all cores busy to the end, however many cores there are, and that a task's own cost does
    not matter.
    """
    if size > TASKS * max_bytes:
        count = TASKS * -(-size // (TASKS * max_bytes))
    else:
        count = max(-(-size // max_bytes), min(TASKS, size // LEAST_TASK), 1)
    return max(1, -(-size // count))


def portions(planned: TopicPlan, max_bytes: int) -> list[TopicSplit]:
    """The items in portions of at most `max_bytes`, as far as they can be cut."""
    topic, aborted = planned.topic, planned.aborted
    if not planned.whole:
        return [TopicSplit(topic, group) for group in split(planned.items, max_bytes)]
    past = LookBackPlan(planned.whole)
    groups = (group for stretch in stretches(planned.items, planned.whole) for group in split(stretch, max_bytes))
    return [TopicSplit(topic, group, past.before(_first_of(group)), aborted) for group in groups]


class LookBackPlan:
    """What lies before the portions of a topic. `whole` is a plan that leaves nothing out and begins far enough
    back."""

    def __init__(self, whole: Iterable[PlanItem]) -> None:
        self._groups = split((item for item in whole if isinstance(item, ObjectRange)), STEP)
        self._firsts = [_first_of(group) for group in self._groups]

    def before(self, first: Position, max_bytes: int = LOOK_BACK) -> tuple[PlanItem, ...]:
        """The last `max_bytes` before a position or a little more, in order."""
        count = bisect_left(self._firsts, first)
        kept: list[tuple[PlanItem, ...]] = []
        left = max_bytes + STEP  # entries are smaller than what is stored of them
        for group in reversed(self._groups[:count]):
            if left <= 0:
                break
            kept.append(group if _last_of(group) < first else tuple(until(group, first.previous_entry)))
            left -= size_of(kept[-1])
        return tuple(item for group in reversed(kept) for item in group)


def tasks(found: Iterable[TopicSplit], max_bytes: int) -> list[tuple[TopicSplit, ...]]:
    """Small portions together: a task costs 30-40 ms whatever it does."""
    packed: list[list[TopicSplit]] = []
    room = 0
    for portion in found:
        if not packed or portion.size > room:
            packed.append([])
            room = max_bytes
        packed[-1].append(portion)
        room -= portion.size
    return [tuple(task) for task in packed]


def extents(view: TopicSnapshot) -> list[tuple[Position, Position, int]]:
    """First and last position and size of each segment and ledger."""
    segments = [(segment.start, segment.end, segment.size) for segment in view.catalog.segments]
    return segments + [(ledger.start, ledger.end, ledger.size) for ledger in view.ledgers]


def size_of(items: Iterable[PlanItem]) -> int:
    """The bytes to be read, about."""
    return sum(item.size for item in items if isinstance(item, ObjectRange))


def _first_of(items: Sequence[PlanItem]) -> Position:
    return items[0].first if isinstance(items[0], ObjectRange) else items[0].start


def _last_of(items: Sequence[PlanItem]) -> Position:
    return items[-1].last if isinstance(items[-1], ObjectRange) else items[-1].end


def _whole(view: TopicSnapshot, first: Position, last: Position) -> list[PlanItem]:
    """Everything between two positions, and enough before it to look back."""
    try:
        return plan(view, Selection(_far_enough_back(view, first, LOOK_BACK + STEP), last))
    except DamagedRecordError as error:  # before the first position, which need not concern it
        log.warning(
            "%s: chunks before %s are not looked for: %s", view.topic, first, error, extra={"see": "chunks-unknown"}
        )
        return plan(view, Selection(first, last))


def _far_enough_back(view: TopicSnapshot, end: Position, max_bytes: int) -> Position | None:
    """The start of a segment or ledger with at least `max_bytes` between it and `end`, else the first known start.

    Nothing before that need be planned.
    """
    left = max_bytes
    found: Position | None = None
    for start, last, size in sorted((each for each in extents(view) if each[0] <= end), reverse=True):
        found = start
        if left <= 0:
            break
        left -= size if last <= end else 0  # of the one that `end` lies in, nobody knows how much is before it
    return found
