"""What is worth a visit, and when, from nodes alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offloader._proto.managed_ledger_pb2 import ManagedLedgerInfo
from offloader.bookkeeper.model import LedgerState
from offloader.errors import DamagedRecordError, FatalError, ProtocolError
from offloader.lifecycle.explaining.words import moment_text
from offloader.lifecycle.topics.broker_retention import (
    BrokerRetention,
    RetentionLevel,
    default_retention,
    read_retention,
)
from offloader.lifecycle.topics.cursors.kinds import SubscriptionNames
from offloader.lifecycle.topics.pace import VisitPace
from offloader.lifecycle.topics.unloaded import UnloadedTopic, kept_from, look_at
from offloader.lifecycle.topics.visit_plan import check_version
from offloader.model import MIB, TopicName
from offloader.state.managed_ledger import ListedLedger, ManagedLedger
from offloader.state.managed_ledger_codec import decode_managed_ledger
from offloader.state.subscription import CursorState
from offloader.state.topic import NewestLedger, PulsarTopic

UNDATED = "its last ledger has no date before the topic is loaded"
OPEN = "its last ledger is open, and no broker has it loaded"

QUIET_MS = 600_000

TOPIC = TopicName.parse("acme/orders/t")
HOUR = 3_600_000
DAY = 24 * HOUR
NOW = 1_767_225_600_000
ONE_DAY = BrokerRetention(24 * 60, -1, RetentionLevel.NAMESPACE)


def nodes(*ages: int | None, tail: NewestLedger | None = None, terminated: bool = False) -> PulsarTopic:
    """Ledgers of 10 entries and 100 bytes, finished so long ago; None: without a date. Then an empty, closed one."""
    ledgers = [ListedLedger(i, 10, 100, 0 if age is None else NOW - age) for i, age in enumerate(ages)]
    last = ListedLedger(len(ages), 0, 0, 0)
    written = max((one.timestamp_ms for one in ledgers), default=0)
    empty = NewestLedger(True, 0, 0, written, written)
    return PulsarTopic(
        TOPIC, ManagedLedger((*ledgers, last), 1, (0, 0) if terminated else None, modified_ms=written), tail or empty
    )


def looked(found: PulsarTopic, retention: BrokerRetention = ONE_DAY, now: int = NOW) -> UnloadedTopic:
    return look_at(found, retention, now, SubscriptionNames())


def test_ledgers_that_expire_far_apart_do_not_cost_a_visit_each() -> None:
    """Hourly ledgers of a day, and half a retention time after the last load the half of them has expired."""
    found = looked(nodes(*range(36 * HOUR, 12 * HOUR, -HOUR)))
    assert found.due_ms is not None
    assert found.due(NOW)
    waiting = looked(nodes(*range(26 * HOUR, 2 * HOUR, -HOUR)))
    assert waiting.due_ms == NOW - 3 * HOUR + 12 * HOUR
    assert waiting.overdue == 200  # two have expired, and wait for others


def test_where_all_has_expired_nobody_waits_for_half_a_retention_time() -> None:
    """After a load that freed nothing: only what was just unloaded is left alone."""
    found = nodes(3 * DAY, 2 * DAY)
    loaded = replace(found, list=replace(found.list, modified_ms=NOW))
    assert looked(loaded).due_ms == NOW + QUIET_MS + 1
    half = replace(nodes(2 * DAY, DAY - HOUR), list=replace(nodes(2 * DAY, DAY - HOUR).list, modified_ms=NOW))
    assert looked(half).due_ms == NOW + HOUR + 1


def test_a_ledger_that_retention_keeps_keeps_those_after_it() -> None:
    """Brokers' clocks differ: they stop at the first one that is not old enough."""
    found = looked(nodes(HOUR, 2 * DAY, 3 * DAY))
    assert (found.overdue, found.due(NOW)) == (0, False)


def test_a_ledger_without_a_date_among_others_is_as_old_as_its_list_at_most() -> None:
    assert looked(nodes(None, 2 * DAY)).overdue == 200
    assert looked(nodes(None, HOUR)).overdue == 0


def test_the_last_ledger_counts_from_when_it_was_closed() -> None:
    closed = NewestLedger(True, 10, 70, NOW - 9 * DAY, NOW - 2 * DAY)
    found = looked(nodes(tail=closed))
    assert (found.overdue, found.size, found.reasons) == (70, 70, (UNDATED,))
    young = looked(nodes(tail=closed._replace(changed_ms=NOW - QUIET_MS)))
    assert (young.overdue, young.due_ms) == (0, NOW + 1)  # it is dated soon all the same: its time begins then


@pytest.mark.parametrize("state", [LedgerState.OPEN, LedgerState.IN_RECOVERY])
def test_an_open_last_ledger_is_worth_a_visit_only_where_retention_ends(state: LedgerState) -> None:
    tail = NewestLedger(state is LedgerState.CLOSED, 0, 0, NOW - HOUR, NOW - HOUR)
    assert looked(nodes(tail=tail)).reasons == (OPEN,)
    for_ever = BrokerRetention(-1, -1, RetentionLevel.BROKER)
    found = looked(nodes(2 * DAY, tail=tail), for_ever)
    assert (found.reasons, found.due_ms, found.open_ledger) == ((), None, 1)


