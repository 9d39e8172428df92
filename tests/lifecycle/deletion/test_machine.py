"""The two phases, rule by rule, in the words of the reference."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.errors import FatalError
from offloader.lifecycle.deletion.machine import (
    DeletionRuling,
    DeletionStep,
    DeletionTry,
    DeletionTurn,
    FailedLook,
    GoneLedger,
    ReferencedLedger,
    SecondLook,
    UnprovenLedger,
    UnreferencedLedger,
    closed,
    dropped,
    kept,
    marked,
    recreated,
    retried,
    rule,
    taken_back,
    tried,
    turn,
    undone,
)
from offloader.lifecycle.deletion.records import (
    DeletionAnswer,
    DeletionEvidence,
    DeletionProof,
    DeletionState,
    DeletionSwitch,
    LedgerNode,
    LedgerType,
    PendingDeleteLedgerInfo,
)
from offloader.lifecycle.deletion.timing import DeletionTiming
from tests.times import DAY_MS, HOUR_MS

from .support import EVIDENCE, NODE, NOW, candidate, looks, records

TIMING = DeletionTiming()
ON = DeletionSwitch(True, NOW - DAY_MS)
LATER = NOW + DAY_MS
SAME = UnreferencedLedger(NODE, EVIDENCE, age=9 * DAY_MS, seen_at=LATER)
ABSENT = DeletionEvidence(DeletionProof.REFEREE_ABSENT, EVIDENCE.referee)


def ruled(look: SecondLook, record: PendingDeleteLedgerInfo | None = None) -> DeletionRuling:
    return rule(record or candidate(), look, LATER, TIMING, ON)


def begun() -> PendingDeleteLedgerInfo:
    """Its first try is on its way."""
    return ruled(SAME).record


def ends(
    look: SecondLook, record: PendingDeleteLedgerInfo | None = None
) -> tuple[DeletionState, DeletionAnswer | None]:
    ruling = ruled(look, record)
    assert ruling.step is DeletionStep.NOTHING
    assert ruling.record.has_ended
    assert ruling.record.ended_at == LATER
    return ruling.record.state, ruling.record.answer


# First phase


def test_the_first_phase_marks_with_all_evidence():
    found = candidate(state=DeletionState.KEPT, tries=3, marked_at=1, answer=DeletionAnswer.INVALID)
    assert marked(found, None, NOW) == candidate()


@pytest.mark.parametrize("state", DeletionState)
def test_what_is_pending_is_not_marked_again(state: DeletionState):
    former = candidate(state=state, marked_at=NOW - DAY_MS)
    assert (marked(candidate(), former, NOW) is None) == (not former.has_ended)


def test_what_is_invalid_is_not_marked():
    assert marked(candidate(-1), None, NOW) is None


def test_nothing_happens_before_the_delay_is_over():
    assert turn(candidate(), LATER - 1, TIMING, ON) is DeletionTurn.NOTHING
    assert turn(candidate(), LATER, TIMING, ON) is DeletionTurn.LOOK


def test_by_a_clock_that_went_back_a_look_decides_and_nothing_goes():
    """Ours, or that of whoever wrote the record: the look has ZooKeeper's."""
    assert turn(candidate(), NOW - HOUR_MS, TIMING, ON) is DeletionTurn.NOTHING
    then = NOW - 9 * DAY_MS
    assert turn(candidate(), then, TIMING, ON) is DeletionTurn.LOOK
    waits = rule(candidate(), replace(SAME, seen_at=NOW + HOUR_MS), then, TIMING, ON)
    assert waits == DeletionRuling(candidate(next_at=then + 23 * HOUR_MS))
    assert turn(waits.record, then, TIMING, ON) is DeletionTurn.NOTHING
    assert turn(waits.record, waits.record.next_at, TIMING, ON) is DeletionTurn.LOOK


def test_what_our_clock_calls_due_waits_by_the_clock_that_it_was_marked_by():
    ruling = rule(candidate(), replace(SAME, seen_at=NOW + HOUR_MS), NOW + 900 * DAY_MS, TIMING, ON)
    assert ruling == DeletionRuling(candidate(next_at=NOW + 900 * DAY_MS + 23 * HOUR_MS))


