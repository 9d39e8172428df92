"""HTTP to the admin port: asks hosts in turn until one is well, follows redirects, gives statuses as typed errors.
Each call is bounded as a whole.

It follows a redirect only to a named host: an ingress, or an impostor, must not get our credentials.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpcore
import httpx

from offloader.errors import (
    AuthenticationFailedError,
    AuthorizationFailedError,
    BrokerUnavailableError,
    FatalError,
    NamespaceNotFoundError,
    OffloadError,
    ProtocolError,
    TopicNotFoundError,
)
from offloader.json_text import parse_json
from offloader.model import MIB
from offloader.pulsar.auth import authentication
from offloader.pulsar.settings import PulsarSettings
from offloader.version import named

MAX_REDIRECTS = 10
MAX_ANSWER = 64 * MIB  # a namespace with half a million topics
CONNECTIONS = 64  # more than there are threads that ask: a server that hangs delays no call to another
_RETRYABLE = {408, 429}
SOCKET_OPTION = httpcore.SOCKET_OPTION


def refusal(source: str, target: str, named: Collection[str]) -> str:
    """Why a redirect is not followed; empty: it is. `named`: the hosts that the configuration or the cluster itself
    names.

    Raises ValueError for what is no URL.
    """
    here, there = urlsplit(source), urlsplit(target)
    if there.scheme != here.scheme and there.scheme != "https":
        return f"it leaves {here.scheme}"
    if there.hostname is None or there.hostname not in named:
        return (
            "neither pulsar.adminUrl nor the cluster itself names that host; if it is a broker, add it to "
            "pulsar.adminUrl"
        )
    return ""


def hosts_named(answer: object) -> set[str]:
    """The hosts in what a broker says of brokers: a list of `host:port`, or a look-up's answer with URLs as values."""
    found: set[str] = set()
    addresses = answer if isinstance(answer, list) else answer.values() if isinstance(answer, dict) else []
    for address in addresses:
        if isinstance(address, str) and address:
            try:
                host = urlsplit(address if "://" in address else f"//{address}").hostname
            except ValueError:
                continue
            found |= {host} if host else set()
    return found


