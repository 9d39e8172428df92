"""A gateway over an archive in memory, in a thread of its own."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Queue

from offloader.archive.opened import OpenArchive
from offloader.archive.reading.stores import Stores
from offloader.config.gateway import Gateway
from offloader.gateway.application import GatewayApplication
from offloader.ports.object_store import ObjectStore

TOKENS = itertools.count()


@contextmanager
def gateway(store: ObjectStore, **settings: object) -> Iterator[str]:
    """Its address."""
    url: Queue[str | BaseException] = Queue()
    chosen = Gateway.model_validate(
        {"listen": "127.0.0.1:0", "metricsListen": "", "refreshInterval": "100ms", **settings}
    )
    application = GatewayApplication(OpenArchive(Stores.of(store)), chosen, lambda: f"t{next(TOKENS)}", url.put)

    def run() -> None:
        try:
            application.run()
        except BaseException as error:
            url.put(error)
            raise

    thread = threading.Thread(target=run)
    thread.start()
    try:
        found = url.get(timeout=60)
        assert isinstance(found, str), found
        yield found
    finally:
        application.stop()
        thread.join(60)
        assert not thread.is_alive()