@pytest.mark.parametrize("behind", [0, HOUR_MS, DAY_MS, 3650 * DAY_MS])
def test_what_it_was_marked_by_may_be_behind_and_nothing_is_due_earlier(behind: int):
    """ZooKeeper's clock, which is right again at the second look: ours has the delay, too."""
    found = marked(candidate(), None, NOW - behind, ON, NOW)
    assert found is not None
    assert (found.marked_at, found.noted_at) == (NOW - behind, NOW)
    assert turn(found, LATER - 1, TIMING, ON) is DeletionTurn.NOTHING
    assert turn(found, LATER, TIMING, ON) is DeletionTurn.LOOK


def test_what_was_noted_by_a_clock_that_was_ahead_is_looked_at_when_it_is_right_again():
    ahead = candidate(noted_at=LATER + 3650 * DAY_MS)
    assert turn(ahead, LATER, TIMING, ON) is DeletionTurn.LOOK
    assert ruled(SAME, ahead).step is DeletionStep.DELETE


def test_what_was_marked_later_than_now_is_marked_anew():
    """ZooKeeper's clock was ahead, and is right again: else it would wait for years."""
    ahead = candidate(marked_at=LATER + 3650 * DAY_MS)
    assert turn(ahead, LATER, TIMING, ON) is DeletionTurn.LOOK
    assert ruled(SAME, ahead) == DeletionRuling(candidate(marked_at=LATER, noted_at=LATER))


def test_what_waits_until_our_clock_was_ahead_is_looked_at_when_it_is_right_again():
    assert turn(candidate(next_at=LATER + 3650 * DAY_MS), LATER, TIMING, ON) is DeletionTurn.LOOK


# Second phase


def test_the_same_evidence_once_more_deletes_by_the_referee_s_newest_version():
    newer = replace(EVIDENCE, referee_version=21, says=("its list has 12 and 15",))
    ruling = ruled(replace(SAME, evidence=newer))
    assert ruling.step is DeletionStep.DELETE
    assert (ruling.record.state, ruling.record.evidence, ruling.record.tries) == (DeletionState.DELETING, newer, 1)


def test_a_try_is_counted_and_recorded_before_it_is_made():
    record = begun()
    assert record.tries == 1
    assert turn(record, LATER + 600_000 - 1, TIMING, ON) is DeletionTurn.NOTHING
    assert turn(record, LATER + 600_000, TIMING, ON) is DeletionTurn.LOOK


def test_still_in_use_is_success():
    assert ends(ReferencedLedger("the list")) == (DeletionState.KEPT, DeletionAnswer.STILL_IN_USE)


def test_already_gone_is_success():
    assert ends(GoneLedger()) == (DeletionState.DELETED, DeletionAnswer.ALREADY_GONE)


def test_gone_after_a_try_of_which_nobody_knows_what_came_is_our_deletion():
    lost = tried(begun(), DeletionTry.UNKNOWN, "no answer", LATER, TIMING)
    for record in (begun(), lost, replace(lost, state=DeletionState.MARKED)):
        assert ends(GoneLedger(), record) == (DeletionState.DELETED, DeletionAnswer.DELETED)


def test_gone_after_a_try_that_was_refused_is_somebody_else_s_deletion():
    refused = tried(begun(), DeletionTry.REFUSED, "the list has changed", LATER, TIMING)
    assert ends(GoneLedger(), refused) == (DeletionState.DELETED, DeletionAnswer.ALREADY_GONE)


@pytest.mark.parametrize("former", [DeletionTry.REFUSED, DeletionTry.UNKNOWN])
def test_gone_between_look_and_try_is_somebody_else_s_deletion_whatever_was_tried_before(former: DeletionTry):
    """The look has outdated every try before it, and saw it there."""
    second = ruled(SAME, tried(begun(), former, "no", LATER, TIMING)).record
    assert second.tries == 2
    ended = tried(second, DeletionTry.GONE, "", LATER, TIMING)
    assert (ended.state, ended.answer) == (DeletionState.DELETED, DeletionAnswer.ALREADY_GONE)