def test_only_a_size_is_set() -> None:
    large = BrokerRetention(-1, 0, RetentionLevel.TOPIC)
    assert looked(nodes(1, 1), large).overdue == 200
    small = BrokerRetention(-1, 1, RetentionLevel.TOPIC)
    found = looked(nodes(DAY, DAY), small)
    assert (found.overdue, found.due_ms) == (0, None)
    tail = NewestLedger(True, 10, 2 * MIB, NOW - DAY, NOW - DAY)
    assert looked(nodes(DAY, tail=tail), small).overdue == 100


def test_nothing_is_worth_a_visit_in_a_list_that_is_empty() -> None:
    empty = PulsarTopic(TOPIC, ManagedLedger(modified_ms=NOW - DAY), None)
    assert looked(empty).due_ms is None


@pytest.mark.parametrize(
    ("mark", "ledger"),
    [
        ((0, -1), 0),  # nothing acknowledged
        ((0, 8), 0),
        ((0, 9), 1),  # the whole ledger
        ((1, -1), 1),
        ((7, 3), None),  # past the end: a ledger that is gone
        ((-1, -1), 0),
    ],
)
def test_from_where_a_cursor_keeps(mark: tuple[int, int], ledger: int | None) -> None:
    ledgers = [ListedLedger(0, 10, 100, 1), ListedLedger(1, 10, 100, 1)]
    assert kept_from("s", CursorState(mark), ledgers, SubscriptionNames("pin")).ledger == ledger


def test_a_cursor_whose_ledger_was_dropped_goes_on_at_the_next_one() -> None:
    ledgers = [ListedLedger(5, 10, 100, 1), ListedLedger(9, 0, 0, 0)]
    assert kept_from("s", CursorState((3, 4)), ledgers, SubscriptionNames("pin")).ledger == 5
    assert kept_from("s", CursorState((7, 4)), ledgers, SubscriptionNames("pin")).ledger == 9


def test_a_cursor_that_was_only_just_made_keeps_everything_perhaps() -> None:
    found = kept_from("s", CursorState(cursor_ledger=4), [ListedLedger(5, 10, 100, 1)], SubscriptionNames("pin"))
    assert (found.ledger, found.certain) == (5, False)


def test_whose_a_cursor_is() -> None:
    names = SubscriptionNames("pin", "our.repl", frozenset({"sys"}))
    holders = ("pin", "__compaction", "pulsar.dedup", "our.repl.west", "sys", "s")
    kept = [kept_from(name, CursorState(cursor_ledger=4), [ListedLedger(5, 10, 100, 1)], names) for name in holders]
    assert [one.kind for one in kept] == ["pin", "compaction", "deduplication", "replication", "system", "user"]


def test_a_shadow_topic_names_its_source() -> None:
    info = ManagedLedgerInfo()
    info.properties.add(key="PULSAR.SHADOW_SOURCE", value="persistent://acme/orders/source")
    assert decode_managed_ledger(info.SerializeToString()).shadow_of == "persistent://acme/orders/source"


@pytest.mark.parametrize("ledgers", [(3, 3), (-1, 2)])
def test_a_list_that_no_managed_ledger_has_is_damage(ledgers: tuple[int, int]) -> None:
    info = ManagedLedgerInfo()
    for ledger in ledgers:
        info.ledgerInfo.add(ledgerId=ledger)
    with pytest.raises(DamagedRecordError):
        decode_managed_ledger(info.SerializeToString())


@pytest.mark.parametrize(
    "answer", [[], "x", {}, {"retentionTimeInMinutes": "1", "retentionSizeInMB": 1}, {"retentionTimeInMinutes": True}]
)
def test_an_answer_that_is_no_retention_is_none(answer: object) -> None:
    with pytest.raises(ProtocolError):
        read_retention(answer, RetentionLevel.TOPIC)


@pytest.mark.parametrize("configuration", [{}, {"defaultRetentionTimeInMinutes": "", "defaultRetentionSizeInMB": "0"}])
def test_a_configuration_that_names_no_default_is_refused(configuration: dict[str, str]) -> None:
    with pytest.raises(ProtocolError):
        default_retention(configuration)


def test_versions_that_can_trim() -> None:
    for version in ("3.0.0", "4.0.7", "4.2.4-SNAPSHOT", "10.0"):
        check_version(version)
    for version in ("2.11.4", "2.8"):
        with pytest.raises(FatalError):
            check_version(version)
    with pytest.raises(ProtocolError):
        check_version("<html>")


def test_a_clock_that_is_put_back_delays_no_visit_for_long() -> None:
    pace = VisitPace(60)
    assert [pace.wait_ms(now) for now in (10_000, 10_000, 11_500)] == [0, 1000, 500]
    assert pace.wait_ms(10_500 - HOUR) <= 1000
    assert pace.wait_ms(50_000_000) == 0


def test_a_time_that_no_calendar_has_is_told_as_a_number() -> None:
    assert moment_text(0) == "1970-01-01T00:00:00.000Z"
    assert moment_text(2**62) == f"{2**62} ms since 1970"
