"""`spark.readStream.format("pulsar-archive")`: follows the catalogs as segments are sealed. Between two offsets nothing
changes, since segments do not."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from offloader.archive.messages.chunks import LOOK_BACK
from offloader.archive.records import TopicRecords
from offloader.archive.selection import Selection
from offloader.archive.spark.batch import read_tasks
from offloader.archive.spark.offsets import (
    Ends,
    Offset,
    advance,
    before,
    check_not_removed,
    decode,
    encode,
    items_between,
    last_served,
    step_size,
    steps,
)
from offloader.archive.spark.options import Form, SourceOptions
from offloader.archive.spark.planning import LOOK_BACK_STEP, TopicPlan, check_positions
from offloader.archive.spark.selected_topics import SelectedTopics
from offloader.archive.spark.task import record_batches
from offloader.errors import ConfigError, DataLostError
from offloader.model import Position, TopicName


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
        return encode({topic: start for topic, start in starts if start is not None})

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
        ends = decode(start)
        following = self._advanced(ends, budget)
        if following == ends and not self._no_more:
            if self._polled_at is not None:
                self._wait(max(0.0, self._polled_at + self._options.poll_ms / 1000 - self._clock()))
            self._poll()
            following = self._advanced(ends, budget)
        self._check_reaches(ends)
        self._turn = last_served(ends, following, self._turn)
        return start if following == ends else encode(following)

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """Where the archive ends, for the query's progress."""
        reached = ((topic, records.last_position) for topic, records in self._records.items())
        ends = {topic: end for topic, end in reached if end is not None}
        return encode(ends) if ends else None

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The same tasks for the same offsets, however often it is asked. Raises DataLostError, DamagedRecordError."""
        begun, ends = decode(start), decode(end)
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
