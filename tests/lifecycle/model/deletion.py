"""The two phases beside stock brokers: what is explored, and what must never be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from offloader.lifecycle.deletion.records import DeletionState
from tests.lifecycle.model.brokers import Brokers
from tests.lifecycle.model.services import Services
from tests.lifecycle.model.world import NEVER, OURS, THERE, Node, Owner, Service, State, World


class DeletionModel:
    """One topic, its ledgers, brokers, and ourselves."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.brokers = Brokers(world)
        self.services = Services(world)

    def initial(self) -> list[State]:
        w = self.world
        nobody = (Owner(),) * w.owners, (Service(),) * w.services
        return [State(None, (NEVER,) * w.ledgers, 0, *nobody, (-1,) * w.ledgers, 0, 0, None)]

    def actions(self, state: State) -> Iterator[tuple[tuple[Any, ...], State]]:
        for part in (self.brokers, self.services):
            for name, after in part.actions(state):
                yield name, after if after.node is state.node else self._tidy(after)

    def canonical(self, state: State) -> State:
        """Owners, and services, are as good as each other."""
        owners, services = sorted(state.owners), sorted(state.services, key=lambda one: (one[:-1], one.scan or ()))
        return state._replace(owners=tuple(owners), services=tuple(services))

    def violation(self, state: State) -> str | None:
        listed = state.node.listed if state.node else 0
        for ledger, how in enumerate(state.ledgers):
            bit = listed >> ledger & 1
            if bit and how == OURS:
                return f"ledger {ledger} is listed, and we deleted it"
            if bit and state.certain >> ledger & 1:
                return f"ledger {ledger} was called certain, and is listed"
            if how == OURS and state.undone >> ledger & 1:
                return f"ledger {ledger} was undone, and we deleted it"
            number = state.records[ledger]
            if number >= 0 and (wrong := self._told_wrong(number, how)):
                return f"ledger {ledger} was told as {wrong}"
        return None

    def _told_wrong(self, number: int, how: int) -> str:
        record = self.services.records[number]
        if how == OURS and record.state is DeletionState.KEPT:
            return "kept, and we deleted it"
        if how == THERE and record.state is DeletionState.DELETED:
            return "deleted, and is there"
        return ""

    def _tidy(self, state: State) -> State:
        """Versions that nobody can meet any more are one: what matters is who knows the one that is."""
        if self.world.restarts:
            return state
        version = state.node.version if state.node else -1
        node = None if state.node is None else Node(1, state.node.listed)
        owners = tuple(o if o.version == 0 else o._replace(version=int(o.version == version)) for o in state.owners)
        services = tuple(s if s.version == 0 else s._replace(version=int(s.version == version)) for s in state.services)
        services = tuple(
            s._replace(scan=s.scan._replace(version=int(s.scan.version == version))) if s.scan and s.scan.version else s
            for s in services
        )
        late = state.late and state.late._replace(version=int(state.late.version == version))
        return state._replace(node=node, owners=owners, services=services, late=late)