class RestClient:
    """Thread safe. Only for calls that may be repeated: another host may get one that was served already.

    `transport` carries the requests, by default over sockets. `largest`: bytes that an answer may have, by
    default as many as a list of topics needs.
    """

    def __init__(
        self, settings: PulsarSettings, *, transport: httpx.BaseTransport | None = None, largest: int | None = None
    ) -> None:
        self._urls = settings.admin_urls
        self._authentication = authentication(settings)
        self._deadlines = Deadlines(httpcore.SyncBackend())
        self._client = httpx.Client(
            headers={"User-Agent": named()},
            timeout=httpx.Timeout(settings.operation_timeout, connect=settings.connect_timeout),
            trust_env=False,
            transport=transport or self._over_sockets(settings),
        )
        self._timeout = settings.operation_timeout
        self._largest = largest
        self._current = 0  # the host that answered last
        self._trusted = {urlsplit(url).hostname or "" for url in self._urls}

    def _over_sockets(self, settings: PulsarSettings) -> httpx.HTTPTransport:
        transport = httpx.HTTPTransport(
            verify=settings.ssl_context() if settings.admin_url.startswith("https://") else False,
            limits=httpx.Limits(max_connections=CONNECTIONS),
            trust_env=False,
        )
        transport._pool._network_backend = self._deadlines  # noqa: SLF001 (httpx passes none on)
        return transport

    def get(self, path: str, **query: str) -> Any:
        """The JSON that a path below /admin/v2/ gives, None where the answer is empty."""
        return _json(path, self._success(path, self.request("GET", path, **query)))

    def get_of_owner(self, path: str) -> tuple[Any, str]:
        """The same of a topic's path, and who answered: the address of the topic's owner, or of its proxy."""
        response = self._success(path, self.request("GET", path))
        return _json(path, response), str(response.request.url).partition("/admin/")[0]

    def text(self, path: str, *, address: str | None = None, **query: str) -> str:
        """The text that a path below /admin/v2/ gives. `address`: of this broker, and no other."""
        return self._success(path, self.request("GET", path, address=address, **query)).text

    def request(
        self, method: str, path: str, *, body: Any = None, address: str | None = None, **query: str
    ) -> httpx.Response:
        """The answer of the first host that is well; where none is, the best answer. `body` is sent as JSON.
        Raises BrokerUnavailableError where nobody answers."""
        if address is not None:
            return self._ask(method, address, path, query, body)
        problems: list[str] = []
        bad: list[httpx.Response] = []
        first = self._current
        for number in range(first, first + len(self._urls)):
            try:
                response = self._ask(method, self._urls[number % len(self._urls)], path, query, body)
            except BrokerUnavailableError as error:
                problems.append(str(error))
                continue
            if not _another_may_do_better(method, response):
                self._current = number % len(self._urls)
                return response
            bad.append(response)
        if bad:
            return next((response for response in bad if _reason(response) is not None), bad[-1])
        raise BrokerUnavailableError("; ".join(problems))

    def _ask(self, method: str, base: str, path: str, query: Mapping[str, str], body: Any) -> httpx.Response:
        """The answer of one host, or of the one that it redirects to. Raises BrokerUnavailableError."""
        try:
            return self._follow(method, base, path, query, body)
        except (httpx.RequestError, httpx.InvalidURL, ValueError) as error:  # the latter two: sent to what is no host
            raise BrokerUnavailableError(f"{base} did not answer ({type(error).__name__}: {error})") from error

    def _success(self, path: str, response: httpx.Response) -> httpx.Response:
        if response.is_error:
            raise self.error(path, response)
        return response

    def json_of(self, path: str, response: httpx.Response) -> Any:
        """The JSON of an answer, None where it is empty. Raises the error that the answer stands for."""
        return _json(path, self._success(path, response))

    def error(self, path: str, response: httpx.Response) -> OffloadError:
        """The error that an answer stands for: by its status, by whether a Pulsar gave it, and by the path; never by
        its words."""
        status, reason = response.status_code, _reason(response)
        by_pulsar = reason is not None
        message = f"{path}: the broker answered {status}: {reason if reason is not None else _first_words(response)}"
        if status == 403 or (status == 401 and by_pulsar and self._authentication.headers()):  # who we are is known
            return AuthorizationFailedError(message)
        if status == 401:
            return AuthenticationFailedError(message)
        if status == 404 and by_pulsar:
            return TopicNotFoundError(message) if _about_topic(path) else NamespaceNotFoundError(message)
        if status == 404:
            return BrokerUnavailableError(
                f"{message}; that is no answer of a broker: see what stands between us and the cluster"
            )
        if status >= 500 or status in _RETRYABLE:
            return BrokerUnavailableError(message)
        return FatalError(message)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _follow(self, method: str, base: str, path: str, query: Mapping[str, str], body: Any) -> httpx.Response:
        """Brokers redirect to the topic's owner, which wants our credentials as well."""
        url = f"{base}/admin/v2/{path}"
        parameters: Mapping[str, str] | None = query
        for _ in range(MAX_REDIRECTS):
            response = self._send(method, url, parameters, body)
            if not response.is_redirect:
                return response
            if "Location" not in response.headers:
                raise BrokerUnavailableError(
                    f"{url} answered {response.status_code} and does not say where to go: that is no broker's answer"
                )
            target = urljoin(url, response.headers["Location"])
            self._check_redirect(base, path, url, target)
            url, parameters = target, None
        raise BrokerUnavailableError(f"{url}: {MAX_REDIRECTS} brokers in a row sent us to another one")

    def _check_redirect(self, base: str, path: str, source: str, target: str) -> None:
        """Our credentials go only to brokers. Raises BrokerUnavailableError."""
        why = refusal(source, target, self._trusted)
        if why and urlsplit(target).hostname not in self._trusted:
            self._trusted |= self._ask_for_hosts(base, path)
            why = refusal(source, target, self._trusted)
        if why:
            raise BrokerUnavailableError(f"{source} sends us to {target}, which is not followed: {why}")

    def _ask_for_hosts(self, base: str, path: str) -> set[str]:
        """The hosts that the cluster names: of its brokers (for super users), or of the one that serves the topic."""
        questions = [f"{base}/admin/v2/brokers"]
        domain, *names = path.split("/")[:4]
        if domain == "persistent" and len(names) == 3:
            questions.append(f"{base}/lookup/v2/topic/{domain}/{'/'.join(names)}")
        found: set[str] = set()
        for question in questions:
            response = self._send("GET", question)
            if response.is_success:
                with suppress(ValueError):  # whoever answers so is no broker, and names none
                    found |= hosts_named(parse_json(response.text))
        return found

    def _send(
        self, method: str, url: str, parameters: Mapping[str, str] | None = None, body: Any = None
    ) -> httpx.Response:
        """One request, bounded in time and in the size of its answer. Raises ProtocolError."""
        headers = {**self._authentication.headers(), "Accept-Encoding": "identity"}
        content, until = bytearray(), time.monotonic() + self._timeout
        with (
            self._deadlines.within(self._timeout),
            self._client.stream(method, _url(url), params=parameters or None, headers=headers, json=body) as response,
        ):
            for chunk in response.iter_bytes():
                content += chunk
                if time.monotonic() > until:
                    raise httpx.ReadTimeout(f"it answers for longer than {self._timeout} s")
                if len(content) > (self._largest or MAX_ANSWER):
                    raise ProtocolError(f"{url}: the answer has more than {self._largest or MAX_ANSWER} bytes")
        response_headers = {
            name: value
            for name, value in response.headers.items()
            if name not in ("content-encoding", "content-length")
        }
        return httpx.Response(
            response.status_code, headers=response_headers, content=bytes(content), request=response.request
        )


