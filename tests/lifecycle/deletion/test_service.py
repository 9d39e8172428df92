"""Round by round, over a cluster in memory: what must hold of the second phase, in the words of the design."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count

import pytest

from offloader.bookkeeper.model import LedgerState
from offloader.errors import OutcomeUnknownError, OvertakenError, StoreUnavailableError
from offloader.lifecycle.deletion.machine import DeletionTry, DeletionTurn, turn, undone
from offloader.lifecycle.deletion.marking import MarkOutcome
from offloader.lifecycle.deletion.quarantine import Quarantine
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import (
    DeletionAnswer,
    DeletionState,
    DeletionSwitch,
    LedgerType,
    ledger_record_name,
)
from offloader.lifecycle.deletion.service import DeletionRules, LedgerDeletionService
from offloader.lifecycle.deletion.timing import DeletionBounds, DeletionTiming
from offloader.lifecycle.deletion.watcher import PendingDeletions
from offloader.lifecycle.ledgers.refusals import Refusal, RefusalKind
from offloader.storage.memory import MemoryStore
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults

from .cluster import DAY, NAMESPACE, DyingNodes, OrphanCluster, list_node

WIDE = DeletionBounds(number=10_000, percent=100)
DELETED = (DeletionState.DELETED, DeletionAnswer.DELETED)


class Told:
    """A watcher that keeps what it hears."""

    def __init__(self) -> None:
        self.refusals: list[Mapping[LedgerType, Sequence[str]]] = []
        self.failures: list[tuple[int, str]] = []
        self.ends: list[tuple[int, DeletionState, DeletionAnswer | None]] = []
        self.given_up: list[int] = []
        self.damages: list[str] = []
        self.last: PendingDeletions | None = None
        self.on: bool | None = None

    def pending(self, pending, *, on):
        self.last, self.on = pending, on

    def refused(self, refusals):
        self.refusals.append(refusals)

    def damaged(self, name, why):
        self.damages.append(name)

    def failed(self, record, why):
        self.failures.append((record.ledger_id, why))

    def ended(self, record):
        self.ends.append((record.ledger_id, record.state, record.answer))

    def gave_up(self, record):
        self.given_up.append(record.ledger_id)


class Setting:
    """A cluster, a queue, and services over both. Times are the cluster's."""

    def __init__(self, seed: int = 1) -> None:
        self.cluster = OrphanCluster(seed)
        self.store = MemoryStore()
        self.numbers = count()
        self.told = Told()
        self.bounds = WIDE
        self.timing = DeletionTiming()
        self.queue = self.queue_over(self.store)

    def queue_over(self, store, check_owner=lambda: None) -> DeletionQueue:
        return DeletionQueue(store, "main", lambda: f"t{next(self.numbers)}", check_owner)

    def by(self, seconds: float):
        """A clock that is ahead by so much."""
        return lambda: self.cluster.now_ms + int(1000 * seconds)

    def service(self, side=None, queue=None, told=None, now_ms=None, **more) -> LedgerDeletionService:
        rules = DeletionRules(self.timing, self.bounds, parallelism=more.pop("parallelism", 2), **more)
        sides = {LedgerType.LEDGER: side or self.cluster.side()}
        return LedgerDeletionService(queue or self.queue, sides, rules, told or self.told, now_ms or self.by(0))

    def mark(self, *named: int, side=None, dry=False):
        side = side or self.cluster.side()
        scan = side.scanner.scan(set(named) or None)
        quarantine = Quarantine(self.queue, side, self.bounds, lambda: self.cluster.now_ms, "test", dry)
        return quarantine.mark(scan, set(named) or None)

    def on(self) -> None:
        self.queue.set_switch(on=True, now=self.cluster.now_ms)

    def later(self, seconds: float = DAY + 1) -> None:
        self.cluster.network.now += seconds

    def record(self, ledger: int):
        stored = self.queue.read(ledger_record_name(ledger))
        return None if stored is None else stored.record

    def end_of(self, ledger: int):
        record = self.record(ledger)
        return record.state, record.answer

    def passed_by(self, *ledgers: int, topic: str = "t", **more) -> None:
        """Ledgers that are not listed, and one that is, with a greater id."""
        for ledger in ledgers:
            self.cluster.ledger(ledger, topic, 0, **more)
        self.cluster.ledger(1000, topic)
        self.cluster.list_ledgers(topic, 1000)
        self.later()


