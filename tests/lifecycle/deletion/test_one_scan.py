"""One scan serves all that is due, round by round, while brokers go on: what decides is read anew in each round."""

from __future__ import annotations

from collections import Counter

import pytest

from integration.soak import SOAK
from offloader.lifecycle.deletion.machine import undone
from offloader.lifecycle.deletion.marking import MarkOutcome
from offloader.lifecycle.deletion.quarantine import LeftoverQuarantine
from offloader.lifecycle.deletion.records import DeletionAnswer, DeletionState, LedgerType, ledger_record_name
from offloader.lifecycle.deletion.service import DeletionRules, FoundDeletions, LedgerDeletionService
from offloader.lifecycle.deletion.task import DeletionTask, LazySide
from offloader.lifecycle.deletion.timing import DeletionBounds
from offloader.lifecycle.ledgers.objections import OperatorsWord
from offloader.lifecycle.ledgers.scanner import ClusterScanner
from offloader.lifecycle.ledgers.stores import StoreFinder
from offloader.runtime.deletion import leftovers_beside, sides_together
from tests.examples import tries
from tests.fakes.cluster import MemoryCluster
from tests.fakes.ledger_metadata import ADDRESS
from tests.lifecycle.ledgers.written import Meanwhile

from .cluster import NAMESPACE, DyingNodes, list_node
from .test_brokers_beside import TOPIC, Unguarded, Walk
from .test_service import DELETED, Setting

SOON = 1.0

WALKS = 400 if SOAK else tries("OFFLOADER_WALKS", 4, 8)
A_ROUND = 5


class Noted(ClusterScanner):
    """Counts the looks that go by a scan before."""

    again = 0

    def look_again(self, only, leftovers=()):
        found = super().look_again(only, leftovers)
        self.again += found is not None
        return found


def scanner_of(cluster, nodes) -> Noted:
    """The product's own."""
    bookies, tree = cluster.client()
    tree.nodes = nodes
    cluster.metadata.cluster.put_cluster("memory", "broker:8080")
    finder = StoreFinder(nodes, ADDRESS, MemoryCluster(name="memory").admin, _nobody)
    return Noted(tree, bookies, finder, OperatorsWord(alone=True), clock_ms=lambda: cluster.now_ms)


def _nobody(hosts):
    raise AssertionError(hosts)


class Rounds(Setting):
    """30 ledgers are due, some of them open; `scans` counts how often everything was read."""

    def __init__(self, number: int = 30) -> None:
        super().__init__()
        self.on()
        self.bounds = DeletionBounds(number=1000, percent=100, a_round=A_ROUND)
        self.scans = 0
        self.ledgers = range(1, number + 1)
        self.cluster.put(list_node(TOPIC), b"")
        for ledger in self.ledgers:
            self.cluster.ledger(ledger, TOPIC, 0, is_open=ledger % 7 == 0)
        self.cluster.ledger(1000, TOPIC)
        self.cluster.list_ledgers(TOPIC, 1000)
        self.cluster.ledger(2000, "another")
        self.cluster.list_ledgers("another", 2000)
        self.later()
        nodes = Meanwhile(self.cluster.metadata.nodes, self._read)
        self.side = self.cluster.side(scanner=scanner_of(self.cluster, nodes))
        self.mark(side=self.side)
        self.later()
        self.scans = 0
        self.one = self.service(self.side)
        self.rules = DeletionRules(self.timing, self.bounds)

    def _read(self, path: str) -> None:
        self.scans += path == "/managed-ledgers/acme"

    def rounds(self, most: int = 1000) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        while len(found) < most:
            this = self.one.round(goes_on=bool(found))
            found.append((this.looked_at, this.left))
            if not this.left:
                break
        return found


def test_what_is_due_goes_in_rounds_after_one_scan():
    it = Rounds()
    assert it.rounds() == [(5, 25), (5, 20), (5, 15), (5, 10), (5, 5), (5, 0)]
    assert {it.end_of(ledger) for ledger in it.ledgers} == {DELETED}
    assert it.cluster.ledger_ids() == {1000, 2000}
    assert it.scans == 1
    assert it.told.last.in_flight(LedgerType.LEDGER) == A_ROUND


