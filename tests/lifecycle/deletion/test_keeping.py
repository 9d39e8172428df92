"""Metadata were rolled back: entries that no list has are data, and that stays known after the next trim."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offloader.bookkeeper.metadata_codec import encode_metadata
from offloader.errors import FatalError
from offloader.lifecycle.deletion.machine import DeletionTurn, dropped, turn, undone
from offloader.lifecycle.deletion.marking import MarkOutcome
from offloader.lifecycle.deletion.quarantine import Keeping
from offloader.lifecycle.deletion.records import DeletionAnswer, DeletionState, ledger_record_name
from offloader.lifecycle.ledgers.refusals import Refusal, RefusalKind
from offloader.ports.object_store import Stat

from .cluster import JudgingScanner, KilledError, list_node
from .test_service import DELETED, Setting

KEPT = (DeletionState.KEPT, DeletionAnswer.HOLDS_DATA)
MONTHS = 100 * 24 * 3600


class RolledBack(Setting):
    """1 and 2 are listed, as a backup has them, and 10, which came after it. 3 to 5 hold what was written between."""

    def __init__(self) -> None:
        super().__init__()
        self.on()
        self.cluster.put(list_node("t"), b"")
        for ledger in (1, 2, 3, 4, 5):
            self.cluster.ledger(ledger, "t", 3)
        self.cluster.ledger(10, "t", 1)
        self.cluster.list_ledgers("t", 1, 2, 10)
        self.later()

    def remember(self, *, dry=False, refusals=()):
        side = self.cluster.side()
        assert isinstance(side.scanner, JudgingScanner)
        side.scanner.refusals = refusals
        keeping = Keeping(self.queue, side.is_there, side.scanner.scan, lambda: self.cluster.now_ms, "test", dry)
        return [(one.id, one.outcome) for one in keeping.remember(side.scanner.scan())]

    def trims(self, *left: int, gone=()) -> None:
        """A broker drops from its list what nobody needs any more."""
        self.cluster.list_ledgers("t", *left)
        for ledger in gone:
            self.cluster.metadata.cluster.delete_ledger(ledger)

    def outcomes(self, *named: int):
        return {one.id: one.outcome for one in self.mark(*named).marks}


@pytest.fixture
def setting():
    return RolledBack()


def test_data_that_no_list_has_stay_known_when_what_was_before_them_is_trimmed(setting):
    assert setting.remember() == [(ledger, MarkOutcome.KEPT) for ledger in (3, 4, 5)]
    setting.trims(10, gone=(1, 2))
    setting.later(MONTHS)
    setting.service().round()
    assert setting.outcomes() == dict.fromkeys((3, 4, 5), MarkOutcome.SPARED)
    setting.later()
    setting.service().round()
    assert setting.cluster.ledger_ids() == {3, 4, 5, 10}
    assert [setting.end_of(ledger) for ledger in (3, 4, 5)] == [KEPT] * 3


def test_without_that_nothing_tells_them_from_what_was_trimmed(setting):
    """So after a restore of metadata nothing is to be marked before somebody has looked: the page says so."""
    assert setting.outcomes() == {}
    setting.trims(10, gone=(1, 2))
    assert setting.outcomes() == dict.fromkeys((3, 4, 5), MarkOutcome.MARKED)


def test_by_its_number_somebody_may_mark_it_all_the_same_once_it_looks_trimmed(setting):
    setting.remember()
    assert setting.outcomes(3) == {3: MarkOutcome.NOT_DELETABLE}
    setting.trims(10, gone=(1, 2))
    (would,) = setting.mark(3, dry=True).marks
    assert would.why == "it held data that no list had"
    (mark,) = setting.mark(3).marks
    assert (mark.outcome, mark.why) == (MarkOutcome.MARKED, would.why)
    setting.later()
    setting.service().round()
    assert setting.end_of(3) == DELETED
    assert setting.cluster.ledger_ids() == {4, 5, 10}


def test_to_remember_again_writes_nothing_and_a_dry_run_never_does(setting):
    before = dict(setting.store.list(""))
    assert len(setting.remember(dry=True)) == 3
    assert dict(setting.store.list("")) == before
    setting.remember()
    before = dict(setting.store.list(""))
    setting.later()
    assert len(setting.remember()) == 3
    assert dict(setting.store.list("")) == before


def test_it_is_remembered_also_where_something_stands_against_deletion(setting):
    setting.remember(refusals=(Refusal(RefusalKind.IN_TROUBLE, "a bookie"),))
    assert setting.end_of(3) == KEPT


def test_what_is_pending_is_kept_by_its_second_look(setting):
    setting.trims(10)
    assert setting.outcomes(3) == {3: MarkOutcome.MARKED}
    setting.trims(1, 2, 10)
    setting.remember()
    assert setting.record(3).state is DeletionState.MARKED
    setting.later()
    setting.service().round()
    assert setting.end_of(3) == KEPT


def test_the_memory_ends_with_its_ledger(setting):
    setting.remember()
    setting.cluster.metadata.cluster.delete_ledger(3)
    setting.cluster.list_ledgers("t", 1, 2, 4, 10)  # somebody has mended the list
    setting.remember(refusals=(Refusal(RefusalKind.LISTING_FAILED, "some"),))
    assert setting.end_of(3) == setting.end_of(4) == KEPT  # who has not seen all forgets nothing
    setting.remember()
    assert setting.end_of(3) == (DeletionState.DELETED, DeletionAnswer.ALREADY_GONE)
    assert setting.end_of(4) == (DeletionState.KEPT, DeletionAnswer.STILL_IN_USE)
    assert setting.end_of(5) == KEPT
    setting.later(MONTHS)
    setting.service().round()
    assert setting.record(3) is setting.record(4) is None
    assert setting.end_of(5) == KEPT


@pytest.mark.parametrize("what", [b"damaged", b"foreign"])
def test_what_is_neither_gone_nor_named_is_not_forgotten(setting, what):
    """Its metadata are damaged, or say nothing of whose it is, and are put right again after its list was trimmed."""
    setting.remember()
    nodes, path = setting.cluster.metadata.nodes, setting.cluster.path(3)
    before = nodes.get(path).value
    foreign = replace(setting.cluster.metadata.read(3).metadata, custom={})
    nodes.set(path, b"\0" if what == b"damaged" else encode_metadata(foreign), nodes.get(path).version)
    setting.remember()
    assert setting.end_of(3) == KEPT
    setting.later(MONTHS)
    setting.service().round()
    nodes.set(path, before, nodes.get(path).version)
    setting.trims(10, gone=(1, 2))
    setting.remember()
    assert setting.outcomes()[3] is MarkOutcome.SPARED


def test_where_the_look_at_what_may_be_named_is_not_sure_nothing_is_forgotten(setting):
    setting.remember()
    setting.cluster.list_ledgers("t", 1, 2, 4, 10)
    side = setting.cluster.side()
    found = side.scanner.scan()
    side.scanner.refusals = (Refusal(RefusalKind.LISTING_FAILED, "some"),)
    look = side.scanner.scan
    Keeping(setting.queue, side.is_there, look, lambda: setting.cluster.now_ms, "test").remember(found)
    assert setting.end_of(4) == KEPT
    setting.remember()
    assert setting.end_of(4) == (DeletionState.KEPT, DeletionAnswer.STILL_IN_USE)


def test_a_memory_is_never_due_and_cannot_be_undone(setting):
    setting.remember()
    record = setting.record(3)
    late = record.ended_at + 10 * setting.timing.kept
    assert turn(record, late, setting.timing, setting.queue.switch()) is DeletionTurn.NOTHING
    with pytest.raises(FatalError):
        undone(record, late)


def test_an_idle_round_does_not_read_it_again(setting):
    setting.remember()
    service = setting.service()
    service.round()
    setting.later(MONTHS)
    service.round()
    reads, read = list[str](), setting.store.read

    def counted_read(key: str, *more: int) -> tuple[bytes, Stat]:
        reads.append(key)
        return read(key, *more)

    setting.store.read = counted_read
    service.round()
    assert [key for key in reads if ledger_record_name(3) in key] == []
    setting.queue.read(ledger_record_name(3))
    assert [key for key in reads if ledger_record_name(3) in key] != []


# Open ones: what is in them shows only once they are closed, and a broker closes what it trims


class WithAnOpenOne(RolledBack):
    """6 was the newest one when the list was put back: it is open, and nobody knows that it has entries."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster.ledger(6, "t", 3, is_open=True)
        self.cluster.ledger(7, "t", 0, is_open=True)
        self.later()


