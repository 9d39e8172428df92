"""How a gateway ends whose store does not answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import pulsar
import pytest

from offloader.archive.opened import OpenArchive
from offloader.archive.reading.stores import Stores
from offloader.config.gateway import Gateway
from offloader.errors import StoreUnavailableError
from offloader.gateway import application as application_module
from offloader.gateway.application import GatewayApplication
from offloader.storage.forwarding import ForwardingStore, Verb
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC, Archive, message
from tests.format.support import Stored
from tests.gateway.gateway import durable_gateway
from tests.gateway.test_stock_client import EARLIEST, connected

T = TypeVar("T")
SUBSCRIPTIONS = 60


class AwayStore(ForwardingStore):
    """Once it is away, a call takes a while and fails. `writes`: those that were tried since."""

    def __init__(self) -> None:
        made = Archive(MemoryStore())
        made.claim(10, 0)
        made.add([Stored(10, entry, message(f"m{entry}")) for entry in range(5)])
        super().__init__(made.store)
        self.is_away, self.writes = False, 0

    def _call(self, verb: Verb, key: str, work: Callable[[], T]) -> T:
        if not self.is_away:
            return work()
        self.writes += verb == "put"
        threading.Event().wait(0.5)
        raise StoreUnavailableError("the store is away (the test)")


def test_a_gateway_that_is_stopped_before_it_has_begun_ends() -> None:
    settings = Gateway.model_validate({"listen": "127.0.0.1:0", "metricsListen": ""})
    application = GatewayApplication(OpenArchive(Stores.of(MemoryStore())), settings, lambda: "token")
    application.stop()
    running = threading.Thread(target=application.run)
    running.start()
    running.join(10)
    ended = not running.is_alive()
    application.stop()
    running.join()
    assert ended


def test_a_stop_does_not_wait_for_a_store_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application_module, "WRITES_WITHIN", 0.1)
    store = AwayStore()
    with durable_gateway(store, flushInterval="10m") as url:
        client = connected(url)
        for number in range(SUBSCRIPTIONS):
            name = f"s{number}"
            consumer = client.subscribe(str(TOPIC), name, pulsar.ConsumerType.Shared, initial_position=EARLIEST)
            consumer.acknowledge(consumer.receive(20_000))
        client.close()
        store.is_away = True
    assert store.writes < SUBSCRIPTIONS / 2
