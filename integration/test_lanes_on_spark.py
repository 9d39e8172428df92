"""The model of slots that the simulations of lanes rest on, against Spark: two queries of one session, first in, first
out."""

from __future__ import annotations

import itertools
import pickle
import queue
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.streaming.query import StreamingQuery

from integration.processes import HANGS
from integration.spark import credentials
from offloader.config.running import Spark
from offloader.model import Lane, Position, Receipt, SegmentLayout, Slice, SliceId, SliceStop, Source, TopicName
from offloader.offload.core.plans import Plan
from offloader.offload.spark import session as spark_side
from offloader.offload.spark.executor import ARROW_SCHEMA
from offloader.offload.spark.plan_server import PlanServer
from offloader.offload.spark.supervised import SupervisedQuery


def piece(topic: str, lane: Lane, number: int) -> Slice:
    return Slice(
        SliceId(TopicName("a", "b", topic), "run", lane, number, "u", "up", 1, Position(0, 0, 0)),
        bound=Position(0, 0, 0), seal=False, offset=0, first_block=1, room=1, byte_budget=1, time_budget_ms=1,
        hard_limit_ms=1, silent_ms=1, goal=1, read_ahead=1, source=Source.BROKER,
        cuts=SegmentLayout(1, 1, 1), ledgers=(),
    )  # fmt: skip


def sits_in_its_slot(until: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A worker whose slow slices wait for a file; it says so with another."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for value in batch.column(0).to_pylist():
                found = pickle.loads(value)
                if found.id.lane is Lane.SLOW:
                    Path(until + ".began").touch()
                    while not Path(until).exists():
                        time.sleep(0.01)
                receipt = Receipt(found.id, SliceStop.BOUND)
                yield pa.record_batch([[pickle.dumps(receipt)], [None], [None]], schema=ARROW_SCHEMA)

    return work


@pytest.mark.soak
def test_a_worker_has_what_a_slice_needs_when_it_is_forked() -> None:
    def loaded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sys

        found = [",".join(name for name in ("pandas", "offloader.offload.worker.tasks") if name in sys.modules)]
        for _ in batches:
            yield pa.record_batch([found], names=["names"])

    with ExitStack() as stack:
        with credentials():
            session = spark_side.session(Spark(master="local[1]"), "loaded")
        stack.callback(session.stop)
        (row,) = session.range(1).mapInArrow(loaded, "names string").collect()
        assert row.names == "pandas,offloader.offload.worker.tasks"


@pytest.mark.parametrize("master", ["local[1]", "local[2]"])
def test_batches_of_the_fast_lane_go_on_while_a_slow_task_sits_in_its_slot(master: str, tmp_path: Path) -> None:
    until = tmp_path / "released"
    committed: dict[Lane, queue.Queue[list[Receipt]]] = {lane: queue.Queue() for lane in Lane}
    with ExitStack() as stack:
        with credentials():
            session = spark_side.session(Spark(master=master), "lanes")
        stack.callback(session.stop)
        slots = spark_side.Slots(session).number
        assert slots == int(master[6]) + 1
        plans = PlanServer("run")
        stack.callback(plans.close)
        stack.callback(until.touch)
        folders = map(str, itertools.count())
        queries: list[SupervisedQuery] = []
        for lane in Lane:
            commits = Commits(committed[lane])

            def start(lane: Lane = lane, commits: Commits = commits) -> StreamingQuery:
                folder = str(tmp_path / next(folders))
                return spark_side.start_query(
                    session, plans, lane, sits_in_its_slot(str(until)), commits.keep, folder, 1.0
                )

            query = SupervisedQuery(start, commits.since_last_asked)
            stack.callback(query.stop)
            queries.append(query)
        plans.publish(Plan("run", Lane.SLOW, 1, ((piece("slow", Lane.SLOW, 1),),)))
        wait_for(queries, Path(f"{until}.began").exists)
        for number in range(2, 6):
            # Twice as many tasks as there are slots: what the fast lane has left of them takes them one after the
            # other.
            tasks = tuple((piece(f"t{i}", Lane.FAST, number),) for i in range(2 * slots))
            plans.publish(Plan("run", Lane.FAST, number, tasks))
            receipts = next_of(queries, committed[Lane.FAST], number)
            assert {(r.id.plan, r.id.lane) for r in receipts} == {(number, Lane.FAST)}
            assert len(receipts) == 2 * slots
        assert committed[Lane.SLOW].empty()
        until.touch()
        assert [r.id.plan for r in next_of(queries, committed[Lane.SLOW], 1)] == [1]


class Commits:
    """What one lane commits, and how often it did."""

    def __init__(self, committed: queue.Queue[list[Receipt]]) -> None:
        self._committed = committed
        self._batches = 0

    def keep(self, receipts: list[Receipt]) -> None:
        """But what is empty: Spark begins each query with such a batch."""
        self._batches += 1
        if receipts:
            self._committed.put(receipts)

    def since_last_asked(self) -> int:
        found, self._batches = self._batches, 0
        return found


def next_of(queries: list[SupervisedQuery], committed: queue.Queue[list[Receipt]], number: int) -> list[Receipt]:
    """The receipts of the plan of this number. A query that was started again may run the plan before it once more."""
    while True:
        wait_for(queries, lambda: not committed.empty())
        receipts = committed.get()
        if any(receipt.id.plan >= number for receipt in receipts):
            return receipts


def wait_for(queries: list[SupervisedQuery], condition: Callable[[], bool]) -> None:
    """While the queries are kept running, as the application does: Spark's Python processes may be too late on a busy
    machine."""
    deadline = time.monotonic() + HANGS
    while not condition():
        for query in queries:
            query.keep_running()
        assert time.monotonic() < deadline
        time.sleep(0.02)