@pytest.fixture
def open_one():
    return WithAnOpenOne()


def test_entries_of_an_open_one_that_show_after_its_list_was_trimmed_are_kept(open_one):
    assert open_one.outcomes() == dict.fromkeys((6, 7), MarkOutcome.MARKED)
    open_one.trims(10, gone=(1, 2))
    open_one.later()
    open_one.service().round()
    assert open_one.end_of(6) == KEPT
    assert open_one.end_of(7) == DELETED
    assert open_one.outcomes()[6] is MarkOutcome.SPARED


def test_so_they_are_where_it_was_marked_only_after_the_trim(open_one):
    open_one.trims(10, gone=(1, 2))
    assert open_one.outcomes()[6] is MarkOutcome.MARKED
    open_one.later()
    open_one.service().round()
    assert open_one.end_of(6) == KEPT


def test_so_they_are_where_somebody_else_closed_it(open_one):
    """Auto-recovery does, where a bookie is gone."""
    open_one.outcomes()
    open_one.trims(10, gone=(1, 2))
    open_one.later()
    open_one.cluster.closes(6, 3)
    open_one.service().round()
    assert open_one.end_of(6) == KEPT


def test_so_they_are_where_we_were_stopped_after_closing_it(open_one):
    open_one.outcomes()
    open_one.trims(10, gone=(1, 2))
    open_one.later()

    side = open_one.cluster.side()
    look, looks = side.look, list[int]()

    def stopped_at_the_second(records, *, goes_on=False):
        if looks:
            raise KilledError
        looks.append(1)
        return look(records)

    side.look = stopped_at_the_second
    with pytest.raises(KilledError):
        open_one.service(side).round()
    assert open_one.cluster.metadata.read(6).metadata.closed
    open_one.later()
    open_one.service().round()
    assert open_one.end_of(6) == KEPT


