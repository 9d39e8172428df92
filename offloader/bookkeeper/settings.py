"""How to reach bookies. Frozen and picklable: workers get it and connect by themselves."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from offloader.bookkeeper.auth import BookieAuthentication
from offloader.errors import ConfigError
from offloader.model import MIB


@dataclass(frozen=True)
class BookieSettings:
    """Times are in seconds. With `tls` the plain connection is upgraded (START_TLS), and there are no batch reads.

    `tls_trust_certs_file` empty: the system's certificates; `tls_certificate_file` and `tls_key_file`: our own, where
    bookies ask for it. `authentication` makes a new one for each connection; None: bookies ask nobody.
    `max_entry`: the largest stored entry, or batch of them, that a bookie may send.
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
