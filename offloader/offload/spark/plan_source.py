"""The Spark streaming source: a plan's slices as rows. It decides nothing; `plan_server` has the plans.

What runs here may run twice, also at the same time: only the journal decides what counts. These classes travel by value
to executors that may not have this package (`executor.py` says so then): only what runs beside the driver may name
anything of it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from offloader.offload.spark.plan_server import PlanClient

FORMAT = "offloader-plans"
SCHEMA = "slice binary"
ARROW_SCHEMA = pa.schema([("slice", pa.binary())])

Offset = dict[str, str | int]


class PlanSource(DataSource):
    """Options: `plans` (the file that says where they are), `run`, `lane`, `wait` (seconds)."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 (Spark's names)
        return PlanReader(dict(self.options))


class PlanReader(DataSourceStreamReader):
    """Offsets are `{run, lane, plan number}`. Waits up to `wait` seconds for a newer plan: Spark's trigger is 0."""

    def __init__(self, options: dict[str, str]) -> None:
        self._run = options["run"]
        self._wait = float(options["wait"])
        self._lane = options["lane"]
        self._plans = options["plans"]
        self._connected: PlanClient | None = None  # beside the driver only

    def initialOffset(self) -> Offset:  # noqa: N802
        return self._offset(0)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: ARG002, N802
        """The newest plan's offset, or `start` itself: Spark then runs no batch."""
        after = int(start["plan"]) if start["run"] == self._run else 0
        newest = self._client().latest(after, self._wait)
        return start if newest == after else self._offset(newest)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The tasks of the plan at `end`; none for a run or number that is not the present one."""
        if start == end:
            return []
        plan = self._client().plan(str(end["run"]), int(end["plan"]))
        if plan is None:
            return []
        return [InputPartition([pickle.dumps(s) for s in task]) for task in plan.tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The task's slices as rows."""
        yield pa.record_batch([pa.array(partition.value, pa.binary())], schema=ARROW_SCHEMA)

    def commit(self, end: Offset) -> None:
        """Nothing: Spark's offset is not the authority."""

    def _offset(self, plan: int) -> Offset:
        return {"run": self._run, "lane": self._lane, "plan": plan}

    def _client(self) -> PlanClient:
        if self._connected is None:
            from offloader.model import Lane
            from offloader.offload.spark.plan_server import PlanAddress, PlanClient

            self._connected = PlanClient(PlanAddress.read(self._plans), self._run, Lane(self._lane))
        return self._connected

    def stop(self) -> None:
        """Nothing to release: the process ends with the query."""
