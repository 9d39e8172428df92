"""Who may read what, as the configuration says it."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from offloader.config.gateway import Gateway
from offloader.errors import ConfigError
from offloader.gateway.access.reread import Reread
from offloader.gateway.access.tls import tls_of
from offloader.gateway.server.ports import Gatekeeper
from offloader.gateway.topics.archive import Permissions

if TYPE_CHECKING:
    from offloader.gateway.access.keys import TokenKey


class Anyone:
    """Nobody says who they are, and everybody may read: for networks that see to that."""

    method = ""

    def role_of(self, method: str, data: bytes, now: float) -> tuple[str, float | None]:  # noqa: ARG002
        return "", None

    def may_read(self, role: str, namespace: str) -> bool:  # noqa: ARG002
        return True


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
        anyone = Anyone()
        return Access(anyone, anyone, tls)
    if find_spec("jwt") is None:
        raise ConfigError("gateway: tokens need the package `pyjwt`: install pulsar-streaming-offloader[gateway]")
    from offloader.gateway.access.key_file import key_of
    from offloader.gateway.access.keys import public_key, secret_key
    from offloader.gateway.access.roles import RolePermissions
    from offloader.gateway.access.tokens import TokenClaims, TokenGatekeeper

    if settings.token_secret_key is not None:
        key = key_of("gateway.tokenSecretKey", settings.token_secret_key.get_secret_value(), secret_key)
    else:
        key = key_of("gateway.tokenPublicKey", settings.token_public_key or "", public_key)
    claims = TokenClaims(settings.token_auth_claim, settings.token_audience, settings.token_audience_claim)
    return Access(TokenGatekeeper(key.now, claims), RolePermissions(settings.roles), tls, key)