def test_each_pass_begins_with_a_scan():
    it = Rounds()
    it.one.round()
    it.one.round()
    assert it.scans == 2


PENDING_ACKS = "gone-sub__transaction_pending_ack"


@pytest.mark.parametrize("first", [LedgerType.LEDGER, LedgerType.MANAGED_LEDGER])
def test_one_scan_serves_ledgers_and_left_over_managed_ledgers(first):
    it = Rounds(7)
    it.cluster.ledger(3000, PENDING_ACKS)
    it.cluster.list_ledgers(PENDING_ACKS, 3000)
    left_over = leftovers_beside(it.side)
    phase = LeftoverQuarantine(it.queue, left_over, it.bounds, lambda: it.cluster.now_ms, "test")
    (marked,) = phase.mark(left_over.scanner.scan(frozenset()), [f"{NAMESPACE}/persistent/{PENDING_ACKS}"]).marks
    assert marked.outcome is MarkOutcome.MARKED
    it.later()
    it.scans = 0
    sides = {LedgerType.LEDGER: it.side, LedgerType.MANAGED_LEDGER: left_over}
    ordered = dict(sorted(sides.items(), key=lambda one: one[0] is not first))
    it.one = LedgerDeletionService(it.queue, ordered, it.rules, it.told, lambda: it.cluster.now_ms)
    it.rounds()
    assert it.scans == 1
    assert {it.end_of(ledger) for ledger in it.ledgers} == {DELETED}
    assert it.cluster.metadata.nodes.get(list_node(PENDING_ACKS)) is None
    assert it.cluster.ledger_ids() == {1000, 2000, 3000}


def test_what_another_side_has_read_long_ago_serves_nobody():
    """A pass that comes later scans, whoever looks first."""
    found = FoundDeletions()
    for kind in LedgerType:
        assert not found.goes_on(kind)
    found.looked.add(LedgerType.OBJECT)
    assert [kind for kind in LedgerType if found.goes_on(kind)] == [LedgerType.OBJECT]
    found.looked.add(LedgerType.MANAGED_LEDGER)
    assert found.goes_on(LedgerType.LEDGER)


def test_what_is_opened_for_one_side_serves_the_other_until_both_are_ended():
    it, opened, closed = Rounds(), list[object](), list[object]()

    def opens(stack):
        opened.append(it.side)
        stack.callback(closed.append, it.side)
        return it.side

    sides = [LazySide(one) for one in sides_together(opens)]
    for number in (1, 2):
        for side in reversed(sides):
            assert side.look([]).refusals == ()
        assert len(opened) == number
        for side in sides:
            side.end()
        assert len(closed) == number


def test_what_changes_between_two_rounds_is_seen():
    it = Rounds()
    assert it.rounds(1) == [(5, 25)]
    listed = it.cluster.ledger_ids() - {1000, 2000}
    again, gone, other, open_again = [*sorted(listed)[:3], max(listed)]
    it.cluster.list_ledgers(TOPIC, again, 1000)  # somebody edits the list
    it.cluster.metadata.cluster.delete_ledger(gone)
    changed = it.cluster.metadata.nodes.get(it.cluster.path(open_again))
    it.cluster.metadata.nodes.set(it.cluster.path(open_again), changed.value, changed.version)
    it.queue.change(ledger_record_name(other), lambda record: undone(record, it.cluster.now_ms))
    while it.one.round(goes_on=True).left:
        pass
    assert it.end_of(again) == (DeletionState.KEPT, DeletionAnswer.STILL_IN_USE)
    assert it.end_of(gone) == (DeletionState.DELETED, DeletionAnswer.ALREADY_GONE)
    assert it.end_of(other) == (DeletionState.UNDONE, None)
    assert it.end_of(open_again) == (DeletionState.KEPT, DeletionAnswer.DOES_NOT_MATCH)
    assert it.cluster.ledger_ids() == {again, other, open_again, 1000, 2000}
    assert it.scans == 1


