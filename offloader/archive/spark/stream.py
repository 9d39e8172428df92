"""`spark.readStream.format("pulsar-archive")`: follows the catalogs as segments are sealed. Between two offsets nothing
changes, since segments do not."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from offloader.archive.continuity import Span
from offloader.archive.messages.chunks import LOOK_BACK
from offloader.archive.object_range import ObjectRange, PlanItem, size_of
from offloader.archive.reading.overlaps import distinct_spans
from offloader.archive.reading.plan import plan, split
from offloader.archive.records import TopicRecords
from offloader.archive.selection import Selection
from offloader.archive.snapshot import TopicSnapshot
from offloader.archive.spark.batch import read_tasks
from offloader.archive.spark.options import Form, SourceOptions
from offloader.archive.spark.planning import LOOK_BACK_STEP, TopicPlan, check_positions
from offloader.archive.spark.selected_topics import SelectedTopics
from offloader.archive.spark.task import record_batches
from offloader.errors import ConfigError, DataLostError, FormatVersionError
from offloader.model import MIB, Position, TopicName

Ends = dict[TopicName, Position]
"""Per topic the last position that is read."""
Offset = dict[str, str]
"""The same as JSON: `{"version": "1", "persistent://tenant/namespace/topic": "INCARNATION:LEDGER:ENTRY"}`; topics
without one begin at the begin. Spark keeps them in the query's checkpoint, for later versions, too."""

OFFSET_VERSION = 1
SMALLEST_STEP = MIB
_VERSION = "version"  # no topic's name


class ArchiveStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in a process of the driver's for the query's time, and polls the catalogs; a copy goes to the tasks."""

    def __init__(
        self,
        options: SourceOptions,
        schema: StructType,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._schema = schema
        self._clock = clock
        self._wait = wait
        self._topics: SelectedTopics | None = None
        self._records: dict[TopicName, TopicRecords] = {}
        self._polled_at: float | None = None
        self._no_more = False
        self._turn: TopicName | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 (Spark's names)
        """The beginning, or where `startingOffsets` or `startingPosition` says."""
        self._poll()
        check_positions(self._options, self._records)
        starts = ((topic, self._start(records)) for topic, records in self._records.items())
        return encode_offset({topic: start for topic, start in starts if start is not None})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self._options.max_bytes_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxBytes(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is sealed from now on is for the next run."""
        self._poll()
        self._no_more = True

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """As far as the limit admits, or `start` itself: Spark then runs no batch. Waits up to the poll interval."""
        budget = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        ends = decode_offset(start)
        following = self._advanced(ends, budget)
        if following == ends and not self._no_more:
            if self._polled_at is not None:
                self._wait(max(0.0, self._polled_at + self._options.poll_ms / 1000 - self._clock()))
            self._poll()
            following = self._advanced(ends, budget)
        self._check_reaches(ends)
        self._turn = last_served(ends, following, self._turn)
        return start if following == ends else encode_offset(following)

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """Where the archive ends, for the query's progress."""
        reached = ((topic, records.last_position) for topic, records in self._records.items())
        ends = {topic: end for topic, end in reached if end is not None}
        return encode_offset(ends) if ends else None

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The same tasks for the same offsets, however often it is asked. Raises DataLostError, DamagedRecordError."""
        begun, ends = decode_offset(start), decode_offset(end)
        if begun == ends:
            return []
        self._poll_for(ends)
        moved = [topic for topic in ends if begun.get(topic) != ends[topic]]
        planned = [self._plan(self._records[topic], begun.get(topic), ends[topic]) for topic in moved]
        plan_id = f"{zlib.crc32(json.dumps([start, end]).encode()):08x}"
        return read_tasks(plan_id, planned, sum(self._records[topic].stored_bytes for topic in ends), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return record_batches(partition, self._options, self._schema)

    def _plan(self, records: TopicRecords, after: Position | None, end: Position) -> TopicPlan:
        messages = self._options.form is Form.MESSAGES
        snapshot = records.behind(after, back=LOOK_BACK + LOOK_BACK_STEP if messages else 0)
        items = items_between(snapshot, after, self._times, end)
        if self._options.fail_on_data_loss and after is not None:
            check_not_removed(snapshot, after)
        from_begin = after is None and not self._times.is_timed
        return TopicPlan.of(snapshot, items, look_back=messages, from_begin=from_begin)

    @property
    def _times(self) -> Selection:
        return Selection(published_from=self._options.starting_time, published_to=self._options.ending_time)

    def _start(self, records: TopicRecords) -> Position | None:
        if self._options.from_latest:
            return records.last_position
        given = self._options.starting_position.of(records.topic)
        if given is None:
            return None
        position = records.located(given)
        return before(records.behind(position.previous_entry), position)

    def _advanced(self, ends: Ends, budget: int | None) -> Ends:
        moved = {topic: records for topic, records in self._records.items() if records.last_position != ends.get(topic)}
        step = step_size(budget, len(moved), self._options.max_partition_bytes)
        behind = {topic: records.behind(ends.get(topic)) for topic, records in moved.items()}
        pending = {
            topic: steps(snapshot, ends.get(topic), self._times, step, budget) for topic, snapshot in behind.items()
        }
        return advance(ends, pending, budget, self._turn)

    def _poll(self) -> None:
        """Read what is new in the catalogs."""
        if self._topics is None:
            self._topics = SelectedTopics(self._options)
        self._records = self._topics.load()
        self._polled_at = self._clock()

    def _poll_for(self, ends: Ends) -> None:
        """Poll where a batch is to read what is not known yet: it was planned before a restart."""
        if any(
            topic not in self._records or (self._records[topic].last_position or end) < end
            for topic, end in ends.items()
        ):
            self._poll()
        unknown = next((topic for topic in ends if topic not in self._records), None)
        if unknown is not None:
            raise ConfigError(
                f"{unknown}: the checkpoint has read it, but it is not among the topics of this query; use another "
                "checkpoint"
            )
        self._check_reaches(ends)

    def _check_reaches(self, ends: Ends) -> None:
        """Raises DataLostError where the archive ends before what was planned or read: it never takes segments back."""
        for topic, end in ends.items() if self._options.fail_on_data_loss else ():
            there = self._records[topic].last_position if topic in self._records else end
            if there is None or there < end:
                raise DataLostError(
                    f"{topic}: it reached up to {end}, and the archive ends with {there or 'nothing'} now: records of "
                    f"its catalog are gone; see `offloader catalog rebuild {topic}` (failOnDataLoss=false goes on with "
                    "what is there)"
                )


@dataclass(frozen=True, slots=True)
class Step:
    """What can be admitted at once: everything up to `end`."""

    end: Position
    size: int


def encode_offset(ends: Mapping[TopicName, Position]) -> Offset:
    """In the order of the names, so that equal offsets are the same text."""
    places = {str(topic): f"{p.incarnation}:{p.ledger}:{p.entry}" for topic, p in sorted(ends.items())}
    return {_VERSION: str(OFFSET_VERSION), **places}


def decode_offset(offset: Mapping[str, str]) -> Ends:
    """The reverse. Those of builds before the first release say no version. Raises FormatVersionError."""
    version = offset.get(_VERSION, str(OFFSET_VERSION))
    if version != str(OFFSET_VERSION):
        raise FormatVersionError(
            f"the query's checkpoint has offsets of version {version}, this version reads {OFFSET_VERSION}: run "
            "a newer one"
        )
    places = {topic: text for topic, text in offset.items() if topic != _VERSION}
    return {TopicName.parse(topic): Position(*map(int, text.split(":"))) for topic, text in places.items()}


def before(snapshot: TopicSnapshot, position: Position) -> Position | None:
    """The offset after which `position` is the first to be read; None: the topic's beginning."""
    return max(
        (min(each.end, position.previous_entry) for each in distinct_spans(snapshot) if each.start < position),
        default=None,
    )


