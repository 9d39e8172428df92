"""The WSGI application of pages: paths, and what answers them, behind a `PageAccess`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from offloader.errors import (
    AccessDeniedError,
    ConfigError,
    FatalError,
    FormatVersionError,
    IntegrityError,
    ObjectNotFoundError,
    OffloadError,
    RemovedFeatureError,
    RetryableError,
)
from offloader.pages.access import Allowance, PageAccess
from offloader.pages.rendering import FILES, Renderer, static_file, url

log = logging.getLogger(__name__)

AT_ONCE = 8  # requests at work; the others wait
WAIT_SECONDS = 5.0
STREAMS = 4  # downloads at the same time
PIECE = 64 * 1024
MOST_FORM = 4096
MOST_FIELDS = 30

HTML = "text/html; charset=utf-8"
SIGN_IN = "/sign-in"
STATIC = "/static/"
HEADERS = (
    (
        "Content-Security-Policy",
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; form-action 'self'; "
        "frame-ancestors 'none'; base-uri 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


@dataclass(frozen=True, slots=True)
class PageRequest:
    """What is asked for. `query`: of each name the last value."""

    path: str
    query: Mapping[str, str] = field(default_factory=dict)

    def get(self, name: str) -> str:
        """A value of the query, without the spaces around it; "" where there is none."""
        return self.query.get(name, "").strip()

    def number(self, name: str, default: int = 0, most: int = 2**63 - 1) -> int:
        """A natural number of the query. Raises ConfigError."""
        text = self.get(name)
        if not text:
            return default
        if not (text.isascii() and text.isdecimal() and len(text) <= 19 and int(text) <= most):
            raise ConfigError(f"{name}: {text!r} is not a number from 0 to {most}")
        return int(text)


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """What is sent. A body of bytes is complete; an iterator's is sent as it comes, and closed."""

    body: bytes | Iterator[bytes]
    status: HTTPStatus = HTTPStatus.OK
    kind: str = HTML
    headers: Sequence[tuple[str, str]] = ()

    @classmethod
    def download(cls, body: bytes | Iterator[bytes], name: str, kind: str = "application/octet-stream") -> PageAnswer:
        """To be saved, never shown. `name` becomes a safe file name."""
        safe = "".join(char if char.isascii() and (char.isalnum() or char in "-_.") else "_" for char in name)
        safe = safe.strip("._")[:120] or "download"
        return cls(body, kind=kind, headers=(("Content-Disposition", f'attachment; filename="{safe}"'),))

    @classmethod
    def see(cls, where: str, *headers: tuple[str, str]) -> PageAnswer:
        """Go there instead."""
        return cls(b"", HTTPStatus.SEE_OTHER, headers=(("Location", where), *headers))


Page = Callable[[PageRequest], PageAnswer]