@pytest.fixture
def setting():
    it = Setting()
    it.on()
    return it


def test_what_is_marked_goes_after_the_delay_and_not_before(setting):
    setting.passed_by(5, 6)
    assert [one.outcome for one in setting.mark().marks] == [MarkOutcome.MARKED] * 2
    service = setting.service()
    assert service.round().looked_at == 0
    setting.later(DAY / 2)
    service.round()
    assert setting.cluster.ledger_ids() == {5, 6, 1000}
    setting.later(DAY / 2)
    assert service.round().looked_at == 2
    assert setting.cluster.ledger_ids() == {1000}
    assert setting.end_of(5) == setting.end_of(6) == DELETED
    assert sorted(setting.told.ends) == [(5, *DELETED), (6, *DELETED)]


def test_marking_again_marks_nothing_twice(setting):
    setting.passed_by(5)
    setting.mark()
    first = setting.queue.read(ledger_record_name(5))
    setting.later(60)
    assert [one.outcome for one in setting.mark().marks] == [MarkOutcome.PENDING]
    assert setting.queue.read(ledger_record_name(5)) == first


def test_only_what_is_certain_is_marked(setting):
    setting.passed_by(5)
    setting.cluster.ledger(2000, "t", 0)
    setting.cluster.put("/ledgers/00/0000/L0077", b"damaged")
    assert [one.id for one in setting.mark().marks] == [5]
    named = setting.mark(5, 2000, 1000, 77, 4711).marks
    assert {one.id: one.outcome for one in named} == {
        5: MarkOutcome.PENDING,
        **dict.fromkeys((77, 1000, 2000, 4711), MarkOutcome.NOT_DELETABLE),
    }


def test_a_dry_run_writes_nothing(setting):
    setting.passed_by(5)
    before = dict(setting.store.list(""))
    assert [one.outcome for one in setting.mark(dry=True).marks] == [MarkOutcome.WOULD_BE_MARKED]
    assert dict(setting.store.list("")) == before


def test_what_was_undone_is_marked_again_only_by_its_number(setting):
    setting.passed_by(5)
    setting.mark()
    setting.queue.change(ledger_record_name(5), lambda it: undone(it, setting.cluster.now_ms))
    assert [one.outcome for one in setting.mark().marks] == [MarkOutcome.SPARED]
    assert [one.outcome for one in setting.mark(5).marks] == [MarkOutcome.MARKED]


def test_what_is_referred_to_again_is_still_in_use(setting):
    setting.passed_by(5)
    setting.mark()
    setting.cluster.list_ledgers("t", 5, 1000)
    setting.later()
    setting.service().round()
    assert setting.end_of(5) == (DeletionState.KEPT, DeletionAnswer.STILL_IN_USE)
    assert 5 in setting.cluster.ledger_ids()


def test_a_forged_or_stale_record_is_ignored_and_told(setting):
    """Another node under the id than the record says; a record for what never was an orphan."""
    setting.passed_by(5, 6)
    setting.mark()
    setting.queue.change(ledger_record_name(5), lambda it: replace(it, node=replace(it.node, data=b"others")))
    setting.queue.change(ledger_record_name(6), lambda it: replace(it, node=replace(it.node, ctime=it.node.ctime - 1)))
    forged = replace(setting.record(5), ledger_id=1000)
    setting.queue.write(forged, None)
    setting.later()
    setting.service().round()
    assert setting.end_of(5) == setting.end_of(6) == (DeletionState.KEPT, DeletionAnswer.DOES_NOT_MATCH)
    assert setting.end_of(1000) == (DeletionState.KEPT, DeletionAnswer.STILL_IN_USE)
    assert setting.cluster.ledger_ids() == {5, 6, 1000}
    assert len(setting.told.ends) == 3


