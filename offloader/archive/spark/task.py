"""What one task does: it reads its portions and gives Arrow batches. Runs in Spark's Python workers, which are used
again."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from offloader.archive.items import Missing
from offloader.archive.messages.limits import MessageLimits
from offloader.archive.messages.payloads import UnpackOptions
from offloader.archive.read_model import EntryRun, ObjectRange, PlanItem, ReadItem, object_of
from offloader.archive.reading.reader import PlannedReader, ReadOptions
from offloader.archive.reading.verifier import OnDamage
from offloader.archive.spark.metrics import MetricsFolder, TaskMetrics, line
from offloader.archive.spark.opening import key_reader, opened
from offloader.archive.spark.options import SourceOptions
from offloader.archive.spark.planning import TopicSplit
from offloader.archive.spark.tables import Table
from offloader.errors import OffloadError
from offloader.model import Position

log = logging.getLogger("offloader.archive.spark")


class ReadTask(InputPartition):
    """A task's portions; `plan` and `number` name it in the metrics. Can be pickled."""

    def __init__(self, plan: str, number: int, portions: tuple[TopicSplit, ...]) -> None:
        super().__init__(None)
        self.plan = plan
        self.number = number
        self.portions = portions


def record_batches(task: InputPartition, options: SourceOptions, schema: StructType) -> Iterator[pa.RecordBatch]:
    """The rows of a task, in the topic's order, as Spark wants them.

    Raises DamagedObjectError and what the store raises; the task is tried again then.
    """
    if not isinstance(task, ReadTask):
        return  # Spark makes a partition of its own where there is none
    work = TaskWork(task, options, Table(options.form, schema))
    try:
        yield from work.batches()
    finally:
        work.tell()
        _keep_what_is_there()


@cache
def _keep_what_is_there() -> None:
    """Spark's workers collect garbage after each task, which for what the libraries hold takes 0.1 s: leave that out
    from now on."""
    if TaskContext.get() is not None:
        gc.freeze()


class TaskWork:
    """One attempt of a task."""

    def __init__(self, task: ReadTask, options: SourceOptions, table: Table) -> None:
        self._task = task
        self._options = options
        self._table = table
        damage = OnDamage.SKIP if options.skip_damage else OnDamage.FAIL
        stores = opened(options).stores
        self._reader = PlannedReader(stores, ReadOptions(options.read_size, options.prefetch, damage))
        self._back = PlannedReader(stores, ReadOptions(options.read_size, 0, damage))
        self._rows = 0
        self._missing = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        for portion in self._task.portions:
            runs = self._runs(portion, self._reader.read(portion.items))
            unpack = UnpackOptions(
                key_reader(self._options),
                SplitLookBack(self._back, portion.before),
                limits=MessageLimits(self._options.max_message_size, self._options.max_chunked_message_size),
                keep_damaged=self._options.skip_damage,
                aborted=portion.aborted.copy,
                object_of=partial(object_of, portion.items),
            )
            for batch in self._table.batches(
                runs, portion.topic, unpack, self._options.starting_time, self._options.ending_time
            ):
                self._rows += batch.num_rows
                yield batch

    def tell(self) -> None:
        """What it has cost, also where it failed."""
        read, back = self._reader.stats, self._back.stats
        metrics = TaskMetrics(
            requests=read.requests + back.requests,
            bytes_read=read.bytes_read + back.bytes_read,
            entries=read.entries,
            rows=self._rows,
            missing=self._missing,
            skipped=read.skipped,
        )
        log.info("task %d of plan %s: %s", self._task.number, self._task.plan, line(metrics))
        if (store := self._options.metrics_store) is not None:
            self._write(MetricsFolder(store), metrics)

    def _write(self, folder: MetricsFolder, metrics: TaskMetrics) -> None:
        """Figures that cannot be written cost no row, and hide no error of the reading."""
        try:
            folder.write_task(self._task.plan, self._task.number, metrics)
        except OffloadError as error:
            log.warning(
                "task %d of plan %s: its metrics are not written: %s",
                self._task.number,
                self._task.plan,
                error,
                extra={"see": "metrics-unwritten"},
            )

    def _runs(self, portion: TopicSplit, items: Iterable[ReadItem]) -> Iterator[EntryRun]:
        for item in items:
            if isinstance(item, EntryRun):
                yield item
            else:
                self._note(portion, item)

    def _note(self, portion: TopicSplit, item: Missing) -> None:
        self._missing += 1
        if item.kind is None:
            log.warning(
                "%s: %s..%s is missing: %s", portion.topic, item.start, item.end, item.why, extra={"see": "missing"}
            )


@dataclass(frozen=True)
class SplitLookBack:
    """Reads what lies before a portion, the nearest first."""

    reader: PlannedReader
    before: tuple[PlanItem, ...]

    def __call__(self, before: Position) -> Iterator[EntryRun]:
        for item in reversed(self.before):
            if isinstance(item, ObjectRange) and item.first < before:
                runs = [run for run in self.reader.read([item]) if isinstance(run, EntryRun)]
                yield from reversed(runs)
