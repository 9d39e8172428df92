"""The same model where an operator restores the list from a backup, once: into the node, or the node is made anew."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from offloader.lifecycle.deletion.machine import SecondLook, UnprovenLedger, UnreferencedLedger
from offloader.lifecycle.deletion.records import DeletionProof
from tests.lifecycle.model.deletion import DeletionModel
from tests.lifecycle.model.services import Services, with_service
from tests.lifecycle.model.world import ABSENT, GONE, OURS, THERE, Node, Restored, Service, State, World

NEVER_TRIMMED = "we deleted entries that nobody trimmed"
Steps = Iterator[tuple[tuple[Any, ...], State]]


@dataclass(frozen=True)
class RestoredWorld(World):
    """`anew`: the node is made anew. `remembers`: somebody looks right after the restore, and it stays known what held
    data then. `ages`: a list is compared with the age of its node."""

    anew: bool = True
    remembers: bool = False
    ages: bool = True


class KeepingServices(Services):
    """They go by what is in a ledger."""

    world: RestoredWorld

    def _look(self, state: State, service: Service) -> SecondLook:
        look, known = super()._look(state, service), state.restored or Restored()
        if not isinstance(look, UnreferencedLedger) or look.evidence.proof is not DeletionProof.PASSED_BY:
            return look
        if self.world.ages and known.older >> service.ledger & 1:
            return UnprovenLedger("its list was made since")
        listed = state.node.listed if state.node else 0
        before_the_first = 1 << service.ledger < listed & -listed
        return replace(look, holds_data=bool(known.held >> service.ledger & 1) and not before_the_first)

    def _marks(self, state: State, place: int, service: Service) -> Steps:
        """What is kept is never marked."""
        look, known = self._look(state, service), state.restored or Restored()
        held = isinstance(look, UnreferencedLedger) and look.holds_data
        if held or known.kept >> service.ledger & 1:
            yield ("keeps", place, service.ledger), with_service(state, place, Service())
        else:
            yield from super()._marks(state, place, service)


class RestoringModel(DeletionModel):
    """What brokers do is written down beside; and the operator's two steps."""

    world: RestoredWorld

    def __init__(self, world: RestoredWorld) -> None:
        super().__init__(world)
        self.services = KeepingServices(world)

    def initial(self) -> list[State]:
        return [one._replace(restored=Restored()) for one in super().initial()]

    def actions(self, state: State) -> Steps:
        for name, after in super().actions(state):
            yield name, self._noted(state, name[0], after)
        known = state.restored or Restored()
        if state.node and state.node.listed and not known.done:
            if known.backup == ABSENT:
                yield ("backs up",), state._replace(restored=known._replace(backup=state.node.listed))
            else:
                yield ("restores",), self._tidy(self._restored(state, known))

    def violation(self, state: State) -> str | None:
        known = state.restored or Restored()
        untrimmed = known.held & ~known.released
        if any(how == OURS and untrimmed >> ledger & 1 for ledger, how in enumerate(state.ledgers)):
            return NEVER_TRIMMED
        return super().violation(state)

    def _noted(self, state: State, name: object, after: State) -> State:
        known = state.restored or Restored()
        before, now = (one.node.listed if one.node else 0 for one in (state, after))
        known = known._replace(held=known.held | now & ~before)
        if name == "trims":
            known = known._replace(released=known.released | before & ~now)
        elif name == "drops":
            known = known._replace(released=(1 << self.world.ledgers) - 1)
        elif name == "creates the topic":
            known = known._replace(older=_there(state))
        return after._replace(restored=known)

    def _restored(self, state: State, known: Restored) -> State:
        """A version that nobody has read. What we had deleted before is gone for whoever restores it."""
        older = _there(state) if self.world.anew else known.older
        kept = known.held & ~known.backup if self.world.remembers else 0
        return state._replace(
            node=Node(2, known.backup),
            ledgers=tuple(GONE if how == OURS else how for how in state.ledgers),
            certain=0,
            restored=known._replace(done=True, older=older, kept=kept),
        )


def _there(state: State) -> int:
    return sum(1 << ledger for ledger, how in enumerate(state.ledgers) if how == THERE)