@pytest.mark.parametrize(
    "node",
    [replace(NODE, data=b"others"), replace(NODE, version=4), replace(NODE, ctime=NODE.ctime + 1)],
    ids=["bytes", "version", "ctime"],
)
def test_metadata_that_are_not_the_record_s_are_ignored_and_told(node: LedgerNode):
    """Forged or stale."""
    assert ends(replace(SAME, node=node)) == (DeletionState.KEPT, DeletionAnswer.DOES_NOT_MATCH)
    assert ruled(replace(SAME, node=node)).record.reason


def test_what_is_only_suspect_at_the_second_look_is_kept():
    assert ends(UnprovenLedger("greater than all")) == (DeletionState.KEPT, DeletionAnswer.DOES_NOT_MATCH)


def test_an_invalid_record_is_success():
    for look in (SAME, GoneLedger(), FailedLook("no answer")):
        assert ends(look, candidate(-1)) == (DeletionState.KEPT, DeletionAnswer.INVALID)


def test_entries_that_no_list_has_are_data_and_kept():
    assert ends(replace(SAME, holds_data=True)) == (DeletionState.KEPT, DeletionAnswer.HOLDS_DATA)


def test_evidence_that_cannot_be_guarded_deletes_nothing():
    assert ends(replace(SAME, evidence=replace(EVIDENCE, referee=""))) == (DeletionState.KEPT, DeletionAnswer.INVALID)


def test_other_evidence_begins_the_delay_anew():
    ruling = ruled(replace(SAME, evidence=ABSENT))
    assert ruling == DeletionRuling(candidate(evidence=ABSENT, marked_at=LATER, noted_at=LATER))


def test_a_ledger_younger_than_the_delay_by_zookeeper_s_clock_waits():
    ruling = ruled(replace(SAME, age=23 * HOUR_MS))
    assert ruling == DeletionRuling(candidate(next_at=LATER + HOUR_MS))


# Open ledgers


def test_an_open_ledger_is_closed_after_the_second_look_and_then_deleted_as_it_is_closed():
    closing = ruled(replace(SAME, is_open=True))
    assert (closing.step, closing.record.closing) == (DeletionStep.CLOSE, True)
    after = replace(NODE, data=b"closed", version=4)
    deleting = closed(closing.record, after)
    assert (deleting.step, deleting.record.node, deleting.record.closing) == (DeletionStep.DELETE, after, False)


def test_what_we_may_have_closed_ourselves_is_marked_anew():
    closing = ruled(replace(SAME, is_open=True)).record
    after = replace(NODE, data=b"closed", version=4)
    assert ruled(replace(SAME, node=after), closing) == DeletionRuling(
        candidate(node=after, marked_at=LATER, noted_at=LATER)
    )


def test_what_was_gone_before_we_deleted_is_not_our_deletion():
    closing = ruled(replace(SAME, is_open=True)).record
    assert ends(GoneLedger(), closing) == (DeletionState.DELETED, DeletionAnswer.ALREADY_GONE)


# Tries


def test_what_is_refused_is_tried_again_with_a_growing_delay_at_most_ten_times():
    record, now, waits = candidate(), LATER, []
    while True:
        assert turn(record, now, TIMING, ON) is DeletionTurn.LOOK
        ruling = rule(record, SAME, now, TIMING, ON)
        if ruling.step is DeletionStep.NOTHING:
            break
        record = tried(ruling.record, DeletionTry.REFUSED, "the list has changed", now, TIMING)
        waits.append(record.next_at - now)
        now = record.next_at
    assert ruling.record == replace(record, state=DeletionState.GIVEN_UP)
    assert (record.tries, record.reason) == (10, "the list has changed")
    assert len(waits) == 10
    assert waits[0] == 600_000
    assert waits == sorted(waits)


def test_a_try_that_succeeds_ends():
    record = tried(begun(), DeletionTry.DONE, "", LATER, TIMING)
    assert (record.state, record.answer, record.ended_at) == (DeletionState.DELETED, DeletionAnswer.DELETED, LATER)


