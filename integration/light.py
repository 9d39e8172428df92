"""The application without Spark, as a process that starts within seconds: threads run the slices in its place.

For what Spark has no part in. Soaks run everything on Spark.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from offloader.bridge.transfer import PieceThreads
from offloader.model import Lane, Receipt
from offloader.offload import application
from offloader.offload.spark import session as spark_side
from offloader.offload.spark.executor import receipt_of
from offloader.offload.spark.plan_server import PlanClient, PlanServer
from offloader.offload.spark.plan_source import ARROW_SCHEMA

Work = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class ThreadQuery:
    """A lane's query: the newest plan is worked on, its receipts are committed."""

    def __init__(
        self, plans: PlanServer, lane: Lane, work: Work, commit: Callable[[list[Receipt]], None], wait: float
    ) -> None:
        self._client = PlanClient(plans.address, plans.run, lane)
        self._run_id, self._work, self._commit, self._wait = plans.run, work, commit, wait
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"slices-{lane}", daemon=True)
        self._thread.start()

    @property
    def isActive(self) -> bool:  # noqa: N802 (Spark's name)
        return self._thread.is_alive() or self._stopped.is_set()

    def exception(self) -> None:
        """Its thread has printed it."""

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        done = 0
        with suppress(EOFError, OSError):  # the plan server closes when the application ends
            while not self._stopped.is_set():
                newest = self._client.latest(done, self._wait)
                plan = self._client.plan(self._run_id, newest) if newest > done else None
                done = newest
                if plan is not None:
                    self._commit([receipt for task in plan.tasks for receipt in self._receipts(task)])

    def _receipts(self, task: Iterable[object]) -> Iterator[Receipt]:
        rows = pa.record_batch([pa.array([pickle.dumps(one) for one in task], pa.binary())], schema=ARROW_SCHEMA)
        for batch in self._work([rows]):
            for row in batch.to_pylist():
                yield receipt_of(row["receipt"], row["slice"], row["unfit"])


class TwoSlots:
    """What a session offers that is none."""

    number = 2

    def __init__(self, _: object) -> None:
        pass

    def changed(self) -> bool:
        return False


def without_spark() -> None:
    """From now on in this process."""

    def start(_: object, plans: PlanServer, lane: Lane, work: Work, commit: Any, __: str, wait: float) -> ThreadQuery:
        return ThreadQuery(plans, lane, work, commit, wait)

    context = SimpleNamespace(setLogLevel=lambda _: None)
    replaced: dict[tuple[object, str], Any] = {
        (spark_side, "session"): lambda *_: SimpleNamespace(sparkContext=context, stop=lambda: None),
        (spark_side, "Slots"): TwoSlots,
        (spark_side, "start_query"): start,
        (application, "PieceJobs"): lambda *_: PieceThreads(),
    }
    for (module, name), value in replaced.items():
        setattr(module, name, value)
