"""What was measured to go wrong when somebody writes into a managed ledger's record, and what becomes of it here: it
cannot happen, or is found and repaired, or is refused with the reason."""

from __future__ import annotations

import pytest

from offloader.bridge.core.swap_steps import SwapEnd
from offloader.bridge.swapping import StaleOrFine
from offloader.metadata.stock_keys import index_key
from offloader.state.managed_ledger_codec import decode_managed_ledger
from tests.bridge.swap.support import TOPIC, SwapTown, proven
from tests.fakes.recorded_state import record_path

OTHER = "00000000-0000-4000-8000-000000000001"


@pytest.fixture
def town() -> SwapTown:
    return SwapTown()


def stale(town: SwapTown) -> None:
    """Its broker knows the record as it was before us."""
    for one in town.cluster.state.topics[TOPIC].ledgers:
        one.context, one.offloaded = None, False
    town.cluster.state.topics[TOPIC].version -= 1


@pytest.mark.parametrize("traffic", [True, False])
def test_1_a_record_rewritten_under_a_loaded_topic_is_found_and_repaired(town: SwapTown, traffic: bool) -> None:
    """By whoever comes next, fenced or not; and by itself where there is traffic."""
    under_way = town.round()
    proven(town.bridge(under_way))
    stale(town)
    if traffic:
        town.cluster.roll(TOPIC)
        assert town.cluster.is_fenced(TOPIC)
        town.cluster.produce(TOPIC, b"new")
        assert town.swapper().look(TOPIC) is StaleOrFine.FINE
    else:
        assert not town.cluster.offload(TOPIC, under_way.ledgers[0].ledger, OTHER)
        assert town.read(under_way.ledgers[0].ledger) == []
        assert town.swapper().look(TOPIC) is StaleOrFine.REPAIRED
    assert town.read() == town.truth()


def test_2_bookkeeper_s_copy_is_not_deleted_under_a_stale_broker(town: SwapTown) -> None:
    """Only brokers delete it, and note that in the record before, which is refused to a stale one."""
    under_way = town.round()
    town.set_lag(0)
    proven(town.bridge(under_way))
    stale(town)
    town.cluster.recorded.now_ms += 10**9
    town.cluster.check_retention(TOPIC)
    assert all(town.cluster.has_entries(one.ledger) for one in under_way.ledgers)


def test_3_a_missing_index_is_refused_before_the_record_names_it(town: SwapTown) -> None:
    under_way = town.round()
    town.store.delete([index_key(under_way.ledgers[0].uuid, under_way.ledgers[0].ledger)])
    outcome = town.bridge(under_way)
    assert (outcome.end, outcome.broken, town.contexts()) == (SwapEnd.BUILD, under_way.ledgers[:1], {})
    assert town.read() == town.truth()


def test_4_brokers_that_skip_what_they_cannot_read_are_refused(town: SwapTown) -> None:
    town.cluster.configuration["autoSkipNonRecoverableData"] = "true"
    outcome = town.bridge(town.round())
    assert (outcome.end, town.contexts()) == (SwapEnd.REFUSED, {})
    assert "autoSkipNonRecoverableData=false" in outcome.why


def test_5_bookkeeper_first_proves_nothing_and_is_refused(town: SwapTown) -> None:
    policies = town.cluster.namespace(TOPIC.namespace).policies
    policies["offload_policies"] = {"managedLedgerOffloadedReadPriority": "BOOKKEEPER_FIRST"}
    outcome = town.bridge(town.round())
    assert (outcome.end, town.contexts()) == (SwapEnd.REFUSED, {})
    assert "tiered-storage-first" in outcome.why


@pytest.mark.parametrize("end", ["trimming", "deletion"])
def test_6_what_brokers_delete_they_delete_by_key_and_the_round_is_over(town: SwapTown, end: str) -> None:
    """Other objects stay; whether brokers keep what is consumed is asked before a round begins."""
    segment = "acme/orders/events/00000000-0000-4000-8000-00000000000a"
    town.store.put(segment, b"a segment of ours")
    under_way = town.round()
    proven(town.bridge(under_way))
    if end == "trimming":
        town.cluster.namespace(TOPIC.namespace).policies["retention_policies"] = {"retentionTimeInMinutes": 0}
        town.cluster.check_retention(TOPIC)
    else:
        town.cluster.delete(TOPIC)
    assert town.objects() == {segment}
    assert town.bridge(under_way).end is SwapEnd.WITHDRAW
    assert town.withdraw(under_way).end is SwapEnd.WITHDRAWN
    assert town.objects() == {segment}


def test_7_no_context_of_ours_is_incomplete_so_brokers_never_clean_it_up(town: SwapTown) -> None:
    under_way = town.round()
    seen: list[bool] = []
    put = town.cluster.nodes.set

    def noted(path: str, value: bytes, version: int) -> int | None:
        seen.extend(one.copy.complete for one in decode_managed_ledger(value).ledgers if one.context)
        return put(path, value, version)

    town.cluster.nodes.set = noted
    proven(town.bridge(under_way))
    assert len(seen) >= len(under_way.ledgers)
    assert all(seen)
    objects = town.objects()
    for one in under_way.ledgers:
        town.cluster.offload(TOPIC, one.ledger, OTHER)
    assert town.objects() == objects


def test_8_the_newest_ledger_is_the_one_with_the_highest_id_wherever_it_stands(town: SwapTown) -> None:
    for seed in range(8):
        town = SwapTown(seed)
        node = town.cluster.nodes.get(record_path(TOPIC))
        assert node is not None
        newest = decode_managed_ledger(node.value).greatest
        assert newest == max(town.cluster.recorded.topics[TOPIC].ledgers, key=lambda one: one.id).id
        outcome = proven(town.bridge(town.round()))
        assert (outcome.left_out, outcome.to_come) == ({}, ())


def test_10_of_brokers_policies_nothing_is_changed(town: SwapTown) -> None:
    """A topic's own offload policies made it unloadable: they are read, with those of its namespace, and never set."""
    under_way = town.round()
    town.cluster.faults.calls.clear()
    proven(town.bridge(under_way))
    town.withdraw(under_way)
    calls = {call for call, _ in town.cluster.faults.calls if call.startswith("admin.")}
    assert calls == {"admin.offload_policies", "admin.runtime_configuration", "admin.topic_info", "admin.unload"}