def test_where_the_answer_is_lost_the_next_look_decides_and_not_at_once():
    record = tried(begun(), DeletionTry.UNKNOWN, "no answer", LATER, TIMING)
    assert (record.state, record.next_at) == (DeletionState.DELETING, LATER + 600_000)


def test_looks_that_fail_are_counted_too():
    record = candidate()
    for _ in range(10):
        record = ruled(FailedLook("bookies in trouble"), record).record
    assert (record.state, record.reason) == (DeletionState.GIVEN_UP, "bookies in trouble")


def test_after_a_last_try_that_was_cut_short_one_look_and_no_try():
    last = replace(begun(), tries=10)
    assert ruled(SAME, last).record.state is DeletionState.GIVEN_UP
    assert ruled(SAME, last).step is DeletionStep.NOTHING
    assert ends(GoneLedger(), last) == (DeletionState.DELETED, DeletionAnswer.DELETED)


# Operators


@pytest.mark.parametrize("state", DeletionState)
def test_undo_costs_nothing_until_the_end(state: DeletionState):
    record = candidate(state=state)
    if not record.has_ended:
        assert undone(record, LATER).state is DeletionState.UNDONE
        assert turn(undone(record, LATER), LATER + 9 * DAY_MS, TIMING, ON) is DeletionTurn.NOTHING
    else:
        with pytest.raises(FatalError, match=f"is {state}"):
            undone(record, LATER)


@pytest.mark.parametrize("state", [DeletionState.DELETING, DeletionState.GIVEN_UP, DeletionState.MARKED])
def test_where_nobody_knows_what_came_of_a_try_a_look_comes_before_the_undo(state: DeletionState):
    record = candidate(state=state, in_doubt=True, tries=1)
    with pytest.raises(FatalError, match="looked at first"):
        undone(record, LATER)
    there = taken_back(record, there=True, now=LATER)
    assert (there.state, there.in_doubt, there.reason) == (DeletionState.UNDONE, False, "")
    away = taken_back(record, there=False, now=LATER)
    assert (away.state, away.answer) == (DeletionState.DELETED, DeletionAnswer.DELETED)
    assert recreated(away, LATER).state is DeletionState.UNDONE
    unseen = taken_back(record, there=None, now=LATER)
    assert (unseen.state, unseen.reason) == (
        DeletionState.UNDONE,
        "whether it had been deleted before is not known",
    )


def test_a_try_that_was_refused_leaves_no_doubt_and_each_new_one_does():
    refused = tried(begun(), DeletionTry.REFUSED, "the list has changed", LATER, TIMING)
    assert undone(refused, LATER).state is DeletionState.UNDONE
    assert ruled(SAME, refused).record.in_doubt
    closing = ruled(replace(SAME, is_open=True)).record
    assert not closing.in_doubt
    assert closed(closing, NODE).record.in_doubt


def test_only_what_we_deleted_is_created_again():
    deleted = tried(begun(), DeletionTry.DONE, "", LATER, TIMING)
    assert recreated(deleted, LATER).state is DeletionState.UNDONE
    for other in (begun(), ruled(GoneLedger()).record):
        with pytest.raises(FatalError):
            recreated(other, LATER)


def test_what_was_given_up_is_retried_or_dropped_by_an_operator_only():
    given_up = candidate(state=DeletionState.GIVEN_UP, tries=10, reason="no answer")
    assert turn(given_up, LATER + 900 * DAY_MS, TIMING, ON) is DeletionTurn.NOTHING
    again = retried(given_up, LATER)
    assert turn(again, LATER, TIMING, ON) is DeletionTurn.LOOK
    assert ruled(SAME, again).step is DeletionStep.DELETE
    assert (dropped(given_up, LATER).answer, dropped(given_up, LATER).reason) == (DeletionAnswer.DROPPED, "no answer")
    for change in (retried, dropped):
        with pytest.raises(FatalError, match="not given up"):
            change(candidate(), LATER)


# The switch


@pytest.mark.parametrize("switch", [None, DeletionSwitch(False, NOW)])
def test_switched_off_records_stay(switch: DeletionSwitch | None):
    assert turn(candidate(), LATER + 9 * DAY_MS, TIMING, switch) is DeletionTurn.NOTHING


