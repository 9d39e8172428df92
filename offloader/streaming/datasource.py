"""The Spark streaming source: a plan's slices as rows. It decides nothing; `plan_server` has the plans.

Must be importable by name in Spark's Python processes (never defined in `__main__`). What runs here may run twice, also at the same
time: only the journal decides what counts.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from offloader.streaming.plan_server import NO_PLAN, PlanAddress, PlanClient

FORMAT = "offloader-plans"
SCHEMA = "slice binary"
ARROW_SCHEMA = pa.schema([("slice", pa.binary())])

Offset = dict[str, str | int]


class PlanSource(DataSource):
    """`spark.readStream.format("offloader-plans")`; options `host`, `port`, `key` (hex), `run`, `wait` (seconds)."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 (Spark's names)
        return PlanReader(dict(self.options))


class TaskPartition(InputPartition):
    """One task's slices, pickled one by one."""

    def __init__(self, slices: tuple[bytes, ...]) -> None:
        super().__init__(None)
        self.slices = slices


class PlanReader(DataSourceStreamReader):
    """Offsets are `{run, plan number}`. Waits for a newer plan up to `wait` seconds, so that Spark's own trigger can be 0."""

    def __init__(self, options: dict[str, str]) -> None:
        self._run = options["run"]
        self._wait = float(options["wait"])
        self._client = PlanClient(PlanAddress(options["host"], int(options["port"]), bytes.fromhex(options["key"])), self._run)

    def initialOffset(self) -> Offset:  # noqa: N802
        return {"run": self._run, "plan": NO_PLAN}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: ARG002, N802
        """The newest plan's offset, or `start` itself: Spark then runs no batch."""
        after = int(start["plan"]) if start["run"] == self._run else NO_PLAN
        newest = self._client.latest(after, self._wait)
        return start if newest == after else {"run": self._run, "plan": newest}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The tasks of the plan at `end`; none for a run or number that is not the present one."""
        if start == end:
            return []
        plan = self._client.plan(str(end["run"]), int(end["plan"]))
        if plan is None:
            return []
        return [TaskPartition(tuple(pickle.dumps(s) for s in task)) for task in plan.tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The task's slices as rows."""
        if not isinstance(partition, TaskPartition):
            return
        yield pa.record_batch([pa.array(partition.slices, pa.binary())], schema=ARROW_SCHEMA)

    def commit(self, end: Offset) -> None:
        """Nothing: Spark's offset is not the authority."""

    def stop(self) -> None:
        """Nothing to release: the process ends with the query."""
