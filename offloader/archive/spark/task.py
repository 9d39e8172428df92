"""What one task does: it reads its splits and gives Arrow batches. Spark's Python workers run task after task."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from functools import cache, partial

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from offloader.archive.items import EntryRun, Missing
from offloader.archive.messages.encryption import PemFiles
from offloader.archive.messages.message import MessageLimits
from offloader.archive.messages.payloads import UnpackOptions
from offloader.archive.object_range import ObjectRange, PlanItem, holding, object_of
from offloader.archive.reading.reader import PlannedReader, ReadOptions
from offloader.archive.reading.verifier import OnDamage
from offloader.archive.spark.metrics import MetricsFolder, TaskMetrics
from offloader.archive.spark.options import SourceOptions
from offloader.archive.spark.planning import TopicSplit
from offloader.archive.spark.selected_topics import opened
from offloader.archive.spark.tables import Table
from offloader.errors import DataLostError, OffloadError
from offloader.model import Position

log = logging.getLogger("offloader.archive.spark")


class ReadTask(InputPartition):
    """A task's splits; `plan_id` and `number` name it in the metrics. Can be pickled."""

    def __init__(self, plan_id: str, number: int, splits: tuple[TopicSplit, ...]) -> None:
        super().__init__(None)
        self.plan_id = plan_id
        self.number = number
        self.splits = splits


def record_batches(task: InputPartition, options: SourceOptions, schema: StructType) -> Iterator[pa.RecordBatch]:
    """The rows of a task, in topic order. Raises DamagedObjectError, DataLostError for what was deleted since it was
    planned, and what the store raises: Spark tries again."""
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
    """Spark's workers collect garbage after each task: 0.1 s for what the libraries hold. Leave that out."""
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
        keys = PemFiles(dict(self._options.private_keys)) if self._options.private_keys else None
        for split in self._task.splits:
            unpack = UnpackOptions(
                keys,
                partial(_look_back, self._back, split.before),
                limits=MessageLimits(self._options.max_message_size, self._options.max_chunked_message_size),
                keep_damaged=self._options.skip_damage,
                aborted=split.aborted.copy,
                object_of=partial(object_of, split.items),
            )
            times = self._options.starting_time, self._options.ending_time
            for batch in self._table.batches(self._runs(split), split.topic, unpack, *times):
                self._rows += batch.num_rows
                yield batch

    def tell(self) -> None:
        """Report what the attempt cost, also if it failed. Metrics that fail to be written cost no row."""
        read, back = self._reader.stats, self._back.stats
        metrics = TaskMetrics(
            requests=read.requests + back.requests,
            bytes_read=read.bytes_read + back.bytes_read,
            entries=read.entries,
            rows=self._rows,
            missing=self._missing,
            skipped=read.skipped,
        )
        plan_id, number = self._task.plan_id, self._task.number
        log.info("task %d of plan %s: %s", number, plan_id, metrics)
        if (store := self._options.metrics_store) is not None:
            try:
                MetricsFolder(store).write_task(plan_id, number, metrics)
            except OffloadError as error:
                log.warning(
                    "task %d of plan %s: its metrics are not written: %s",
                    number,
                    plan_id,
                    error,
                    extra={"see": "metrics-unwritten"},
                )

    def _runs(self, split: TopicSplit) -> Iterator[EntryRun]:
        for item in self._reader.read(split.items):
            if isinstance(item, EntryRun):
                yield item
                continue
            self._missing += 1
            if item.deleted and self._options.fail_on_data_loss and item not in split.items:
                self._check_lost(split, item)
            if item.kind is None:
                log.warning(
                    "%s: %s..%s is missing: %s", split.topic, item.start, item.end, item.why, extra={"see": "missing"}
                )

    def _check_lost(self, split: TopicSplit, item: Missing) -> None:
        """What brokers have deleted of their own is seen only where it is read: who asks for no begin gets what is
        there, as of what a plan knows to be deleted."""
        stored = holding(split.items, item.start)
        by_brokers = stored is not None and stored.is_bridged
        if by_brokers and split.from_begin:
            return
        since = "" if by_brokers else ", after this was planned"
        raise DataLostError(
            f"{split.topic}: {item.start}..{item.end} is not in the archive any more ({item.why}{since}); option "
            "failOnDataLoss=false reads what is there, and the log tells what is not"
        )


def _look_back(reader: PlannedReader, items: tuple[PlanItem, ...], before: Position) -> Iterator[EntryRun]:
    """What lies before a position, the nearest first."""
    for item in reversed(items):
        if isinstance(item, ObjectRange) and item.start < before:
            runs = [run for run in reader.read([item]) if isinstance(run, EntryRun)]
            yield from reversed(runs)