def test_a_list_that_is_gone_or_came_between_two_rounds_is_seen():
    it = Rounds()
    it.rounds(1)
    it.cluster.metadata.nodes.delete(list_node(TOPIC))
    this = it.one.round(goes_on=True)
    assert this.looked_at == A_ROUND
    assert it.told.failures == []
    states = Counter(one.record.state for one in it.queue.records())
    assert states == {DeletionState.DELETED: 5, DeletionState.MARKED: 25}  # another proof: the delay begins anew


def test_trouble_that_begins_between_two_rounds_stops_them_and_the_next_pass_scans():
    it = Rounds()
    it.rounds(1)
    it.cluster.metadata.cluster.put_cookie("b9:3181", b"cookie")
    this = it.one.round(goes_on=True)
    assert (this.looked_at, this.left) == (0, 0)
    assert "b9:3181" in this.refusals[0]
    assert len(it.cluster.ledger_ids()) == 27
    it.cluster.metadata.cluster.delete_cookie("b9:3181")
    it.rounds()
    assert it.cluster.ledger_ids() == {1000, 2000}
    assert it.scans == 2


def test_a_process_that_looks_in_between_outdates_what_was_decided_and_not_the_rounds_to_come():
    it = Rounds()
    it.rounds(1)
    other = it.service(it.cluster.side(scanner=scanner_of(it.cluster, it.cluster.metadata.nodes)))
    other.round()
    while it.one.round(goes_on=True).left:
        pass
    it.rounds()
    assert it.cluster.ledger_ids() == {1000, 2000}
    assert {it.end_of(ledger) for ledger in it.ledgers} == {DELETED}
    assert max(Counter(ledger for ledger, *_ in it.told.ends).values()) == 1


class Side:
    """What the application opens for a look."""

    def __init__(self, inner) -> None:
        self.look, self.close, self.delete, self.ended = inner.look, inner.close, inner.delete, 0

    def end(self) -> None:
        self.ended += 1


def test_after_each_round_there_is_a_pause_as_long_as_it_took():
    it = Rounds()
    side, took = Side(it.side), [300.0, 0.2, 4.0, 0.1, 0.1, 900.0]
    clock = iter([moment for seconds in took for moment in (1000.0, 1000.0 + seconds)])
    task = DeletionTask(
        *(True, 600.0, it.queue, {LedgerType.LEDGER: side}, it.rules, it.told, lambda: it.cluster.now_ms),
        clock=lambda: next(clock),
    )
    waits = [task.run() for _ in range(6)]
    assert waits == pytest.approx([300.0, SOON, 4.0, SOON, SOON, 900.0])
    assert it.scans == 1
    assert side.ended == 1


class WalkInRounds(Walk):
    """The product's own scanner; services stay, and go on with what their scan has read, round by round."""

    def __init__(self, seed: int, nodes_of=DyingNodes) -> None:
        super().__init__(seed, nodes_of)
        self.setting.bounds = DeletionBounds(number=10_000, percent=100, a_round=1)
        self.services = [
            self.setting.service(side, told=told, parallelism=1)
            for side, told in zip(self.sides, self.told, strict=True)
        ]
        self.left = [0, 0]

    def _side(self, nodes):

        def at_times(_path):
            if self.rng.random() < 0.1:
                self.others()

        between = Meanwhile(nodes, at_times)
        return self.cluster.side(nodes, scanner=scanner_of(self.cluster, between))

    def a_round(self) -> None:
        number = self.rng.randrange(2)
        self.left[number] = self.services[number].round(goes_on=self.left[number] > 0).left


@pytest.mark.explores
def test_brokers_that_are_paused_anywhere_lose_nothing_over_many_rounds_of_one_scan():
    ours = again = 0
    for seed in range(WALKS):
        walk = WalkInRounds(seed)
        walk.run()
        walk.check_ends()
        ours += len(walk.cluster.deleted)
        again += sum(side.scanner.again for side in walk.sides)
    assert ours > WALKS
    assert again > 5 * WALKS


@pytest.mark.large
def test_a_walk_in_rounds_finds_what_is_lost_without_the_guard():
    def walks():
        for seed in range(200):
            WalkInRounds(seed, Unguarded).run()

    with pytest.raises(AssertionError, match="we deleted what is listed"):
        walks()
