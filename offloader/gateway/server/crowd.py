"""All clients of the binary protocol together, and what one role may have of the gateway."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sized
from typing import NamedTuple, Protocol


class CrowdBounds(NamedTuple):
    """Of all clients together, and of those of one role; None: a role has no bound of its own."""

    consumers: int = 50_000
    connections_of_role: int | None = None
    consumers_of_role: int | None = None


class Client(Protocol):
    """A connection."""

    @property
    def role(self) -> str: ...

    @property
    def is_known(self) -> bool:
        """Whether it has said who it is."""
        ...

    @property
    def consumers(self) -> Sized: ...


class Crowd:
    """`clients`: who is there. Counted anew each time: they come and go in many ways, and are some thousand at most."""

    def __init__(self, bounds: CrowdBounds, clients: Callable[[], Collection[Client]]) -> None:
        self._bounds = bounds
        self._clients = clients

    def refuses_connection(self, role: str) -> str:
        """Why it may not have one more; empty: it may."""
        most = self._bounds.connections_of_role
        if most is None or sum(one.is_known and one.role == role for one in self._clients()) < most:
            return ""
        return f"{_named(role)} has {most} connections at most"

    def refuses_consumer(self, role: str) -> str:
        """The same of a consumer or reader."""
        all_of_them = [(one.role, len(one.consumers)) for one in self._clients()]
        most, of_role = self._bounds.consumers, self._bounds.consumers_of_role
        if sum(count for _, count in all_of_them) >= most:
            return f"the gateway has {most} consumers at most"
        if of_role is not None and sum(count for whose, count in all_of_them if whose == role) >= of_role:
            return f"{_named(role)} has {of_role} consumers at most"
        return ""


def _named(role: str) -> str:
    return f"the role {role}" if role else "everybody"
