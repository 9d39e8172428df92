"""Asks a WSGI application, and reads HTML as a browser does."""

from __future__ import annotations

import io
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any
from wsgiref.validate import validator

from offloader.pages.server import WsgiApplication

VOID = {"meta", "link", "input", "br", "img", "hr"}


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


def ask(application: WsgiApplication, target: str, method: str = "GET", body: bytes = b"", **environ: str) -> Reply:
    """A request of this machine's, unless `environ` says otherwise; WSGI's rules are checked."""
    path, _, query = target.partition("?")
    started: list[tuple[int, dict[str, str]]] = []

    def start_response(status: str, headers: list[tuple[str, str]], _exc_info: Any = None) -> Any:
        started.append((int(status[:3]), dict(headers)))

    given: dict[str, Any] = {
        "REQUEST_METHOD": method,
        "SCRIPT_NAME": "",
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": "localhost:80",
        "REMOTE_ADDR": "127.0.0.1",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        **environ,
    }
    answer = validator(application)(given, start_response)
    try:
        data = b"".join(answer)
        status, headers = started[0]
        return Reply(status, headers, data)
    finally:
        close = getattr(answer, "close", None)
        assert close is not None, "the validator's answer"
        close()


class Page(HTMLParser):
    """What a document has: its elements, and the text of those whose `id` is asked for."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.by_id: dict[str, str] = {}
        self._open: list[tuple[str, str | None]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.elements.append((tag, found))
        if tag not in VOID:
            self._open.append((tag, found.get("id")))

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop()[0] == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        for _, name in self._open:
            if name:
                self.by_id[name] = self.by_id.get(name, "") + data

    @property
    def tags(self) -> list[str]:
        return [tag for tag, _ in self.elements]

    @property
    def text(self) -> str:
        return "".join(self.texts)
