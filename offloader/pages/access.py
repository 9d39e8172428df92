"""Who may see the pages. Pure.

Without a token whoever asks from this machine, for a name of this machine: a name of somebody else's that resolves to
loopback (DNS rebinding) is none. With a token whoever has it, from anywhere.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Self

from offloader.errors import ConfigError

LEAST_TOKEN = 16
_BY_PROXY = ("HTTP_FORWARDED", "HTTP_VIA", "HTTP_X_FORWARDED_", "HTTP_X_REAL_IP", "HTTP_X_ENVOY_")  # so they begin


class Allowance(Enum):
    """Whether a request is answered."""

    ALLOWED = "allowed"
    TOKEN_WANTED = "token wanted"  # noqa: S105 (no password)
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class PageAccess:
    """`token` "": only this machine, by one of its names, or by one of `names`."""

    token: str = field(default="", repr=False)
    names: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Raises ConfigError for a token that can be guessed, or that no header can hold."""
        if not self.token:
            return
        if len(self.token) < LEAST_TOKEN:
            raise ConfigError(f"token: it is shorter than {LEAST_TOKEN} characters, so it can be guessed; take more")
        if not self.token.isascii() or not self.token.isprintable() or " " in self.token:
            raise ConfigError("token: only printable ASCII characters without spaces can stand in a header")

    @classmethod
    def of(cls, host: str, token: str = "", names: Iterable[str] = ()) -> Self:
        """For what listens on `host`. Raises ConfigError where others could come and there is no token."""
        if not token and not is_loopback(host):
            raise ConfigError(
                f"{host}: others can reach this address, so a token is needed; give one, or listen on 127.0.0.1"
            )
        return cls(token, frozenset(name.lower() for name in names))

    @property
    def cookie_name(self) -> str:
        """Another one for each token: cookies do not know ports."""
        return f"offloader-{self._derived('name')[:12]}"

    @property
    def cookie_value(self) -> str:
        """Proves the token, and is not the token."""
        return self._derived("value")

    def verdict(self, environ: Mapping[str, object]) -> Allowance:
        """Of a request, by its WSGI environment."""
        if self.token:
            return Allowance.ALLOWED if self._proven(environ) else Allowance.TOKEN_WANTED
        proxied = any(header.startswith(_BY_PROXY) for header in environ)  # then everybody comes from loopback
        host = host_name(str(environ.get("HTTP_HOST", "")))
        ours = is_loopback(host) or host in self.names
        from_here = is_loopback(str(environ.get("REMOTE_ADDR", "")))
        return Allowance.ALLOWED if from_here and ours and not proxied else Allowance.REFUSED

    def is_token(self, text: str) -> bool:
        """Compared in constant time."""
        return bool(self.token) and _same(text, self.token)

    def _proven(self, environ: Mapping[str, object]) -> bool:
        scheme, _, given = str(environ.get("HTTP_AUTHORIZATION", "")).partition(" ")
        if scheme.lower() == "bearer" and self.is_token(given.strip()):
            return True
        cookies = dict(one.strip().partition("=")[::2] for one in str(environ.get("HTTP_COOKIE", "")).split(";"))
        return _same(cookies.get(self.cookie_name, ""), self.cookie_value)

    def _derived(self, what: str) -> str:
        return hmac.new(self.token.encode(), what.encode(), hashlib.sha256).hexdigest()


def is_loopback(host: str) -> bool:
    """Whether it is an address or a name of this machine alone."""
    if host.lower() in ("localhost", "localhost."):
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_loopback or (mapped is not None and mapped.is_loopback)


def host_name(header: str) -> str:
    """The name of a Host header, without its port."""
    name, bracket, _ = header.lower().partition("]")
    return name + bracket if bracket else name.partition(":")[0]


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), wanted.encode())
