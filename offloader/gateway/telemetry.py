"""Metrics, health and status of a gateway, over HTTP."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable

from offloader.config.gateway import address_of
from offloader.gateway.observer import GatewayObserver
from offloader.gateway.topics.workers import Workers
from offloader.metadata import layout
from offloader.metrics.gateway import GatewayMetrics, Sample
from offloader.metrics.server import MetricsServer
from offloader.ports.object_store import ObjectStore

log = logging.getLogger(__name__)

STATUS = "/status"
TICK = 1.0  # seconds
LOOK = 10  # ticks
HANGS = 60.0  # seconds


class Telemetry:
    """`begin` once there is something to see."""

    def __init__(self) -> None:
        self._samples: Callable[[], Iterable[Sample]] = list
        self.metrics = GatewayMetrics(lambda: self._samples())
        self._server: MetricsServer | None = None

    def begin(self, listen: str, observer: GatewayObserver) -> None:
        """Serve it, unless `listen` is empty. Raises ConfigError where that is impossible."""
        self._samples = observer.samples
        if listen:
            self._server = MetricsServer(
                self.metrics.registry,
                self.metrics.health,
                *address_of(listen),
                pages={STATUS: observer.status},
                setting="gateway.metricsListen",
                instead="choose another, or nothing",
            )

    async def keep_looking(self, store: ObjectStore, workers: Workers) -> None:
        """The loop turns, also while the store does not answer; and it does or does not."""
        looking: asyncio.Task[None] | None = None
        told = set[str]()  # of which kinds of work it is in the log that one hangs
        for number in itertools.count():
            self.metrics.health.tick()
            told = self._tell_hanging(workers, told)
            if number % LOOK == 0 and looking is not None and not looking.done():
                self.metrics.health.checked("store", f"it has not answered for {LOOK * TICK:g} s")
            elif number % LOOK == 0:
                looking = asyncio.create_task(self._look(store, workers))
            await asyncio.sleep(TICK)

    def _tell_hanging(self, workers: Workers, told: set[str]) -> set[str]:
        """Returns the kinds of work of which one hangs."""
        ages = {kind: seconds for kind, seconds in workers.oldest().items() if seconds > HANGS}
        for kind in ages.keys() - told:
            log.warning(
                "gateway: work of the kind %s has been in a thread for %d s",
                kind,
                ages[kind],
                extra={"see": "gateway-hangs"},
            )
        return set(ages)

    async def _look(self, store: ObjectStore, workers: Workers) -> None:
        try:
            await workers.know(lambda: store.stat(layout.ROOT))
            self.metrics.health.checked("store")
        except Exception as error:  # noqa: BLE001 (whatever it is, the store did not answer)
            self.metrics.health.checked("store", str(error))

    def close(self) -> None:
        """Stop serving it."""
        if self._server is not None:
            self._server.close()
