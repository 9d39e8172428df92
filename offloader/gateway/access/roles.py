"""Roles, and the namespaces that they may read. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

EVERYTHING = "*"


class RolePermissions:
    """`Permissions`: namespaces by role. A namespace is `tenant/namespace`, `tenant/*` or `*`; the role `*` is
    everybody who has shown a token."""

    def __init__(self, roles: Mapping[str, Sequence[str]]) -> None:
        self._roles = {role: frozenset(namespaces) for role, namespaces in roles.items()}

    def may_read(self, role: str, namespace: str) -> bool:
        tenant = namespace.partition("/")[0]
        wanted = {namespace, f"{tenant}/*", EVERYTHING}
        return any(not wanted.isdisjoint(self._roles.get(name, ())) for name in (role, EVERYTHING))