def http_date_ms(date: str | None) -> int | None:
    """Milliseconds since the epoch of an HTTP date; None: it is none."""
    try:
        return int(parsedate_to_datetime(date or "").astimezone(UTC).timestamp() * 1000)
    except ValueError:
        return None


@lru_cache(maxsize=1_000)
def _url(text: str) -> httpx.URL:
    """Cached: parsing a URL costs as much as asking for it, and there are few."""
    return httpx.URL(text)


def _json(path: str, response: httpx.Response) -> Any:
    try:
        return parse_json(response.text) if response.text else None
    except ValueError as error:
        raise ProtocolError(f"{path}: the broker's answer is not JSON ({error})") from error


def _another_may_do_better(method: str, response: httpx.Response) -> bool:
    """Whether this host is overloaded, broken, or no Pulsar (which the answer to a HEAD does not tell)."""
    status = response.status_code
    if status == 404:
        return method != "HEAD" and _reason(response) is None
    return status >= 500 or status in _RETRYABLE


def _about_topic(path: str) -> bool:
    """Whether a call is about one topic: `persistent/tenant/namespace/topic/…`."""
    return path.startswith("persistent/") and path.count("/") > 2


def _reason(response: httpx.Response) -> str | None:
    """Pulsar's reason, as one line; None: the answer has not the form of Pulsar's errors."""
    try:
        answer = parse_json(response.text)
    except ValueError:
        return None
    reason = answer.get("reason") if isinstance(answer, dict) else None
    return _one_line(reason) or response.reason_phrase if isinstance(reason, str) else None


def _first_words(response: httpx.Response) -> str:
    """The beginning of somebody else's answer, unless that is a page for people."""
    text = response.text
    return ("" if text.lstrip().startswith("<") else _one_line(text)) or response.reason_phrase


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]


class Deadlines(httpcore.NetworkBackend):
    """Wraps a network backend: ends what a thread does `within` so many seconds. That bounds a whole call: connecting,
    sending, and receiving, also where bytes trickle. httpx bounds each read alone."""

    def __init__(self, plain: httpcore.NetworkBackend) -> None:
        self._plain = plain
        self._calls = threading.local()

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """The calls of this thread."""
        self._calls.until = time.monotonic() + seconds
        try:
            yield
        finally:
            self._calls.until = None

    def left(self, timeout: float | None, late: type[httpcore.TimeoutException]) -> float | None:
        """The time-out of one step: its own, or what is left of the call. Raises `late` where nothing is."""
        until = getattr(self._calls, "until", None)
        if until is None:
            return timeout
        left: float = until - time.monotonic()
        if left <= 0:
            raise late("the whole call took too long")
        return left if timeout is None else min(timeout, left)

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Try each address of the host in turn, all within the call's time: a backend gives each the whole of it."""
        failed: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in _addresses(host, port):
            left = self.left(timeout, httpcore.ConnectTimeout)
            try:
                return _BoundedStream(self._plain.connect_tcp(address, port, left, local_address, socket_options), self)
            except (httpcore.ConnectTimeout, httpcore.ConnectError) as error:
                failed = error
        raise failed


def _addresses(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise httpcore.ConnectError(str(error)) from error
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class _BoundedStream(httpcore.NetworkStream):
    def __init__(self, plain: httpcore.NetworkStream, deadlines: Deadlines) -> None:
        self._plain = plain
        self._deadlines = deadlines

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._plain.read(max_bytes, self._deadlines.left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._plain.write(buffer, self._deadlines.left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._plain.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = self._deadlines.left(timeout, httpcore.ConnectTimeout)
        return _BoundedStream(self._plain.start_tls(ssl_context, server_hostname, left), self._deadlines)

    def get_extra_info(self, info: str) -> Any:
        return self._plain.get_extra_info(info)
