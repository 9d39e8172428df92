"""Who may read what, as the configuration says it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

from offloader.config.gateway import Gateway
from offloader.errors import ConfigError
from offloader.gateway.server.ports import Gatekeeper
from offloader.gateway.topics.archive import Permissions


class Anyone:
    """Nobody says who they are, and everybody may read: for networks that see to that."""

    method = ""

    def role_of(self, method: str, data: bytes, now: float) -> tuple[str, float | None]:  # noqa: ARG002
        return "", None

    def may_read(self, role: str, namespace: str) -> bool:  # noqa: ARG002
        return True


@dataclass(frozen=True)
class Access:
    """`reread`: look at the key's file again, in a thread; tells whether the key is another one."""

    gatekeeper: Gatekeeper
    permissions: Permissions
    reread: Callable[[], bool] = lambda: False


def access_of(settings: Gateway) -> Access:
    """Raises ConfigError."""
    if not settings.asks_for_tokens:
        anyone = Anyone()
        return Access(anyone, anyone)
    if find_spec("jwt") is None:
        raise ConfigError("gateway: tokens need the package `pyjwt`: install pulsar-streaming-offloader[gateway]")
    from offloader.gateway.access.key_file import KeySetting
    from offloader.gateway.access.keys import public_key, secret_key
    from offloader.gateway.access.roles import RolePermissions
    from offloader.gateway.access.tokens import TokenClaims, TokenGatekeeper

    if settings.token_secret_key is not None:
        setting = KeySetting("gateway.tokenSecretKey", settings.token_secret_key.get_secret_value(), secret_key)
    else:
        setting = KeySetting("gateway.tokenPublicKey", settings.token_public_key or "", public_key)
    claims = TokenClaims(settings.token_auth_claim, settings.token_audience, settings.token_audience_claim)
    gatekeeper = TokenGatekeeper(setting.read(), claims)

    def reread() -> bool:
        key = setting.changed()
        if key is not None:
            gatekeeper.key = key
        return key is not None

    return Access(gatekeeper, RolePermissions(settings.roles), reread)
