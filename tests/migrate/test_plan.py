"""What a migration would do is said of each ledger, in each state, and costs are those of what would be done."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.migrate.plan import (
    AbsentRange,
    ArchivedExtent,
    Cost,
    CostShape,
    LedgerAction,
    ListedState,
    PlannedLedger,
    TopicLedger,
    cost_of,
    drivers_out_of_reach,
    pause_of,
    plan_to_ledger_based,
    plan_to_streaming,
    state_of,
)
from offloader.model import GIB, MIB, LedgerSpan, Position, Taking

LARGEST = 1920 * 1024**2

NOTHING = ArchivedExtent()


def to(ledger: int, entry: int) -> ArchivedExtent:
    return ArchivedExtent(Position(0, 0, 0), Position(0, ledger, entry))


def facts(ledger: int, last: int | None, state: ListedState, size: int = 1000, driver: str = "S3") -> TopicLedger:
    return TopicLedger(LedgerSpan(ledger, last), 0 if last is None else last + 1, size, state, driver)


def action(one: TopicLedger, end: Position | None = None, taking: Taking = Taking.COPY) -> LedgerAction:
    extent = ArchivedExtent(None, end)
    return plan_to_streaming([one], extent, taking, drivers_out_of_reach("s3", {"S3", "filesystem"}))[0].action


@pytest.mark.parametrize(
    ("last", "offloaded", "attempted", "moved", "state"),
    [
        (None, (), (), (), ListedState.OPEN),
        (-1, (5,), (), (), ListedState.EMPTY),
        (9, (), (), (), ListedState.CLOSED),
        (9, (), (5,), (), ListedState.ATTEMPTED),
        (9, (5,), (), (), ListedState.KEPT),
        (9, (5,), (), (5,), ListedState.MOVED),
    ],
)
def test_each_state_of_a_ledger(last, offloaded, attempted, moved, state) -> None:
    assert state_of(LedgerSpan(5, last), offloaded, attempted, moved) is state


def test_only_complete_copies_of_whole_ledgers_are_copied() -> None:
    kept = facts(5, 9, ListedState.KEPT)
    assert action(kept) is LedgerAction.COPY
    assert action(facts(5, 9, ListedState.MOVED)) is LedgerAction.COPY
    assert action(kept, taking=Taking.REWRITE) is LedgerAction.READ
    assert action(kept, Position(0, 5, 3)) is LedgerAction.READ
    assert action(kept, Position(0, 5, 9)) is LedgerAction.ARCHIVED
    assert action(kept, Position(0, 4, 9)) is LedgerAction.COPY
    assert action(facts(5, 9, ListedState.KEPT, LARGEST)) is LedgerAction.READ
    for state in (ListedState.OPEN, ListedState.CLOSED, ListedState.ATTEMPTED):
        assert action(facts(5, None if state is ListedState.OPEN else 9, state)) is LedgerAction.READ
    assert action(facts(5, -1, ListedState.EMPTY)) is LedgerAction.NOTHING


def test_the_filesystem_offloader_is_refused_by_that_name_unless_entries_are_rewritten() -> None:
    found = facts(5, 9, ListedState.KEPT, driver="filesystem")
    planned = plan_to_streaming([found], NOTHING, Taking.COPY, drivers_out_of_reach("s3", {"filesystem"}))
    assert planned[0].action is LedgerAction.REFUSED
    assert "filesystem offloader" in planned[0].why
    assert action(found, taking=Taking.REWRITE) is LedgerAction.READ


@pytest.mark.parametrize(
    ("scheme", "driver", "told"),
    [
        ("", "S3", "set lifecycle.stockBucket"),
        ("s3", "google-cloud-storage", "gs://"),
        ("gs", "aws-s3", "s3://"),
        ("s3", "azureblob", "az://"),
        ("s3", "pigeon", "do not know the offload driver pigeon"),
        ("s3", "aws-s3", ""),
        ("s3", "S3", ""),
        ("s3", "aliyun-oss", ""),
        ("file", "", ""),
    ],
)
def test_a_bucket_that_we_cannot_reach_is_refused_with_what_to_do(scheme, driver, told) -> None:
    why = drivers_out_of_reach(scheme, {driver}).get(driver, "")
    assert told in why
    assert bool(told) == bool(why)
    assert not why or "--rewrite" in why


SHAPE = CostShape(part_size=8 * MIB, segment_size=GIB, inside=True)


@given(
    st.sampled_from(LedgerAction),
    st.integers(0, 2 * GIB),
    st.integers(1, 10**6),
    st.booleans(),
    st.integers(MIB, 64 * MIB),
)
def test_costs_are_of_what_is_done_and_more_bytes_cost_no_less(action, size, entries, inside, part) -> None:
    def cost_with(size):
        pending = entries if action is LedgerAction.READ else 0
        ledger = PlannedLedger(1, entries, size, ListedState.KEPT, action, pending=pending)
        return cost_of([ledger], CostShape(part, GIB, inside), back=False)

    cost = cost_with(size)
    moved = (LedgerAction.COPY, LedgerAction.BRIDGE)
    if action not in (*moved, LedgerAction.READ):
        assert cost == Cost()
        return
    assert cost.stored == size + 12 * entries
    assert cost.out == (cost.stored * (1 if inside else 2) if action in moved else 0)
    more = cost_with(size + MIB)
    assert more.writes >= cost.writes
    assert more.reads >= cost.reads
    assert more.stored > cost.stored
    assert (cost + more).reads == cost.reads + more.reads


def test_small_ledgers_share_segments() -> None:
    many = plan_to_streaming([facts(n, 0, ListedState.CLOSED) for n in range(10_000)], NOTHING, Taking.COPY, {})
    assert cost_of(many, SHAPE, back=False).writes < 20


def test_of_a_ledger_of_which_a_part_is_archived_only_the_rest_is_read() -> None:
    half = plan_to_streaming([facts(5, 99, ListedState.CLOSED, GIB)], to(5, 49), Taking.COPY, {})
    assert half[0].pending == 50
    assert cost_of(half, SHAPE, back=False).stored == pytest.approx(GIB / 2, rel=0.01)


def test_the_way_back_bridges_what_is_closed_and_leaves_the_rest_to_brokers() -> None:
    """What is closed and not archived yet is archived first: a topic that lags costs what it costs."""
    ledgers = [
        facts(1, 9, ListedState.MOVED),
        facts(2, 9, ListedState.CLOSED),
        facts(3, -1, ListedState.EMPTY),
        facts(4, 9, ListedState.CLOSED),
        facts(5, 9, ListedState.CLOSED),
        replace(facts(6, None, ListedState.OPEN), entries=7),
    ]
    planned = plan_to_ledger_based(ledgers, to(4, 3))
    assert [(one.action, one.pending) for one in planned] == [
        (LedgerAction.READABLE, 0),
        (LedgerAction.BRIDGE, 0),
        (LedgerAction.NOTHING, 0),
        (LedgerAction.BRIDGE, 6),
        (LedgerAction.BRIDGE, 10),
        (LedgerAction.STAYS, 7),
    ]


def test_the_proof_of_the_way_back_reads_everything_and_that_is_part_of_the_bill() -> None:
    planned = plan_to_ledger_based([facts(1, 9, ListedState.MOVED, GIB)], to(1, 9))
    cost = cost_of(planned, SHAPE, back=True)
    assert cost.out >= 2 * GIB
    assert cost.reads >= 1024 + 256


@pytest.mark.parametrize(("ledgers", "unloads"), [(0, 0), (1, 2), (100, 2), (101, 3), (10_000, 101)])
def test_producers_wait_for_each_round_and_once_more(ledgers, unloads) -> None:
    planned = plan_to_ledger_based([facts(n, 9, ListedState.CLOSED) for n in range(ledgers)], to(ledgers, 9))
    assert pause_of(planned, 100) == pytest.approx(0.2 * unloads)


def test_what_lies_before_the_archive_s_beginning_is_not_archived() -> None:
    """Claimed behind what brokers had offloaded: their copies are the only ones."""
    ledgers = [
        facts(n, 9, state) for n, state in ((1, ListedState.MOVED), (2, ListedState.KEPT), (3, ListedState.CLOSED))
    ]
    extent = ArchivedExtent(Position(0, 3, 0), Position(0, 3, 9))
    there = plan_to_streaming(ledgers, extent, Taking.COPY, {})
    assert [one.action for one in there] == [LedgerAction.OUTSIDE, LedgerAction.OUTSIDE, LedgerAction.ARCHIVED]
    assert there[0].why == "the archive begins behind it"
    assert cost_of(there, SHAPE, back=False) == Cost()
    claimed = plan_to_streaming(ledgers, ArchivedExtent(Position(0, 3, 0)), Taking.COPY, {})
    assert [one.action for one in claimed] == [LedgerAction.OUTSIDE, LedgerAction.OUTSIDE, LedgerAction.READ]
    inside = plan_to_streaming(ledgers, ArchivedExtent(Position(0, 2, 4), Position(0, 3, 9)), Taking.COPY, {})
    assert inside[1].why == "the archive begins in it, with entry 4"
    back = plan_to_ledger_based([facts(2, 9, ListedState.CLOSED)], extent)[0]
    assert (back.action, back.pending, "begins behind it" in back.why) == (LedgerAction.STAYS, 0, True)


def test_what_was_lost_or_deleted_is_not_archived_and_brokers_get_no_copy() -> None:
    gone = AbsentRange(Position(0, 1, 0), Position(0, 2, 3), "it was lost")
    extent = ArchivedExtent(Position(0, 1, 0), Position(0, 4, 9), (gone,))
    ledgers = [facts(n, 9, ListedState.CLOSED) for n in (1, 2, 3)]
    there = plan_to_streaming(ledgers, extent, Taking.COPY, {})
    outside, archived = (LedgerAction.OUTSIDE, "it was lost"), (LedgerAction.ARCHIVED, "")
    assert [(one.action, one.why) for one in there] == [outside, outside, archived]
    back = plan_to_ledger_based(ledgers, extent)
    assert [one.action for one in back] == [LedgerAction.STAYS, LedgerAction.STAYS, LedgerAction.BRIDGE]
