"""Copies in the bucket of Pulsar's own offloader: what others ask for is compared, marked at most, never deleted."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from offloader.errors import OvertakenError, StoreUnavailableError
from offloader.lifecycle.bucket.stock import StockScanner
from offloader.lifecycle.deletion.machine import undone
from offloader.lifecycle.deletion.records import DeletionOffloadContext, LedgerComponent, LedgerType
from offloader.lifecycle.deletion.system_topic.answers import MessageVerdict
from offloader.lifecycle.deletion.system_topic.examining import CopyExaminer, LedgerExaminer
from offloader.lifecycle.deletion.timing import DeletionBounds
from offloader.lifecycle.ledgers.references import References
from tests.lifecycle.bucket.support import HOUR, StoreClock
from tests.lifecycle.bucket.test_stock_objects import NAME, Listed, bucket, references, uuid
from tests.lifecycle.deletion.test_service import WIDE, Setting

from .support import asked

CLUSTER = "pulsarclustername"
OWNER = "managedledgername"

GONE, USED, OTHERS, YOUNG = 8, 9, 7, 6


class Copies:
    """The copy of ledger 8 is named by nobody and trimmed, that of 9 by its list, that of 7 is another cluster's."""

    def __init__(self) -> None:
        self.setting = Setting()
        self.setting.passed_by(5)
        self.clock = StoreClock()
        self.store = bucket(self.clock, (GONE, uuid(GONE)), (USED, uuid(USED)))
        theirs = bucket(self.clock, (OTHERS, uuid(OTHERS)), meta={CLUSTER: "other", OWNER: NAME})
        for key, _ in [*theirs.list()]:
            self.store.put(key, b"data", meta={CLUSTER: "other", OWNER: NAME})
        self.clock.now += 2 * HOUR
        self.bounds = DeletionBounds(percent=100)
        self.reads = 0

    def lists(self) -> list[References]:
        self.reads += 1
        return [references(Listed(USED, uuid(USED)))]

    def open(self, _stack: ExitStack) -> StockScanner:
        return StockScanner(self.store, self.lists, "main", self.clock, HOUR, alone=True)

    def said(self, *messages) -> list[MessageVerdict]:
        queue = self.setting.queue
        copies = CopyExaminer(self.open, "stock", queue, self.bounds, self.clock)
        examiner = LedgerExaminer(
            lambda _: self.setting.cluster.side(), queue, WIDE, lambda: self.setting.cluster.now_ms, copies
        )
        return [one.verdict for one in examiner(messages)]

    def marked(self) -> set[str]:
        return {one.record.object_key for one in self.setting.queue.records()} - {""}


@pytest.fixture
def it() -> Copies:
    return Copies()


def copy_of(ledger: int, number: int | None = None, **more):
    context = DeletionOffloadContext(uuid(number or ledger), "aws-s3", more.pop("metadata", ()))
    fields = {"topic_name": NAME, "ledger_type": LedgerType.OFFLOAD_LEDGER, "offload_context": context, **more}
    return asked(ledger, **fields)


def test_one_look_answers_many_and_marks_data_and_index_of_what_no_list_names(it):
    before = dict(it.store.list())
    said = it.said(
        copy_of(GONE),
        copy_of(USED),
        copy_of(OTHERS),
        copy_of(GONE, 4711),
        copy_of(GONE, topic_name="acme/orders/others"),
        copy_of(GONE, ledger_component=LedgerComponent.MANAGED_CURSOR, cursor_name="sub"),
        copy_of(GONE, metadata=(("bucket", "another"),)),
    )
    assert said == [
        MessageVerdict.MARKED,
        MessageVerdict.STILL_IN_USE,
        MessageVerdict.DOES_NOT_MATCH,
        MessageVerdict.ALREADY_GONE,
        *[MessageVerdict.DOES_NOT_MATCH] * 3,
    ]
    assert it.reads == 1
    assert {key for key in before if uuid(GONE) in key} == it.marked()
    assert len(it.marked()) == 2
    assert dict(it.store.list()) == before
    assert {one.record.marked_by for one in it.setting.queue.records()} == {"system topic"}


@pytest.mark.parametrize("topic", [NAME, "acme/orders/placed", "persistent://acme/orders/placed"])
def test_a_topic_may_be_named_in_each_way(it, topic):
    assert it.said(copy_of(GONE, topic_name=topic)) == [MessageVerdict.MARKED]


def test_asked_twice_it_is_marked_once(it):
    assert it.said(copy_of(GONE)) == it.said(copy_of(GONE)) == [MessageVerdict.MARKED]
    assert len(it.marked()) == 2


def test_what_an_operator_has_undone_only_an_operator_marks_again(it):
    it.said(copy_of(GONE))
    first = next(one.record for one in it.setting.queue.records())
    it.setting.queue.change(first.name, lambda record: undone(record, it.clock()))
    assert it.said(copy_of(GONE)) == [MessageVerdict.STILL_IN_USE]


def test_what_is_young_and_what_would_be_too_many_at_once_is_asked_again_later(it):
    young = bucket(it.clock, (YOUNG, uuid(YOUNG)))
    for key, _ in [*young.list()]:
        it.store.put(key, b"data", meta={CLUSTER: "main", OWNER: NAME})
    assert it.said(copy_of(YOUNG)) == [MessageVerdict.FAILED]
    it.bounds = DeletionBounds(number=1)
    assert it.said(copy_of(GONE)) == [MessageVerdict.FAILED]
    assert it.marked() == set()


def test_a_bucket_that_does_not_answer_keeps_no_ledger_waiting(it):
    def away(_stack):
        raise StoreUnavailableError("no bucket")

    it.open = away
    assert it.said(copy_of(GONE), asked(5)) == [MessageVerdict.FAILED, MessageVerdict.DOES_NOT_MATCH]


def test_who_was_overtaken_answers_nothing(it):
    def overtaken(_stack):
        raise OvertakenError("another process")

    it.open = overtaken
    with pytest.raises(OvertakenError):
        it.said(copy_of(GONE))
