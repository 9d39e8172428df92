"""What tests of others ask of Pulsar's admin REST: namespaces, topics, partitions, an unload, a stored message."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import httpx

from offloader.model import TopicName
from tests.gateway.writable.source import WritableSource

_NAMESPACE = re.compile(r"/admin/v2/namespaces/[^/]+/[^/]+")
_TOPIC = re.compile(r"/admin/v2/persistent/([^/]+/[^/]+/[^/]+)(?:/(.*))?")
_ENTRY = re.compile(r"ledger/(\d+)/entry/(\d+)")


class Answer(NamedTuple):
    status: int
    body: bytes = b""
    message: str = ""


PATIENCE = 60.0  # seconds, for hanging
NOT_THERE = Answer(404)
DONE = Answer(204)


class Administration:
    """`moved`: is told of topics whose consumers must look them up again. From any thread."""

    def __init__(self, source: WritableSource, moved: Callable[[TopicName], None]) -> None:
        self._source = source
        self._moved = moved

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        if _NAMESPACE.fullmatch(path):
            return DONE
        found = _TOPIC.fullmatch(path)
        if found is None:
            return NOT_THERE
        return self._of_topic(method, TopicName.parse(unquote(found[1])), found[2] or "", body)

    def _of_topic(self, method: str, topic: TopicName, what: str, body: bytes) -> Answer:
        if entry := _ENTRY.fullmatch(what):
            return self._message(topic, int(entry[1]), int(entry[2]))
        match method, what:
            case "PUT", "":
                self._source.create(topic)
            case (("PUT" | "POST"), "partitions"):
                self._source.create_partitions(topic, _partitions(body))
            case "DELETE", ("" | "partitions"):
                for gone in self._source.delete(topic):
                    self._moved(gone)
            case "PUT", "unload":
                self._source.new_ledger(topic)
                self._moved(topic)
            case _:
                return NOT_THERE
        return DONE

    def _message(self, topic: TopicName, ledger: int, entry: int) -> Answer:
        """The whole entry: nobody looks into it."""
        found = self._source.entry(topic, (ledger, entry))
        return NOT_THERE if found is None else Answer(200, bytes(found.data), f"{ledger}:{entry}")


def _partitions(body: bytes) -> int:
    """Old clients send the number, new ones the topic's metadata."""
    said = json.loads(body)
    return int(said["partitions"] if isinstance(said, dict) else said)


@contextmanager
def serving(administration: Administration, elsewhere: str, port: int) -> Iterator[str]:
    """Its address. `port` 0: any. `elsewhere`: where everything else is asked for, the gateway's own HTTP."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            """Nobody reads it."""

        def _do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            found = administration.answer(self.command, urlsplit(self.path).path, body)
            if found == NOT_THERE:
                there = httpx.request(self.command, f"{elsewhere}{self.path}", timeout=PATIENCE)
                found = Answer(there.status_code, there.content)
            self.send_response(found.status)
            self.send_header("Content-Length", str(len(found.body)))
            if found.message:
                self.send_header("X-Pulsar-Message-ID", found.message)
            self.end_headers()
            self.wfile.write(found.body)

        do_GET = do_PUT = do_POST = do_DELETE = _do  # noqa: N815 (the library's names)

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
