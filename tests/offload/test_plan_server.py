"""The plans that Spark's reader processes ask for: one at a time, only for those with the key, and nobody keeps the
others waiting."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import AuthenticationError
from pathlib import Path

import pytest

from offloader.model import Lane
from offloader.offload.core.plans import Plan
from offloader.offload.spark import plan_server
from offloader.offload.spark.plan_server import PlanAddress, PlanClient, PlanServer

RUN = "run"


@pytest.fixture
def server() -> Iterator[PlanServer]:
    server = PlanServer(RUN)
    yield server
    server.close()


def test_the_newest_plan_is_served_and_no_other(server: PlanServer) -> None:
    client = PlanClient(server.address, RUN, Lane.FAST)
    assert client.latest(0, 0.0) == 0
    server.publish(Plan(RUN, Lane.FAST, 1, ()))
    assert client.latest(0, 10.0) == 1
    assert client.plan(RUN, 1) == Plan(RUN, Lane.FAST, 1, ())
    assert client.plan(RUN, 2) is None
    assert PlanClient(server.address, "another", Lane.FAST).latest(0, 0.0) == 0


def test_each_lane_has_a_newest_plan_of_its_own(server: PlanServer) -> None:
    fast, slow = (PlanClient(server.address, RUN, lane) for lane in Lane)
    server.publish(Plan(RUN, Lane.SLOW, 1, ()))
    server.publish(Plan(RUN, Lane.FAST, 2, ()))
    assert (fast.latest(0, 10.0), slow.latest(0, 10.0)) == (2, 1)
    assert fast.plan(RUN, 1) is None
    assert slow.latest(1, 0.0) == 1


def test_a_plan_is_served_again_until_its_receipts_are_in(server: PlanServer) -> None:
    plan = Plan(RUN, Lane.FAST, 1, ())
    server.publish(plan)
    assert PlanClient(server.address, RUN, Lane.FAST).latest(0, 10.0) == 1
    assert PlanClient(server.address, RUN, Lane.FAST).latest(0, 10.0) == 1
    server.withdraw(plan)
    assert PlanClient(server.address, RUN, Lane.FAST).latest(0, 0.0) == 0


def test_a_process_that_has_too_many_open_files_is_patient_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = PlanServer(RUN)
    plain, tries, until = server._listener.accept, 0, threading.Event()

    def accept() -> object:
        nonlocal tries
        if until.is_set():
            return plain()
        tries += 1
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(plan_server, "ACCEPT_AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(server._listener, "accept", accept)
    began = time.monotonic()
    assert PlanClient(server.address, RUN, Lane.FAST).latest(0, 0.0) == 0  # the one that was accepted before
    while tries < 3:
        time.sleep(0.01)
    assert tries <= (time.monotonic() - began) / 0.05 + 1
    until.set()
    assert PlanClient(server.address, RUN, Lane.FAST).latest(0, 0.0) == 0
    assert caplog.text.count("no connection can be accepted") == 1
    server.close()


@pytest.mark.parametrize("which", ["plan-connection", "plan-handshake"])
def test_a_process_that_can_start_no_thread_lets_connections_go_and_serves_the_next_one(
    which: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = PlanServer(RUN)
    plain, refused = threading.Thread.start, 0

    def start(thread: threading.Thread) -> None:
        nonlocal refused
        if thread.name == which and refused < 3:
            refused += 1
            raise RuntimeError("can't start new thread")
        plain(thread)

    monkeypatch.setattr(plan_server, "ACCEPT_AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(threading.Thread, "start", start)
    for _ in range(3):
        with socket.create_connection((server.address.host, server.address.port), timeout=30) as refused_one:
            while refused_one.recv(1000):
                pass
    assert PlanClient(server.address, RUN, Lane.FAST).latest(0, 0.0) == 0
    assert refused == 3
    assert "can't start new thread" in caplog.text
    server.close()


def test_a_connection_that_says_nothing_keeps_nobody_else_waiting(server: PlanServer) -> None:
    address = server.address
    with socket.create_connection((address.host, address.port)), ThreadPoolExecutor(1) as pool:
        assert pool.submit(PlanClient(address, RUN, Lane.FAST).latest, 0, 0.0).result(timeout=30) == 0


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
    client = PlanClient(server.address, RUN, Lane.FAST)
    assert client.latest(0, 0.0) == 0
    connection = client._connection
    assert client.latest(0, 1.2) == 0
    assert client._connection is connection
    server.close()


def test_a_default_time_out_of_sockets_changes_nothing() -> None:
    socket.setdefaulttimeout(60.0)
    try:
        server = PlanServer(RUN)
        assert PlanClient(server.address, RUN, Lane.FAST).latest(0, 0.0) == 0
        server.close()
    finally:
        socket.setdefaulttimeout(None)


def test_a_process_with_a_wrong_key_is_refused(server: PlanServer) -> None:
    stranger = PlanClient(replace(server.address, key=b"wrong"), RUN, Lane.FAST)
    with pytest.raises(AuthenticationError):
        stranger.latest(0, 0.0)
    assert PlanClient(server.address, RUN, Lane.FAST).latest(0, 0.0) == 0


def test_the_file_with_the_key_is_its_users_alone(server: PlanServer, tmp_path: Path) -> None:
    path = tmp_path / "address"
    server.address.write(str(path))
    assert path.stat().st_mode & 0o777 == 0o600
    assert PlanAddress.read(str(path)) == server.address
    with pytest.raises(FileExistsError):  # nobody has put one there before us
        server.address.write(str(path))