def test_a_try_that_may_be_on_its_way_is_waited_for_whatever_the_switch():
    """Its record would be marked anew, and could be taken back while a paused process still deletes."""
    again = DeletionSwitch(True, LATER, ON.number + 2)
    record = begun()
    assert record.in_doubt
    assert turn(record, record.next_at - 1, TIMING, again) is DeletionTurn.NOTHING
    assert turn(record, record.next_at, TIMING, again) is DeletionTurn.LOOK


def test_switched_on_again_evidence_and_delay_begin_anew():
    again = DeletionSwitch(True, LATER, ON.number + 2)
    newer = replace(EVIDENCE, referee_version=30)
    for record in (candidate(), begun()):
        assert turn(record, max(LATER, record.next_at), TIMING, again) is DeletionTurn.LOOK
        ruling = rule(record, replace(SAME, evidence=newer), LATER, TIMING, again)
        assert ruling == DeletionRuling(candidate(evidence=newer, marked_at=LATER, noted_at=LATER, switch=again.number))
        assert turn(ruling.record, LATER + DAY_MS - 1, TIMING, again) is DeletionTurn.NOTHING


def test_records_that_ended_are_removed_after_a_time_and_what_was_given_up_is_not():
    ended = kept(candidate(), DeletionAnswer.STILL_IN_USE, "", NOW)
    assert turn(ended, NOW + 30 * DAY_MS, TIMING, None) is DeletionTurn.NOTHING
    assert turn(ended, NOW + 30 * DAY_MS + 1, TIMING, None) is DeletionTurn.REMOVE
    spared = undone(candidate(), NOW)
    assert turn(spared, NOW + 900 * DAY_MS, TIMING, None) is DeletionTurn.NOTHING
    an_object = replace(spared, ledger_type=LedgerType.OBJECT)
    assert turn(an_object, NOW + 30 * DAY_MS + 1, TIMING, None) is DeletionTurn.REMOVE


# Always


@given(records, looks)
def test_only_what_is_the_same_as_recorded_is_ever_deleted(record: PendingDeleteLedgerInfo, look: SecondLook):
    ruling = ruled(look, record)
    if ruling.step is not DeletionStep.NOTHING:
        assert isinstance(look, UnreferencedLedger)
        assert look.node == record.node == ruling.record.node
        assert look.evidence.is_same(record.evidence)
        assert look.evidence.is_complete
        assert not look.holds_data
        assert look.age >= TIMING.effective_delay
        assert look.seen_at - record.marked_at >= TIMING.effective_delay
        assert record.switch == ON.number
        assert ruling.record.state is DeletionState.DELETING
        assert record.tries < ruling.record.tries <= TIMING.max_tries
        assert ruling.step is (DeletionStep.CLOSE if look.is_open else DeletionStep.DELETE)


@given(records, looks)
def test_who_it_is_about_never_changes(record: PendingDeleteLedgerInfo, look: SecondLook):
    after = ruled(look, record).record
    assert (after.name, after.topic_name, after.marked_by) == (record.name, record.topic_name, record.marked_by)


@given(st.lists(st.tuples(looks, st.sampled_from(DeletionTry)), min_size=12, max_size=12))
def test_each_marked_one_ends_or_waits_for_its_new_delay(steps: list[tuple[SecondLook, DeletionTry]]):
    record, now = candidate(), LATER
    for look, outcome in steps:
        due = record.next_at or max(record.marked_at, record.noted_at) + TIMING.effective_delay
        assert turn(record, due, TIMING, ON) is DeletionTurn.LOOK
        assert turn(record, due - 1, TIMING, ON) is DeletionTurn.NOTHING
        now = max(now, due)
        ruling = rule(record, look, now, TIMING, ON)
        record = ruling.record
        if ruling.step is DeletionStep.CLOSE:
            ruling = closed(record, replace(NODE, version=NODE.version + 1))
        if ruling.step is DeletionStep.DELETE:
            record = tried(ruling.record, outcome, "no", now, TIMING)
        if not record.is_in_flight:
            break
        assert record.tries <= TIMING.max_tries
