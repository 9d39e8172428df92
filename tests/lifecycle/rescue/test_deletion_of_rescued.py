"""What is kept goes only once it was rescued, only where somebody names it, and if the copy is whole at the end."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from offloader.errors import StoreUnavailableError
from offloader.lifecycle.deletion.demand import DeleteLedgerPayload, DemandDenied, answer_demand
from offloader.lifecycle.deletion.machine import FailedLook, UnreferencedLedger
from offloader.lifecycle.deletion.marking import MarkOutcome, Marks
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
from offloader.lifecycle.ledgers.refusals import Refusal, RefusalKind
from offloader.lifecycle.ledgers.told import told
from offloader.lifecycle.rescue.evidence import RescueEvidence
from offloader.metadata.rescues import RescueForgotten
from tests.fakes.faulty import FaultyStore, StoreFault, StoreFaults
from tests.lifecycle.deletion.cluster import DAY
from tests.lifecycle.deletion.test_service import Told
from tests.lifecycle.rescue.support import KEPT, Archive

BOUNDS = DeletionBounds(number=100, percent=100, a_round=100)


class Ending:
    """An archive and a cluster with one kept ledger, and both phases of its deletion."""

    def __init__(self) -> None:
        self.archive = Archive()
        self.cluster = self.archive.cluster
        tokens = count()
        self.queue = DeletionQueue(self.archive.store, "memory", lambda: f"t{next(tokens)}")
        self.side = self.cluster.side(rescues=self.archive.evidence())

    def mark(self, *named: int) -> Marks:
        """By name, or else all that is certain."""
        scan = self.side.scanner.scan(set(named) or None)
        phase = Quarantine(self.queue, self.side, BOUNDS, lambda: self.cluster.now_ms, "test")
        return phase.mark(self.archive.evidence().told(scan), set(named) or None)

    def end(self, side=None, ledger=KEPT):
        """The second phase, a day later. What came of it."""
        self.cluster.network.now += DAY + 1
        rules = DeletionRules(DeletionTiming(), BOUNDS)
        sides = {LedgerType.LEDGER: side or self.side}
        switch = DeletionSwitch(on=True, at=0)
        LedgerDeletionService(self.queue, sides, rules, Told(), lambda: self.cluster.now_ms).round(switch)
        return self.queue.read(ledger_record_name(ledger)).record

    @property
    def there(self) -> bool:
        return KEPT in self.cluster.ledger_ids()


@pytest.fixture
def ending() -> Ending:
    return Ending()


def test_before_it_is_rescued_nothing_marks_it(ending):
    assert [one.outcome for one in ending.mark(KEPT).marks] == [MarkOutcome.NOT_DELETABLE]
    assert "orphans rescue" in ending.mark(KEPT).marks[0].why
    assert KEPT not in {one.ledger for one in ending.mark().marks}
    scan = ending.archive.evidence().told(ending.side.scanner.scan({KEPT}))
    assert isinstance(answer_demand(DeleteLedgerPayload(KEPT), scan), DemandDenied)


def test_once_rescued_it_is_marked_by_its_number_alone_and_says_so(ending):
    ending.archive.rescue()
    assert KEPT not in {one.ledger for one in ending.mark().marks}
    scan = ending.archive.evidence().told(ending.side.scanner.scan({KEPT}))
    assert answer_demand(DeleteLedgerPayload(KEPT), scan) is None
    (verdict,) = scan.verdicts
    assert any(text.startswith("Its entries were rescued on 20") for text in told(verdict))
    assert [one.outcome for one in ending.mark(KEPT).marks] == [MarkOutcome.MARKED]


def test_it_is_deleted_and_its_entries_are_still_read(ending):
    ending.archive.rescue()
    ending.mark(KEPT)
    assert ending.there
    assert ending.end().answer is DeletionAnswer.DELETED
    assert not ending.there
    assert ending.archive.entries() == ending.cluster.entries


def test_a_copy_that_was_damaged_since_keeps_it(ending):
    ending.archive.rescue()
    ending.mark(KEPT)
    key = next(key for key in ending.archive.all_keys() if "/records/" not in key)
    whole = ending.archive.store.read(key)[0]
    ending.archive.store.put(key, whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    assert ending.end().answer is DeletionAnswer.HOLDS_DATA
    assert ending.there


def test_a_copy_that_is_gone_or_was_forgotten_since_keeps_it(ending):
    ending.archive.rescue()
    ending.mark(KEPT)
    ending.archive.rescues().write(KEPT, 1, RescueForgotten(1, "me"), ending.archive.uuid)
    assert ending.end().answer is DeletionAnswer.HOLDS_DATA
    assert ending.there


@pytest.mark.parametrize("how", ["damaged", "forgotten"])
def test_what_was_marked_as_rescued_holds_data_also_where_it_looks_trimmed_by_now(ending, how):
    """What its list had before it was trimmed since: nothing in the metadata speaks for its entries any more."""
    ending.archive.rescue()
    ending.mark(KEPT)
    ending.cluster.list_ledgers("t", 9)
    if how == "damaged":
        ending.archive.store.put(next(key for key in ending.archive.all_keys() if "/records/" not in key), b"x")
    else:
        ending.archive.rescues().write(KEPT, 1, RescueForgotten(1, "me"), ending.archive.uuid)
    assert [ending.end().answer for _ in range(4)] == [DeletionAnswer.HOLDS_DATA] * 4
    assert ending.there


def test_what_was_rescued_and_looks_trimmed_by_now_goes_all_the_same(ending):
    ending.archive.rescue()
    ending.mark(KEPT)
    ending.cluster.list_ledgers("t", 9)
    assert ending.end().answer is DeletionAnswer.DELETED
    assert ending.archive.entries() == ending.cluster.entries


def test_a_copy_that_is_forgotten_between_the_look_and_the_deletion_keeps_it(ending):
    """Reading copies back takes hours where they are large."""
    ending.archive.rescue()
    ending.mark(KEPT)
    delete = ending.side.delete

    def forgotten_first(record, in_time):
        ending.archive.rescues().write(KEPT, 1, RescueForgotten(1, "me"), ending.archive.uuid)
        return delete(record, in_time)

    ending.side.delete = forgotten_first
    assert ending.end().is_in_flight
    assert ending.there
    ending.side.delete = delete
    assert ending.end().answer is DeletionAnswer.HOLDS_DATA
    assert ending.there


def test_a_copy_with_losses_never_lets_it_go(ending):
    ending.cluster.lose(5)
    ending.archive.rescue(with_losses=True)
    assert [one.outcome for one in ending.mark(KEPT).marks] == [MarkOutcome.NOT_DELETABLE]


def test_a_bucket_that_does_not_answer_is_no_verdict(ending):
    ending.archive.rescue()
    ending.mark(KEPT)

    faults = StoreFaults([StoreFault("*", error=lambda: StoreUnavailableError("away"), times=99)])
    side = ending.cluster.side(rescues=ending.archive.evidence(FaultyStore(ending.archive.store, faults)))
    record = ending.queue.read(ledger_record_name(KEPT)).record
    assert isinstance(side.look([record]).looks[record.name], FailedLook)
    assert ending.end(side).is_in_flight
    assert ending.there
    faults.clear()
    assert ending.end().answer is DeletionAnswer.DELETED


def test_what_is_too_much_to_be_read_back_at_one_look_waits_for_the_next(ending):
    """One is always read. Another's topic comes after it, and no try of it is counted."""
    ending.cluster.with_entries(KEPT + 1, "t", ending.cluster.entries)
    ending.cluster.network.now += DAY
    ending.archive.rescue()
    ending.archive.rescue(KEPT + 1)
    ending.mark(KEPT, KEPT + 1)
    ending.side.most_read_back = 1

    def states() -> list[tuple[DeletionState, int]]:
        records = [ending.queue.read(ledger_record_name(one)).record for one in (KEPT, KEPT + 1)]
        return sorted((one.state, one.tries) for one in records)

    ending.end()
    assert states() == [(DeletionState.DELETED, 1), (DeletionState.MARKED, 0)]
    ending.end()
    assert states() == [(DeletionState.DELETED, 1)] * 2


