"""Whether a gateway lives: any answer to a CONNECT but a broker's counts, silence and a closed port do not."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import struct
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from offloader._proto.pulsar_wire_pb2 import BaseCommand, Connected, Error
from offloader.gateway.owners.living import LivingGateways
from offloader.gateway.protocol.answers import Address
from offloader.gateway.topics.archive import ArchiveTopics
from offloader.gateway.topics.workers import Workers
from offloader.gateway.values import ErrorCode
from offloader.pulsar.commands import command, connect
from offloader.pulsar.frames import encode
from offloader.storage.memory import MemoryStore
from tests.gateway.access.certificates import Authority
from tests.gateway.gateway import durable_gateway, gateway
from tests.gateway.raw import RawClient


def living(url: str, times: int = 1) -> list[bool]:
    async def asked() -> list[bool]:
        workers = Workers()
        gateways = LivingGateways(workers, answer_within=0.5)
        answers = await asyncio.gather(*(gateways.is_living(Address(url)) for _ in range(times)))
        workers.close()
        return answers

    return asyncio.run(asked())


def test_a_gateway_lives_and_then_does_not() -> None:
    with durable_gateway(MemoryStore()) as url:
        assert living(url) == [True]
    assert living(url) == [False]


def test_one_without_durable_subscriptions_gives_no_sign_of_life() -> None:
    """What a former gateway at its address has, another one may have."""
    with gateway(MemoryStore()) as url:
        assert living(url) == [False]


def test_who_accepts_and_says_nothing_is_paused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert living(f"pulsar://127.0.0.1:{server.getsockname()[1]}") == [False]


def test_who_does_not_reach_the_store_and_has_topics_gives_no_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    with durable_gateway(MemoryStore()) as url:
        monkeypatch.setattr(ArchiveTopics, "answers_gateways", False)
        assert living(url) == [False]
        with RawClient(url) as client:
            client.send(connect("", b""))
            assert client.command().HasField("connected"), "clients are answered"


@pytest.mark.parametrize(
    ("answer", "lives"),
    [
        (command(connected=Connected(server_version="Pulsar Server4.0.7")), False),
        (command(error=Error(request_id=1, error=ErrorCode.AUTHENTICATION, message="Unable to authenticate")), False),
        (command(error=Error(request_id=1, error=ErrorCode.TOO_MANY_REQUESTS, message="it is full")), True),
    ],
    ids=["a broker", "a broker that asks for tokens", "a gateway that is full"],
)
def test_a_broker_at_the_address_of_a_gateway_that_died_is_no_gateway(answer: BaseCommand, lives: bool) -> None:
    """In Kubernetes addresses are given anew: who took the broker for the owner would lead its clients there."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as connection:
                connection.recv(1000)
                connection.sendall(encode(answer))

        serving = threading.Thread(target=serve)
        serving.start()
        assert living(f"pulsar://127.0.0.1:{server.getsockname()[1]}") == [lives]
        serving.join()


def test_many_who_ask_at_the_same_time_ask_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert living(f"pulsar://127.0.0.1:{server.getsockname()[1]}", times=50) == [False] * 50
        server.settimeout(0.1)
        server.accept()[0].close()
        try:
            server.accept()
        except TimeoutError:
            return
        raise AssertionError("it was asked twice")


def test_an_address_that_is_none_is_nobodys() -> None:
    assert living("pulsar+ssl://127.0.0.1:1") == [False]


def test_who_wants_a_certificate_and_resets_the_connection_lives(tmp_path: Path) -> None:
    """What it said of that is lost then: it has not read what was sent to it."""
    shown = Authority(tmp_path).issue("gateway")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown.certificate, shown.key)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            with context.wrap_socket(server.accept()[0], server_side=True) as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        refusing = threading.Thread(target=refuse)
        refusing.start()
        assert living(f"pulsar+ssl://127.0.0.1:{server.getsockname()[1]}") == [True]
        refusing.join()


def test_where_no_host_is_named_this_machine_is_not_asked() -> None:
    with durable_gateway(MemoryStore()) as url:
        assert living(f"pulsar://:{urlsplit(url).port}") == [False]


def test_one_of_its_addresses_to_which_no_way_leads_does_not_hide_it(monkeypatch: pytest.MonkeyPatch) -> None:
    connect_to = asyncio.open_connection

    async def no_way(host: str, port: int, **more: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if host == "::1":
            raise OSError(errno.ENETUNREACH, "Network is unreachable")
        return await connect_to(host, port, **more)

    with durable_gateway(MemoryStore()) as url:
        found = [(family, socket.SOCK_STREAM, 0, "", (host, 0)) for family, host in ((10, "::1"), (2, "127.0.0.1"))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_named: found)
        monkeypatch.setattr(asyncio, "open_connection", no_way)
        assert living(url) == [True]