class Site:
    """Answers GET and HEAD of `pages` by their paths. What is behind `token_form` asks for the token.

    Errors of the tree become one line on a page. Thread safe. At most `AT_ONCE` pages are made at a time, and
    `STREAMS` downloads sent; a page that was made is sent without holding up another one.
    """

    def __init__(self, pages: Mapping[str, Page], renderer: Renderer, access: PageAccess) -> None:
        self._pages = pages
        self._renderer = renderer
        self._access = access
        self._work = threading.BoundedSemaphore(AT_ONCE)
        self._streams = threading.BoundedSemaphore(STREAMS)

    def knows(self, path: str) -> bool:
        """Whether it answers this path, whatever it says."""
        return path in self._pages or path == SIGN_IN or path.startswith(STATIC)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """WSGI's."""
        answer = self._answer(environ)
        return _sent(answer, start_response, head=environ["REQUEST_METHOD"] == "HEAD")

    def _answer(self, environ: dict[str, Any]) -> PageAnswer:
        method, path = environ["REQUEST_METHOD"], environ.get("PATH_INFO") or "/"
        if method not in ("GET", "HEAD") and (method, path) != ("POST", SIGN_IN):
            allowed = "GET, HEAD, POST" if path == SIGN_IN else "GET, HEAD"
            told = self._problem(HTTPStatus.METHOD_NOT_ALLOWED, f"only {allowed}: these pages only show")
            return PageAnswer(told.body, told.status, headers=(("Allow", allowed),))
        if path.startswith(STATIC):
            return self._static(path.removeprefix(STATIC))
        try:
            query = {k: v[-1] for k, v in _fields(environ.get("QUERY_STRING", "")).items()}
        except ValueError:
            return self._problem(HTTPStatus.BAD_REQUEST, "the address has too many fields")
        if path == SIGN_IN and self._access.token:
            return self._sign_in(environ, method)
        verdict = self._access.verdict(environ)
        if verdict is Allowance.REFUSED:
            return self._problem(
                HTTPStatus.FORBIDDEN,
                "these pages are for this machine alone, by its name localhost or 127.0.0.1; whoever comes from "
                "elsewhere needs a token, and none is configured",
            )
        if self._access.is_token(query.get("token", "")):
            return PageAnswer.see(_local(_own(environ)), self._cookie(environ))
        if verdict is Allowance.TOKEN_WANTED:
            return self._token_form(HTTPStatus.UNAUTHORIZED, _own(environ), wrong="token" in query)
        return self._page(PageRequest(path, query))

    def _page(self, request: PageRequest) -> PageAnswer:
        page = self._pages.get(request.path)
        if page is None:
            return self._problem(HTTPStatus.NOT_FOUND, "there is no such page")
        if not self._work.acquire(timeout=WAIT_SECONDS):
            return self._problem(HTTPStatus.SERVICE_UNAVAILABLE, "too much is asked at the same time; try again")
        try:
            answer = page(request)
        except OffloadError as error:
            return self._problem(status_of(error), str(error))
        finally:
            self._work.release()
        return answer if isinstance(answer.body, bytes) else self._streamed(answer, answer.body)

    def _streamed(self, answer: PageAnswer, body: Iterator[bytes]) -> PageAnswer:
        if not self._streams.acquire(blocking=False):
            _close(body)
            return self._problem(HTTPStatus.SERVICE_UNAVAILABLE, f"{STREAMS} downloads are under way; try again")
        return PageAnswer(_Stream(body, self._streams.release), answer.status, answer.kind, answer.headers)

    def _sign_in(self, environ: dict[str, Any], method: str) -> PageAnswer:
        """The form, or what it sends."""
        if method != "POST":
            return self._token_form(HTTPStatus.OK, "/", wrong=False)
        length = str(environ.get("CONTENT_LENGTH") or "0")
        if not (length.isascii() and length.isdecimal() and len(length) < 9 and int(length) <= MOST_FORM):
            return self._problem(HTTPStatus.BAD_REQUEST, "the form is too large")
        try:
            form = _fields(environ["wsgi.input"].read(int(length)).decode("latin-1"))
        except ValueError:
            return self._problem(HTTPStatus.BAD_REQUEST, "the form has too many fields")
        then = _local(form.get("then", ["/"])[-1])
        if not self._access.is_token(form.get("token", [""])[-1].strip()):
            return self._token_form(HTTPStatus.UNAUTHORIZED, then, wrong=True)
        return PageAnswer.see(then, self._cookie(environ))

    def _token_form(self, status: HTTPStatus, then: str, *, wrong: bool) -> PageAnswer:
        asks = (("WWW-Authenticate", "Bearer"),) if status is HTTPStatus.UNAUTHORIZED else ()
        body = self._renderer.render("sign_in.html", sign_in=SIGN_IN, then=then, wrong=wrong)
        return PageAnswer(body, status, headers=asks)

    def _cookie(self, environ: Mapping[str, Any]) -> tuple[str, str]:
        secure = "; Secure" if environ.get("HTTP_X_FORWARDED_PROTO") == "https" else ""
        value = f"{self._access.cookie_name}={self._access.cookie_value}"
        return "Set-Cookie", f"{value}; Path=/; HttpOnly; SameSite=Strict{secure}"

    def _static(self, name: str) -> PageAnswer:
        if name not in FILES:
            return self._problem(HTTPStatus.NOT_FOUND, "there is no such file")
        return PageAnswer(static_file(name), kind=FILES[name])

    def _problem(self, status: HTTPStatus, text: str) -> PageAnswer:
        return PageAnswer(self._renderer.render("problem.html", status=status, text=text), status)


class _Stream:
    """What is sent as it comes; `ended` is called once, whatever happens."""

    def __init__(self, body: Iterator[bytes], ended: Callable[[], None]) -> None:
        self._body = body
        self._ended: Callable[[], None] | None = ended

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return next(self._body)

    def close(self) -> None:
        """Called by the server."""
        ended, self._ended = self._ended, None
        if ended is not None:
            try:
                _close(self._body)
            finally:
                ended()


def status_of(error: OffloadError) -> HTTPStatus:
    """What an error means for whoever asked."""
    if isinstance(error, ConfigError):
        return HTTPStatus.BAD_REQUEST
    if isinstance(
        error, RetryableError | AccessDeniedError | IntegrityError | FormatVersionError | RemovedFeatureError
    ):
        return HTTPStatus.SERVICE_UNAVAILABLE
    if isinstance(error, ObjectNotFoundError | FatalError):
        return HTTPStatus.NOT_FOUND
    return HTTPStatus.SERVICE_UNAVAILABLE


def _sent(answer: PageAnswer, start_response: Callable[..., Any], *, head: bool) -> Iterable[bytes]:
    headers = [("Content-Type", answer.kind), *HEADERS, *answer.headers]
    complete = isinstance(answer.body, bytes)
    if isinstance(answer.body, bytes):
        headers.append(("Content-Length", str(len(answer.body))))
    start_response(f"{answer.status.value} {answer.status.phrase}", headers)
    if head:
        if not complete:
            _close(answer.body)
        return []
    if isinstance(answer.body, bytes):
        return [answer.body[at : at + PIECE] for at in range(0, len(answer.body), PIECE)]
    return answer.body


def _close(body: object) -> None:
    close = getattr(body, "close", None)
    if close is not None:
        close()


def _fields(text: str) -> dict[str, list[str]]:
    return parse_qs(text, keep_blank_values=True, errors="replace", max_num_fields=MOST_FIELDS)


def _own(environ: Mapping[str, Any]) -> str:
    """Where a request went to, without its token."""
    query = {k: v[-1] for k, v in _fields(environ.get("QUERY_STRING", "")).items() if k != "token"}
    return url(quote(environ.get("PATH_INFO") or "/", encoding="latin-1"), **query)


def _local(where: str) -> str:
    """An address of this site; the first page where it is another's."""
    parts = urlsplit(where) if where.isascii() and where.isprintable() and "\\" not in where else None
    ours = parts is not None and not parts.scheme and not parts.netloc and parts.path.startswith("/")
    return where if ours and not where.startswith("//") else "/"
