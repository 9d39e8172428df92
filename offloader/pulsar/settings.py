"""How to reach a cluster. Frozen and picklable: workers get it and connect by themselves."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import urlsplit

from offloader.errors import ConfigError

DEFAULT_PORTS = {"pulsar": 6650, "pulsar+ssl": 6651}


@dataclass(frozen=True, slots=True)
class HostPort:
    """Where a broker or proxy listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class PulsarSettings:
    """Times are in seconds. `service_url` and `admin_url` may name several hosts, `pulsar://host1:6650,host2:6650`.

    `auth_plugin` is empty or `token`, `auth_params` then `token:...` or `file:///path`, read again at each connect.
    `tls_trust_certs_file` empty: the system's certificates.
    """

    service_url: str = "pulsar://127.0.0.1:6650"
    admin_url: str = "http://127.0.0.1:8080"
    auth_plugin: str = ""
    auth_params: str = field(default="", repr=False)
    tls_trust_certs_file: str = ""
    tls_allow_insecure: bool = False
    tls_verify_hostname: bool = True
    subscription: str = "__offloader"
    application: str = ""
    connect_timeout: float = 10.0
    operation_timeout: float = 30.0
    keep_alive: float = 30.0
    connections_per_broker: int = 1
    # Bytes for SO_RCVBUF. 0: the kernel's auto-tuning, itself bounded; a fixed value limits throughput over long ways.
    receive_buffer: int = 0

    @property
    def tls(self) -> bool:
        """Whether brokers are reached by TLS."""
        return self.service_url.startswith("pulsar+ssl://")

    @cached_property
    def service_hosts(self) -> tuple[HostPort, ...]:
        """The service URL's hosts, in the order they are tried. Raises ConfigError."""
        return parse_hosts(self.service_url, DEFAULT_PORTS, "pulsar.serviceUrl")

    @cached_property
    def admin_urls(self) -> tuple[str, ...]:
        """The admin URL once per host, in the order they are tried. Raises ConfigError."""
        scheme = self.admin_url.partition("://")[0]
        hosts = parse_hosts(self.admin_url, {"http": 8080, "https": 8443}, "pulsar.adminUrl")
        return tuple(f"{scheme}://{host}" for host in hosts)

    def ssl_context(self) -> ssl.SSLContext:
        """For the binary port and for https alike. Raises ConfigError."""
        try:
            context = ssl.create_default_context(cafile=self.tls_trust_certs_file or None)
        except OSError as error:
            raise ConfigError(
                f"pulsar.tlsTrustCertsFilePath: {self.tls_trust_certs_file!r} cannot be read ({error})"
            ) from error
        if not self.tls_verify_hostname or self.tls_allow_insecure:
            context.check_hostname = False
        if self.tls_allow_insecure:
            context.verify_mode = ssl.CERT_NONE
        return context


def parse_hosts(url: str, ports: dict[str, int], path: str = "pulsar.serviceUrl") -> tuple[HostPort, ...]:
    """Read `scheme://host[:port][,host[:port]...][/]`; `ports` has the allowed schemes and their default ports."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in ports:
        raise ConfigError(f"{path}: {url!r} must begin with {' or '.join(f'{s}://' for s in ports)}")
    try:
        parts = [urlsplit(f"//{item.strip()}") for item in rest.rstrip("/").split(",")]
        hosts = tuple(HostPort(part.hostname or "", part.port or ports[scheme]) for part in parts)
    except ValueError as error:
        raise ConfigError(f"{path}: {url!r}: {error}") from error
    if not all(host.host for host in hosts) or any(part.path or part.query for part in parts):
        raise ConfigError(f"{path}: {url!r} must be {scheme}://HOST:PORT[,HOST:PORT...]")
    return hosts
