"""The swap beside stock brokers: what is explored, and what must never be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from offloader.bridge.core.swap import Swap
from offloader.bridge.core.swap_steps import SetRecord
from tests.bridge.model.brokers import Brokers
from tests.bridge.model.processes import Processes
from tests.bridge.model.world import (
    FIRST_NEWEST,
    LOADED,
    NONE,
    OURS,
    UNDER_WAY,
    Broker,
    Process,
    Record,
    State,
    World,
)

DANGLING = "the record names an object that is not there"
UNREADABLE = "an entry of the list is in no place that the record leads to"
STALE = "the broker reads BookKeeper, whose copy is gone"


class SwapModel:
    """One topic, its broker, and processes of ours."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.brokers = Brokers(world)
        self.processes = Processes(world, self.brokers)

    def initial(self) -> list[State]:
        return [State(Record(), Broker(), Broker(), (Process(),) * self.world.processes)]

    def actions(self, state: State) -> Iterator[tuple[tuple[Any, ...], State]]:
        for part in (self.brokers, self.processes):
            for name, after in part.actions(state):
                yield name, self._tidy(after)

    def canonical(self, state: State) -> State:
        return state._replace(processes=tuple(sorted(state.processes)))

    def violation(self, state: State) -> str | None:
        record, owner = state.record, state.owner
        if state.broken:
            return state.broken
        if record.listed and record.context == OURS and not state.objects:
            return DANGLING
        if record.listed and record.context in (NONE, UNDER_WAY) and not state.bookkeeper:
            return UNREADABLE
        knows = owner.knows if owner.step == LOADED and not owner.fenced else None
        if knows and knows.listed and knows.context in (NONE, UNDER_WAY) and not state.bookkeeper and record.listed:
            return STALE
        return None

    def _tidy(self, state: State) -> State:
        """Ids of newest ledgers by their order; and a change that will be refused is like any other such."""
        swaps = self.processes.swaps
        known = [state.record, state.owner.knows, state.former.knows, state.late and state.late.record]
        ids = {one.newest for one in known if one}
        ids |= {swaps[one.swap].newest for one in state.processes if one.swap >= 0} - {-1}
        ranks = {one: FIRST_NEWEST + rank for rank, one in enumerate(sorted(ids))}
        return state._replace(
            record=_ranked(state.record, ranks),
            owner=self._broker(state.owner, ranks),
            former=self._broker(state.former, ranks),
            processes=tuple(self._process(one, ranks) for one in state.processes),
            late=state.late and state.late._replace(record=_ranked(state.late.record, ranks)),
        )

    def _broker(self, broker: Broker, ranks: dict[int, int]) -> Broker:
        return broker if broker.knows is None else broker._replace(knows=_ranked(broker.knows, ranks))

    def _process(self, process: Process, ranks: dict[int, int]) -> Process:
        if process.swap < 0:
            return process
        swap = self.processes.swaps[process.swap]
        changed = replace(swap, newest=ranks.get(swap.newest, swap.newest), pending=self._pending(swap, process, ranks))
        if isinstance(swap.action, SetRecord) and changed.pending is not None:
            changed = replace(changed, action=changed.pending)
        return process if changed == swap else process._replace(swap=self.processes.number(changed))

    def _pending(self, swap: Swap, process: Process, ranks: dict[int, int]) -> SetRecord | None:
        if swap.pending is None:
            return None
        record = self.processes.record_of(swap.pending.value)
        kept = Record(context=record.context) if not process.current else _ranked(record, ranks)
        return SetRecord(self.processes.bytes_of(kept), swap.pending.version)


def _ranked(record: Record, ranks: dict[int, int]) -> Record:
    return record._replace(newest=ranks.get(record.newest, record.newest))