def test_where_nothing_may_go_no_copy_is_read_back(ending):
    ending.archive.rescue()
    ending.mark(KEPT)
    faults = StoreFaults()
    store = FaultyStore(ending.archive.store, faults)
    side = ending.cluster.side(rescues=ending.archive.evidence(store))
    scan = side.scanner.scan
    side.scanner.scan = lambda named: replace(scan(named), refusals=(Refusal(RefusalKind.NO_GUARD),))
    look = side.look([ending.queue.read(ledger_record_name(KEPT)).record])
    assert look.refusals
    assert faults.calls == {}


def test_an_application_that_ends_reads_no_more(ending):
    """And counts no try: what a look said is not written any more."""
    ending.archive.rescue()
    ending.mark(KEPT)
    evidence = RescueEvidence(ending.archive.rescues, stopping=lambda: True)
    look = ending.cluster.side(rescues=evidence).look([ending.queue.read(ledger_record_name(KEPT)).record])
    assert isinstance(look.looks[ledger_record_name(KEPT)], FailedLook)


def test_who_knows_nothing_of_rescues_keeps_it(ending):
    """Another process, of another version."""
    ending.archive.rescue()
    ending.mark(KEPT)
    assert ending.end(ending.cluster.side()).answer is DeletionAnswer.HOLDS_DATA


def test_who_marked_it_before_it_was_known_to_hold_data_did_not_mean_that(ending):
    """Marked as what a trim left; then metadata were rolled back, and somebody rescued it."""
    ending.cluster.list_ledgers("t", 9)
    assert [one.outcome for one in ending.mark(KEPT).marks] == [MarkOutcome.MARKED]
    ending.cluster.list_ledgers("t", 3, 9)
    ending.archive.rescue()
    assert ending.end().answer is DeletionAnswer.HOLDS_DATA
    assert ending.there


def test_a_ledger_that_is_listed_again_stays_whatever_was_rescued(ending):
    ending.archive.rescue()
    ending.mark(KEPT)
    ending.cluster.list_ledgers("t", 3, KEPT, 9)
    assert ending.end().answer is DeletionAnswer.STILL_IN_USE


def test_the_rescue_of_a_ledger_that_was_made_again_says_nothing_of_it(ending):
    ending.archive.rescue()
    metadata = ending.cluster.metadata.read(KEPT).metadata
    ending.cluster.metadata.cluster.delete_ledger(KEPT)
    ending.cluster.network.now += 1
    ending.cluster.metadata.cluster.put_ledger(KEPT, metadata)
    (verdict,) = ending.archive.evidence().told(ending.side.scanner.scan({KEPT})).verdicts
    assert verdict.kept
    assert not verdict.rescued


def test_a_second_look_reads_back_what_it_goes_by(ending):
    ending.archive.rescue()
    ending.mark(KEPT)
    record = ending.queue.read(ledger_record_name(KEPT)).record
    look = ending.side.look([record]).looks[record.name]
    assert isinstance(look, UnreferencedLedger)
    assert not look.holds_data