def test_an_invalid_record_ends(setting):
    setting.passed_by(5)
    setting.mark()
    setting.queue.change(
        ledger_record_name(5), lambda it: replace(it, evidence=replace(it.evidence, referee_version=None))
    )
    setting.service().round()
    assert setting.end_of(5) == (DeletionState.KEPT, DeletionAnswer.INVALID)


def test_other_facts_than_the_record_s_begin_the_delay_anew(setting):
    setting.passed_by(5)
    setting.mark()
    setting.cluster.metadata.nodes.delete(list_node("t"))
    setting.cluster.metadata.cluster.delete_ledger(1000)
    setting.later()
    setting.service().round()
    record = setting.record(5)
    assert (record.state, record.marked_at) == (DeletionState.MARKED, setting.cluster.now_ms)
    setting.later()
    setting.service().round()
    assert setting.end_of(5) == DELETED


# Clocks


YEARS = 10 * 365 * DAY


@pytest.mark.parametrize("marks", [-YEARS, -DAY - 1, 0, DAY, YEARS])
@pytest.mark.parametrize("deletes", [-YEARS, -DAY, 0, DAY + 1, YEARS])
def test_the_quarantine_is_as_long_as_it_is_whoever_s_clock_is_wrong(marks, deletes):
    """That of the command that marks, or that of the application: ZooKeeper's counts."""
    setting = Setting()
    setting.passed_by(5)
    side = setting.cluster.side()
    setting.queue.set_switch(on=True, now=setting.by(deletes)())
    quarantine = Quarantine(setting.queue, side, setting.bounds, setting.by(marks), "test")
    assert [one.outcome for one in quarantine.mark(side.scanner.scan()).marks] == [MarkOutcome.MARKED]
    service = setting.service(now_ms=setting.by(deletes))
    for _ in range(23):
        setting.later(3600)
        service.round()
    assert setting.cluster.ledger_ids() == {5, 1000}
    assert setting.queue.read(ledger_record_name(5)).slot <= 1
    setting.later(3601)
    service.round()
    assert setting.end_of(5) == DELETED


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("seconds", [-YEARS, -DAY - 1, -3600, 0, 3600, DAY, YEARS])
def test_a_clock_of_zookeeper_s_that_is_wrong_at_the_mark_and_right_later_makes_no_quarantine_shorter(seconds, anew):
    """Another server leads, or somebody puts it right. `anew`: it is so at the look that begins the delay anew, too."""
    setting = Setting()
    setting.passed_by(5)
    setting.on()
    network, nodes = setting.cluster.network, setting.cluster.metadata.nodes
    right = nodes._clock
    nodes._clock = lambda: network.now + seconds
    setting.mark()
    if anew:
        setting.queue.set_switch(on=False, now=setting.cluster.now_ms)
        setting.on()
        setting.service().round()
    nodes._clock = right
    assert setting.record(5).state is DeletionState.MARKED
    service = setting.service()
    for _ in range(23):
        setting.later(3600)
        service.round()
    assert setting.cluster.ledger_ids() == {5, 1000}
    for _ in range(3):
        setting.later(3601)
        service.round()
    assert setting.end_of(5) == DELETED


@pytest.mark.parametrize("seconds", [-YEARS, -DAY, DAY, YEARS])
def test_a_clock_of_the_application_that_jumps_delays_nothing_for_long(setting, seconds):
    setting.passed_by(5, 6)
    setting.mark()
    wrong, right = setting.by(seconds), setting.by(0)
    clocks = [right]
    service = setting.service(now_ms=lambda: clocks[-1]())
    side = setting.cluster.side()
    side.delete = lambda *_: (DeletionTry.REFUSED, "refused")
    refusing = setting.service(side, now_ms=lambda: clocks[-1]())
    for clocks[-1] in (right, wrong, right):
        setting.later(3600)
        service.round()
    setting.later()
    for clocks[-1] in (wrong, right):
        refusing.round()
    assert setting.cluster.ledger_ids() == {5, 6, 1000}
    for _ in range(2):
        setting.later()
        service.round()
    assert {setting.end_of(5), setting.end_of(6)} == {DELETED}


