"""Spark as the application needs it: executors with task slots, jobs that get them first come first served, tasks that
are tried again.

Nothing is pre-empted. An executor that is lost may live on for a while and work without anybody listening: a zombie.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from offloader.model import Lane, Receipt, Slice
from offloader.offload.core.plans import Plan
from tests.world.scheduler import MS, SECOND, Actor, Process, Scheduler

ATTEMPTS = 4
SCHEDULING_MS = (5.0, 30.0)  # what a task costs before it begins

Run = Callable[[list[Slice], int], list[Receipt]]
"""What an executor does with a task: its slices, and how often they were tried before."""


class JobFailedError(Exception):
    """A task failed too often: the query dies."""


@dataclass(eq=False)
class Executor:
    """One process with task slots."""

    process: Process
    slots: int
    work: Run
    lost: bool = False
    running: list[_Task] = field(default_factory=list)


@dataclass(eq=False)
class _Task:
    job: _Job
    slices: list[Slice]
    attempt: int = 0
    executor: Executor | None = None
    done: bool = False


@dataclass(eq=False)
class _Job:
    waits: Actor
    tasks: list[_Task]
    receipts: list[Receipt] = field(default_factory=list)
    failed: bool = False
    left: int = 0


class Spark:
    """`start_executor` makes a new process that can work."""

    def __init__(self, scheduler: Scheduler, start_executor: Callable[[str], Executor], executors: int) -> None:
        self._scheduler = scheduler
        self._start = start_executor
        self._numbers = itertools.count(1)
        self._queue: deque[_Task] = deque()
        self.executors: list[Executor] = []
        for _ in range(executors):
            self.add()

    def add(self) -> None:
        """One more executor."""
        self.executors.append(self._start(f"executor-{next(self._numbers)}"))
        self._dispatch()

    def run_job(self, tasks: Sequence[Sequence[Slice]]) -> list[Receipt]:
        """In the thread of a query: the receipts of all tasks. Raises JobFailedError."""
        me = self._scheduler._me()
        job = _Job(me, [])
        job.tasks = [_Task(job, list(slices)) for slices in tasks]
        job.left = len(job.tasks)
        self._queue.extend(job.tasks)
        self._dispatch()
        while job.left and not job.failed:
            self._scheduler.park()
        for task in job.tasks:
            if not task.done:
                task.done = True
        if job.failed:
            raise JobFailedError
        return job.receipts

    def lose(self, executor: Executor, *, zombie_seconds: float = 0) -> None:
        """Its heartbeats are missed: its tasks go elsewhere. It may not know yet."""
        self._scheduler.log(f"{executor.process.name} is lost, a zombie for {zombie_seconds:.0f} s")
        executor.lost = True
        self.executors.remove(executor)
        if zombie_seconds:
            self._scheduler.spawn("undertaker", self._scheduler.world, lambda: self._bury(executor, zombie_seconds))
        else:
            self._scheduler.kill(executor.process)
        for task in executor.running:
            self._again(task)
        executor.running = []
        self._scheduler.spawn("replacement", self._scheduler.world, self._replace)

    def end(self, zombie_seconds: float) -> None:
        """The driver is gone: executors notice a little later."""
        self._queue.clear()
        for executor in self.executors:
            executor.lost = True
            self._scheduler.spawn("undertaker", self._scheduler.world, partial(self._bury, executor, zombie_seconds))
        self.executors = []

    def _bury(self, executor: Executor, seconds: float) -> None:
        self._scheduler.sleep(int(seconds * SECOND))
        self._scheduler.kill(executor.process)

    def _replace(self) -> None:
        self._scheduler.sleep(5 * SECOND)
        self.add()

    def _again(self, task: _Task) -> None:
        if task.done:
            return
        task.attempt += 1
        task.executor = None
        if task.attempt >= ATTEMPTS:
            task.job.failed = True
            self._scheduler.wake(task.job.waits)
            return
        self._queue.append(task)
        self._dispatch()

    def _dispatch(self) -> None:
        for executor in self.executors:
            while self._queue and len(executor.running) < executor.slots:
                task = self._queue.popleft()
                if task.done:
                    continue
                task.executor = executor
                executor.running.append(task)
                self._scheduler.spawn("task", executor.process, partial(self._run, task, executor))

    def _run(self, task: _Task, executor: Executor) -> None:
        """In the executor's process."""
        self._scheduler.sleep(int(self._scheduler.rng.uniform(*SCHEDULING_MS) * MS))
        receipts = executor.work(task.slices, task.attempt)
        if executor.lost or task.done or task.executor is not executor:
            return
        task.done = True
        executor.running.remove(task)
        job = task.job
        job.receipts += receipts
        job.left -= 1
        if not job.left:
            self._scheduler.wake(job.waits)
        self._dispatch()


class Plans:
    """Stands for the plan server and Spark's source: keeps each lane's newest plan, and who waits for one."""

    def __init__(self, run: str, published: Callable[[Plan], None]) -> None:
        self.run = run
        self._plans: dict[Lane, Plan] = {}
        self._published = published
        self._changed = threading.Condition()

    def publish(self, plan: Plan) -> None:
        with self._changed:
            self._plans[plan.lane] = plan
            self._changed.notify_all()
        self._published(plan)

    def withdraw(self, plan: Plan) -> None:
        with self._changed:
            if self._plans.get(plan.lane) == plan:
                del self._plans[plan.lane]

    def newer(self, lane: Lane, after: int, seconds: float) -> Plan | None:
        """A plan of the lane after that number; None: there was none for so long."""
        with self._changed:
            self._changed.wait_for(lambda: self._number(lane) > after, seconds)
            return self._plans[lane] if self._number(lane) > after else None

    def _number(self, lane: Lane) -> int:
        return self._plans[lane].number if lane in self._plans else 0
