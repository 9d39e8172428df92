"""The thread beside the driver: each task at its time, failures less and less often, an end that is soon."""

from __future__ import annotations

import threading

from offloader.errors import OvertakenError, StoreUnavailableError
from offloader.offload.lifecycle_thread import LifecycleThread

LAST_RETRY = 600.0


class Clock:
    """Time that passes only while nobody does anything else."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


class Task:
    def __init__(self, name: str, waits: list[float | Exception], end: threading.Event | None = None) -> None:
        self.name = name
        self.waits = waits
        self.calls = 0
        self.end = end

    def run(self) -> float:
        wait = self.waits[min(self.calls, len(self.waits) - 1)]
        self.calls += 1
        if self.end is not None and self.calls == len(self.waits):
            self.end.set()
        if isinstance(wait, Exception):
            raise wait
        return wait


def ran(*tasks: Task, until: threading.Event, failed=lambda _: None) -> LifecycleThread:
    thread = LifecycleThread(tasks, failed)
    thread.start()
    assert until.wait(10)
    return thread


def test_each_task_is_run_at_its_time_and_the_others_meanwhile():
    end = threading.Event()
    often, seldom = Task("often", [0.001] * 50, end), Task("seldom", [3600.0])
    thread = ran(often, seldom, until=end)
    thread.stop()
    assert seldom.calls == 1


def test_what_fails_is_tried_again_and_named(caplog):
    end = threading.Event()
    failing = Task("deletion", [StoreUnavailableError("the store does not answer"), 3600.0])
    thread = LifecycleThread([failing, Task("other", [3600.0], end)], lambda _: None)
    assert thread._one(0) == 10.0
    assert [(record.__dict__["see"], "tried again in 10 s" in record.message) for record in caplog.records] == [
        ("lifecycle-waits", True)
    ]
    assert thread._one(0) == 3600.0


def test_a_task_that_keeps_failing_is_tried_less_and_less_often():
    thread = LifecycleThread([Task("t", [StoreUnavailableError("away")])], lambda _: None)
    waits = [thread._one(0) for _ in range(2000)]
    assert waits[:3] == [10.0, 20.0, 40.0]
    assert waits[-1] == LAST_RETRY


def test_a_defect_of_one_task_is_its_own(caplog):
    thread = LifecycleThread([Task("t", [KeyError("unheard of")])], lambda _: None)
    assert thread._one(0) == 10.0
    assert [record.__dict__["see"] for record in caplog.records] == ["unforeseen", "lifecycle-waits"]


def test_overtaken_ends_the_application():
    end, failures = threading.Event(), []

    def failed(error: BaseException) -> None:
        failures.append(error)
        end.set()

    ran(Task("t", [OvertakenError("another process")]), until=end, failed=failed).stop()
    assert [type(one) for one in failures] == [OvertakenError]


def test_stop_ends_a_thread_that_waits_for_its_time():
    end = threading.Event()
    thread = ran(Task("t", [3600.0], end), until=end)
    thread.stop()
    assert thread.stopping
    assert not thread._thread.is_alive()


def test_stop_before_the_start_is_no_error():
    LifecycleThread([Task("t", [1.0])], lambda _: None).stop()
