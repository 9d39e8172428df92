"""The machine over the queue, killed at any call to the bucket or to ZooKeeper: each marked ledger is deleted exactly
once or told, none is told twice, none is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random

import pytest

from integration.soak import SOAK
from offloader.errors import OutcomeUnknownError
from offloader.lifecycle.deletion.machine import (
    DeletionStep,
    DeletionTry,
    DeletionTurn,
    GoneLedger,
    ReferencedLedger,
    SecondLook,
    UnreferencedLedger,
    closed,
    marked,
    rule,
    tried,
    turn,
)
from offloader.lifecycle.deletion.queue import DeletionQueue, StoredDeletion
from offloader.lifecycle.deletion.records import (
    DeletionAnswer,
    DeletionState,
    DeletionSwitch,
    LedgerNode,
    PendingDeleteLedgerInfo,
)
from offloader.lifecycle.deletion.timing import DeletionTiming
from offloader.storage.memory import MemoryStore
from tests.examples import few
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults
from tests.times import DAY_MS

from .support import EVIDENCE, NODE, NOW, candidate

LEDGERS, KILLS = (1000, 100) if SOAK else (60, 30)
CALLS = range(LEDGERS - 10, LEDGERS + 30)  # after all are read, mostly
TIMING = DeletionTiming(max_tries=1000)
SWITCH = DeletionSwitch(True, 0)


class KilledError(Exception):
    """The process is gone."""


@dataclass
class Ledgers:
    """What is in ZooKeeper. The process dies at the call whose turn it is, before it or after it."""

    nodes: dict[int, LedgerNode]
    rng: Random
    open: set[int] = field(default_factory=set)
    in_use: set[int] = field(default_factory=set)
    deleted: Counter[int] = field(default_factory=Counter)
    dies_after: int = -1
    now: int = NOW

    def look(self, ledger: int) -> SecondLook:
        if ledger in self.in_use:
            return ReferencedLedger("its list")
        if ledger not in self.nodes:
            return GoneLedger()
        return UnreferencedLedger(self.nodes[ledger], EVIDENCE, 9 * DAY_MS, self.now, is_open=ledger in self.open)

    def close(self, ledger: int) -> LedgerNode:
        with_end = replace(self.nodes[ledger], data=b"closed", version=self.nodes[ledger].version + 1)
        for _ in self._dying():
            self.open.discard(ledger)
            self.nodes[ledger] = with_end
        return with_end

    def delete(self, record: PendingDeleteLedgerInfo) -> DeletionTry:
        if self.nodes.get(record.ledger_id) != record.node:
            return DeletionTry.REFUSED
        for _ in self._dying():
            del self.nodes[record.ledger_id]
            self.deleted[record.ledger_id] += 1
        return self.rng.choice((DeletionTry.DONE, DeletionTry.DONE, DeletionTry.UNKNOWN))

    def _dying(self) -> Iterator[None]:
        self.dies_after -= 1
        if self.dies_after == 0 and self.rng.random() < 0.5:
            raise KilledError
        yield
        if self.dies_after == 0:
            raise KilledError


def stored(queue: DeletionQueue) -> list[StoredDeletion]:
    return list(queue.readable())


def run(queue: DeletionQueue, ledgers: Ledgers, now: int) -> None:
    """One round of a service."""
    ledgers.now = now
    for it in stored(queue):
        match turn(it.record, now, TIMING, SWITCH):
            case DeletionTurn.REMOVE:
                queue.remove(it)
            case DeletionTurn.LOOK:
                second_phase(queue, ledgers, it, now)
    queue.tidy()


def second_phase(queue: DeletionQueue, ledgers: Ledgers, former: StoredDeletion, now: int) -> None:
    ruling = rule(former.record, ledgers.look(former.record.ledger_id), now, TIMING, SWITCH)
    written = queue.write(ruling.record, former)
    if written and ruling.step is DeletionStep.CLOSE:
        ruling = closed(written.record, ledgers.close(written.record.ledger_id))
        written = queue.write(ruling.record, written)
    if written and ruling.step is DeletionStep.DELETE:
        outcome = ledgers.delete(written.record)
        queue.write(tried(written.record, outcome, "", now, TIMING), written)


@pytest.mark.parametrize("seed", few(range(3), 1))
def test_each_marked_ledger_is_deleted_exactly_once_or_told_whenever_we_are_killed(seed: int):
    rng, store, numbers = Random(seed), MemoryStore(), count()
    ids = range(LEDGERS)
    ledgers = Ledgers(dict.fromkeys(ids, NODE), rng)
    ledgers.open = set(rng.sample(ids, LEDGERS // 4))
    started = DeletionQueue(store, "main", lambda: f"t{next(numbers)}")
    for ledger in ids:
        record = marked(candidate(ledger), None, NOW)
        assert record
        started.write(record, None)
    ledgers.in_use = set(rng.sample(ids, LEDGERS // 10))
    now, killed = NOW + DAY_MS, 0
    while killed < KILLS and any(it.record.is_in_flight for it in stored(started)):
        now += DAY_MS // 12
        at_store = rng.random() < 0.5
        effect = rng.choice((Effect.BEFORE, Effect.LOST))
        fault = StoreFault("*", effect, KilledError, after=rng.choice(CALLS))
        ledgers.dies_after = -1 if at_store else rng.randrange(1, 4)
        faulty = FaultyStore(store, StoreFaults([fault] if at_store else []))
        try:
            run(DeletionQueue(faulty, "main", lambda: f"t{next(numbers)}"), ledgers, now)
        except (KilledError, OutcomeUnknownError):
            killed += 1
    assert killed > KILLS // 2
    ledgers.dies_after = -1
    for _ in range(12):
        now += DAY_MS
        run(started, ledgers, now)
    ended = {it.record.ledger_id: it.record for it in stored(started)}
    assert ended.keys() == set(ids)
    for ledger, record in ended.items():
        assert record.has_ended
        if ledger in ledgers.in_use:
            assert (record.state, record.answer) == (DeletionState.KEPT, DeletionAnswer.STILL_IN_USE)
            assert ledger in ledgers.nodes
        else:
            assert (record.state, record.answer) == (DeletionState.DELETED, DeletionAnswer.DELETED)
            assert ledgers.deleted[ledger] == 1
    run(started, ledgers, now + TIMING.kept + 1)
    assert stored(started) == []
    assert list(store.list("")) == []
