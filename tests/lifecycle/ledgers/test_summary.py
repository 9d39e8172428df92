"""Sums by kind, standing and age; and ZooKeeper's clock, which is read from what was written."""

from __future__ import annotations

import pytest

from offloader.lifecycle.ledgers.evidence import LedgerVerdict, SeenLedger, Standing
from offloader.lifecycle.ledgers.kinds import LedgerKind, LedgerPurpose
from offloader.lifecycle.ledgers.patient import PatientNodes, clock_by_reading
from offloader.lifecycle.ledgers.scanned import AGES, Heap, LedgerTally, age_of
from tests.fakes.memory_nodes import MemoryNodes

NOW = 1_800_000_000_000
DAY = 86_400_000


@pytest.mark.parametrize(
    ("days", "age"),
    [(-1, 0), (0, 0), (0.99, 0), (1, 1), (6.9, 1), (7, 2), (29, 2), (30, 3), (364, 3), (365, 4), (10_000, 4)],
)
def test_ages(days, age):
    assert age_of(NOW - int(days * DAY), NOW) == AGES[age]


def test_an_age_that_is_not_known():
    assert age_of(None, NOW) == AGES[-1] == "not known"


def verdict(standing, kind, *, days, length=None, copies=2):
    last = None if length is None else 0
    seen = SeenLedger(1, 0, LedgerPurpose(kind), None, last, length or 0, NOW - days * DAY, copies)
    return LedgerVerdict(seen, standing, kind, ())


def test_heaps_are_added_up():
    tally = LedgerTally(NOW)
    tally.add_named({LedgerKind.DATA: 7, LedgerKind.CURSOR: 0})
    summary = tally.summary(
        [
            verdict(Standing.CERTAIN, LedgerKind.DATA, days=2, length=10),
            verdict(Standing.CERTAIN, LedgerKind.DATA, days=3, length=5, copies=3),
            verdict(Standing.CERTAIN, LedgerKind.DATA, days=9),
            verdict(Standing.FOREIGN, LedgerKind.FOREIGN, days=9, length=1),
        ]
    )
    by_kind = summary.grouped(lambda key: key.kind if key.standing is Standing.CERTAIN else None)
    assert by_kind == {LedgerKind.DATA: Heap(3, 15, 35, 1)}
    by_age = summary.grouped(lambda key: key.age if key.standing is Standing.CERTAIN else None)
    assert by_age == {AGES[1]: Heap(2, 15, 35, 0), AGES[2]: Heap(1, 0, 0, 1)}
    assert [summary.number(one) for one in Standing] == [7, 3, 0, 1]


def test_the_clock_that_is_read_is_never_ahead_of_either():
    now = [NOW / 1000]
    nodes = MemoryNodes(clock=lambda: now[0])
    nodes.put("/a", b"")
    now[0] += 60
    nodes.put("/a", b"again")
    session = PatientNodes(nodes)
    assert clock_by_reading([session], NOW) == 0
    assert list(session.get_each(["/a", "/b"]))[1] == ("/b", None)
    assert clock_by_reading([session], NOW + 10 * DAY) == NOW + 60_000
    assert clock_by_reading([session], NOW) == NOW
