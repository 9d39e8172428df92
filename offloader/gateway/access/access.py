"""Who may read what, as the configuration says it: certificates, keys, roles. Changed files are read again."""

from __future__ import annotations

import logging
import ssl
from base64 import b64decode
from binascii import Error as NoBase64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from offloader.config.gateway import Gateway, GatewayTls
from offloader.errors import ConfigError
from offloader.gateway.server.ports import Gatekeeper
from offloader.gateway.topics.archive import Permissions

if TYPE_CHECKING:
    from offloader.gateway.access.tokens import TokenKey


log = logging.getLogger(__name__)

T = TypeVar("T")


class Reread(Generic[T]):
    """A value that `make` makes of the bytes of `files`, and again when they change. `setting`: its path, for errors.
    Raises ConfigError."""

    def __init__(self, setting: str, files: Sequence[Path], make: Callable[[list[bytes]], T]) -> None:
        self._setting = setting
        self._files = files
        self._make = make
        self._told = ""
        self._bytes = self._read()
        self._value = self._made(self._bytes)

    def now(self) -> T:
        """As the files had it when they were last looked at."""
        return self._value

    def look(self) -> bool:
        """Whether the files have another value now. What is none is told once, and the one from before stays."""
        try:
            found = self._read()
            if found == self._bytes:
                return False
            self._value = self._made(found)
        except ConfigError as error:
            if str(error) != self._told:
                log.warning("%s; what it was before is used", error, extra={"see": "gateway-file"})
            self._told = str(error)
            return False
        self._bytes, self._told = found, ""
        return True

    def _read(self) -> list[bytes]:
        try:
            return [path.read_bytes() for path in self._files]
        except OSError as error:
            raise ConfigError(f"{self._setting}: {error.filename} cannot be read ({error.strerror})") from error

    def _made(self, found: list[bytes]) -> T:
        try:
            return self._make(found)
        except ConfigError as error:
            raise ConfigError(f"{self._setting}: {error}") from error


EVERYTHING = "*"
ALL = {EVERYTHING: (EVERYTHING,)}
"""Everything, for every client."""


class RolePermissions:
    """`Permissions`: namespaces by role, to read and (`durable`) to subscribe durably. A namespace is
    `tenant/namespace`, `tenant/*` or `*`; the role `*` is every client."""

    def __init__(self, roles: Mapping[str, Sequence[str]], durable: Mapping[str, Sequence[str]]) -> None:
        self._roles = _namespaces(roles)
        self._durable = _namespaces(durable)

    def may_read(self, role: str, namespace: str) -> bool:
        return _names(self._roles, role, namespace)

    def may_subscribe(self, role: str, namespace: str) -> bool:
        return _names(self._durable, role, namespace)


def _namespaces(roles: Mapping[str, Sequence[str]]) -> dict[str, frozenset[str]]:
    return {role: frozenset(namespaces) for role, namespaces in roles.items()}


def _names(roles: Mapping[str, frozenset[str]], role: str, namespace: str) -> bool:
    wanted = {namespace, f"{namespace.partition('/')[0]}/*", EVERYTHING}
    return any(not wanted.isdisjoint(roles.get(name, ())) for name in (role, EVERYTHING))


class Anyone:
    """`Gatekeeper` without tokens: no client has a role."""

    method = ""

    def role_of(self, method: str, data: bytes, now: float) -> tuple[str, float | None]:  # noqa: ARG002
        return "", None


@dataclass(frozen=True)
class Access:
    """`tls`: what connections by TLS begin with, where there are some."""

    gatekeeper: Gatekeeper
    permissions: Permissions
    tls: Reread[ssl.SSLContext] | None = None
    key: Reread[TokenKey] | None = None

    def look(self) -> bool:
        """At the files, in a thread. Whether the tokens' key is another one."""
        if self.tls is not None:
            self.tls.look()
        return self.key is not None and self.key.look()


def access_of(settings: Gateway) -> Access:
    """Raises ConfigError."""
    tls = tls_of(settings.tls) if settings.tls is not None else None
    if not settings.asks_for_tokens:
        is_open = settings.anyone_may_read or settings.durable_roles
        durable = settings.durable_roles if is_open else ALL  # else only this machine reaches it
        return Access(Anyone(), RolePermissions(ALL, durable), tls)
    if find_spec("jwt") is None:
        raise ConfigError("gateway: tokens need the package `pyjwt`: install pulsar-streaming-offloader[gateway]")
    from offloader.gateway.access.tokens import TokenClaims, TokenGatekeeper, public_key, secret_key

    if settings.token_secret_key is not None:
        key = key_of("gateway.tokenSecretKey", settings.token_secret_key.get_secret_value(), secret_key)
    else:
        key = key_of("gateway.tokenPublicKey", settings.token_public_key or "", public_key)
    claims = TokenClaims(settings.token_auth_claim, settings.token_audience, settings.token_audience_claim)
    return Access(TokenGatekeeper(key.now, claims), RolePermissions(settings.roles, settings.durable_roles), tls, key)


def tls_of(settings: GatewayTls) -> Reread[ssl.SSLContext]:
    """The certificates that the gateway shows. Raises ConfigError."""
    files = [settings.certificate, settings.key, *([settings.client_ca] if settings.client_ca else [])]
    return Reread("gateway.tls", list(map(Path, files)), lambda _: _context(settings))


def _context(settings: GatewayTls) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.certificate, settings.key, password="")
        if settings.client_ca:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(settings.client_ca)
    except OSError as error:  # which those of TLS are, too
        raise ConfigError(
            f"certificate, key and clientCa cannot be used ({error.strerror or error}): PEM files, a key without a "
            "password that belongs to the certificate"
        ) from error
    return context


def key_of(setting: str, text: str, make: Callable[[bytes], TokenKey]) -> Reread[TokenKey]:
    """A key's setting, as brokers have it: `file:///path`, a path, `data:;base64,…` or base64. `setting`: its path, for
    errors. Raises ConfigError."""
    path = _file_of(text)
    if path is None:
        return Reread(setting, (), lambda _: make(inline_bytes(text)))
    return Reread(setting, (path,), lambda found: make(found[0]))


def _file_of(text: str) -> Path | None:
    """None: the key stands in the setting itself."""
    if text.startswith("file:"):
        return Path(unquote(urlsplit(text).path))
    if text.startswith("data:"):
        return None
    try:
        return Path(text) if Path(text).is_file() else None
    except OSError:  # too long for a path
        return None


def inline_bytes(text: str) -> bytes:
    """Of a key that stands in the configuration: `data:;base64,…`, or base64 alone. Raises ConfigError."""
    head, comma, data = text.partition(",")
    try:
        if not text.startswith("data:"):
            return b64decode(text, validate=True)
        if not comma:
            raise ConfigError("a data: URL is data:;base64,KEY")
        return b64decode(data, validate=True) if head.endswith(";base64") else unquote_to_bytes(data)
    except NoBase64 as error:
        raise ConfigError("this is neither a file that exists nor base64") from error
