"""What brokers do with the topic: one step at a time, between any two of ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.bridge.model.world import LOADED, NONE, OURS, OUT, READ, STOCK, UNDER_WAY, Broker, Record, State, World

Steps = Iterator[tuple[tuple[Any, ...], State]]


class Brokers:
    """The owner's part, and that of clients and operators, who have topics loaded and unloaded."""

    def __init__(self, world: World) -> None:
        self.world = world

    def actions(self, state: State) -> Steps:
        owner = state.owner
        if owner.step == OUT:
            yield ("broker reads",), state._replace(owner=Broker(READ, state.record, current=True))
            return
        if owner.step == READ:
            yield ("broker loads",), self.loaded(state)
            return
        yield ("operator unloads",), self.unloaded(state)
        if owner.deletes:
            yield (
                ("broker deletes BookKeeper's copy",),
                state._replace(bookkeeper=False, owner=owner._replace(deletes=False)),
            )
        if not owner.fenced and owner.knows is not None:
            yield from self._writes(state, owner.knows)

    def _writes(self, state: State, knows: Record) -> Steps:
        if self.world.trims and knows.listed:
            yield ("broker trims",), self._trimmed(state, knows)
        if self.world.stock and knows.listed and knows.context in (NONE, UNDER_WAY):
            step = UNDER_WAY if knows.context == NONE else STOCK
            yield ("broker offloads", step), self._written(state, knows._replace(context=step))
            if knows.context == UNDER_WAY:
                yield ("broker gives up offloading",), self._written(state, knows._replace(context=NONE))
        if self.world.lag and knows.listed and knows.context in (OURS, STOCK) and not knows.gone:
            noted = self._written(state, knows._replace(gone=True))
            done = noted if noted.owner.fenced else noted._replace(owner=noted.owner._replace(deletes=True))
            yield ("broker notes the deletion",), done

    def _trimmed(self, state: State, knows: Record) -> State:
        after = self._written(state, knows._replace(listed=False, context=NONE))
        if after.owner.fenced:
            return after
        return after._replace(bookkeeper=False, objects=state.objects and knows.context != OURS)

    def _written(self, state: State, record: Record) -> State:
        """By compare-and-set: who is refused is fenced."""
        if not state.owner.current:
            return state._replace(owner=state.owner._replace(fenced=True))
        after = changed(state, record)
        return after._replace(owner=state.owner._replace(knows=record))

    def loaded(self, state: State) -> State:
        """The list is written, with a new ledger; a terminated topic's is not."""
        owner = state.owner
        assert owner.knows is not None
        if self.world.terminated:
            return state._replace(owner=owner._replace(step=LOADED))
        if not owner.current:
            return state._replace(owner=Broker())  # refused
        record = owner.knows._replace(newest=newest_of(state) + 1)
        return changed(state, record)._replace(owner=Broker(LOADED, record, current=True))

    def unloaded(self, state: State) -> State:
        former = state.owner._replace(deletes=False) if self.world.former and state.owner.step == LOADED else Broker()
        return state._replace(owner=Broker(), former=former)


def changed(state: State, record: Record) -> State:
    """Whatever anybody has read is old; but what the writer knows, who says so."""
    owner, former = (one._replace(current=False) for one in (state.owner, state.former))
    processes = tuple(one._replace(current=False) for one in state.processes)
    late = state.late and state.late._replace(current=False)
    return state._replace(record=record, owner=owner, former=former, processes=processes, late=late)


def newest_of(state: State) -> int:
    """Ids are never used again."""
    known = [one.knows.newest for one in (state.owner, state.former) if one.knows]
    return max([state.record.newest, *known])
