"""An HTTP proxy before a store that loses answers, cuts bodies short, and answers in the store's place."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

# A connection that its client has left open does not keep `close` waiting for longer.
IDLE_SECONDS = 2.0


@dataclass
class Rule:
    """One thing that goes wrong with `times` requests, after `after` that match have passed.

    `matches(method, path)` says with which. Without more the request is forwarded, and its answer is lost.
    `cut`: only so many bytes of the answer's body arrive. `status` and `code`: answered so, not forwarded.
    `unsent`: the connection is closed and nothing is forwarded.
    """

    matches: Callable[[str, str], bool]
    times: int = 1
    after: int = 0
    cut: int | None = None
    status: int | None = None
    code: str = ""
    unsent: bool = False


class Proxy:
    """Forwards to `host:port` of a server on this machine. A context manager; close clients first."""

    def __init__(self, host: str, port: int) -> None:
        self.requests: list[tuple[str, str]] = []
        self._upstream = (host, port)
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="store-proxy")
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def add(self, rule: Rule) -> Rule:
        """Let one more thing go wrong; the rule's `times` counts down."""
        with self._lock:
            self._rules.append(rule)
        return rule

    def next_rule(self, method: str, path: str) -> Rule | None:
        """Record a request; what goes wrong with it."""
        with self._lock:
            self.requests.append((method, path))
            for rule in self._rules:
                if rule.times <= 0 or not rule.matches(method, path):
                    continue
                if rule.after > 0:
                    rule.after -= 1
                    continue
                rule.times -= 1
                return rule
        return None

    def forward(self, method: str, path: str, headers: Any, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        """Ask the server; its status, headers and body."""
        connection = http.client.HTTPConnection(*self._upstream, timeout=60)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                if name.lower() not in ("expect", "connection"):
                    connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = IDLE_SECONDS

            def handle_one_request(self) -> None:
                self.proxied = False
                super().handle_one_request()

            def log_message(self, format: str, *args: Any) -> None:
                """Silent."""

        return Handler
