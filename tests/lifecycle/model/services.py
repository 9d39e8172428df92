"""Our own part: the product's machine decides, one step at a time; between any two it may be stopped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from offloader.lifecycle.deletion.machine import (
    DeletionStep,
    DeletionTry,
    GoneLedger,
    ReferencedLedger,
    SecondLook,
    UnprovenLedger,
    UnreferencedLedger,
    marked,
    rule,
    taken_back,
    tried,
    undone,
)
from offloader.lifecycle.deletion.records import (
    DeletionEvidence,
    DeletionProof,
    DeletionState,
    DeletionSwitch,
    GuardKind,
    LedgerComponent,
    LedgerNode,
    LedgerType,
    PendingDeleteLedgerInfo,
)
from offloader.lifecycle.deletion.timing import DeletionTiming
from tests.lifecycle.model.brokers import with_ledger
from tests.lifecycle.model.world import ABSENT, OURS, THERE, Late, Node, Scan, Service, State, Step, World
from tests.times import DAY_MS

NOW = 1000 * DAY_MS  # whatever waits is due: how long it waited is left to the order of events
SWITCH = DeletionSwitch(True, 0)
LEFT_OUT = {"scans", "deletes, lost", "deletes later, lost"}  # by `alone`
OUTCOMES = tuple(DeletionTry)
Steps = Iterator[tuple[tuple[Any, ...], State]]


class Services:
    """The services' part of the model. Records are known by number."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.timing = DeletionTiming(max_tries=world.tries)
        self.records: list[PendingDeleteLedgerInfo] = []
        self._numbers: dict[PendingDeleteLedgerInfo, int] = {}
        # What the machine says is a function of numbers: it is asked once.
        self._ruled = cache(self._rule)
        self._tried = cache(self._number_tried)
        self._undone = cache(self._number_undone)

    def number(self, record: PendingDeleteLedgerInfo) -> int:
        """Without what tells nothing: times, and texts for people."""
        same = replace(
            record,
            marked_at=0,
            noted_at=0,
            next_at=0,
            ended_at=0,
            reason="",
            evidence=_plain(record.evidence),
            marked_by="",
        )
        number = self._numbers.setdefault(same, len(self.records))
        if number == len(self.records):
            self.records.append(same)
        return number

    def actions(self, state: State) -> Steps:
        for place, service in enumerate(state.services):
            if service.step != Step.IDLE:
                yield ("stops", place), with_service(state, place, Service())
            yield from self._steps(state, place, service)
        yield from self._undoes(state)
        if state.late:
            yield ("late",), self._applied(state._replace(late=None), *state.late)[0]
            yield ("never",), state._replace(late=None)

    def alone(self, state: State) -> State:
        """What comes of what is marked where nobody but one service does anything, and nothing fails."""
        state = state._replace(services=(Service(),) * len(state.services), late=None)
        while True:
            steps = self._steps(state, 0, state.services[0])
            named = (after for name, after in steps if name[0] not in LEFT_OUT)
            after = next(named, None)
            if after is None:
                return state
            state = after

    def _steps(self, state: State, place: int, service: Service) -> Steps:
        match service.step:
            case Step.IDLE:
                yield from self._begins(state, place)
            case Step.GOES_ON:
                yield from self._takes_up(state, place, service)
                yield ("ends", place), with_service(state, place, Service())
            case Step.SCANS:
                yield from self._marks(state, place, service)
            case Step.LOOKS:
                yield from self._rules(state, place, service)
            case Step.TRIES:
                yield from self._tries(state, place, service)
            case Step.TRIED:
                number = self._tried(service.record, service.outcome)
                written = self._written(state, service, number) or state
                yield ("records", place, self.records[number].state), with_service(written, place, _rest(service))

    def _begins(self, state: State, place: int) -> Steps:
        for ledger in self.world.targets:
            number = state.records[ledger]
            reads = (self._there if self.world.ids_first else self._list)(state, ledger)
            if number < 0:
                if reads != 0 or not self.world.ids_first:
                    scans = Service(Step.SCANS, ledger, reads, self._version(state))
                    yield ("scans", place, ledger), with_service(state, place, scans)
            elif not self.world.one_scan and self._is_due(state, ledger):
                looks = Service(Step.LOOKS, ledger, reads, self._version(state), number)
                yield ("looks", place, ledger), with_service(state, place, looks)
        if self.world.one_scan and any(self._is_due(state, ledger) for ledger in self.world.targets):
            scan = Scan(self._list(state), self._now(state))
            yield ("scans for all", place), with_service(state, place, Service(Step.GOES_ON, scan=scan))

    def _takes_up(self, state: State, place: int, service: Service) -> Steps:
        """One after the other, by its own node and what was read before."""
        for ledger in self.world.targets:
            if self._is_due(state, ledger):
                there = self._there(state, ledger)
                looks = Service(Step.LOOKS, ledger, there, record=state.records[ledger], scan=service.scan)
                yield ("takes up", place, ledger), with_service(state, place, looks)

    def _is_due(self, state: State, ledger: int) -> bool:
        number = state.records[ledger]
        in_flight = number >= 0 and self.records[number].is_in_flight
        return in_flight and not (self.world.waits and self._may_come_late(state, ledger))

    def _may_come_late(self, state: State, ledger: int) -> bool:
        return state.late is not None or any(
            other.step == Step.TRIES and other.ledger == ledger for other in state.services
        )

    def _marks(self, state: State, place: int, service: Service) -> Steps:
        """The second half of a first look, and the first phase."""
        ledger = service.ledger
        look = self._look(state, service)
        state = self._called(with_service(state, place, Service()), ledger, look)
        if isinstance(look, UnreferencedLedger) and state.records[ledger] < 0:
            record = marked(candidate(ledger, look.evidence), None, NOW)
            assert record is not None
            yield ("marks", place, ledger, look.evidence.proof), _recorded(state, ledger, self.number(record))
        else:
            yield ("passes over", place, ledger), state

    def _rules(self, state: State, place: int, service: Service) -> Steps:
        record = self.records[service.record]
        look = self._look(state, service) if self.world.looks_again else self._same(state, record)
        state = self._called(state, service.ledger, look)
        number, step, version = self._ruled(service.record, look)
        written = self._written(state, service, number)
        name = ("rules", place, service.ledger, self.records[number].state)
        if written is None or step is DeletionStep.NOTHING:
            yield name, with_service(written or state, place, _rest(service))
            return
        tries = Service(Step.TRIES, service.ledger, 0, version, number, scan=service.scan)
        yield name, with_service(written, place, tries)

    def _rule(self, number: int, look: SecondLook) -> tuple[int, DeletionStep, int]:
        """The record's new number, what is to be done, and the version of the referee that is to be proven."""
        ruling = rule(self.records[number], look, NOW, self.timing, SWITCH)
        return self.number(ruling.record), ruling.step, ruling.record.evidence.referee_version or 0

    def _number_tried(self, number: int, outcome: int) -> int:
        return self.number(tried(self.records[number], OUTCOMES[outcome], "", NOW, self.timing))

    def _tries(self, state: State, place: int, service: Service) -> Steps:
        """The transaction: refused, or done; or its answer is lost, and it is done now, later, or never."""
        late = Late(service.ledger, service.record, service.version)
        after, outcome = self._applied(state, *late)
        done = service._replace(step=Step.TRIED, version=0, outcome=OUTCOMES.index(outcome))
        yield ("deletes", place, service.ledger, outcome), with_service(after, place, done)
        lost = done._replace(outcome=OUTCOMES.index(DeletionTry.UNKNOWN))
        yield ("deletes, lost", place, service.ledger, outcome), with_service(after, place, lost)
        if state.late is None:
            yield ("deletes later, lost", place, service.ledger), with_service(state._replace(late=late), place, lost)

    def _applied(self, state: State, ledger: int, record: int, version: int) -> tuple[State, DeletionTry]:
        """The guarded transaction: the referee is checked, and the ledger's node deleted at its version, at once."""
        node, guard = state.node, self.records[record].evidence.guard
        if state.ledgers[ledger] != THERE or (self.world.guarded and not _holds(guard, node, version)):
            return state, DeletionTry.REFUSED
        if node and self.world.guarded and guard is GuardKind.REWRITE:
            state = state._replace(node=Node(node.version + 1, node.listed))
        return with_ledger(state, ledger, OURS), DeletionTry.DONE

    def _undoes(self, state: State) -> Steps:
        """An operator's mind changes, also between two tries. What is in doubt is looked at, as a service does."""
        for ledger, number in enumerate(state.records):
            if number < 0 or self.records[number].has_ended:
                continue
            if self.records[number].in_doubt and self.world.waits and self._may_come_late(state, ledger):
                continue
            after = self._undone(number, state.ledgers[ledger] == THERE)
            is_undone = self.records[after].state is DeletionState.UNDONE
            told = state._replace(undone=state.undone | int(is_undone) << ledger)
            yield ("undoes", ledger), _recorded(told, ledger, after)

    def _number_undone(self, number: int, there: bool) -> int:
        record = self.records[number]
        return self.number(taken_back(record, there=there, now=NOW) if record.in_doubt else undone(record, NOW))

    def _written(self, state: State, service: Service, number: int) -> State | None:
        """None: somebody else has changed the record."""
        if self.world.compares and service.overtaken:
            return None
        return _recorded(state, service.ledger, number)

    # Looks

    def _there(self, state: State, ledger: int) -> int:
        return int(state.ledgers[ledger] == THERE)

    def _list(self, state: State, _: int = 0) -> int:
        return state.node.listed if state.node else ABSENT

    def _version(self, state: State) -> int:
        """Of the node, where that is what a look begins with."""
        return state.node.version if state.node and not self.world.ids_first else 0

    def _look(self, state: State, service: Service) -> SecondLook:
        """Its second half: references, or the other way round."""
        if service.scan:
            return self._verdict(service.ledger, service.seen, *service.scan)
        if self.world.ids_first:
            node = state.node
            return self._verdict(service.ledger, service.seen, node.listed if node else ABSENT, self._now(state))
        return self._verdict(service.ledger, self._there(state, service.ledger), service.seen, service.version)

    def _now(self, state: State) -> int:
        return state.node.version if state.node else 0

    def _verdict(self, ledger: int, there: int, listed: int, version: int) -> SecondLook:
        """The rules of the reference for a data ledger."""
        if not there:
            return GoneLedger()
        if listed == ABSENT:
            return _unreferenced(DeletionEvidence(DeletionProof.REFEREE_ABSENT, "topic"))
        if listed >> ledger & 1:
            return ReferencedLedger("topic")
        if listed >> ledger:
            return _unreferenced(DeletionEvidence(DeletionProof.PASSED_BY, "topic", version))
        if self.world.on_demand:
            return _unreferenced(DeletionEvidence(DeletionProof.ON_DEMAND, "topic", version))
        return UnprovenLedger("greater than all")

    def _same(self, state: State, record: PendingDeleteLedgerInfo) -> SecondLook:
        """No look at all but for what the transaction needs."""
        evidence = record.evidence
        if evidence.referee_version is not None:
            evidence = replace(evidence, referee_version=self._now(state))
        return _unreferenced(evidence) if self._there(state, record.ledger_id) else GoneLedger()

    def _called(self, state: State, ledger: int, look: SecondLook) -> State:
        certain = isinstance(look, UnreferencedLedger) and look.evidence.proof is not DeletionProof.ON_DEMAND
        return state._replace(certain=state.certain | 1 << ledger) if certain else state


