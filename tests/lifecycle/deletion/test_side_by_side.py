"""Several sides in one service: a side that refuses keeps no other from its turn, in rounds and in a purge."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import islice

import pytest

from offloader.lifecycle.deletion.machine import GoneLedger
from offloader.lifecycle.deletion.records import (
    DeletionAnswer,
    DeletionProof,
    DeletionState,
    LedgerComponent,
    LedgerNode,
    LedgerType,
)
from offloader.lifecycle.deletion.service import DeletionRules, LedgerDeletionService
from offloader.lifecycle.deletion.side import SideLooks
from offloader.lifecycle.deletion.task import DeletionTask, LazySide
from offloader.lifecycle.deletion.timing import DeletionBounds

from .support import EVIDENCE, candidate
from .test_service import Setting

SOON = 1.0

A_ROUND = 10
ABSENT = replace(EVIDENCE, proof=DeletionProof.REFEREE_ABSENT, referee_version=None)
TYPES = (LedgerType.LEDGER, LedgerType.MANAGED_LEDGER, LedgerType.OBJECT)


@dataclass
class ASide:
    """Everything on it is gone already, unless it refuses."""

    refusals: tuple[str, ...] = ()
    asked: list[int] = field(default_factory=list)

    def look(self, records, *, goes_on=False):
        self.asked.append(len(records))
        return SideLooks({one.name: GoneLedger() for one in records}, 10**6, self.refusals)

    def close(self, record):
        raise AssertionError

    def delete(self, record, in_time):
        raise AssertionError


def records_of(kind: LedgerType, numbers: Iterable[int], now: int):
    for one in numbers:
        if kind is LedgerType.LEDGER:
            yield candidate(one, marked_at=now)
        elif kind is LedgerType.MANAGED_LEDGER:
            name = f"acme/orders/persistent/t-{one}__transaction_pending_ack"
            part = {"ledger_component": LedgerComponent.PENDING_ACKS, "topic_name": name, "evidence": ABSENT}
            yield candidate(-1, ledger_type=kind, marked_at=now, **part)
        else:
            part = {"ledger_component": LedgerComponent.ARCHIVE, "node": LedgerNode(b"etag", 1, 1)}
            yield candidate(-1, ledger_type=kind, marked_at=now, object_key=f"k/{one}", **part)


class Sides(Setting):
    """30 records are due of the side that refuses, marked before three of each other."""

    def __init__(self, refuses: LedgerType) -> None:
        super().__init__()
        self.on()
        self.bounds = DeletionBounds(a_round=A_ROUND)
        self.refusing = refuses
        self.sides = {kind: ASide(("a bookie is away",) if kind is refuses else ()) for kind in TYPES}
        self.marked(refuses, 3 * A_ROUND)
        for kind in TYPES:
            if kind is not refuses:
                self.marked(kind, 3)
        self.later()

    def marked(self, kind: LedgerType, number: int) -> None:
        self.later(60)
        for one in records_of(kind, islice(self.numbers, number), self.cluster.now_ms):
            assert one.is_valid
            assert self.queue.write(one, None)

    def rules(self) -> DeletionRules:
        return DeletionRules(self.timing, self.bounds)

    def in_flight(self) -> set[LedgerType]:
        return {one.record.ledger_type for one in self.queue.records() if one.record.is_in_flight}


@pytest.mark.parametrize("refuses", TYPES)
def test_a_side_that_refuses_keeps_no_other_from_its_turn(refuses):
    it = Sides(refuses)
    service = LedgerDeletionService(it.queue, it.sides, it.rules(), it.told, lambda: it.cluster.now_ms)
    done = service.round()
    assert it.in_flight() == {refuses}
    assert (done.looked_at, done.left, done.refusals) == (6, 0, ("a bookie is away",))
    assert it.told.refusals == [{refuses: ["a bookie is away"]}]


@pytest.mark.parametrize("refuses", TYPES)
def test_others_go_on_soon_and_the_one_that_refuses_is_asked_once_an_interval(refuses):
    """A refusal comes of a look at all of ZooKeeper: once a second that is too much."""
    it = Sides(refuses)
    another = next(kind for kind in TYPES if kind is not refuses)
    it.marked(another, 4 * A_ROUND)
    it.later()
    opened = {kind: LazySide(_opens(side)) for kind, side in it.sides.items()}
    task = DeletionTask(True, 600.0, it.queue, opened, it.rules(), it.told, lambda: it.cluster.now_ms)
    waits = [task.run() for _ in range(5)]
    assert waits == [SOON, SOON, SOON, SOON, 600.0]
    assert it.in_flight() == {refuses}
    assert len(it.sides[refuses].asked) == 1
    assert it.told.refusals
    assert all(one == {refuses: ["a bookie is away"]} for one in it.told.refusals)
    it.sides[refuses].refusals = ()
    while task.run() == SOON:
        pass
    assert it.in_flight() == set()
    assert it.told.refusals[-1] == {}


def _opens(side: ASide):
    def opened(_stack: ExitStack) -> ASide:
        return side

    return opened


def test_of_each_type_those_that_have_waited_longest_come_first():
    it = Sides(LedgerType.LEDGER)
    it.sides[LedgerType.LEDGER].refusals = ()
    service = LedgerDeletionService(it.queue, it.sides, it.rules(), it.told, lambda: it.cluster.now_ms)
    assert [(done.looked_at, done.left) for done in (service.round() for _ in range(4))] == [
        (16, 20), (10, 10), (10, 0), (0, 0),
    ]  # fmt: skip
    assert {one.record.answer for one in it.queue.records()} == {DeletionAnswer.ALREADY_GONE}
    assert {one.record.state for one in it.queue.records()} == {DeletionState.DELETED}
