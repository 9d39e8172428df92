"""The plans that Spark's reader processes ask for: one at a time, only for those with the key, and nobody keeps the others waiting."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import AuthenticationError

import pytest

from offloader.streaming.plan_server import PlanClient, PlanServer
from offloader.streaming.planner import Plan

RUN = "run"


@pytest.fixture
def server() -> Iterator[PlanServer]:
    server = PlanServer(RUN)
    yield server
    server.close()


def test_the_newest_plan_is_served_and_no_other(server: PlanServer) -> None:
    client = PlanClient(server.address, RUN)
    assert client.latest(0, 0.0) == 0
    server.publish(Plan(RUN, 1, ()))
    assert client.latest(0, 10.0) == 1
    assert client.plan(RUN, 1) == Plan(RUN, 1, ())
    assert client.plan(RUN, 2) is None
    assert PlanClient(server.address, "another").latest(0, 0.0) == 0


def test_a_connection_that_says_nothing_keeps_nobody_else_waiting(server: PlanServer) -> None:
    address = server.address
    with socket.create_connection((address.host, address.port)), ThreadPoolExecutor(1) as pool:
        assert pool.submit(PlanClient(address, RUN).latest, 0, 0.0).result(timeout=30) == 0


@pytest.mark.parametrize("said", [b"", b"\0\0\0\x20half of an answer"])
def test_a_connection_that_does_not_prove_its_key_in_time_is_ended(said: bytes) -> None:
    server = PlanServer(RUN, handshake=0.2)
    address = server.address
    with socket.create_connection((address.host, address.port), timeout=30) as silent:
        silent.sendall(said)
        while silent.recv(1000):
            pass
    server.close()


def test_who_has_the_key_may_take_longer_than_the_handshake() -> None:
    server = PlanServer(RUN, handshake=1.0)
    client = PlanClient(server.address, RUN)
    assert client.latest(0, 0.0) == 0
    connection = client._connection
    assert client.latest(0, 1.2) == 0
    assert client._connection is connection
    server.close()


def test_a_default_time_out_of_sockets_changes_nothing() -> None:
    socket.setdefaulttimeout(60.0)
    try:
        server = PlanServer(RUN)
        assert PlanClient(server.address, RUN).latest(0, 0.0) == 0
        server.close()
    finally:
        socket.setdefaulttimeout(None)


def test_a_process_with_a_wrong_key_is_refused(server: PlanServer) -> None:
    stranger = PlanClient(replace(server.address, key=b"wrong"), RUN)
    with pytest.raises(AuthenticationError):
        stranger.latest(0, 0.0)
    assert PlanClient(server.address, RUN).latest(0, 0.0) == 0