def test_a_switch_that_was_set_by_a_clock_that_was_ahead_delays_nothing():
    setting = Setting()
    setting.queue.set_switch(on=True, now=setting.by(YEARS)())
    setting.passed_by(5)
    setting.mark()
    setting.later()
    setting.service().round()
    assert setting.end_of(5) == DELETED


# Refusals


def test_nothing_is_deleted_while_any_refusal_stands_and_no_try_counts(setting):
    setting.passed_by(5)
    setting.mark()
    setting.later()
    side = setting.cluster.side()
    side.scanner.refusals = (Refusal(RefusalKind.ANOTHER_CLUSTER, "other"),)
    before = setting.record(5)
    done = setting.service(side).round()
    assert "other" in done.refusals[0]
    assert setting.told.refusals == [{LedgerType.LEDGER: list(done.refusals)}]
    assert setting.record(5) == before
    assert 5 in setting.cluster.ledger_ids()
    side.scanner.refusals = ()
    setting.service(side).round()
    assert setting.end_of(5) == DELETED


@pytest.mark.parametrize("bounds", [DeletionBounds(number=1, percent=100), DeletionBounds(number=100, percent=50)])
def test_more_than_is_set_at_once_deletes_nothing(setting, bounds):
    setting.passed_by(5, 6)
    setting.mark()
    setting.later()
    setting.bounds = bounds
    assert "would go at once" in setting.service().round().refusals[0]
    assert setting.cluster.ledger_ids() == {5, 6, 1000}


def test_more_than_is_set_at_once_is_not_marked(setting):
    setting.passed_by(5, 6)
    setting.bounds = DeletionBounds(number=1, percent=100)
    marks = setting.mark()
    assert "would go at once" in marks.refusals[0]
    assert setting.record(5) is None


def test_a_scan_s_refusals_mark_nothing(setting):
    setting.passed_by(5)
    side = setting.cluster.side()
    side.scanner.refusals = (Refusal(RefusalKind.MAY_BE_SHARED),)
    assert setting.mark(side=side).refusals
    assert setting.record(5) is None


def test_a_zookeeper_that_does_not_answer_is_a_refusal(setting):
    setting.passed_by(5)
    setting.mark()
    setting.later()
    before = setting.record(5)
    setting.cluster.metadata.nodes.gone = True
    assert setting.service().round().refusals
    setting.cluster.metadata.nodes.gone = False
    assert setting.record(5) == before


def test_a_round_deletes_no_more_than_its_share_and_the_others_have_their_turn(setting):
    setting.passed_by(*range(1, 8))
    setting.mark()
    setting.later()
    setting.bounds = DeletionBounds(number=100, percent=100, a_round=3)
    service = setting.service()
    assert [(done.looked_at, done.left) for done in (service.round() for _ in range(4))] == [
        (3, 4), (3, 1), (1, 0), (0, 0),
    ]  # fmt: skip
    assert setting.cluster.ledger_ids() == {1000}


# The switch


def test_switched_off_with_records_pending_these_stay_and_are_counted(setting):
    setting.passed_by(5)
    setting.mark()
    setting.queue.set_switch(on=False, now=setting.cluster.now_ms)
    setting.later(9 * DAY)
    setting.service().round()
    assert setting.cluster.ledger_ids() == {5, 1000}
    assert setting.told.on is False
    assert setting.told.last.in_flight(LedgerType.LEDGER) == 1


