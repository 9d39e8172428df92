"""A role takes no more of a gateway than it may, and all together no more than there is."""

from __future__ import annotations

import base64
import http.client
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from offloader._proto.pulsar_wire_pb2 import BaseCommand, CloseConsumer, Connect, Subscribe
from offloader.gateway.values import ErrorCode
from offloader.pulsar.commands import command
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC, Archive, message
from tests.format.support import Stored
from tests.gateway.access.tokens import SECRET, token
from tests.gateway.gateway import durable_gateway, free_port
from tests.gateway.raw import RawClient

KEY = {"tokenSecretKey": base64.b64encode(SECRET).decode(), "roles": {"*": ["*"]}}


@contextmanager
def client(url: str, role: str) -> Iterator[RawClient]:
    with RawClient(url) as found:
        shown = token(sub=role)
        found.send(command(connect=Connect(client_version="x", auth_method_name="token", auth_data=shown)))
        yield found


@contextmanager
def serving(**settings: object) -> Iterator[str]:
    made = Archive(MemoryStore())
    made.claim(10, 0)
    made.add([Stored(10, entry, message(f"m{entry}")) for entry in range(3)])
    with durable_gateway(made.store, **KEY, **settings) as url:
        yield url


def subscribe(number: int) -> BaseCommand:
    return command(
        subscribe=Subscribe(
            topic=str(TOPIC), subscription=f"s{number}", type=Subscribe.SHARED, durable=False, consumer_id=number,
            request_id=number,
        )
    )  # fmt: skip


def subscribed(one: RawClient, number: int) -> bool:
    one.send(subscribe(number))
    answer = one.answer()
    assert answer.HasField("success") or answer.error.error == ErrorCode.TOO_MANY_REQUESTS
    return answer.HasField("success")


def test_a_role_has_so_many_connections_and_others_have_theirs() -> None:
    with serving(connectionsPerRole=2) as url, client(url, "a") as one, client(url, "a") as two:
        for each in (one, two):
            assert each.command().HasField("connected")
        with client(url, "a") as three:
            assert three.command().error.error == ErrorCode.TOO_MANY_REQUESTS
            assert three.ends()
        with client(url, "b") as other:
            assert other.command().HasField("connected")
        one.socket.close()
        assert any(_connects(url, "a") for _ in range(200)), "one has gone"


LIST = f"/admin/v2/namespaces/{TOPIC.namespace}/topics"


def status(connection: http.client.HTTPConnection, role: str) -> int:
    """Of a request, after which the connection stays."""
    connection.request("GET", LIST, headers={"Authorization": f"Bearer {token(sub=role).decode()}"})
    answer = connection.getresponse()
    answer.read()
    return answer.status


def test_connections_of_http_count_as_connections_of_their_role() -> None:
    port = free_port()
    with serving(connectionsPerRole=2, httpListen=f"127.0.0.1:{port}") as url, client(url, "a") as one:
        assert one.command().HasField("connected")
        first, second = (http.client.HTTPConnection("127.0.0.1", port, timeout=20) for _ in range(2))
        assert [status(first, "a"), status(first, "a"), status(second, "a")] == [200, 200, 429]
        assert [status(second, "b"), status(second, "a")] == [200, 429], "it stays the connection of b"
        with client(url, "a") as three:
            assert three.command().error.error == ErrorCode.TOO_MANY_REQUESTS
        first.close()
        assert any(_connects(url, "a") for _ in range(200)), "one has gone"
        second.close()


def _connects(url: str, role: str) -> bool:
    with client(url, role) as found:
        return found.command().HasField("connected")


def test_a_role_has_so_many_consumers_over_all_its_connections() -> None:
    with (
        serving(consumersPerRole=3) as url,
        client(url, "a") as one,
        client(url, "a") as two,
        client(url, "b") as other,
    ):
        assert [subscribed(each, number) for number, each in enumerate((one, two, one, two))] == [True] * 3 + [False]
        assert subscribed(other, 7)
        one.send(command(close_consumer=CloseConsumer(consumer_id=0, request_id=50)))
        assert one.until("success").success.request_id == 50
        assert subscribed(two, 3)


@pytest.mark.parametrize("settings", [{"consumers": 2}, {"consumers": 2, "consumersPerRole": 2}])
def test_all_together_have_so_many_consumers(settings: dict[str, int]) -> None:
    with serving(**settings) as url, client(url, "a") as one, client(url, "b") as other:
        answers = [subscribed(each, number) for number, each in enumerate((one, other, one, other))]
        assert answers == [True, True, False, False]