def check_not_removed(snapshot: TopicSnapshot, after: Position) -> None:
    """Raises DataLostError where the archive no longer holds what was read last: what followed may be gone, too."""
    held = any(each.start <= after <= each.end for each in distinct_spans(snapshot))
    if not held and all(s.predecessor_end != after for s in snapshot.catalog.segments):
        raise DataLostError(
            f"{snapshot.topic}: the archive does not hold {after} any more, so entries after it may have been removed "
            "unread; option failOnDataLoss=false goes on with what is there"
        )


def items_between(
    snapshot: TopicSnapshot, after: Position | None, times: Selection, end: Position | None = None
) -> list[PlanItem]:
    """What follows `after` without a hole, up to `end` and of these `times`. Raises DamagedRecordError."""
    start = None if after is None else after.next_entry
    selected = Selection(start, end, times.published_from, times.published_to)
    ends_there = any(span.end == after for span in distinct_spans(snapshot))
    return plan(snapshot, selected, after if ends_there else None)


def steps(
    snapshot: TopicSnapshot, after: Position | None, times: Selection, step: int, enough: int | None
) -> list[Step]:
    """What is pending of a topic, in steps of about `step` bytes; not much more than `enough` bytes of it."""
    end = _enough(snapshot, after, enough)
    if end is None or (after is not None and end <= after):
        return []
    found: list[Step] = []
    reached, spans = after, distinct_spans(snapshot)
    for group in split(items_between(snapshot, after, times, end), step):
        reached = _done_to(group, reached, spans)
        if reached is not None:
            found.append(Step(reached, size_of(group)))
    if reached is None or reached < end:
        found.append(Step(end, 0))  # nothing there is wanted, but it is done with
    return found


def step_size(budget: int | None, topics: int, max_bytes: int) -> int:
    """How finely the pending bytes are split, so that each topic gets its share of a budget."""
    share = max_bytes if budget is None else budget // max(topics, 1)
    return max(min(share, max_bytes), min(SMALLEST_STEP, max_bytes))


def advance(
    ends: Ends, pending: Mapping[TopicName, Sequence[Step]], budget: int | None, turn: TopicName | None
) -> Ends:
    """The ends after one batch: a step of each topic in turn, beginning after `turn`, until the budget is used up. The
    first step is taken, however large: or nothing would ever move."""
    queues = {topic: iter(pending[topic]) for topic in in_turn(pending, turn)}
    reached, used, taken = dict(ends), 0, False
    while queues:
        for topic in list(queues):
            step = next(queues[topic], None)
            if step is None:
                del queues[topic]
                continue
            if taken and budget is not None and used + step.size > budget:
                return reached
            reached[topic], used, taken = step.end, used + step.size, True
    return reached


def in_turn(topics: Iterable[TopicName], turn: TopicName | None) -> list[TopicName]:
    """The topics in order of their names, those after `turn` first."""
    ordered = sorted(topics)
    return ordered if turn is None else [t for t in ordered if t > turn] + [t for t in ordered if t <= turn]


def last_served(before_: Ends, after: Ends, turn: TopicName | None) -> TopicName | None:
    """Whose turn it was last."""
    served = [t for t in in_turn(after, turn) if after[t] != before_.get(t)]
    return served[-1] if served else turn


def _done_to(items: Sequence[PlanItem], after: Position | None, spans: Sequence[Span]) -> Position | None:
    """The last position that the items account for."""
    for item in items:
        # Where nothing is missing it is a break, which names the positions on both sides, and they are there.
        known = isinstance(item, ObjectRange) or item.deleted
        whole = known or any(s.start <= item.start and item.end <= s.end for s in spans)
        last = item.end if whole else item.start
        after = last if after is None else max(after, last)
    return after


def _enough(snapshot: TopicSnapshot, after: Position | None, enough: int | None) -> Position | None:
    """The end of the first segments or ledgers after a position that hold `enough` bytes."""
    end, found = None, 0
    losses = ((loss.start, loss.end, 0) for loss in snapshot.catalog.losses)
    for start, last, size in sorted((*snapshot.sized_spans, *losses)):
        if after is not None and last <= after:
            continue
        if end is not None and enough is not None and found >= enough:
            break
        end = last if end is None else max(end, last)
        found += size if after is None or start > after else 0  # of one that was begun, nobody knows how much is left
    return end
