"""Who may read what, with Pulsar's own Python client and byte by byte."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue

import pulsar
import pytest

from offloader._proto.pulsar_wire_pb2 import (
    AuthData,
    AuthResponse,
    BaseCommand,
    Connect,
    FeatureFlags,
    Flow,
    Subscribe,
)
from offloader.gateway import application
from offloader.gateway.values import ErrorCode
from offloader.pulsar.commands import command
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC, Archive, message
from tests.examples import few
from tests.format.support import Stored
from tests.gateway.access.tokens import CURVE, SECRET, der, token
from tests.gateway.gateway import durable_gateway
from tests.gateway.raw import RawClient, questions

NAME = str(TOPIC)
EARLIEST = pulsar.MessageId.earliest
PATIENCE = 60_000  # ms, for hanging
SETTINGS = {
    "tokenSecretKey": base64.b64encode(SECRET).decode(),
    "roles": {"reader": ["public/*"], "guest": ["public/*"], "stranger": ["other/place"]},
    "durableRoles": {"reader": ["public/*"]},
}


def made() -> Archive:
    made = Archive(MemoryStore())
    made.claim(10, 0)
    made.add([Stored(10, entry, message(f"m{entry}")) for entry in range(20)])
    return made


@pytest.fixture(scope="module")
def archive() -> Archive:
    return made()


@pytest.fixture
def other() -> Archive:
    """The gateway of `url` has no topic of it."""
    return made()


@pytest.fixture(scope="module")
def url(archive: Archive) -> Iterator[str]:
    with durable_gateway(archive.store, **SETTINGS) as found:
        yield found


@contextmanager
def stock(url: str, shown: bytes | Callable[[], str] | None) -> Iterator[pulsar.Client]:
    text = shown.decode() if isinstance(shown, bytes) else shown
    authentication = pulsar.AuthenticationToken(text) if text is not None else None
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(url, authentication, operation_timeout_seconds=3, logger=quiet)
    yield client
    client.close()


def connect(shown: bytes, *, refreshes: bool = False) -> BaseCommand:
    flags = FeatureFlags(supports_auth_refresh=refreshes)
    return command(
        connect=Connect(
            client_version="x", protocol_version=21, auth_method_name="token", auth_data=shown, feature_flags=flags
        )
    )


SUBSCRIBE = command(
    subscribe=Subscribe(
        topic=NAME, subscription="s", type=Subscribe.SHARED, consumer_id=0, request_id=1, initial_position=1
    )
)


def test_a_role_reads_what_it_may(url: str) -> None:
    with stock(url, token()) as client:
        assert client.create_reader(NAME, EARLIEST).read_next(PATIENCE).data() == b"m0"


def test_another_role_reads_nothing_of_it(url: str) -> None:
    with stock(url, token(sub="stranger")) as client, pytest.raises(pulsar.AuthorizationError):
        client.create_reader(NAME, EARLIEST)


@pytest.mark.parametrize("shown", few([token(SECRET[::-1]), None, token(exp=1)], 1))
def test_whoever_shows_no_token_of_ours_gets_no_answer(url: str, shown: bytes | None) -> None:
    with stock(url, shown) as client, pytest.raises((pulsar.AuthenticationError, pulsar.ConnectError, pulsar.Timeout)):
        client.create_reader(NAME, EARLIEST)


@pytest.mark.parametrize(
    "asked",
    [
        *questions(TOPIC),
        SUBSCRIBE,
    ],
    ids=lambda asked: BaseCommand.DESCRIPTOR.fields_by_number[asked.type].name,
)
def test_each_door_asks(url: str, asked: BaseCommand) -> None:
    with RawClient(url) as client:
        client.send(connect(token(sub="stranger")))
        client.send(asked)
        answer = client.answer()
    codes = [
        getattr(value, name)
        for _, value in answer.ListFields()
        if hasattr(value, "DESCRIPTOR")
        for name in ("error", "error_code")
        if name in value.DESCRIPTOR.fields_by_name
    ]
    assert codes == [ErrorCode.AUTHORIZATION]


def test_a_token_that_expires_ends_the_connection_of_a_client_that_shows_no_other(url: str) -> None:
    with RawClient(url) as client:
        client.send(connect(token(exp=time.time() + 1)))
        assert client.command().HasField("connected")
        assert client.is_closed()


def test_a_client_that_can_is_asked_for_a_new_token_and_reads_on(url: str) -> None:
    with RawClient(url) as client:
        client.send(connect(token(exp=time.time() + 1), refreshes=True))
        client.send(SUBSCRIBE)
        assert client.answer().HasField("success")
        assert client.until("auth_challenge").auth_challenge.challenge.auth_method_name == "token"
        client.send(answer(token(exp=time.time() + 600)))
        client.send(command(flow=Flow(consumer_id=0, permits=1)))
        client.until("message")


@pytest.mark.parametrize("shown", [token(sub="stranger"), token(sub="other"), token(exp=1), b"", token(SECRET[::-1])])
def test_whoever_becomes_somebody_else_loses_its_consumers(url: str, shown: bytes) -> None:
    with RawClient(url) as client:
        client.send(connect(token(), refreshes=True))
        client.send(SUBSCRIBE)
        assert client.answer().HasField("success")
        client.send(answer(shown), command(flow=Flow(consumer_id=0, permits=1)))
        assert client.until("error").error.error == ErrorCode.AUTHENTICATION
        assert client.is_closed(), "nothing more is delivered"


def test_the_stock_client_shows_its_next_token(url: str) -> None:
    shown: Queue[bytes] = Queue()

    def supply() -> str:
        made = token(exp=time.time() + 1)
        shown.put(made)
        return made.decode()

    with stock(url, supply) as client:
        reader = client.create_reader(NAME, EARLIEST, receiver_queue_size=1)
        reader.read_next(PATIENCE)
        for _ in range(shown.qsize() + 2):
            shown.get(timeout=PATIENCE / 1000)
        assert reader.read_next(PATIENCE).data() == b"m1"
        assert reader.is_connected()


@pytest.mark.parametrize(
    "said", [{"original_principal": "app"}, {"original_auth_data": "x"}, {"proxy_version": "4.0.7"}]
)
def test_who_comes_by_a_pulsar_proxy_is_refused(url: str, said: dict[str, str]) -> None:
    asked = connect(token())
    for name, value in said.items():
        setattr(asked.connect, name, value)
    with RawClient(url) as client:
        client.send(asked)
        refused = client.command().error
        assert refused.error == ErrorCode.AUTHENTICATION
        assert "Pulsar Proxy" in refused.message
        assert client.is_closed()


def test_who_may_read_may_not_subscribe_durably_for_that(url: str) -> None:
    with stock(url, token(sub="guest")) as client:
        assert client.create_reader(NAME, EARLIEST).read_next(PATIENCE).data() == b"m0"
        with pytest.raises(pulsar.AuthorizationError):
            client.subscribe(NAME, "s")


def test_a_new_key_asks_everybody_again(other: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "LOOK_AT_FILES_MS", 50)
    path = tmp_path / "key"
    path.write_bytes(SECRET)
    with durable_gateway(other.store, **(SETTINGS | {"tokenSecretKey": f"file://{path}"})) as url:
        with RawClient(url) as old, RawClient(url) as refreshing:
            old.send(connect(token()))
            refreshing.send(connect(token(), refreshes=True))
            assert old.command().HasField("connected")
            path.write_bytes(SECRET[::-1])
            assert old.is_closed()
            refreshing.until("auth_challenge")
            refreshing.send(answer(token(SECRET[::-1])), SUBSCRIBE)
            assert refreshing.until("success")
        with RawClient(url) as client:
            client.send(connect(token()))
            assert client.command().error.error == ErrorCode.AUTHENTICATION


def test_a_public_key(other: Archive, tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(der(CURVE))
    with (
        durable_gateway(other.store, tokenPublicKey=str(path), roles={"*": TOPIC.namespace}) as url,
        stock(url, token(CURVE, "ES256", sub="whoever")) as client,
    ):
        assert client.create_reader(NAME, EARLIEST).read_next(PATIENCE).data() == b"m0"


def answer(shown: bytes) -> BaseCommand:
    data = AuthData(auth_method_name="token", auth_data=shown)
    return command(auth_response=AuthResponse(client_version="x", response=data, protocol_version=21))
