"""An HTTP proxy in front of a store that loses answers, cuts bodies short, and answers in the store's place."""

from __future__ import annotations

import http.client
import json
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

Say = Callable[[int, str], tuple[dict[str, str], bytes]]


def xml_error(status: int, code: str) -> tuple[dict[str, str], bytes]:
    """Headers and body of S3's errors."""
    body = f"<Error><Code>{code}</Code><Message>in the store's place</Message></Error>".encode()
    return {"Content-Type": "application/xml"}, body


def json_error(status: int, code: str) -> tuple[dict[str, str], bytes]:
    """Headers and body of Google's errors."""
    said = {"code": status, "message": "in the store's place", "errors": [{"reason": code}]}
    return {"Content-Type": "application/json"}, json.dumps({"error": said}).encode()


def json_as_told(status: int, code: str) -> tuple[dict[str, str], bytes]:
    """A body that the test has written: `code` is JSON."""
    return {"Content-Type": "application/json"}, code.encode()


@dataclass
class Rule:
    """One thing that goes wrong with `times` requests, after `after` that match have passed.

    `matches(method, path)` says with which. Without more the request is forwarded, and its answer is lost.
    `cut`: only so many bytes of the answer's body arrive. `status` and `code`: answered so, not forwarded; `empty`:
    without a body.
    `damaged`: a byte of the request's body, or of the answer's where that has none, is changed on the way.
    `unsent`: the connection is closed and nothing is forwarded. `header`: only those that have it.
    `without`: forwarded without this header, and answered. `answered`: forwarded, and the answer has these headers
    in place of its own (an empty value: it has none).
    """

    matches: Callable[[str, str], bool]
    times: int = 1
    after: int = 0
    cut: int | None = None
    status: int | None = None
    code: str = ""
    empty: bool = False
    unsent: bool = False
    damaged: bool = False
    header: str = ""
    without: str = ""
    answered: Mapping[str, str] = field(default_factory=dict)


class Proxy:
    """Forwards to `host:port` of a server on this machine; `say` makes the refusals of its service. A context manager;
    its end closes all connections.

    `elsewhere`: addresses, `host:port`, that the server sends clients to, and where they go instead.
    """

    def __init__(self, host: str, port: int, say: Say = xml_error, elsewhere: Mapping[str, str] | None = None) -> None:
        self.say = say
        self.requests: list[tuple[str, str]] = []
        self._upstream = (host, port)
        self._elsewhere = elsewhere or {}
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="store-proxy")
        self.port = int(self._server.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.hang_up()
        self._server.server_close()
        self._thread.join()

    def add(self, rule: Rule) -> Rule:
        """Let one more thing go wrong; the rule's `times` counts down."""
        with self._lock:
            self._rules.append(rule)
        return rule

    def next_rule(self, method: str, path: str, headers: Message) -> Rule | None:
        """Record a request; what goes wrong with it."""
        with self._lock:
            self.requests.append((method, path))
            for rule in self._rules:
                if rule.times <= 0 or not rule.matches(method, path) or (rule.header and rule.header not in headers):
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
            return (
                answer.status,
                [(name, self._sent_on(name, value)) for name, value in answer.getheaders()],
                answer.read(),
            )
        finally:
            connection.close()

    def _sent_on(self, name: str, value: str) -> str:
        for here, there in self._elsewhere.items() if name.lower() == "location" else ():
            value = value.replace(f"//{here}/", f"//{there}/")
        return value


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 64

    def __init__(self, proxy: Proxy) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.proxy = proxy
        self._open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for a new connection."""
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """The end of a connection."""
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is no error of ours."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def hang_up(self) -> None:
        """Let the threads of idle connections come to their end."""
        for connection in list(self._open):
            with suppress(OSError):  # it ends by itself at this moment
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer is sent at once: in two pieces it would wait for an acknowledgement
    server: _Server

    def handle_any(self) -> None:
        """One request: its body is read first, so that the client is never stopped while it sends."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        rule = self.server.proxy.next_rule(self.command, self.path, self.headers)
        if rule is not None and rule.status is not None:
            said, error = self.server.proxy.say(rule.status, rule.code)
            error = b"" if rule.empty else error
            self._answer(rule.status, [*said.items(), ("Content-Length", str(len(error)))], error)
            return
        if rule is not None and rule.unsent:
            self._hang_up()
            return
        if rule is not None and rule.damaged:
            body = _damaged(body)
        if rule is not None and rule.without:
            del self.headers[rule.without]
        status, headers, answer = self.server.proxy.forward(self.command, self.path, self.headers, body)
        if rule is not None and rule.answered:
            headers = [pair for pair in headers if pair[0].lower() not in rule.answered]
            headers += [(name, value) for name, value in rule.answered.items() if value]
        if rule is None or rule.without or rule.answered:
            self._answer(status, headers, answer)
        elif rule.damaged:
            self._answer(status, headers, answer if body else _damaged(answer))
        elif rule.cut is None:
            self._hang_up()
        else:
            self._answer(status, headers, answer[: rule.cut])
            self._hang_up()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any  # noqa: N815 (the base class looks for these names)

    def handle_expect_100(self) -> bool:
        """The client waits for this before it sends a body."""
        expected = super().handle_expect_100()
        self.wfile.flush()
        return expected

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("connection", "transfer-encoding"):
                self.send_header(name, value)
        if not any(name.lower() == "content-length" for name, _ in headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _hang_up(self) -> None:
        # Without shutdown the connection would stay open as long as this thread's files refer to it.
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class names it so)
        """Say nothing."""


def _damaged(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1]) if data else data
