"""A small HTTP server: a thread for each connection, so many at most, and none for longer than a request may take."""

from __future__ import annotations

import io
import logging
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from http import HTTPStatus
from socketserver import TCPServer, ThreadingMixIn
from typing import IO, TYPE_CHECKING, Any, cast
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler, WSGIServer

from offloader.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import OptExcInfo, WriteableBuffer

log = logging.getLogger(__name__)

WsgiApplication = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

SHUTDOWN_POLL = 0.05
MOST_CONNECTIONS = 128
MOST_OF_ONE = 64  # from one address, so that nobody alone keeps probes and scrapers out
HEAD_SECONDS = 10.0  # for a whole request, however it trickles in
WRITE_SECONDS = 10.0  # for each piece of an answer

BUSY = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n"


class WebServer:
    """Serves from a thread of its own until closed. Port 0: any free one. Raises ConfigError when it cannot listen.

    `setting`: who chose the port, and `instead` what may be chosen in its place."""

    def __init__(self, application: WsgiApplication, host: str, port: int, *, setting: str, instead: str) -> None:
        try:
            self._server = (_Server6 if ":" in host else _Server)((host, port), _Handler)
        except OSError as error:
            raise ConfigError(f"{setting}: cannot listen on {host}:{port} ({error.strerror}); {instead}") from error
        self._server.set_app(application)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(SHUTDOWN_POLL,), name="web", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self._server.server_address[:2]
        text = str(host)
        return f"http://[{text}]:{port}" if ":" in text else f"http://{text}:{port}"

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = MOST_CONNECTIONS  # connections that wait: with 5, a probe waits a second behind a burst

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._open: Counter[str] = Counter()  # connections, by address
        self._counting = threading.Lock()

    def server_bind(self) -> None:
        """Without HTTPServer's look-up of our own name, which can hang where DNS does."""
        TCPServer.server_bind(self)
        host, port = self.server_address[:2]
        self.server_name, self.server_port = str(host), int(port)
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread of its own, while there are not too many."""
        if self._let_in(client_address[0]):
            try:
                super().process_request(request, client_address)
            except RuntimeError:  # the machine has no more threads
                self._left(client_address[0])
                raise
            return
        request.settimeout(0)
        try:
            request.send(BUSY)
        except OSError as error:
            log.debug("one connection too many: %s", error)
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Whatever becomes of it, the next one may come then."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._left(client_address[0])

    def _let_in(self, address: str) -> bool:
        with self._counting:
            free = self._open.total() < MOST_CONNECTIONS and self._open[address] < MOST_OF_ONE
            if free:
                self._open[address] += 1
            return free

    def _left(self, address: str) -> None:
        with self._counting:
            self._open[address] -= 1
            if not self._open[address]:
                del self._open[address]

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 (the base class's)
        """A client that went away, or was too slow; what our own code raises never comes here."""
        log.debug("a connection ended early: %s", sys.exc_info()[1])


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Incoming(io.RawIOBase):
    """What a client sends, up to a moment."""

    def __init__(self, connection: socket.socket, until: float) -> None:
        self._connection = connection
        self._until = until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request took too long")
        self._connection.settimeout(left)
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(WRITE_SECONDS)


class _Handler(WSGIRequestHandler):
    timeout = WRITE_SECONDS
    path = ""  # until it is known
    error_message_format = "%(code)d %(message)s\n"
    error_content_type = "text/plain; charset=utf-8"

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_Incoming(self.connection, time.monotonic() + HEAD_SECONDS))

    def handle(self) -> None:
        """As the base class does, but for what becomes of errors."""
        self.raw_requestline = self.rfile.readline(65537)
        if len(self.raw_requestline) > 65536:
            self.requestline, self.request_version, self.command = "", "HTTP/1.0", ""
            self.send_error(HTTPStatus.REQUEST_URI_TOO_LONG)
            return
        if not self.parse_request():
            return
        incoming, outgoing = cast("IO[bytes]", self.rfile), cast("IO[bytes]", self.wfile)
        answering = _Answering(incoming, outgoing, self.get_stderr(), self.get_environ(), multithread=True)
        answering.request_handler = self  # type: ignore[attr-defined]
        answering.run(self.server.get_app())  # type: ignore[attr-defined]

    def address_string(self) -> str:
        """Never by a look-up of its name."""
        return str(self.client_address[0])

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:  # noqa: ARG002 (the base class's)
        log.debug("%s %s: %s", self.command, self.path.partition("?")[0], code)  # a query may hold a token

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ARG002 (the base class's names)
        log.debug("a request that is none")


class _Answering(ServerHandler):
    server_software = "offloader"
    error_headers = [("Content-Type", "text/plain; charset=utf-8"), ("X-Content-Type-Options", "nosniff")]
    error_body = b"500: this page has a defect; the log says which\n"

    def log_exception(self, exc_info: OptExcInfo) -> None:
        """Whoever goes away while we answer is no defect."""
        if isinstance(exc_info[1], ConnectionError | TimeoutError):
            log.debug("a client went away, or reads too slowly: %s", exc_info[1])
        else:
            log.error("a page failed", exc_info=exc_info, extra={"see": "page-failed"})