def test_switched_on_again_evidence_and_delay_begin_anew(setting):
    setting.passed_by(5)
    setting.mark()
    setting.queue.set_switch(on=False, now=setting.cluster.now_ms)
    setting.later(9 * DAY)
    setting.on()
    service = setting.service()
    service.round()
    assert setting.cluster.ledger_ids() == {5, 1000}
    assert setting.record(5).marked_at == setting.cluster.now_ms
    setting.later()
    service.round()
    assert setting.end_of(5) == DELETED


def test_never_switched_on_nothing_goes(setting):
    it = Setting()
    it.passed_by(5)
    it.mark()
    it.later(9 * DAY)
    it.service().round()
    assert it.cluster.ledger_ids() == {5, 1000}


# Open ledgers


def test_an_open_ledger_is_closed_then_looked_at_again_then_deleted(setting):
    setting.passed_by(5, is_open=True)
    setting.mark()
    setting.later()
    setting.service().round()
    assert setting.end_of(5) == DELETED
    assert 5 not in setting.cluster.ledger_ids()
    assert any(
        bookie.memory.ledgers.get(5) and bookie.memory.ledgers[5].fenced for bookie in setting.cluster.bookies.values()
    )


def test_entries_that_no_list_has_show_once_it_is_closed_and_are_kept(setting):
    setting.cluster.ledger(3, "t")
    setting.cluster.ledger(5, "t", 2, is_open=True)
    setting.cluster.ledger(1000, "t")
    setting.cluster.list_ledgers("t", 3, 1000)
    setting.later()
    setting.mark()
    setting.later()
    setting.service().round()
    assert setting.end_of(5) == (DeletionState.KEPT, DeletionAnswer.HOLDS_DATA)
    assert setting.cluster.metadata.read(5).metadata.state is LedgerState.CLOSED


def test_what_a_broker_may_still_write_is_not_closed(setting):
    """Its topic's nodes were removed under it."""
    setting.cluster.ledger(5, "t", 2, is_open=True)
    setting.later()
    setting.mark()
    setting.later()
    setting.service(setting.cluster.side(loaded=lambda: {f"persistent://{NAMESPACE}/t": "broker-1"})).round()
    assert setting.record(5).state is DeletionState.MARKED
    assert "broker-1" in setting.record(5).reason
    assert setting.cluster.metadata.read(5).metadata.state is LedgerState.OPEN
    setting.later()
    setting.service().round()
    assert setting.end_of(5) == DELETED


def test_what_cannot_be_closed_is_tried_again_and_at_last_given_up(setting):
    setting.passed_by(5, is_open=True)
    setting.mark()
    for bookie in setting.cluster.bookies.values():
        bookie.up = False
    for _ in range(12):
        setting.later(2 * DAY)
        setting.service().round()
    assert setting.record(5).state is DeletionState.GIVEN_UP
    assert setting.told.given_up == [5]
    assert 5 in setting.cluster.ledger_ids()


# Somebody else, meanwhile


def test_a_broker_that_lists_it_between_look_and_transaction_keeps_it(setting):
    setting.passed_by(5)
    setting.mark()
    setting.later()

    class Listing(DyingNodes):
        def multi(self, operations):
            if operations[-1].path.startswith("/ledgers"):
                setting.cluster.list_ledgers("t", 5, 1000)
            super().multi(operations)

    setting.service(setting.cluster.side(Listing(setting.cluster, random.Random(1)))).round()
    assert 5 in setting.cluster.ledger_ids()
    assert setting.record(5).state is DeletionState.DELETING
    setting.later()
    setting.service().round()
    assert setting.end_of(5) == (DeletionState.KEPT, DeletionAnswer.STILL_IN_USE)


