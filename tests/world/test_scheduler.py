"""The scheduler: one thread at a time, time that does not pass by itself, the same run for the same seed."""

from __future__ import annotations

import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError

import pytest

from tests.world.scheduler import SECOND, Process, Scheduler, StuckError
from tests.world.threads import simulated


def run(main, seed=1):
    scheduler = Scheduler(seed)
    with simulated():
        result = scheduler.run(lambda: main(scheduler))
    return result, scheduler


def test_time_goes_on_only_where_nobody_can_run():
    def main(scheduler):
        began = time.monotonic()
        time.sleep(3_600)
        assert not threading.Event().wait(30)
        with pytest.raises(queue.Empty):
            queue.Queue().get(timeout=10)
        return time.monotonic() - began

    before = time.monotonic()
    took, _ = run(main)
    assert took == 3_640
    assert time.monotonic() - before < 60


def test_pools_futures_events_and_queues_are_python_s_own():
    def main(scheduler):
        def slowly(number):
            time.sleep(1)
            return number

        def work():
            box.put(threading.current_thread().name)
            got.set()

        with ThreadPoolExecutor(2) as pool:
            began = time.monotonic()
            assert list(pool.map(slowly, range(6))) == list(range(6))
            assert time.monotonic() - began == 3
            slow = pool.submit(time.sleep, 100)
            with pytest.raises(FutureTimeoutError):
                slow.result(timeout=1)
        got = threading.Event()
        box: queue.SimpleQueue[str] = queue.SimpleQueue()
        thread = threading.Thread(target=work, name="mine")
        thread.start()
        assert got.wait()
        thread.join()
        assert not thread.is_alive()
        return box.get(timeout=1)

    assert run(main)[0] == "mine"


def raced(scheduler):
    """Who of ten threads comes first at a lock is chance, and so is where they lose the processor."""
    lock, came = threading.Lock(), []

    def come(number):
        for _ in range(20):
            with lock:
                time.sleep(scheduler.rng.random())
                came.append(number)

    threads = [threading.Thread(target=come, args=(n,)) for n in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return came


def test_a_seed_gives_the_same_run_again_and_another_seed_another_one():
    one, first = run(raced, seed=7)
    again, second = run(raced, seed=7)
    other, third = run(raced, seed=8)
    assert one == again
    assert first.fingerprint == second.fingerprint
    assert one != other
    assert first.fingerprint != third.fingerprint


def test_a_killed_process_has_no_effect_any_more():
    def main(scheduler):
        process, done = Process("app"), []

        def work():
            lock = threading.RLock()
            pool = ThreadPoolExecutor(1)
            try:
                with lock, pool:
                    pool.submit(time.sleep, 50).result()
                    done.append("never")
            finally:
                time.sleep(1)
                done.append("nor here")

        scheduler.spawn("main", process, work)
        time.sleep(10)
        scheduler.kill(process)
        time.sleep(100)
        return done

    assert run(main)[0] == []


def test_a_paused_process_wakes_up_later_and_finds_that_time_has_gone_by():
    def main(scheduler):
        process, seen = Process("app"), []

        def work():
            time.sleep(1)
            seen.append(time.monotonic())

        scheduler.spawn("main", process, work)
        time.sleep(0.5)
        scheduler.pause(process)
        time.sleep(500)
        assert not seen
        scheduler.resume(process)
        time.sleep(1)
        return seen

    assert run(main)[0] == [500.5]


def test_each_process_has_a_wall_clock_of_its_own():
    def main(scheduler):
        process, seen = Process("app", clock_offset=-3_600 * SECOND), []
        scheduler.spawn("main", process, lambda: seen.append(time.time()))
        now = time.time()
        time.sleep(1)
        return seen[0] - now

    assert run(main)[0] == -3_600


def test_who_waits_for_ever_is_named_and_so_is_a_loop_that_waits_for_nothing():
    with pytest.raises(StuckError, match="nobody can go on"):
        run(lambda scheduler: threading.Event().wait())

    def spin():
        while True:
            with lock:
                pass

    lock = None

    def main(scheduler):
        nonlocal lock
        lock = threading.Lock()
        for _ in range(2):
            scheduler.spawn("spins", scheduler.world, spin)
        time.sleep(1)

    with pytest.raises(StuckError, match="without waiting"):
        run(main)


def test_an_error_that_no_thread_catches_ends_the_world():
    def main(scheduler):
        threading.Thread(target=lambda: 1 / 0).start()
        time.sleep(1_000)

    with pytest.raises(ZeroDivisionError):
        run(main)


def test_threads_outside_keep_the_real_things_while_a_world_lives():
    seen = []

    def main(scheduler):
        seen.append(type(threading.Lock()))
        outside.set()
        gone.acquire()
        return

    real = threading.Lock
    outside, gone = threading.Event(), threading.Lock()
    gone.acquire()

    def watch():
        outside.wait(30)
        seen.append(type(threading.Lock()))
        gone.release()

    thread = threading.Thread(target=watch)
    thread.start()
    run(main)
    thread.join()
    assert seen[1] is type(real())
    assert seen[0] is not seen[1]
