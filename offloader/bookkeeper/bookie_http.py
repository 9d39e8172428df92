"""A bookie's HTTP end points (`httpServerEnabled`), for reading: what it says of its collection and its disks."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

from offloader.errors import BookieUnavailableError, FatalError
from offloader.model import MIB

LARGEST_ANSWER = 16 * MIB  # a bookie with half a million entry logs


class BookieHttp:
    """`url`: `http://host:8000`. A redirect is not followed: no bookie sends one."""

    def __init__(self, url: str, timeout: float) -> None:
        self.url = url.rstrip("/")
        self._timeout = timeout

    def get(self, path: str) -> bytes:
        """What a path gives. Raises BookieUnavailableError where nobody answers, and FatalError where the answer is no
        sound one."""
        where = urlsplit(self.url)
        kind = http.client.HTTPSConnection if where.scheme == "https" else http.client.HTTPConnection
        try:
            connection = kind(where.hostname or "", where.port, timeout=self._timeout)
            try:
                connection.request("GET", f"{where.path}{path}", headers={"Accept": "application/json"})
                response = connection.getresponse()
                data = response.read(LARGEST_ANSWER + 1)
            finally:
                connection.close()
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise BookieUnavailableError(
                f"{self.url} does not answer ({str(error) or type(error).__name__})"
            ) from error
        if response.status != http.client.OK:
            raise FatalError(f"{self.url}{path} answers {response.status}")
        if len(data) > LARGEST_ANSWER:
            raise FatalError(f"{self.url}{path} answers more than {LARGEST_ANSWER} bytes")
        return data


def parse_http_url(text: str) -> str:
    """`http://host:8000`. Raises ValueError."""
    where = urlsplit(text)
    if where.scheme not in ("http", "https") or not where.hostname or where.query or where.fragment or where.username:
        raise ValueError(f"{text!r} is no address of a bookie's HTTP server; write http://host:8000")
    _ = where.port  # raises ValueError for one that is none
    return text