def test_what_a_paused_process_sends_after_another_looked_deletes_nothing(setting):
    """It goes on after days, in whichever session: by then the operator was told that the ledger stays."""
    setting.passed_by(5)
    setting.mark()
    setting.later()
    paused = setting.cluster.side()
    due = [it.record for it in setting.queue.records()]
    paused.look(due)
    setting.cluster.list_ledgers("t", 5, 1000)
    setting.service().round()
    assert setting.end_of(5) == (DeletionState.KEPT, DeletionAnswer.STILL_IN_USE)
    setting.cluster.list_ledgers("t", 1000)
    outcome, why = paused.delete(due[0], lambda: True)
    assert outcome.value == "refused"
    assert why
    assert 5 in setting.cluster.ledger_ids()


def test_the_later_look_alone_deletes(setting):
    """Nothing of the cluster has changed in between, but for that look."""
    setting.passed_by(5)
    setting.mark()
    setting.later()
    first, second = setting.cluster.side(), setting.cluster.side()
    due = [it.record for it in setting.queue.records()]
    first.look(due)
    second.look(due)
    outcome, why = first.delete(due[0], lambda: True)
    assert (outcome.value, "another look began" in why) == ("refused", True)
    assert second.delete(due[0], lambda: True)[0].value == "done"


def test_two_services_at_once_delete_each_ledger_once_and_tell_it_once(setting):
    setting.passed_by(*range(1, 40))
    setting.mark()
    nodes = [DyingNodes(setting.cluster, random.Random(1)) for _ in range(2)]
    services = [setting.service(setting.cluster.side(one), parallelism=1) for one in nodes]
    interrupted = []

    def other_round():
        setting.cluster.metadata.nodes.before_write = lambda: None
        interrupted.append(services[1].round())

    for at in range(20):
        setting.later()
        writes = count()
        setting.cluster.metadata.nodes.before_write = lambda w=writes, at=at: other_round() if next(w) == at else None
        services[0].round()
    setting.cluster.metadata.nodes.before_write = lambda: None
    assert interrupted
    assert setting.cluster.ledger_ids() == {1000}
    assert set(setting.cluster.deleted.values()) == {1}
    assert sorted(ledger for ledger, *_ in setting.told.ends) == list(range(1, 40))


def test_overtaken_in_the_middle_nothing_follows(setting):
    setting.passed_by(*range(1, 9))
    setting.mark()
    setting.later()
    calls = count()

    def check():
        if next(calls) > 5:
            raise OvertakenError("another process")

    with pytest.raises(OvertakenError):
        setting.service(queue=setting.queue_over(setting.store, check), parallelism=1).round()
    assert len(setting.cluster.ledger_ids()) > 4


def test_stopping_begins_nothing_more(setting):
    setting.passed_by(*range(1, 9))
    setting.mark()
    setting.later()
    calls = count()
    setting.service(parallelism=1, stopping=lambda: next(calls) > 24).round()
    left = setting.cluster.ledger_ids()
    assert 1 < len(left) < 9
    setting.later()
    setting.service().round()
    assert setting.cluster.ledger_ids() == {1000}


# The queue's store


@pytest.mark.parametrize("effect", [Effect.BEFORE, Effect.LOST])
@pytest.mark.parametrize("error", [StoreUnavailableError, OutcomeUnknownError])
@pytest.mark.parametrize("after", range(0, 30, 3))
def test_whatever_the_store_fails_at_each_ledger_goes_once_and_is_told(setting, effect, error, after):
    if effect is Effect.LOST and error is StoreUnavailableError:
        error = OutcomeUnknownError
    setting.passed_by(1, 2, 3)
    setting.cluster.ledger(4, "t", 0, is_open=True)
    setting.later()
    setting.mark()
    setting.later()
    faulty = FaultyStore(setting.store, StoreFaults([StoreFault("*", effect, error, after=after)]))
    side = setting.cluster.side(DyingNodes(setting.cluster, random.Random(1)))
    with suppress(StoreUnavailableError, OutcomeUnknownError):
        setting.service(side, setting.queue_over(faulty), parallelism=1).round()
    for _ in range(3):
        setting.later()
        setting.service(side, parallelism=1).round()
    assert setting.cluster.ledger_ids() == {1000}
    assert set(setting.cluster.deleted.values()) == {1}
    assert {setting.end_of(one) for one in (1, 2, 3, 4)} == {DELETED}


