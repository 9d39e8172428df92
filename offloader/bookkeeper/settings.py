"""How to reach bookies, and how to prove to them who we are."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from offloader.errors import ConfigError
from offloader.model import MIB


class BookieAuthentication(Protocol):
    """One connection's conversation. Raises AuthenticationFailedError where it cannot prove anything."""

    plugin: str

    def first(self) -> bytes:
        """What we say first."""
        ...

    def next(self, answer: bytes) -> bytes | None:
        """The reply to the bookie's answer; None: done, no more to say."""
        ...


class PlainAuthentication:
    """One message of fixed bytes, for plugins that take a secret and confirm it."""

    def __init__(self, plugin: str, payload: bytes) -> None:
        self.plugin = plugin
        self._payload = payload

    def first(self) -> bytes:
        """The secret."""
        return self._payload

    def next(self, answer: bytes) -> bytes | None:  # noqa: ARG002 (the interface's signature)
        """Any answer confirms it: a bookie that refuses closes the connection."""
        return None


@dataclass(frozen=True)
class BookieSettings:
    """How to reach bookies. Frozen and picklable: workers connect by themselves. Times are in seconds.

    With `tls` the plain connection is upgraded (START_TLS), and there are no batch reads. `tls_trust_certs_file` empty:
    the system's certificates; `tls_certificate_file` and `tls_key_file`: our own, where bookies ask for it.
    `authentication` makes a new one for each connection; None: bookies ask nobody. `max_entry`: the largest stored
    entry, or batch of them, that a bookie may send.
    """

    connect_timeout: float = 10.0
    request_timeout: float = 10.0
    tls: bool = False
    tls_trust_certs_file: str = ""
    tls_certificate_file: str = ""
    tls_key_file: str = ""
    tls_allow_insecure: bool = False
    tls_verify_hostname: bool = True
    authentication: Callable[[], BookieAuthentication] | None = field(default=None, repr=False)
    max_entry: int = 16 * MIB

    def ssl_context(self) -> ssl.SSLContext:
        """For every bookie. Raises ConfigError."""
        try:
            context = ssl.create_default_context(cafile=self.tls_trust_certs_file or None)
            if self.tls_certificate_file:
                context.load_cert_chain(self.tls_certificate_file, self.tls_key_file or None)
        except OSError as error:
            raise ConfigError(f"bookkeeper: a TLS certificate or key file cannot be read ({error})") from error
        if not self.tls_verify_hostname or self.tls_allow_insecure:
            context.check_hostname = False
        if self.tls_allow_insecure:
            context.verify_mode = ssl.CERT_NONE
        return context
