"""What stock brokers do with a topic's ledgers, one write of metadata at a time; between any two they may pause for as
long as anybody likes, or be gone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.lifecycle.model.world import GONE, THERE, Node, Owner, State, Step, World

Steps = Iterator[tuple[tuple[Any, ...], State]]


class Brokers:
    """The owners' part of the model."""

    def __init__(self, world: World) -> None:
        self.world = world

    def actions(self, state: State) -> Steps:
        for place, owner in enumerate(state.owners):
            if owner.step == Step.OUT:
                yield self._reads(state, place)
                continue
            yield ("crash", place), with_owner(state, place, Owner())
            yield from self._creates(state, place, owner)
            if owner.step != Step.DROPS and owner.loaded and state.node and owner.version == state.node.version:
                yield from self._trims(state, place, owner, state.node)
            yield from self._deletes(state, place, owner)

    def _reads(self, state: State, place: int) -> tuple[tuple[Any, ...], State]:
        """Loads the topic; makes its node if there is none."""
        node = state.node or Node(0 if self.world.restarts else 1, 0)
        name = ("reads", place) if state.node else ("creates the topic", place)
        return name, with_owner(state._replace(node=node), place, Owner(Step.READ, node.version))

    def _creates(self, state: State, place: int, owner: Owner) -> Steps:
        """Takes an id, makes the ledger, lists it; the list is compared with the one that it knows."""
        new = state.next_id
        if owner.step in (Step.READ, Step.OWNS) and new < self.world.ledgers:
            took = owner._replace(step=Step.TOOK, new=new)
            yield ("takes", place, new), with_owner(state._replace(next_id=new + 1), place, took)
        elif owner.step == Step.TOOK:
            made = with_owner(state, place, owner._replace(step=Step.MADE))
            yield ("makes", place, owner.new), with_ledger(made, owner.new, THERE)
        elif owner.step == Step.MADE:
            yield ("lists", place, owner.new), self._listed(state, place, owner)

    def _listed(self, state: State, place: int, owner: Owner) -> State:
        node = state.node
        if node is None or node.version != owner.version:
            return with_owner(state, place, Owner())  # fenced: the ledger is left behind
        after = Node(node.version + 1, node.listed | 1 << owner.new)
        owns = Owner(Step.OWNS, after.version, loaded=True, dying=owner.dying)
        return with_owner(state._replace(node=after), place, owns)

    def _trims(self, state: State, place: int, owner: Owner, node: Node) -> Steps:
        """Drops the first ledger from the list, never the last one; or begins to delete the whole topic.

        Whoever's list is outdated would be refused, or would delete what it had begun to delete before."""
        first = node.listed & -node.listed
        if node.listed != first:
            after = Node(node.version + 1, node.listed ^ first)
            trimming = owner._replace(version=after.version, dying=owner.dying | first)
            yield ("trims", place), with_owner(state._replace(node=after), place, trimming)
        if owner.step == Step.OWNS:
            yield ("drops", place), with_owner(state, place, Owner(Step.DROPS, dying=owner.dying | node.listed))

    def _deletes(self, state: State, place: int, owner: Owner) -> Steps:
        """Ledgers of any version, and at last the node of any version."""
        for ledger in range(self.world.ledgers):
            if owner.dying >> ledger & 1:
                left = with_owner(state, place, owner._replace(dying=owner.dying ^ 1 << ledger))
                there = state.ledgers[ledger] == THERE
                yield ("deletes", place, ledger), with_ledger(left, ledger, GONE) if there else left
                return  # in which order does not matter to anybody
        if owner.step == Step.DROPS:
            yield ("deletes the topic", place), with_owner(state._replace(node=None), place, Owner())


def with_owner(state: State, place: int, owner: Owner) -> State:
    owners = state.owners
    return state._replace(owners=(*owners[:place], owner, *owners[place + 1 :]))


def with_ledger(state: State, ledger: int, how: int) -> State:
    ledgers = state.ledgers
    return state._replace(ledgers=(*ledgers[:ledger], how, *ledgers[ledger + 1 :]))
