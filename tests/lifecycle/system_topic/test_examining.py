"""What others ask for goes through the same evidence as what a scan finds; and deletions are announced before a try."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offloader.lifecycle.deletion.machine import undone
from offloader.lifecycle.deletion.marking import MarkOutcome
from offloader.lifecycle.deletion.records import (
    DeletionAnswer,
    DeletionOffloadContext,
    DeletionState,
    LedgerComponent,
    LedgerType,
)
from offloader.lifecycle.deletion.service import DeletionRules, LedgerDeletionService
from offloader.lifecycle.deletion.system_topic.answers import MessageVerdict
from offloader.lifecycle.deletion.system_topic.examining import LedgerExaminer
from offloader.lifecycle.ledgers.refusals import Refusal, RefusalKind
from tests.lifecycle.deletion.cluster import DAY
from tests.lifecycle.deletion.test_service import WIDE, Setting

from .support import asked

TOPIC = "acme/orders/t"


@pytest.fixture
def setting():
    found = Setting()
    found.passed_by(5, 6)
    return found


def examined(setting: Setting, *messages, side=None) -> list[MessageVerdict]:
    def now() -> int:
        return setting.cluster.now_ms

    examiner = LedgerExaminer(lambda _: side or setting.cluster.side(), setting.queue, WIDE, now)
    return [one.verdict for one in examiner(messages)]


def test_one_scan_answers_many_and_marks_only_what_is_certain(setting):
    side = setting.cluster.side()
    scans = []
    scan = side.scanner.scan

    def counted(only):
        scans.append(only)
        return scan(only)

    side.scanner.scan = counted
    said = examined(
        setting,
        asked(5, topic_name=TOPIC),
        asked(1000, topic_name=TOPIC),
        asked(4711, topic_name=TOPIC),
        asked(6, topic_name="acme/orders/other"),
        asked(-1, topic_name=TOPIC),
        side=side,
    )
    assert said == [
        MessageVerdict.MARKED,
        MessageVerdict.STILL_IN_USE,
        MessageVerdict.ALREADY_GONE,
        MessageVerdict.DOES_NOT_MATCH,
        MessageVerdict.INVALID,
    ]
    assert scans == [{5, 1000, 4711, 6}]
    assert (setting.record(5).state, setting.record(5).marked_by) == (DeletionState.MARKED, "system topic")
    assert setting.record(6) is None


def test_what_says_another_cursor_than_the_ledger_does_not_match_and_is_not_marked(setting):
    message = asked(5, topic_name=TOPIC, ledger_component=LedgerComponent.MANAGED_CURSOR, cursor_name="sub")
    assert examined(setting, message) == [MessageVerdict.DOES_NOT_MATCH]
    assert setting.record(5) is None


def test_what_is_marked_already_is_compared_too(setting):
    setting.mark(5)
    assert examined(setting, asked(5, topic_name=TOPIC)) == [MessageVerdict.MARKED]
    assert setting.record(5).marked_by == "test"


def test_nobody_but_an_operator_marks_again_what_an_operator_has_undone(setting):
    setting.mark(5)
    setting.queue.change(setting.record(5).name, lambda record: undone(record, setting.cluster.now_ms))
    assert examined(setting, asked(5, topic_name=TOPIC)) == [MessageVerdict.STILL_IN_USE]
    assert setting.record(5).state is DeletionState.UNDONE


@pytest.mark.parametrize("is_open", [False, True])
def test_whoever_asks_for_ledgers_with_entries_of_an_absent_topic_has_none_of_them_marked(setting, is_open):
    """They wait for an operator, who marks them by their number; empty ones are marked at once."""
    setting.cluster.ledger(7, "gone", 3, is_open=is_open)
    setting.cluster.ledger(8, "gone", 0)
    setting.later()
    forged = asked(7, topic_name="acme/orders/gone")
    said = examined(setting, forged, asked(8, topic_name="acme/orders/gone"))
    assert said == [MessageVerdict.REQUESTED, MessageVerdict.MARKED]
    assert setting.end_of(7) == (DeletionState.KEPT, DeletionAnswer.REQUESTED)
    assert examined(setting, forged) == [MessageVerdict.REQUESTED]  # a message that comes twice changes nothing
    assert {one.id: one.outcome for one in setting.mark().marks if one.id == 7} == {7: MarkOutcome.SPARED}
    setting.on()
    for _ in range(2):
        setting.later(40 * DAY)
        setting.service().round()
    assert setting.end_of(7) == (DeletionState.KEPT, DeletionAnswer.REQUESTED)
    assert 7 in setting.cluster.ledger_ids()
    assert 8 not in setting.cluster.ledger_ids()
    assert [one.outcome for one in setting.mark(7).marks] == [MarkOutcome.MARKED]
    setting.later()
    setting.service().round()
    assert setting.end_of(7) == (DeletionState.DELETED, DeletionAnswer.DELETED)


def test_a_forged_message_for_a_topic_that_a_broker_serves_marks_nothing(setting):
    setting.cluster.ledger(7, "gone", 3)
    setting.cluster.ledger(8, "gone", 0)
    setting.later()
    side = setting.cluster.side(loaded=lambda: {"persistent://acme/orders/gone": "broker-1"})
    said = examined(setting, *(asked(one, topic_name="acme/orders/gone") for one in (7, 8)), side=side)
    assert said == [MessageVerdict.FAILED] * 2
    assert setting.record(7) is setting.record(8) is None


def test_where_something_stands_against_deletion_it_is_asked_again_later(setting):
    side = setting.cluster.side()
    side.scanner.refusals = (Refusal(RefusalKind.MAY_BE_SHARED),)
    said = examined(setting, asked(5, topic_name=TOPIC), asked(4711, topic_name=TOPIC), side=side)
    assert said == [MessageVerdict.FAILED] * 2
    assert setting.record(5) is None


def test_a_copy_in_a_bucket_that_nobody_names_is_nobodys_to_judge(setting):
    context = DeletionOffloadContext("0" * 8 + "-0000-4000-8000-000000000001", "aws-s3")
    message = asked(5, topic_name=TOPIC, ledger_type=LedgerType.OFFLOAD_LEDGER, offload_context=context)
    assert examined(setting, message) == [MessageVerdict.FAILED]


def test_a_try_is_announced_once_it_is_recorded_and_before_it_is_made(setting):
    setting.mark(5)
    setting.later()
    heard = []

    def announce(record) -> None:
        there = 5 in setting.cluster.ledger_ids()
        heard.append((record.ledger_id, setting.record(5).state, there))

    rules = replace(DeletionRules(), bounds=WIDE, timing=setting.timing)
    sides = {LedgerType.LEDGER: setting.cluster.side()}
    setting.on()
    setting.later()
    service = LedgerDeletionService(setting.queue, sides, rules, setting.told, lambda: setting.cluster.now_ms, announce)
    for _ in range(3):
        service.round()
        setting.later()
    assert heard == [(5, DeletionState.DELETING, True)]
    assert 5 not in setting.cluster.ledger_ids()
