"""The same bytes on bookies: how many copies they keep, and what BookKeeper still holds of archived topics."""

from __future__ import annotations

from collections.abc import Iterable

from offloader.errors import AbsentError, AccessDeniedError
from offloader.metadata.state import CatalogHead
from offloader.operations.cost.looked import StillHeld
from offloader.ports.admin import Admin

PERSISTENCE = "persistence"
QUORUM = "bookkeeperWriteQuorum"
DEFAULT_QUORUM = "managedLedgerDefaultWriteQuorum"


class Copies:
    """How many copies bookies keep of what is written to a namespace now: what the namespace says, else the brokers."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._default: int | None = None
        self._of: dict[str, int | None] = {}

    def of(self, namespace: str) -> int | None:
        """None: neither says it."""
        if namespace not in self._of:
            self._of[namespace] = self._asked(namespace)
        return self._of[namespace]

    def _asked(self, namespace: str) -> int | None:
        try:
            said = self._admin.namespace_policies(namespace).get(PERSISTENCE)
        except AbsentError:
            return None
        if isinstance(said, dict) and (found := _number(said.get(QUORUM))):
            return found
        if self._default is None:
            self._default = self._of_brokers()
        return self._default or None

    def _of_brokers(self) -> int:
        """0: they do not say it, for example because they say it to super users alone."""
        try:
            return _number(self._admin.runtime_configuration().get(DEFAULT_QUORUM))
        except (AbsentError, AccessDeniedError):
            return 0


def _number(value: object) -> int:
    text = str(value)
    return int(text) if text.isdigit() and len(text) < 4 else 0


def still_held(admin: Admin, heads: Iterable[CatalogHead]) -> list[StillHeld]:
    """Of topics that Pulsar still has; of brokers that do not say it, nothing. What brokers have offloaded by
    themselves may be gone from bookies, and is left out. Raises what the admin REST raises."""
    found = []
    for head in heads:
        try:
            info = admin.topic_info(head.topic)
        except AbsentError:
            continue
        sizes = {ledger: size for ledger, (_, size) in info.sizes.items() if ledger not in info.offloaded}
        ours = head.end is not None and head.is_of(info.created, info.ledgers)
        last = head.end.ledger if ours and head.end is not None else -1
        archived = sum(size for ledger, size in sizes.items() if ledger < last)
        found.append(StillHeld(head.topic, sum(sizes.values()), archived))
    return found