def test_a_damaged_record_is_told_and_the_others_go(setting):
    setting.passed_by(5, 6)
    setting.mark()
    key = next(key for key, _ in setting.store.list("") if "LEDGER-" in key and f"{5:020d}" in key)
    setting.store.delete([key])
    setting.store.put(key, b"damaged")
    setting.later()
    setting.service().round()
    assert setting.told.damages == [ledger_record_name(5)]
    assert setting.told.last.damaged == 1
    assert setting.cluster.ledger_ids() == {5, 1000}


def test_what_has_ended_long_ago_is_removed_and_nothing_is_left(setting):
    setting.passed_by(5)
    setting.mark()
    setting.later()
    service = setting.service()
    service.round()
    setting.later(31 * DAY)
    service.round()
    assert [key for key, _ in setting.store.list("") if "LEDGER-" in key] == []


def test_a_remover_that_is_late_takes_nothing_of_what_was_marked_again(setting):
    """Another has removed the record since it was read: an application beside a purge."""
    setting.passed_by(5)
    setting.mark()
    setting.later()
    setting.service().round()
    late = setting.queue.read(ledger_record_name(5))
    setting.later(31 * DAY)
    setting.service().round()
    assert setting.record(5) is None
    setting.cluster.ledger(5, "t", 0)
    setting.mark()
    setting.queue.remove(late)
    assert setting.record(5).state is DeletionState.MARKED


def test_a_reference_read_late_is_no_proof(setting):
    """A referee that changes between the scan's reading and our own makes the look fail, and it is repeated."""
    setting.passed_by(5)
    setting.mark()
    setting.later()
    side = setting.cluster.side()
    scan = side.scanner.scan

    def then_touched(only=None):
        found = scan(only)
        setting.cluster.list_ledgers("t", 1000)
        return found

    side.scanner.scan = then_touched
    setting.service(side).round()
    assert 5 in setting.cluster.ledger_ids()
    assert "changed while it was looked at" in setting.record(5).reason


def test_a_purge_s_own_switch_needs_none_in_the_queue():
    it = Setting()
    it.passed_by(5)
    it.mark()
    it.later()
    it.service().round(DeletionSwitch(on=True, at=0))
    assert it.end_of(5) == DELETED
    assert it.queue.switch() is None
    assert turn(it.record(5), it.cluster.now_ms, it.timing, None) is DeletionTurn.NOTHING


class Reads(MemoryStore):
    """Counts what is read."""

    reads = 0

    def read(self, key, offset=0, length=None):
        self.reads += 1
        return super().read(key, offset, length)


def test_an_idle_round_reads_no_record_that_waits():
    it = Setting()
    it.store = Reads()
    it.queue = it.queue_over(it.store)
    it.on()
    it.passed_by(*range(1, 30))
    it.mark()
    service = it.service()
    service.round()
    before = it.store.reads
    for _ in range(5):
        service.round()
        assert it.told.last.in_flight(LedgerType.LEDGER) == 29
    assert it.store.reads - before == 5  # the switch
    it.queue.change(ledger_record_name(7), lambda record: undone(record, it.cluster.now_ms))
    it.later()
    service.round()
    assert it.cluster.ledger_ids() == {7, 1000}
    service.round()
    before = it.store.reads
    service.round()
    assert it.store.reads - before == 1
    it.later(31 * DAY)
    service.round()
    assert {one.record.ledger_id for one in it.queue.records()} == {7}  # somebody wanted it to stay


def test_switched_off_and_on_again_is_noticed_by_a_service_that_remembers(setting):
    setting.passed_by(5)
    setting.mark()
    service = setting.service()
    service.round()
    setting.queue.set_switch(on=False, now=setting.cluster.now_ms + 1)
    service.round()
    setting.later(9 * DAY)
    setting.on()
    service.round()
    assert setting.record(5).marked_at == setting.cluster.now_ms
