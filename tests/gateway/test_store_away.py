"""A gateway whose store does not answer: what clients hear, and how it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import pulsar
import pytest

from offloader._proto.pulsar_wire_pb2 import (
    BaseCommand,
    Connect,
    Lookup,
    LookupResponse,
    PartitionedMetadata,
)
from offloader.errors import StoreUnavailableError
from offloader.gateway import application as application_module
from offloader.gateway.values import ErrorCode
from offloader.pulsar.commands import command
from offloader.storage.forwarding import ForwardingStore, Verb
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC, Archive, message
from tests.format.support import Stored
from tests.gateway.gateway import gateway
from tests.gateway.raw import RawClient
from tests.gateway.test_stock_client import EARLIEST, connected

T = TypeVar("T")
NAME = str(TOPIC)


class AwayStore(ForwardingStore):
    """`is_away`: a call takes `seconds`, and fails. `writes`: those that were tried since."""

    def __init__(self, seconds: float = 0.0) -> None:
        made = Archive(MemoryStore())
        made.claim(10, 0)
        made.add([Stored(10, entry, message(f"m{entry}")) for entry in range(5)])
        super().__init__(made.store)
        self.writes, self._seconds = 0, seconds
        self._is_away = threading.Event()

    def go_away(self) -> None:
        self._is_away.set()

    def _call(self, verb: Verb, key: str, work: Callable[[], T]) -> T:
        if not self._is_away.is_set():
            return work()
        self.writes += verb == "put"
        threading.Event().wait(self._seconds)
        raise StoreUnavailableError("the store is away (the test)")


@pytest.mark.parametrize("field", ["lookup", "partitioned_metadata"])
def test_a_lookup_that_cannot_be_answered_now_costs_no_client_its_connection(field: str) -> None:
    """Where they hear ServiceNotReady, clients close the connection, with the consumers of all topics."""
    store = AwayStore()
    asked = {
        "lookup": command(lookup=Lookup(topic=NAME, request_id=7)),
        "partitioned_metadata": command(partitioned_metadata=PartitionedMetadata(topic=NAME, request_id=7)),
    }
    with gateway(store) as url, RawClient(url) as client:
        client.send(command(connect=Connect(client_version="x", protocol_version=21)))
        assert client.command().HasField("connected")
        store.go_away()
        client.send(asked[field])
        said: BaseCommand = client.answer()
        found = said.lookup_response if field == "lookup" else said.partitioned_metadata_response
        assert (found.request_id, found.error) == (7, ErrorCode.METADATA)
        assert found.response == LookupResponse.FAILED if field == "lookup" else 1


def test_a_stop_does_not_wait_for_a_store_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application_module, "WRITES_WITHIN", 0.1)
    store, count = AwayStore(seconds=0.5), 60
    with gateway(store, flushInterval="10m") as url:
        client = connected(url)
        for number in range(count):
            consumer = client.subscribe(NAME, f"s{number}", pulsar.ConsumerType.Shared, initial_position=EARLIEST)
            consumer.acknowledge(consumer.receive(20_000))
        client.close()
        store.go_away()
    assert store.writes < count / 2