def test_what_ended_while_it_was_open_is_not_marked_as_a_trimmed_one(open_one):
    open_one.outcomes()
    open_one.trims(10, gone=(1, 2))
    nodes = open_one.cluster.metadata.nodes
    policies = nodes.get("/admin/policies/acme/orders")
    nodes.delete("/admin/policies/acme/orders")
    open_one.later()
    open_one.service().round()
    assert open_one.end_of(6) == (DeletionState.KEPT, DeletionAnswer.DOES_NOT_MATCH)
    open_one.cluster.put("/admin/policies/acme/orders", policies.value)
    open_one.cluster.closes(6, 3)
    assert open_one.outcomes()[6] is MarkOutcome.SPARED
    assert open_one.outcomes(6) == {6: MarkOutcome.MARKED}


# What somebody has decided about a ledger


@pytest.mark.parametrize("how", [DeletionState.UNDONE, DeletionAnswer.DROPPED])
def test_what_somebody_has_taken_back_is_not_forgotten_as_long_as_it_is_there(setting, how):
    setting.trims(10, gone=(1, 2, 4, 5))
    assert setting.outcomes(3) == {3: MarkOutcome.MARKED}
    by_hand = undone if how is DeletionState.UNDONE else lambda it, now: dropped(given_up(it), now)
    setting.queue.change(ledger_record_name(3), lambda it: by_hand(it, setting.cluster.now_ms))
    setting.later(MONTHS)
    setting.service().round()
    assert setting.remember() == []
    assert setting.outcomes() == {3: MarkOutcome.SPARED}
    setting.cluster.metadata.cluster.delete_ledger(3)
    setting.remember()
    setting.later(MONTHS)
    setting.service().round()
    assert setting.record(3) is None


def given_up(record):
    return replace(record, state=DeletionState.GIVEN_UP)
