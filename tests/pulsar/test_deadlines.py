"""The bound on a whole call, where its host has many addresses."""

from __future__ import annotations

import socket
from typing import Any

import httpcore
import pytest

from offloader.pulsar.rest import Deadlines

ADDRESSES = [f"10.0.0.{n}" for n in range(1, 11)]  # as a headless service has them


class Silent(httpcore.NetworkBackend):
    """Nobody answers at any address but one; time goes on while that is waited for."""

    def __init__(self, answers: str = "") -> None:
        self.now = 0.0
        self.asked: list[str] = []
        self._answers = answers

    def connect_tcp(self, host: str, port: int, timeout: float | None = None, *_: Any) -> httpcore.NetworkStream:
        for found in socket.getaddrinfo(host, port):  # as socket.create_connection
            address = found[4][0]
            self.asked.append(str(address))
            if address == self._answers:
                return httpcore.MockStream([])
            assert timeout is not None
            self.now += timeout
        raise httpcore.ConnectTimeout


@pytest.fixture
def _many_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(host: str, port: int, *_: Any, **__: Any) -> list[tuple[Any, ...]]:
        each = ADDRESSES if host == "brokers" else [host]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in each]

    monkeypatch.setattr(socket, "getaddrinfo", found)


@pytest.mark.usefixtures("_many_addresses")
def test_a_host_with_many_addresses_of_which_none_answers_takes_no_longer_than_a_call_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    silent = Silent()
    monkeypatch.setattr("offloader.pulsar.rest.time.monotonic", lambda: silent.now)
    deadlines = Deadlines(silent)
    with deadlines.within(30), pytest.raises(httpcore.ConnectTimeout):
        deadlines.connect_tcp("brokers", 8080, 10)
    assert silent.now <= 30
    assert silent.asked == ADDRESSES[:3]


@pytest.mark.usefixtures("_many_addresses")
def test_the_next_address_is_tried_in_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = Silent(ADDRESSES[2])
    monkeypatch.setattr("offloader.pulsar.rest.time.monotonic", lambda: silent.now)
    deadlines = Deadlines(silent)
    with deadlines.within(30):
        deadlines.connect_tcp("brokers", 8080, 10)
    assert silent.asked == ADDRESSES[:3]


def test_a_host_that_is_not_known_is_an_error_of_connecting() -> None:
    with pytest.raises(httpcore.ConnectError):
        Deadlines(httpcore.SyncBackend()).connect_tcp("not.known.invalid", 8080, 1)
