"""What errors tell clients: nothing of where the archive is, nor of its keys."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from typing import TypeVar

import pytest

from offloader._proto.pulsar_wire_pb2 import (
    BaseCommand,
    Connect,
    Subscribe,
)
from offloader.archive.items import Missing
from offloader.archive.snapshot import Unreadable
from offloader.errors import AccessDeniedError, DamagedRecordError, OffloadError, StoreUnavailableError
from offloader.gateway.entries.missing import OnMissing, Passing
from offloader.model import Position
from offloader.pulsar.commands import command
from offloader.storage.forwarding import ForwardingStore, Verb
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC, Archive, message
from tests.format.support import Stored
from tests.gateway.gateway import durable_gateway, free_port
from tests.gateway.raw import RawClient, questions

T = TypeVar("T")
NAME = str(TOPIC)
SECRET = "s3://a-bucket"
SUBSCRIBE = Subscribe(topic=NAME, subscription="s", type=Subscribe.SHARED, consumer_id=0, request_id=1)
ASKED = [
    *questions(TOPIC),
    command(subscribe=SUBSCRIBE),
    command(subscribe=Subscribe(topic=NAME, subscription="r", type=0, consumer_id=0, request_id=1, durable=False)),
]


class TellingStore(ForwardingStore):
    """Refuses every read of a key with an error that names it."""

    def __init__(self, store: MemoryStore, kind: type[OffloadError]) -> None:
        super().__init__(store)
        self._kind = kind

    def _call(self, verb: Verb, key: str, work: Callable[[], T]) -> T:
        if verb in ("read", "list", "stat", "put") and not key.startswith("_"):
            raise self._kind(f"{SECRET}/{key}: it is so (the test)")
        return work()


@pytest.fixture(params=[StoreUnavailableError, AccessDeniedError, DamagedRecordError], ids=lambda kind: kind.__name__)
def store(request: pytest.FixtureRequest) -> TellingStore:
    made = Archive(MemoryStore())
    made.claim(10, 0)
    made.add([Stored(10, entry, message(f"m{entry}")) for entry in range(3)])
    return TellingStore(made.store, request.param)


@pytest.mark.parametrize("asked", ASKED, ids=lambda one: BaseCommand.DESCRIPTOR.fields_by_number[one.type].name)
def test_no_error_names_the_store_or_a_key(store: TellingStore, asked: BaseCommand) -> None:
    with durable_gateway(store) as url, RawClient(url) as client:
        client.send(command(connect=Connect(client_version="x", protocol_version=21)), asked)
        told = str(client.answer())
    assert SECRET not in told
    assert "the test" not in told


def test_no_error_of_http_names_the_store_or_a_key(store: TellingStore) -> None:
    port = free_port()
    with durable_gateway(store, httpListen=f"127.0.0.1:{port}"):
        for path in (
            "/admin/v2/persistent/public/default/orders/partitions",
            "/admin/v2/namespaces/public/default/topics",
            "/admin/v2/schemas/public/default/orders/schema",
        ):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            connection.request("GET", path)
            answer = connection.getresponse()
            told = answer.read().decode()
            connection.close()
            assert answer.status >= 400
            assert SECRET not in told
            assert "the test" not in told


def test_damage_is_told_without_its_key() -> None:
    passing, begin, end = Passing(TOPIC, OnMissing.FAIL), Position(0, 1, 2), Position(0, 1, 5)
    damage = Missing(begin, end, f"damaged: {SECRET}/key: a block is not what it should be", damaged=f"{SECRET}/key")
    assert passing.sentence(damage) == f"{TOPIC}: {begin}..{end} is missing: damaged"
    unproven = Unreadable(f"{SECRET}/key", "its index is not there", damaged=False).missing(begin, end)
    assert SECRET not in passing.sentence(unproven)
