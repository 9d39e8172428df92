"""What a scan looks at once more before it says anything: the nodes of which its verdicts speak. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from offloader.lifecycle.ledgers.evidence import Fact, LedgerEvidence, LedgerVerdict, Remedy, Standing
from offloader.lifecycle.ledgers.kinds import LedgerPurpose, RefereeKind, namespace_of
from offloader.lifecycle.ledgers.leftovers import LeftoverManagedLedger, owners_of
from offloader.lifecycle.ledgers.references import Referee, References

Doubtable = TypeVar("Doubtable", LedgerVerdict, LeftoverManagedLedger)

_LISTS, _SCHEMAS = "/managed-ledgers/", "/schemas/"


@dataclass
class LookAgain:
    """Managed ledgers with their cursors, schemas, namespaces; `packages`: those of functions, all of them."""

    managed_ledgers: set[str] = field(default_factory=set)
    schemas: set[str] = field(default_factory=set)
    namespaces: set[str] = field(default_factory=set)
    packages: bool = False

    def at_purpose(self, purpose: LedgerPurpose) -> None:
        """What a ledger says that it is for."""
        if purpose.managed_ledger:
            self.managed_ledgers.add(purpose.managed_ledger)
        if purpose.schema:
            self.schemas.add(purpose.schema)
        if purpose.namespace:
            self.namespaces.add(purpose.namespace)

    def at_referee(self, referee: Referee) -> None:
        """Who names a ledger."""
        if referee.kind is RefereeKind.FUNCTIONS_LOG:
            self.packages = True
        elif referee.kind is RefereeKind.SCHEMA_LOCATOR:
            self.schemas.add(referee.node.removeprefix(_SCHEMAS))
        else:
            name = referee.node.removeprefix(_LISTS)
            self.managed_ledgers.add(name if referee.kind is RefereeKind.LEDGER_LIST else name.rpartition("/")[0])

    def at_leftover(self, name: str) -> None:
        """A managed ledger, and those to which it may belong."""
        names = {name, *(owner for owner, _ in owners_of(name))}
        self.managed_ledgers |= names
        self.namespaces |= set(map(namespace_of, names))


def only_these(all_of_it: References, again: LookAgain) -> References:
    """Of what refers to ledgers, that which is looked at again."""
    names = again.managed_ledgers
    return replace(
        all_of_it,
        lists={name: all_of_it.lists[name] for name in names if name in all_of_it.lists},
        cursors={name: all_of_it.cursors[name] for name in names if name in all_of_it.cursors},
        schemas={name: all_of_it.schemas[name] for name in again.schemas if name in all_of_it.schemas},
        views={name: all_of_it.views[name] for name in names if name in all_of_it.views},
    )


def doubted(one: Doubtable, failed: Iterable[str]) -> Doubtable:
    """Where something could not be read, it may name any ledger: nothing is certain."""
    why = next(iter(failed), None)
    if why is None or one.standing not in (Standing.CERTAIN, Standing.SUSPECT):
        return one
    return replace(
        one,
        standing=Standing.SUSPECT,
        evidence=(*one.evidence, LedgerEvidence(Fact.UNREADABLE, node="What may name it", text=why)),
        remedies=tuple(dict.fromkeys((*one.remedies, Remedy.REPAIR_NODE))),
    )
