"""The driver posts work and takes results: what hangs holds up its own kind, and nobody waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from offloader.errors import FatalError, StoreUnavailableError
from offloader.offload.driver.work import THREADS, Pool, Work, WorkKind


class Later(Executor):
    """Runs what it was given when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, lambda: fn(*args, **kwargs)))
        return future

    def run(self) -> None:
        for future, call in self.waiting:
            future.set_result(call())
        self.waiting.clear()


class Clock:
    now = 0

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def later() -> Later:
    return Later()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def work(later: Later, clock: Clock) -> Work:
    return Work(dict.fromkeys(WorkKind, later), clock)


def test_of_one_topic_one_piece_of_each_kind_is_under_way(work: Work, later: Later) -> None:
    taken: list[int] = []

    def take(answer: Any) -> None:
        taken.append(answer)

    assert work.post(WorkKind.SEAL, "t", lambda: 1, take)
    assert not work.post(WorkKind.SEAL, "t", lambda: 2, take)
    assert work.post(WorkKind.BEGIN, "t", lambda: 3, take)
    assert work.post(WorkKind.SEAL, "other", lambda: 4, take)
    later.run()
    assert not taken, "results are taken in the driver's thread alone"
    work.take()
    assert taken == [1, 3, 4]
    assert work.post(WorkKind.SEAL, "t", lambda: 5, take)


def test_an_answer_that_says_nothing_new_wakes_nobody_and_is_taken_in_the_next_round(work: Work, later: Later) -> None:
    woken: list[bool] = []
    taken: list[object] = []
    work.wake = lambda: woken.append(True)

    def take(answer: Any) -> None:
        taken.append(answer)

    work.post(WorkKind.REQUEST, "", list, take, wakes=bool)
    later.run()
    assert not woken
    work.take()
    assert taken == [[]]
    work.post(WorkKind.REQUEST, "", lambda: [1], take, wakes=bool)
    later.run()
    assert woken == [True]


def test_whoever_takes_a_result_may_post_the_same_again(work: Work, later: Later) -> None:
    taken: list[int] = []

    def take(answer: Any) -> None:
        taken.append(answer)
        if len(taken) < 3:
            assert work.post(WorkKind.TAIL, "t", lambda: 1, take)

    work.post(WorkKind.TAIL, "t", lambda: 1, take)
    for _ in range(4):
        later.run()
        work.take()
    assert len(taken) == 3
    assert not work.has(WorkKind.TAIL, "t")


def test_a_result_that_could_not_be_journaled_is_handed_out_again(work: Work, later: Later) -> None:
    fails, taken = [True, True, False], []

    def take(answer: Any) -> None:
        if fails.pop(0):
            raise StoreUnavailableError("the journal is not reachable")
        taken.append(answer)

    work.post(WorkKind.SEAL, "t", lambda: 1, take)
    work.post(WorkKind.SEAL, "other", lambda: 2, lambda answer: taken.append(answer))
    later.run()
    for _ in range(2):
        with pytest.raises(StoreUnavailableError):
            work.take()
        assert work.has(WorkKind.SEAL, "t"), "nobody decides about the topic meanwhile"
    work.take()
    assert taken == [1, 2]


def test_what_is_under_way_is_shown_by_kind(work: Work, later: Later, clock: Clock) -> None:
    work.post(WorkKind.SEAL, "t", lambda: None, lambda _: None)
    clock.now = 3_000
    work.post(WorkKind.SEAL, "other", lambda: None, lambda _: None)
    clock.now = 5_000
    assert work.backlog()[WorkKind.SEAL] == (2, 0, 5_000)
    assert work.backlog()[WorkKind.TAIL] == (0, 0, 0)
    assert work.concerns("t")
    assert not work.concerns("nobody")


def test_one_kind_that_hangs_keeps_no_other_waiting_and_nobody_waits_for_it_at_the_end() -> None:
    released, done = threading.Event(), threading.Event()
    pools = {kind: Pool(2, kind) for kind in WorkKind}
    work = Work(pools, lambda: 0)
    work.wake = done.set
    for number in range(20):
        work.post(WorkKind.TAIL, number, lambda: released.wait(60), lambda _: None)
    work.post(WorkKind.SEAL, "t", lambda: "sealed", lambda _: None)
    assert done.wait(30)
    standing = work.backlog()[WorkKind.TAIL]
    assert (standing.queued + standing.running, standing.running <= 2) == (20, True)
    for pool in pools.values():
        pool.shutdown()
    released.set()


def test_what_a_piece_raises_is_raised_where_it_is_taken() -> None:
    found: list[BaseException | None] = []
    pool, done = Pool(1, "test"), threading.Event()
    work = Work({WorkKind.SEAL: pool}, lambda: 0)
    work.wake = done.set

    def fails() -> None:
        raise StoreUnavailableError("not now")

    work.post(WorkKind.SEAL, "t", fails, lambda answer: found.append(answer))
    assert done.wait(30)
    work.take()
    assert [type(error) for error in found] == [StoreUnavailableError]
    pool.shutdown()


def test_an_error_that_nobody_thought_of_is_one_of_that_piece(caplog: pytest.LogCaptureFixture) -> None:
    pool, done = Pool(1, "test"), threading.Event()
    found: list[BaseException | None] = []
    work = Work({WorkKind.LEDGERS: pool}, lambda: 0)
    work.wake = done.set
    work.post(
        WorkKind.LEDGERS,
        "t",
        lambda: dict[str, object]()["what the server did not say"],
        lambda answer: found.append(answer),
    )
    assert done.wait(30)
    work.take()
    (error,) = found
    assert isinstance(error, FatalError)
    assert "KeyError" in str(error)
    assert "what the server did not say" in caplog.text
    pool.shutdown()


def test_every_kind_has_threads_of_its_own() -> None:
    assert set(THREADS) == set(WorkKind)


@pytest.mark.parametrize("others", [0, 1])
def test_where_no_thread_can_be_started_the_topic_is_worked_on_later(
    monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """By the threads that there are, or when it is posted again."""
    pool = Pool(2, "test")
    work = Work(dict.fromkeys(WorkKind, pool), Clock())
    done = threading.Event()
    taken: list[int] = []
    for number in range(others):
        work.post(WorkKind.CATALOG, number, done.set, lambda _: None)
        assert done.wait(60)

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def finished() -> int:
        done.set()
        return 1

    done.clear()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        if others:
            assert work.post(WorkKind.CATALOG, "t", finished, lambda answer: taken.append(answer))
        else:
            with pytest.raises(RuntimeError):
                work.post(WorkKind.CATALOG, "t", finished, lambda answer: taken.append(answer))
            assert not work.concerns("t")
    if not others:
        assert work.post(WorkKind.CATALOG, "t", finished, lambda answer: taken.append(answer))
    assert done.wait(60)
    pool.submit(done.clear).result(60)
    pool.submit(done.set).result(60)
    work.take()
    while work.concerns("t"):
        work.take()
    assert taken == [1]
    pool.shutdown()
