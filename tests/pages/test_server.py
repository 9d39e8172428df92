"""A server of threads: many at most, none for ever."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import httpx
import pytest

from offloader.pages import server as server_module
from offloader.pages.server import WebServer


def hello(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    if environ["PATH_INFO"] == "/defect":
        raise ValueError("a defect")
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "5")])
    return [b"hello"]


@pytest.fixture
def server() -> Iterator[WebServer]:
    found = WebServer(hello, "127.0.0.1", 0, setting="--listen", instead="choose another")
    yield found
    found.close()


def connected(server: WebServer, own: tuple[str, int] | None = None) -> socket.socket:
    host, port = re.fullmatch(r"http://(.*):(\d+)", server.url).groups()
    return socket.create_connection((host, int(port)), source_address=own)


def get(server: WebServer, path: str = "/") -> httpx.Response:
    return httpx.get(server.url + path, trust_env=False, timeout=60)


def test_who_says_nothing_or_little_holds_up_nobody_and_is_let_go(
    server: WebServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(server_module, "HEAD_SECONDS", 0.2)
    with connected(server) as silent, connected(server) as slow:
        slow.sendall(b"GET / HT")
        assert get(server).text == "hello"
        assert silent.recv(10) == b""
        assert slow.recv(10) == b""
    assert capfd.readouterr().err == ""


def test_one_connection_too_many_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MOST_CONNECTIONS", 2)
    server = WebServer(hello, "127.0.0.1", 0, setting="--listen", instead="choose another")
    try:
        with connected(server), connected(server), connected(server) as refused:
            assert refused.recv(100).startswith(b"HTTP/1.0 503 ")
    finally:
        server.close()


def test_one_address_alone_keeps_no_other_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MOST_OF_ONE", 1)
    server = WebServer(hello, "127.0.0.1", 0, setting="--listen", instead="choose another")
    try:
        with connected(server), connected(server) as refused:
            assert refused.recv(100).startswith(b"HTTP/1.0 503 ")
            with connected(server, ("127.0.0.2", 0)) as other:
                other.sendall(b"GET / HTTP/1.0\r\n\r\n")
                assert other.recv(100).startswith(b"HTTP/1.0 200 ")
    finally:
        server.close()


def test_what_is_no_request_is_told_so(server: WebServer) -> None:
    for said in (b"nonsense\r\n\r\n", b"GET / HTTP/9.9.9\r\n\r\n", b"GET /" + b"x" * 70000 + b"\r\n"):
        with connected(server) as connection:
            connection.sendall(said)
            assert re.search(rb"(400|414|505) ", connection.recv(1000))
    assert get(server).text == "hello"


def test_a_defect_is_logged_and_not_shown(server: WebServer, caplog: pytest.LogCaptureFixture) -> None:
    reply = get(server, "/defect?token=secret")
    assert (reply.status_code, reply.text) == (500, "500: this page has a defect; the log says which\n")
    record = next(record for record in caplog.records if record.levelno == logging.ERROR)
    assert vars(record)["see"] == "page-failed"


def test_no_log_has_what_an_address_asks(server: WebServer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        get(server, "/?token=secret")
        with connected(server) as connection:
            connection.sendall(b"GET /?token=secret NONSENSE\r\n\r\n")
            connection.recv(1000)
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("offloader.")]
    assert ours
    assert "secret" not in "".join(ours)


def test_a_burst_of_connections_is_answered_without_a_second_try(server: WebServer) -> None:
    """A connection that finds the queue full is tried again by the kernel after a second."""
    server._server.shutdown()  # nobody accepts
    burst = [connected_at_once(server) for _ in range(60)]
    assert all(burst)


def connected_at_once(server: WebServer) -> bool:
    host, port = re.fullmatch(r"http://(.*):(\d+)", server.url).groups()
    with socket.socket() as client:
        client.settimeout(0.5)
        return client.connect_ex((host, int(port))) == 0
