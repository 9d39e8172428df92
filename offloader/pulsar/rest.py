"""HTTP to the admin port: hosts in turn, redirects with our credentials, statuses as typed errors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urljoin

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
from offloader.pulsar.auth import authentication
from offloader.pulsar.settings import PulsarSettings

MAX_REDIRECTS = 10
CONNECTIONS = 16
_AGAIN = {408, 429}
_NO_NAMESPACE = re.compile(r"(namespace|tenant)\b", re.IGNORECASE)
# How brokers word a 401 to somebody who is known and may not: the second one of older versions, and through a proxy.
_WHO_WE_ARE_IS_KNOWN = re.compile(r"^Unauthorized to |super-user")


class RestClient:
    """Thread safe. Only for calls that may be repeated: another host may be asked for one that was served already."""

    def __init__(self, settings: PulsarSettings) -> None:
        self._urls = settings.admin_urls
        self._authentication = authentication(settings)
        self._client = httpx.Client(
            verify=settings.ssl_context() if settings.admin_url.startswith("https://") else False,
            timeout=httpx.Timeout(settings.operation_timeout, connect=settings.connect_timeout),
            limits=httpx.Limits(max_connections=CONNECTIONS),
            trust_env=False,
        )
        self._current = 0  # the host that answered last

    def get(self, path: str, **query: str) -> Any:
        """The JSON that a path below /admin/v2/ gives, None where the answer is empty."""
        text = self.text(path, **query)
        try:
            return json.loads(text) if text else None
        except ValueError as error:
            raise ProtocolError(f"{path}: the broker's answer is not JSON") from error

    def text(self, path: str, **query: str) -> str:
        """The text that a path below /admin/v2/ gives."""
        response = self.request("GET", path, **query)
        if response.is_error:
            raise self.error(path, response)
        return response.text

    def request(self, method: str, path: str, *, body: Any = None, **query: str) -> httpx.Response:
        """The first host's answer that is one, whatever its status; `body` is sent as JSON. Raises BrokerUnavailableError."""
        problems: list[str] = []
        first = self._current
        for number in range(first, first + len(self._urls)):
            url = self._urls[number % len(self._urls)]
            try:
                response = self._follow(method, f"{url}/admin/v2/{path}", query, body)
            except (httpx.RequestError, httpx.InvalidURL, ValueError) as error:  # the latter two: sent to what is no host
                problems.append(f"{url} did not answer ({type(error).__name__}: {error})")
                continue
            self._current = number % len(self._urls)
            return response
        raise BrokerUnavailableError("; ".join(problems))

    def error(self, path: str, response: httpx.Response) -> OffloadError:
        """The error that a status stands for."""
        status, reason = response.status_code, _reason(response)
        said = f"{path}: the broker answered {status}: {reason}"
        if status == 403 or (status == 401 and _WHO_WE_ARE_IS_KNOWN.search(reason)):
            return AuthorizationFailedError(said)
        if status == 401:
            return AuthenticationFailedError(said)
        if status == 404:
            about_topic = path.startswith("persistent/") and not _NO_NAMESPACE.match(reason)
            return TopicNotFoundError(said) if about_topic else NamespaceNotFoundError(said)
        if status >= 500 or status in _AGAIN:
            return BrokerUnavailableError(said)
        return FatalError(said)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _follow(self, method: str, url: str, query: Mapping[str, str], body: Any) -> httpx.Response:
        """Brokers redirect to the one that owns the topic; it wants to know who we are as well."""
        parameters: Mapping[str, str] | None = query
        for _ in range(MAX_REDIRECTS):
            response = self._client.request(method, url, params=parameters, headers=self._authentication.headers(), json=body)
            if not response.is_redirect:
                return response
            url, parameters = urljoin(url, response.headers["Location"]), None
        raise BrokerUnavailableError(f"{url}: {MAX_REDIRECTS} brokers in a row sent us to another one")


def _reason(response: httpx.Response) -> str:
    """What the broker says, as one line."""
    text = response.text
    with suppress(ValueError, KeyError, TypeError):  # not every error has a JSON body
        text = str(response.json()["reason"])
    if text.lstrip().startswith("<"):  # a page made for people
        text = ""
    return " ".join(text.split())[:300] or response.reason_phrase
