"""Which ledgers of a topic stock brokers can read as objects made of our blocks: from its bridge log alone. Pure.

Brokers own these objects. One that is not there any more was deleted by Pulsar."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from offloader.metadata.bridges import BridgedLedger, BridgeState
from offloader.metadata.deletions import BrokersCopy


class HandedLedger(NamedTuple):
    """A ledger that brokers deliver, as its round has proven. `bucket`: its URL, whose flat root has the objects.
    `by_brokers`: no round has, they have offloaded it by themselves; the objects' sums are not known."""

    incarnation: int
    ledger: BridgedLedger
    bucket: str
    by_brokers: bool = False

    @property
    def copy(self) -> BrokersCopy:
        """As a tombstone says it."""
        ledger = self.ledger
        return BrokersCopy(ledger.ledger, ledger.last, ledger.length, ledger.uuid, self.bucket, self.by_brokers)


@dataclass(frozen=True, slots=True)
class BridgedLedgers:
    """What a bridge log says, at one moment. `slot`: the one that its next record takes. `ledgers`: of finished rounds,
    by id; ids are used once. `let_go`: ledgers that an operator has let go as archive-only. `under_way`: the uuids of a
    round that is not finished, is being withdrawn, or whose objects are to go. `state`: what the newest record says.
    `newest`: incarnation and number of the last round that is in `ledgers`."""

    slot: int = 0
    ledgers: Mapping[int, HandedLedger] = field(default_factory=dict)
    let_go: frozenset[int] = frozenset()
    under_way: frozenset[str] = frozenset()
    state: BridgeState | None = None
    newest: tuple[int, int] | None = None

    @property
    def uuids(self) -> frozenset[str]:
        """All that may lie in the brokers' bucket."""
        return self.under_way | {each.ledger.uuid for each in self.ledgers.values()}


NOTHING_BRIDGED = BridgedLedgers()
