"""The HTTP endpoint: `/metrics`, `/healthz`, `/readyz`."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from socketserver import TCPServer, ThreadingMixIn
from types import MappingProxyType
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from offloader.errors import ConfigError
from offloader.metrics.health import Health, ProbeAnswer

log = logging.getLogger(__name__)

WsgiApplication = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

SHUTDOWN_POLL = 0.05
NO_PAGES: Mapping[str, Callable[[], Any]] = MappingProxyType({})


class MetricsServer:
    """Serves from a thread of its own until closed. Port 0: any free one. Raises ConfigError when it cannot listen.

    `pages`: JSON of further paths. `setting`: who chose the port, and what may be chosen in its place."""

    def __init__(
        self,
        registry: CollectorRegistry,
        health: Health,
        host: str,
        port: int,
        *,
        pages: Mapping[str, Callable[[], Any]] = NO_PAGES,
        setting: str = "metrics.port",
        instead: str = "choose another, or 0",
    ) -> None:
        try:
            self._server = _listen(host, port)
        except OSError as error:
            raise ConfigError(f"{setting}: cannot listen on {host}:{port} ({error.strerror}); {instead}") from error
        self._server.set_app(router(registry, health, pages))
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(SHUTDOWN_POLL,), name="metrics", daemon=True
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


def router(
    registry: CollectorRegistry, health: Health, pages: Mapping[str, Callable[[], Any]] = NO_PAGES
) -> WsgiApplication:
    """The WSGI application of the three pages, and of others."""
    metrics: WsgiApplication = make_wsgi_app(registry)
    probes = {"/healthz": health.alive, "/readyz": health.ready}

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return _answer(start_response, "405 Method Not Allowed", "only GET")
        if path == "/metrics":
            return metrics(environ, start_response)
        if path in probes:
            return _probe(start_response, probes[path]())
        if path in pages:
            return _answer(start_response, "200 OK", json.dumps(pages[path]()), "application/json")
        there = ", ".join(("/metrics", *pages, "/healthz"))
        return _answer(start_response, "404 Not Found", f"there are {there} and /readyz")

    return application


def _probe(start_response: Callable[..., Any], verdict: ProbeAnswer) -> list[bytes]:
    return _answer(start_response, "200 OK" if verdict.good else "503 Service Unavailable", verdict.text)


def _answer(
    start_response: Callable[..., Any], status: str, text: str, kind: str = "text/plain; charset=utf-8"
) -> list[bytes]:
    body = f"{text}\n".encode()
    start_response(status, [("Content-Type", kind), ("Content-Length", str(len(body)))])
    return [body]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """Without HTTPServer's look-up of our own name, which can hang where DNS does."""
        TCPServer.server_bind(self)
        host, port = self.server_address[:2]
        self.server_name, self.server_port = str(host), int(port)
        self.setup_environ()


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = 10  # a client that says nothing does not keep its thread

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class's name)
        log.debug(format, *args)


def _listen(host: str, port: int) -> _Server:
    server = _Server6 if ":" in host else _Server
    return server((host, port), _Handler)
