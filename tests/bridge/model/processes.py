"""Our own part: the product's machine decides; between any two of its actions a process may be paused, or end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from offloader._proto.managed_ledger_pb2 import ManagedLedgerInfo, OffloadContext
from offloader.bridge.core.record import newest_of
from offloader.bridge.core.rounds import BridgedLedger
from offloader.bridge.core.swap import Swap, advance
from offloader.bridge.core.swap_steps import (
    CallFailed,
    FetchRecord,
    LedgersProven,
    LoadTopic,
    NotProven,
    ProveLedgers,
    RecordChanged,
    RecordSeen,
    RecordSet,
    SetRecord,
    SwapEnd,
    SwapGoal,
    SwapLimits,
    SwapObservation,
    SwapOutcome,
    SwapPlan,
    TopicAwake,
    TopicLoaded,
    Unloaded,
    UnloadTopic,
    WakeTopic,
)
from offloader.state.managed_ledger_codec import decode_managed_ledger
from tests.bridge.model.brokers import Brokers, changed
from tests.bridge.model.world import (
    FINISHED,
    LEDGER,
    LOADED,
    NONE,
    OTHER,
    OURS,
    OUT,
    READ,
    STOCK,
    SWAPPING,
    UNDER_WAY,
    WITHDRAWING,
    WITHDRAWN,
    Broker,
    Late,
    Process,
    Record,
    State,
    World,
)

UUID = "00000000-0000-4000-8000-000000000001"
BRIDGED = BridgedLedger(LEDGER, 0, 1, UUID, 1)
BEFORE = BridgedLedger(OTHER, 0, 1, UUID, 1)
LAST = 5  # of a terminated topic
HALVES = {OURS: (0x4000, -(1 << 63) + 1), UNDER_WAY: (1, 1), STOCK: (1, 1)}
GOALS = {SWAPPING: SwapGoal.IN, WITHDRAWING: SwapGoal.OUT}
Steps = Iterator[tuple[tuple[Any, ...], State]]


class Processes:
    """Machines are known by number."""

    def __init__(self, world: World, brokers: Brokers) -> None:
        self.world = world
        self.brokers = brokers
        self.limits = SwapLimits(unloads=world.tries, tries=world.tries, proofs=min(world.tries, 2))
        self.swaps: list[Swap] = []
        self._numbers: dict[Any, int] = {}
        self.advanced = cache(self._advanced)
        self.record_of = cache(self._record_of)
        self.bytes_of = cache(self._bytes_of)

    # Machines

    def number(self, swap: Swap) -> int:
        swap = replace(swap, conflicts=0)
        action = swap.action if not isinstance(swap.action, SwapOutcome) else swap.action.end
        key: tuple[object, ...] = (swap.plan.goal, action)
        left_out = tuple(swap.left_out.items())
        ours = tuple(one.ledger for one in swap.ours)
        counts = swap.newest, swap.deleted, swap.stock, swap.unloads, swap.tries, swap.proofs
        key += (swap.doubt, swap.fenced, swap.pending, swap.verdict, ours, left_out, swap.kept, counts)
        key += (swap.to_come, swap.broken, tuple(swap.plan.unsound))
        if key not in self._numbers:
            self._numbers[key] = len(self.swaps)
            self.swaps.append(swap)
        return self._numbers[key]

    def begun(self, phase: int, *, objects: bool) -> int:
        why_not = "" if self.world.tiered_first or not self.world.asks else "BookKeeper first"
        ledgers = (BEFORE, BRIDGED) if self.world.mixed and phase == SWAPPING else (BRIDGED,)
        plan = SwapPlan(GOALS[phase], ledgers, "S3", (("bucket", "b"),), limits=self.limits)
        if phase == SWAPPING:
            unsound = {} if objects else {LEDGER: "its object is gone"}
            plan = replace(plan, why_not=why_not, unsound=unsound, repairs=self.world.repairs)
        swap = Swap(plan)
        if phase == WITHDRAWING and not self.world.fences:
            swap = replace(swap, fenced=True, doubt=False)
        if not self.world.wakes:
            swap = replace(swap, action=FetchRecord())
        return self.number(swap)

    def _advanced(self, number: int, seen: SwapObservation) -> int:
        before = self.swaps[number]
        after = advance(before, seen)
        if not self.world.doubts and isinstance(before.action, SetRecord):
            after = replace(after, doubt=False)
        if not self.world.wakes and isinstance(after.action, WakeTopic):
            after = replace(after, action=FetchRecord())
        return self.number(after)

    def _bytes_of(self, record: Record) -> bytes:
        info = ManagedLedgerInfo()
        if self.world.mixed:
            other = info.ledgerInfo.add(ledgerId=OTHER, entries=1, size=1)
            msb, lsb = HALVES[OURS]
            other.offloadContext.CopyFrom(OffloadContext(uidMsb=msb, uidLsb=lsb, complete=True))
        if record.listed:
            one = info.ledgerInfo.add(ledgerId=LEDGER, entries=1, size=1)
            if record.context:
                msb, lsb = HALVES[record.context]
                context = OffloadContext(uidMsb=msb, uidLsb=lsb, complete=record.context != UNDER_WAY)
                if record.gone:
                    context.bookkeeperDeleted = True
                one.offloadContext.CopyFrom(context)
        if self.world.terminated:
            info.ledgerInfo.add(ledgerId=LAST, entries=1, size=1)
            info.terminatedPosition.ledgerId, info.terminatedPosition.entryId = LAST, 0
        else:
            info.ledgerInfo.add(ledgerId=record.newest)
        return info.SerializeToString()

    def _record_of(self, data: bytes) -> Record:
        topic = decode_managed_ledger(data)
        one = topic.get(LEDGER)
        newest = newest_of(topic) if not self.world.terminated else Record().newest
        if one is None:
            return Record(False, newest=newest)
        copy = one.copy
        context = NONE if one.context is None else OURS if copy.uuid == UUID else STOCK if copy.complete else UNDER_WAY
        return Record(True, context, copy.bookkeeper_deleted, newest)

    # Steps

    def actions(self, state: State) -> Steps:
        for place, process in enumerate(state.processes):
            if process.swap >= 0 or process.cleans >= 0:
                yield ("ends", place), with_process(state, place, Process())
            for name, after in self.steps(state, place, process):
                yield (name, place), after
        if self.world.given_up and state.phase == SWAPPING:
            yield ("is given up",), state._replace(phase=WITHDRAWING)
        if state.late is not None:
            yield ("arrives late",), self._set(state._replace(late=None), state.late.record, state.late.current)[0]

    def steps(self, state: State, place: int, process: Process) -> Iterator[tuple[str, State]]:
        if process.cleans >= 0:
            yield "deletes the objects", self._cleaned(state, place, process)
        elif process.swap < 0:
            if state.leaving:
                yield "deletes the objects", state._replace(objects=False, leaving=False)
            elif state.phase in GOALS:
                begun = Process(self.begun(state.phase, objects=state.objects), state.phase)
                early = state._replace(objects=state.objects and (state.phase == SWAPPING or self.world.contexts_first))
                yield "looks at the log", with_process(early, place, begun)
        else:
            yield from self._does(state, place, process)

    def _does(self, state: State, place: int, process: Process) -> Iterator[tuple[str, State]]:
        match self.swaps[process.swap].action:
            case SwapOutcome():
                yield "records", self._recorded(state, place, process)
            case WakeTopic() | FetchRecord() | LoadTopic() | ProveLedgers() as action:
                yield "no answer", self._sees(state, place, CallFailed(""))
                for seen in self._answers(state, process, action):
                    after = self._sees(state, place, seen)
                    if isinstance(action, FetchRecord):
                        after = with_process(after, place, after.processes[place]._replace(current=True))
                    yield type(action).__name__, after
            case UnloadTopic():
                yield from self._unloads(state, place)
            case SetRecord(value, _):
                yield from self._sets(state, place, process, self.record_of(value))

    def _answers(self, state: State, process: Process, action: object) -> Iterator[SwapObservation]:
        asked = [one for one in (state.owner, state.former) if one.step == LOADED and one.knows]
        if isinstance(action, FetchRecord):
            yield RecordSeen(self.bytes_of(state.record), 1, state.phase == process.phase, 0)
        elif isinstance(action, WakeTopic) and asked:
            yield TopicAwake()
        elif isinstance(action, LoadTopic):
            yield from {self._knows(one.knows) for one in asked if one.knows}
        elif isinstance(action, ProveLedgers) and state.owner.step == LOADED and state.owner.knows:
            asked_for = BRIDGED in action.ledgers
            yield self._proof(state, state.owner, state.owner.knows) if asked_for else LedgersProven(())

    def _knows(self, knows: Record) -> TopicLoaded:
        newest = LAST if self.world.terminated else knows.newest
        other = frozenset({OTHER} if self.world.mixed else ())
        listed = other | frozenset({LEDGER, newest} if knows.listed else {newest})
        offloaded = frozenset({LEDGER} if knows.listed and knows.context in (OURS, STOCK) else ())
        if not self.world.checks:
            return TopicLoaded(listed, frozenset({LEDGER}))
        return TopicLoaded(listed, other | offloaded)

    def _proof(self, state: State, owner: Broker, knows: Record) -> SwapObservation:
        from_object = knows.context == OURS and (self.world.tiered_first or knows.gone)
        readable = state.objects and self.world.readable if from_object else state.bookkeeper
        arrives = readable and knows.listed and not owner.fenced
        return LedgersProven(()) if arrives else NotProven("")

    def _unloads(self, state: State, place: int) -> Iterator[tuple[str, State]]:
        done = state if not self.world.unloads else self.brokers.unloaded(self._woken(state))
        yield "unloads", self._sees(done, place, Unloaded())
        yield "unloads, lost", self._sees(done, place, CallFailed(""))
        yield "no answer", self._sees(state, place, CallFailed(""))
        if not self.world.honest:
            yield "unloads nothing", self._sees(state, place, Unloaded())

    def _woken(self, state: State) -> State:
        """Brokers load what they have not in order to unload it."""
        if state.owner.step == LOADED:
            return state
        return self.brokers.loaded(state._replace(owner=Broker(READ, state.record, current=True)))

    def _sets(self, state: State, place: int, process: Process, record: Record) -> Iterator[tuple[str, State]]:
        current = process.current
        if not self.world.reads_first and not current:  # the version is read right now
            record = state.record._replace(context=record.context if state.record.listed else NONE)
            current = True
        after, is_set = self._set(state, record, current)
        yield "sets", self._sees(after, place, RecordSet() if is_set else RecordChanged())
        yield "sets, lost", self._sees(after, place, CallFailed(""))
        if self.world.late and state.late is None:
            late = state._replace(late=Late(record, process.current))
            yield "sets later, lost", self._sees(late, place, CallFailed(""))

    def _set(self, state: State, record: Record, current: bool) -> tuple[State, bool]:
        if not current:
            return state, False
        after = changed(state, record)
        if not self.world.keeps_bookkeeper:
            after = after._replace(bookkeeper=False)
        unsound = record != state.record and state.owner.step == LOADED and not state.owner.fenced
        if unsound and self.world.honest and not self.world.terminated:
            after = after._replace(broken="the record was rewritten under a loaded topic")
        return after, True

    def _recorded(self, state: State, place: int, process: Process) -> State:
        """By compare-and-set: who comes too late looks again."""
        outcome = self.swaps[process.swap].action
        assert isinstance(outcome, SwapOutcome)
        if state.phase != process.phase or outcome.end in (SwapEnd.LATER, SwapEnd.REFUSED, SwapEnd.OVERTAKEN):
            return with_process(state, place, Process())
        free = with_process(state, place, Process())
        if outcome.end is SwapEnd.BUILD:
            return free._replace(objects=True)
        if outcome.end is SwapEnd.WITHDRAW:
            return free._replace(phase=WITHDRAWING) if self.world.withdraws else self._over(free, FINISHED)
        end = FINISHED if outcome.end is SwapEnd.PROVEN else WITHDRAWN
        later = BRIDGED in outcome.to_come
        if end == FINISHED and later and self.world.fences_rest and self.world.records_first:
            return free._replace(phase=WITHDRAWING)
        stays = outcome.kept or (end == FINISHED and not later and LEDGER not in outcome.left_out)
        if stays or self.world.repairs:
            return self._over(free, end)
        if not self.world.records_first:
            return with_process(state, place, Process(cleans=end, phase=process.phase))
        return self._over(free, end)._replace(leaving=True)

    def _cleaned(self, state: State, place: int, process: Process) -> State:
        after = with_process(state._replace(objects=False), place, Process())
        return self._over(after, process.cleans) if state.phase == process.phase else after

    def _over(self, state: State, end: int) -> State:
        """The round is; now brokers must know the record as it is."""
        after, owner = state._replace(phase=end), state.owner
        if end == FINISHED and not self.world.readable and state.record.context == OURS:
            return after._replace(broken="a round was finished that brokers cannot read")
        if owner.step == LOADED and owner.knows and (owner.knows.context == OURS) != (state.record.context == OURS):
            return after._replace(broken="a round is over, and the topic's broker does not know the record")
        return after

    def _sees(self, state: State, place: int, seen: SwapObservation) -> State:
        process = state.processes[place]
        return with_process(state, place, process._replace(swap=self.advanced(process.swap, seen)))

    # Left alone

    def left_alone(self, state: State) -> State:
        """What is left where all processes but a new one have ended."""
        return state._replace(processes=(Process(),), former=Broker(), late=None)

    def alone(self, state: State) -> State:
        """Nobody else does anything but loading what is asked for and ending what was begun; and no answer is lost."""
        state = self.left_alone(state)
        for _ in range(200):
            if state.phase not in GOALS and not state.leaving:
                break
            state = self._settled(state)
            state = next(after for name, after in self.steps(state, 0, state.processes[0]) if name != "no answer")
        return state

    def _settled(self, state: State) -> State:
        if state.owner.step == READ:
            state = self.brokers.loaded(state)
        action = self.swaps[state.processes[0].swap].action if state.processes[0].swap >= 0 else None
        if state.owner.step == OUT and isinstance(action, WakeTopic | LoadTopic | ProveLedgers):
            state = self.brokers.loaded(state._replace(owner=Broker(READ, state.record, current=True)))
        if state.record.context == UNDER_WAY:
            state = changed(state, state.record._replace(context=STOCK))._replace(owner=Broker())
        return state


def with_process(state: State, place: int, process: Process) -> State:
    processes = state.processes
    return state._replace(processes=(*processes[:place], process, *processes[place + 1 :]))
