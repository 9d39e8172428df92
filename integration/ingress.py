"""A small HTTP proxy before a Pulsar's admin port, which does as it likes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

import httpx

Answer = tuple[int, str, str] | None
"""Status, content type, body; None: what Pulsar answers."""


class Ingress(AbstractContextManager["Ingress"]):
    """`answer` says of a path below /admin/v2/ what it gets instead of Pulsar's answer."""

    def __init__(self, admin_url: str) -> None:
        self.answer: Callable[[str], Answer] = lambda _: None
        self._pulsar = httpx.Client(base_url=admin_url, timeout=30.0)
        ingress = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                given = ingress.answer(self.path.removeprefix("/admin/v2/").partition("?")[0])
                if given is None:
                    answer = ingress._pulsar.request(self.command, self.path)
                    given = answer.status_code, answer.headers.get("Content-Type", ""), answer.text
                status, kind, body = given
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body.encode())))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body.encode())

            do_HEAD = do_GET  # noqa: N815

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._pulsar.close()


def default_backend(path: str) -> Answer:
    """An ingress that does not know where to send it."""
    return 404, "text/plain", "default backend - 404"


def empty_pulsar(path: str) -> Answer:
    """Another healthy Pulsar of the same name, with the same namespaces and without a topic."""
    if path == "brokers/configuration/runtime":
        return 200, "application/json", json.dumps({"clusterName": "standalone"})
    if path.startswith("persistent/") and path.count("/") > 2:
        return 404, "application/json", json.dumps({"reason": "Topic not found"})
    return (200, "application/json", "[]") if path.startswith("persistent/") else None
