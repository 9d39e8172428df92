"""A gateway over an archive in memory, in a thread of its own: with durable subscriptions or, by default, without."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Queue

from offloader.archive.opened import OpenArchive
from offloader.archive.reading.stores import Stores
from offloader.config.gateway import Gateway
from offloader.gateway.application import GatewayApplication
from offloader.gateway.server.limits import ConnectionLimits
from offloader.ports.object_store import ObjectStore

DEFAULT_LIMITS = ConnectionLimits()

TOKENS = itertools.count()


@contextmanager
def durable_gateway(store: ObjectStore, limits: ConnectionLimits = DEFAULT_LIMITS, **settings: object) -> Iterator[str]:
    """One whose clients may have durable subscriptions."""
    with gateway(store, limits, durableSubscriptions=True, **settings) as url:
        yield url


@contextmanager
def gateway(
    store: ObjectStore,
    limits: ConnectionLimits = DEFAULT_LIMITS,
    **settings: object,
) -> Iterator[str]:
    """Its address."""
    url: Queue[str | BaseException] = Queue()
    chosen = Gateway.model_validate(
        {"listen": "127.0.0.1:0", "metricsListen": "", "refreshInterval": "100ms", **settings}
    )
    opened = OpenArchive(Stores.of(store))
    application = GatewayApplication(opened, chosen, lambda: f"t{next(TOKENS)}", url.put, limits)

    def run() -> None:
        try:
            application.run()
        except BaseException as error:  # noqa: BLE001 (the test gets it)
            url.put(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        found = url.get(timeout=60)
        if isinstance(found, BaseException):
            raise found
        yield found
    finally:
        application.stop()
        thread.join(60)
        assert not thread.is_alive()


def free_port() -> int:
    """Where nobody listens now."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])
