"""A process runs other shards as long as theirs do not: each in a thread, with a journal, a driver and queries of its
own, in the same Spark session."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from contextlib import ExitStack

from offloader.config import Config
from offloader.errors import OffloadError, OvertakenError
from offloader.metrics import Metrics
from offloader.model import Lane
from offloader.offload import settings as derived
from offloader.offload.driver.work import foreseen
from offloader.offload.fleet import Fleet
from offloader.offload.seat import Reached, Seat
from offloader.offload.spark.supervised import SupervisedQuery

log = logging.getLogger(__name__)

WATCH_EVERY = 0.2  # seconds


class StandingIn:
    """`config`, `metrics`: of the process's own shard."""

    def __init__(self, config: Config, reached: Reached, metrics: Metrics, fleet: Fleet) -> None:
        self._config = config
        self._reached = reached
        self._metrics = metrics
        self._fleet = fleet
        self._stop = threading.Event()
        self._threads: dict[int, threading.Thread] = {}
        self._watching = threading.Thread(target=self._watch, name="shards", daemon=True)

    def start(self) -> None:
        """Show and look for signs of life."""
        self._watching.start()

    def stop(self) -> None:
        """End all that is run for others, and wait for that."""
        self._stop.set()
        self._watching.join()
        for thread in list(self._threads.values()):
            thread.join()

    def _watch(self) -> None:
        wait = 0.0
        while not self._stop.wait(wait):
            wait = self._fleet.look_ms / 1000
            try:
                due = self._fleet.look()
            except OffloadError as error:
                log.warning("the other shards cannot be seen: %s", error, extra={"see": "shards-unseen"})
                continue
            self._metrics.shards(self._fleet.stood_in, self._fleet.silent)
            for index in due:
                self._begin(index)

    def _begin(self, index: int) -> None:
        before = self._threads.get(index)
        if before is None or not before.is_alive():
            self._threads[index] = threading.Thread(target=self._run, args=(index,), name=f"shard-{index}", daemon=True)
            self._threads[index].start()

    def _run(self, index: int) -> None:
        try:
            with self._metrics.of_shard(index) as metrics:
                self._run_shard(index, metrics)
        except OvertakenError as error:
            log.info("shard %d is run by another process: %s", index, error)
        except Exception as error:  # noqa: BLE001 (our own shard goes on)
            found = error if isinstance(error, OffloadError) else foreseen(error)
            log.error(
                "shard %d cannot be run here, tried again while it is silent: %s",
                index, found, extra={"see": "shard-not-run"},
            )  # fmt: skip
        finally:
            self._fleet.leaves(index, is_over=False)  # also where it could not be begun: others have their turn first

    def _run_shard(self, index: int, metrics: Metrics) -> None:
        """Until it is taken back, or is over, or the process ends. Raises what ended it."""
        failures: list[BaseException] = []
        is_over = False
        with ExitStack() as stack:
            queries: dict[Lane, SupervisedQuery] = {}
            stack.callback(_stop_all, queries)  # last: somebody waits for the subscriptions
            seat = Seat(derived.of_shard(self._config, index), self._reached, metrics, failures.append)
            driver = seat.open(stack)
            self._fleet.joins(index, seat.rounds)
            stack.callback(lambda: self._fleet.leaves(index, is_over=is_over))
            self._metrics.shard_taken_over()
            log.warning(
                "shard %d showed no sign of life: shard %d runs it as well",
                index, self._fleet.deal.index, extra={"see": "shard-taken-over"},
            )  # fmt: skip
            queries |= seat.queries(driver)
            while not (failures or is_over or self._stop.wait(WATCH_EVERY)):
                for query in queries.values():
                    query.keep_running()
                driver.plans.limits = derived.lanes(seat.config, self._reached.slots.number)
                is_over = index >= self._fleet.deal.count and seat.passing_on is not None and seat.passing_on.all_gone
            if not failures:
                driver.plans.drain(timeout=self._config.limits.slice.time_budget_ms / 1000 + 10)
        if failures:
            raise failures[0]
        if is_over:
            log.info("shard %d has passed on all of its topics, and is no more", index)


def _stop_all(queries: Mapping[Lane, SupervisedQuery]) -> None:
    for query in queries.values():
        query.stop()
