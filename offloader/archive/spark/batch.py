"""`spark.read.format("pulsar-archive")`. The driver plans object ranges from the catalogs; a task finds their bytes."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from offloader.archive.object_range import size_of
from offloader.archive.spark.filters import UNNARROWED, Bounds, narrowing
from offloader.archive.spark.metrics import MetricsFolder, PlanMetrics
from offloader.archive.spark.options import Form, SourceOptions
from offloader.archive.spark.planning import (
    TopicPlan,
    check_losses,
    check_positions,
    selection_of,
    task_size,
    tasks,
    topic_plans,
    topic_splits,
)
from offloader.archive.spark.selected_topics import SelectedTopics
from offloader.archive.spark.tables import NAMES
from offloader.archive.spark.task import ReadTask, record_batches
from offloader.errors import ConfigError, OffloadError

log = logging.getLogger("offloader.archive.spark")


class ArchiveReader(DataSourceReader):
    """Plans a batch read. Spark pickles it into each task."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._narrowing = UNNARROWED

    def partitions(self) -> Sequence[InputPartition]:
        """Tasks of about `maxPartitionBytes`. Raises DataLostError, DamagedRecordError, ConfigError."""
        topics = SelectedTopics(self._options).load()
        check_positions(self._options, topics)
        meant = [records for topic, records in topics.items() if self._narrowing.may_have(topic)]
        messages = self._options.form is Form.MESSAGES
        plans = [
            each
            for records in meant
            for each in topic_plans(records, selection_of(records, self._options), self._narrowing, look_back=messages)
        ]
        stored = sum(records.stored_bytes for records in topics.values())
        return read_tasks(str(uuid.uuid4()), plans, stored, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return record_batches(partition, self._options, self._schema)


class FilteringReader(ArchiveReader):
    """One that takes Spark's filters. Only on request (`pushFilters`): Spark 4.3.0 keeps a reader's plan for every
    later query on the same `load()`, whatever that one filters by."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        """Leave out what cannot match. All filters stay Spark's to evaluate."""
        self._narrowing = narrowing(filters, NAMES[self._options.form])
        # The plan leaves out whole parts; tasks, which only have the options, leave out rows by the same times.
        times = Bounds(self._options.starting_time, self._options.ending_time).narrowed(self._narrowing.published)
        self._options = replace(self._options, starting_time=times.least, ending_time=times.greatest)
        return filters


def read_tasks(plan_id: str, planned: Sequence[TopicPlan], stored: int, options: SourceOptions) -> list[ReadTask]:
    """A plan's tasks; log and metrics tell what they will read. Raises DataLostError unless losses are allowed."""
    for each in planned if options.fail_on_data_loss else ():
        check_losses(each.topic, each.items, from_begin=each.from_begin)
    size = sum(size_of(each.items) for each in planned)
    most = task_size(size, options.max_partition_bytes)
    splits = [split for each in planned for split in topic_splits(each, most)]
    made = [ReadTask(plan_id, number, task) for number, task in enumerate(tasks(splits, most))]
    metrics = PlanMetrics(stored, size, len(made))
    log.info(
        "plan %s: %d tasks for about %d of %d bytes stored",
        plan_id,
        metrics.tasks,
        metrics.bytes_planned,
        metrics.bytes_stored,
    )
    if (store := options.metrics_store) is not None:
        try:
            MetricsFolder(store).write_plan(plan_id, metrics)
        except ConfigError:  # names the option
            raise
        except OffloadError as error:
            raise type(error)(f"metrics: {error}") from error
    return made