def _holds(guard: GuardKind, node: Node | None, version: int) -> bool:
    if guard is GuardKind.PROVE_ABSENCE:
        return node is None
    return node is not None and node.version == version


def _rest(service: Service) -> Service:
    """What comes after one ledger: the next one, where one scan is for all."""
    return Service(Step.GOES_ON, scan=service.scan) if service.scan else Service()


def _plain(evidence: DeletionEvidence) -> DeletionEvidence:
    return evidence if evidence.referee_version is None else replace(evidence, referee_version=0)


def _unreferenced(evidence: DeletionEvidence) -> UnreferencedLedger:
    return UnreferencedLedger(NODE, evidence, age=NOW, seen_at=NOW)


NODE = LedgerNode(b"", 0, 0)


def candidate(ledger: int, evidence: DeletionEvidence) -> PendingDeleteLedgerInfo:
    where = LedgerType.LEDGER, LedgerComponent.MANAGED_LEDGER, "topic"
    return PendingDeleteLedgerInfo(ledger, *where, NODE, evidence, DeletionState.MARKED, 0)


def with_service(state: State, place: int, service: Service) -> State:
    services = state.services
    return state._replace(services=(*services[:place], service, *services[place + 1 :]))


def _recorded(state: State, ledger: int, number: int) -> State:
    """Whoever has read the former record has read an old one; but for the writer, who goes on with the new one."""
    records = state.records
    services = tuple(s._replace(overtaken=True) if s.record >= 0 and s.ledger == ledger else s for s in state.services)
    return state._replace(records=(*records[:ledger], number, *records[ledger + 1 :]), services=services)
