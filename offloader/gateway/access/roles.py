"""Roles, and the namespaces that they may read. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

EVERYTHING = "*"


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
