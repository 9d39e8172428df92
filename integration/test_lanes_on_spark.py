"""The model of slots that the simulations of lanes rest on, against Spark: two queries of one session, first in, first out."""

from __future__ import annotations

import pickle
import queue
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from integration.processes import HANGS
from offloader.config.running import Spark
from offloader.model import Lane, Position, Receipt, SegmentLayout, Slice, SliceStop, Source, TopicName
from offloader.offload.core.planner import Plan
from offloader.offload.spark import session as spark_side
from offloader.offload.spark.executor import ARROW_SCHEMA
from offloader.offload.spark.plan_server import PlanServer


def piece(topic: str, lane: Lane, number: int) -> Slice:
    return Slice(
        topic=TopicName("a", "b", topic), run="run", plan=number, uuid="u", upload="up", start=Position(0, 0, 0),
        bound=Position(0, 0, 0), seal=False, first_part=1, offset=0, first_block=1, room=1, byte_budget=1, time_budget_ms=1,
        hard_limit_ms=1, silent_ms=1, goal=1, read_ahead=1, source=Source.BROKER, cuts=SegmentLayout(1, 1, 1), ledgers=(), lane=lane,
    )  # fmt: skip


def sits_in_its_slot(until: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A worker whose slow slices wait for a file; it says so with another."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for value in batch.column(0).to_pylist():
                found = pickle.loads(value)
                if found.lane is Lane.SLOW:
                    Path(until + ".began").touch()
                    while not Path(until).exists():
                        time.sleep(0.01)
                receipt = Receipt(
                    found.topic, found.run, found.plan, found.uuid, found.upload, 1, found.start, SliceStop.BOUND, found.lane
                )
                yield pa.record_batch([[pickle.dumps(receipt)], [None], [None]], schema=ARROW_SCHEMA)

    return work


@pytest.mark.parametrize("master", ["local[1]", "local[2]"])
def test_batches_of_the_fast_lane_go_on_while_a_slow_task_sits_in_its_slot(master: str, tmp_path: Path) -> None:
    until = tmp_path / "released"
    committed: dict[Lane, queue.Queue[list[Receipt]]] = {lane: queue.Queue() for lane in Lane}
    with ExitStack() as stack:
        session = spark_side.session(Spark(master=master), "lanes")
        stack.callback(session.stop)
        slots = spark_side.Slots(session).number
        assert slots == int(master[6]) + 1
        plans = PlanServer("run")
        stack.callback(plans.close)
        stack.callback(until.touch)
        for lane in Lane:
            commit = partial(keep_what_is_not_empty, committed[lane])
            folder = str(tmp_path / lane)
            query = spark_side.start_query(session, plans, lane, sits_in_its_slot(str(until)), commit, folder, 1.0)
            stack.callback(query.stop)
        plans.publish(Plan("run", Lane.SLOW, 1, ((piece("slow", Lane.SLOW, 1),),)))
        wait_for(Path(f"{until}.began").exists)
        for number in range(2, 6):
            # Twice as many tasks as there are slots: what the fast lane has left of them takes them one after the other.
            tasks = tuple((piece(f"t{i}", Lane.FAST, number),) for i in range(2 * slots))
            plans.publish(Plan("run", Lane.FAST, number, tasks))
            receipts = committed[Lane.FAST].get(timeout=HANGS)
            assert {(r.plan, r.lane) for r in receipts} == {(number, Lane.FAST)}
            assert len(receipts) == 2 * slots
        assert committed[Lane.SLOW].empty()
        until.touch()
        assert [r.plan for r in committed[Lane.SLOW].get(timeout=HANGS)] == [1]


def keep_what_is_not_empty(committed: queue.Queue[list[Receipt]], receipts: list[Receipt]) -> None:
    """Spark begins each query with an empty batch."""
    if receipts:
        committed.put(receipts)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + HANGS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
