"""A bookie's HTTP end points over a socket."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from offloader.bookkeeper import bookie_http
from offloader.bookkeeper.bookie_http import BookieHttp, parse_http_url
from offloader.errors import BookieUnavailableError, FatalError


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        status, body = {
            "/api/x?a=b": (200, b"{}"),
            "/redirect": (302, b""),
            "/large": (200, bytes(100)),
        }.get(self.path, (404, b"no"))
        self.send_response(status)
        self.send_header("Location", "http://elsewhere/")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def url():
    server = HTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_what_is_there_is_read(url):
    assert BookieHttp(f"{url}/", 5).get("/api/x?a=b") == b"{}"


@pytest.mark.parametrize("path", ["/none", "/redirect"])
def test_any_other_status_is_refused_and_no_redirect_followed(url, path):
    with pytest.raises(FatalError, match=r"answers (404|302)"):
        BookieHttp(url, 5).get(path)


def test_an_answer_has_a_bound(url, monkeypatch):
    monkeypatch.setattr(bookie_http, "LARGEST_ANSWER", 99)
    with pytest.raises(FatalError, match="more than 99 bytes"):
        BookieHttp(url, 5).get("/large")


def test_nobody_there():
    with pytest.raises(BookieUnavailableError, match="does not answer"):
        BookieHttp("http://127.0.0.1:9", 1).get("/x")


@pytest.mark.parametrize(
    "text", ["b1:8000", "ftp://b1", "http://", "http://b1:99999", "http://u:p@b1:8000", "http://b?x"]
)
def test_what_is_no_address(text):
    with pytest.raises(ValueError, match=r"bookie|port|Port"):
        parse_http_url(text)
    assert parse_http_url("https://[::1]:8000") == "https://[::1]:8000"
