"""A site answers who may see it, with headers that keep others out, and errors as one line."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from offloader.errors import (
    AccessDeniedError,
    ConfigError,
    DamagedObjectError,
    FatalError,
    ObjectNotFoundError,
    OffloadError,
    StoreUnavailableError,
)
from offloader.pages import site as site_module
from offloader.pages.access import PageAccess
from offloader.pages.rendering import FILES, Renderer
from offloader.pages.site import Page, PageAnswer, PageRequest, Site
from tests.pages.calling import Page as Html
from tests.pages.calling import ask

STREAMS = 4

TOKEN = "a-token-that-nobody-guesses"


def site(access: PageAccess | None = None, **pages: Page) -> Site:
    paths = {f"/{name}": page for name, page in pages.items()}
    return Site({"/": lambda _: PageAnswer(b"hello"), **paths}, Renderer(), access or PageAccess())


def test_each_answer_keeps_others_out() -> None:
    for target in ("/", "/nothing", "/static/pages.css", "/static/../site.py", "/?" + "&".join("a" * 40)):
        headers = ask(site(), target).headers
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "unsafe" not in policy
        for part in ("form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'"):
            assert part in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] == "no-store"


def test_it_only_shows() -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        reply = ask(site(), "/", method)
        assert (reply.status, reply.headers["Allow"]) == (405, "GET, HEAD")
    head, get = ask(site(), "/", "HEAD"), ask(site(), "/")
    assert (head.status, head.body, head.headers) == (200, b"", get.headers)


@pytest.mark.parametrize("name", FILES)
def test_its_files(name: str) -> None:
    assert ask(site(), f"/static/{name}").status == 200


@pytest.mark.parametrize("name", ["", "..", "../site.py", "nothing.css", "%2e%2e/site.py"])
def test_it_has_no_other_files(name: str) -> None:
    assert ask(site(), f"/static/{name}").status == 404


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConfigError("bad"), 400),
        (FatalError("no such topic"), 404),
        (ObjectNotFoundError("no such object"), 404),
        (StoreUnavailableError("down"), 503),
        (AccessDeniedError("no"), 503),
        (DamagedObjectError("broken"), 503),
    ],
)
def test_an_error_is_one_line(error: OffloadError, status: int) -> None:
    def fail(_: PageRequest) -> PageAnswer:
        raise error

    reply = ask(site(fail=fail), "/fail")
    assert reply.status == status
    assert str(error) in Html(reply.text).text
    assert "Traceback" not in reply.text


def test_others_see_nothing() -> None:
    reply = ask(site(), "/", HTTP_HOST="evil.example")
    assert (reply.status, b"hello" in reply.body) == (403, False)
    assert ask(site(), "/", REMOTE_ADDR="10.1.1.1").status == 403


def test_a_token_is_asked_for_and_becomes_a_cookie() -> None:
    locked = site(PageAccess(TOKEN))
    asked = ask(locked, "/?a=b")
    assert (asked.status, asked.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert ("input", {"name": "then", "type": "hidden", "value": "/?a=b"}) in Html(asked.text).elements
    wrong = ask(locked, "/sign-in", "POST", b"token=wrong&then=/")
    assert (wrong.status, "Set-Cookie" in wrong.headers) == (401, False)
    right = ask(locked, "/sign-in", "POST", f"token={TOKEN}&then={quote('/?a=b')}".encode())
    assert (right.status, right.headers["Location"]) == (303, "/?a=b")
    cookie, *rules = right.headers["Set-Cookie"].split("; ")
    assert rules == ["Path=/", "HttpOnly", "SameSite=Strict"]
    assert TOKEN not in cookie
    assert ask(locked, "/?a=b", HTTP_COOKIE=cookie).body == b"hello"
    assert ask(locked, "/", HTTP_AUTHORIZATION=f"Bearer {TOKEN}").body == b"hello"
    secured = ask(locked, "/sign-in", "POST", f"token={TOKEN}".encode(), HTTP_X_FORWARDED_PROTO="https")
    assert secured.headers["Set-Cookie"].endswith("; Secure")


def test_a_token_in_the_address_does_not_stay_there() -> None:
    reply = ask(site(PageAccess(TOKEN)), f"/?a=b&token={TOKEN}")
    assert (reply.status, reply.headers["Location"]) == (303, "/?a=b")
    assert ask(site(PageAccess(TOKEN)), "/?token=wrong").status == 401
    for path, then in (("//evil.example/", "/"), ("/a\r\nB: c", "/a%0D%0AB%3A%20c")):
        assert ask(site(PageAccess(TOKEN)), f"{path}?token={TOKEN}").headers["Location"] == then


@pytest.mark.parametrize("name", ["path", "self", "", "query"])
def test_an_address_may_name_its_fields_as_it_likes(name: str) -> None:
    asked = ask(site(PageAccess(TOKEN)), f"/?{name}=b")
    assert asked.status == 401
    assert ("input", {"name": "then", "type": "hidden", "value": f"/?{name}=b"}) in Html(asked.text).elements


@pytest.mark.parametrize("then", ["//evil.example", "https://evil.example", "/\\evil.example", "x", "/a\r\nB: c", "%"])
def test_signing_in_leads_nowhere_else(then: str) -> None:
    reply = ask(site(PageAccess(TOKEN)), "/sign-in", "POST", f"token={TOKEN}&then={quote(then)}".encode())
    assert reply.headers["Location"] == "/"


def test_a_form_that_is_none_is_refused() -> None:
    for body in (b"x" * 5000, b"&".join([b"a=b"] * 40)):
        assert ask(site(PageAccess(TOKEN)), "/sign-in", "POST", body).status == 400
    assert ask(site(PageAccess(TOKEN)), "/sign-in", "POST", b"token=\xff%ff%zz").status == 401
    for length in ("0" * 9 + "9" * 12, "1" * 4_000):
        assert ask(site(PageAccess(TOKEN)), "/sign-in", "POST", CONTENT_LENGTH=length).status == 400
    assert ask(site(), "/sign-in", "POST", b"token=").status in (404, 405)


def test_its_files_need_no_token_and_nothing_else_goes_without() -> None:
    locked = site(PageAccess(TOKEN))
    assert ask(locked, "/static/pages.css").status == 200
    for path in ("/", "/nothing"):
        assert ask(locked, path).status == 401


def test_no_log_has_the_token(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        ask(site(PageAccess(TOKEN)), f"/?token={TOKEN}")
        ask(site(PageAccess(TOKEN)), "/sign-in", "POST", f"token={TOKEN}".encode())
    assert TOKEN not in caplog.text


def test_a_download_is_saved_under_a_safe_name() -> None:
    def give(_: PageRequest) -> PageAnswer:
        return PageAnswer.download(iter([b"a", b"b"]), '../../x"\r\ny/…<b>.html')

    reply = ask(site(give=give), "/give")
    assert reply.body == b"ab"
    assert reply.headers["Content-Disposition"] == 'attachment; filename="x___y___b_.html"'
    assert reply.headers["Content-Type"] == "application/octet-stream"
    assert PageAnswer.download(b"", "…").headers[0][1] == 'attachment; filename="download"'


def test_downloads_are_few_at_a_time_and_each_is_closed() -> None:
    closed: list[int] = []

    def give(_: PageRequest) -> PageAnswer:
        def body() -> Iterator[bytes]:
            try:
                yield from (b"a", b"b")
            finally:
                closed.append(1)

        return PageAnswer.download(body(), "x")

    served = site(give=give)
    for _ in range(STREAMS + 1):
        assert ask(served, "/give").status == 200
    assert len(closed) == STREAMS + 1
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/give", "HTTP_HOST": "localhost", "REMOTE_ADDR": "127.0.0.1"}
    under_way = [served(dict(environ), lambda *_: None) for _ in range(STREAMS)]
    assert ask(served, "/give").status == 503
    assert ask(served, "/").status == 200
    for one in under_way:
        one.close()  # type: ignore[attr-defined]
    assert ask(served, "/give").status == 200
    assert ask(served, "/give", "HEAD").status == 200


def test_pages_at_work_are_few_and_one_that_hangs_holds_up_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_module, "WAIT_SECONDS", 0.0)
    hanging, begun = threading.Event(), threading.Semaphore(0)

    def hang(_: PageRequest) -> PageAnswer:
        begun.release()
        hanging.wait()
        return PageAnswer(b"")

    served = site(hang=hang)
    threads = [threading.Thread(target=ask, args=(served, "/hang")) for _ in range(site_module.AT_ONCE)]
    for thread in threads:
        thread.start()
    for _ in threads:
        begun.acquire()
    assert ask(served, "/").status == 503
    assert ask(served, "/static/pages.css").status == 200
    hanging.set()
    for thread in threads:
        thread.join()
    assert ask(served, "/").status == 200


@pytest.mark.parametrize("text", ["-1", "x", "1.5", "٣", "9" * 40, "11"])
def test_a_number_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^page: "):
        PageRequest("/", {"page": text}).number("page", most=10)
    assert PageRequest("/", {"page": " 7 "}).number("page", most=10) == 7
    assert PageRequest("/").number("page", 3) == 3
