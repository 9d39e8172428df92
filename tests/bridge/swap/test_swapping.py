"""Rounds against brokers in memory: what goes right, what is repaired, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from offloader.bookkeeper.nodes import Node
from offloader.bridge.core.rounds import BridgePhase
from offloader.bridge.core.swap_steps import LeftOut, SwapEnd, SwapLimits
from offloader.bridge.swapping import StaleOrFine
from offloader.errors import (
    AccessDeniedError,
    AuthorizationFailedError,
    BrokerUnavailableError,
    MetadataUnavailableError,
    OffloadError,
    StoreUnavailableError,
    TopicMovedError,
    TopicNotFoundError,
)
from offloader.metadata.stock_keys import data_key, index_key
from offloader.model import TopicName
from offloader.ports.admin import TopicInfo
from offloader.state.envelope import unwrapped, wrapped
from offloader.state.managed_ledger_codec import decode_record
from tests.bridge.swap.support import TOPIC, SwapTown, proven
from tests.fakes.ledger_metadata import Compression
from tests.fakes.recorded_state import record_path

NODE = record_path(TOPIC)
OTHER = "00000000-0000-4000-8000-000000000001"


@pytest.fixture
def town() -> SwapTown:
    return SwapTown()


def at_the_set(town: SwapTown, act: Callable[[], object]) -> None:
    """Something happens right before the record is set."""

    def once() -> None:
        town.cluster.nodes.before_write = lambda: None
        act()

    unload = town.cluster.admin.unload

    def unloads(topic: object) -> None:
        unload(TOPIC)
        town.cluster.admin.unload = unload
        town.cluster.nodes.before_write = once

    town.cluster.admin.unload = unloads


def loads(town: SwapTown) -> None:
    town.cluster.admin.topic_info(TOPIC)


# What goes right


def test_a_round_ends_proven_and_every_entry_comes_from_the_objects(town: SwapTown) -> None:
    under_way, before = town.round(), town.recorded()
    outcome = proven(town.bridge(under_way))
    assert (outcome.unloads, outcome.conflicts) == (1, 0)
    assert outcome.closed == before.greatest, "the unload has closed it"
    assert outcome.ledgers == under_way.ledgers
    assert [words.partition(":")[0] for words in outcome.evidence] == [f"ledger {one}" for one in town.closed]
    assert town.contexts() == {one.ledger: one.uuid for one in under_way.ledgers}
    town.forget_bookkeeper(*(one.ledger for one in under_way.ledgers))
    assert town.read() == town.truth()


def test_a_round_can_be_repeated_at_any_time(town: SwapTown) -> None:
    """As after a crash before its end was recorded: once more an unload, and nothing else."""
    under_way = town.round()
    first = proven(town.bridge(under_way))
    record = town.contexts()
    again = proven(town.bridge(under_way))
    assert (again.unloads, again.ledgers) == (1, first.ledgers)
    assert town.contexts() == record


def test_the_second_round_leaves_the_first_as_it_is(town: SwapTown) -> None:
    first = town.round(*town.closed[:2])
    proven(town.bridge(first))
    second = town.round(*town.closed[2:])
    proven(town.bridge(second))
    assert town.contexts() == {one.ledger: one.uuid for one in (*first.ledgers, *second.ledgers)}


@pytest.mark.parametrize("compression", Compression.values())
def test_the_record_keeps_its_order_and_its_compression(town: SwapTown, compression: int) -> None:
    """Brokers write it in no order. It got compressed while the objects were built."""
    under_way = town.round()
    town.cluster.recorded.compression = compression
    town.cluster.roll(TOPIC)
    written: list[tuple[bytes, bytes]] = []
    put = town.cluster.nodes.set

    def noted(path: str, value: bytes, version: int) -> int | None:
        before = town.cluster.nodes.get(path)
        assert before is not None
        written.append((before.value, value))
        return put(path, value, version)

    town.cluster.nodes.set = noted
    proven(town.bridge(under_way))
    before, after = written[0]
    assert [one.ledgerId for one in decode_record(after).ledgerInfo] == [
        one.ledgerId for one in decode_record(before).ledgerInfo
    ]
    metadata, plain = unwrapped(after)
    assert metadata == unwrapped(wrapped(unwrapped(before)[0], plain))[0]
    assert (metadata.compressionType if metadata else 0) == compression
    assert sum(one.offloadContext.complete for one in decode_record(after).ledgerInfo) == len(under_way.ledgers)


# Withdrawal


def test_a_withdrawn_round_leaves_nothing_and_readers_get_bookkeeper_s_copy(town: SwapTown) -> None:
    under_way = town.round()
    proven(town.bridge(under_way))
    outcome = town.withdraw(under_way)
    assert (outcome.end, outcome.kept) == (SwapEnd.WITHDRAWN, ())
    assert (town.contexts(), town.objects()) == ({}, set())
    assert town.read() == town.truth()
    assert town.withdraw(under_way).end is SwapEnd.WITHDRAWN


def test_uploads_that_somebody_left_open_go_with_the_objects(town: SwapTown) -> None:
    under_way = town.round()
    for one in under_way.ledgers:
        town.store.begin(data_key(one.uuid, one.ledger))
    town.withdraw(under_way)
    assert list(town.store.list_uploads()) == []


def test_nothing_is_deleted_before_what_came_of_it_is_recorded(town: SwapTown) -> None:
    """Whoever records it is not overtaken: only then nobody else goes on with these objects."""
    under_way = town.round()
    objects = town.objects()
    town.cluster.lose(TOPIC, under_way.ledgers[0].ledger)
    town.cluster.roll(TOPIC)
    town.cluster.terminate(TOPIC)
    outcome = proven(town.bridge(under_way))
    assert (set(outcome.left_out), outcome.to_come) == ({under_way.ledgers[0].ledger}, under_way.ledgers[-1:])
    assert town.objects() == objects
    town.phase = BridgePhase.WITHDRAWING
    ended = town.swapper().withdraw(TOPIC, under_way, town.says(BridgePhase.WITHDRAWING))
    assert (ended.end, town.contexts(), town.objects()) == (SwapEnd.WITHDRAWN, {}, objects)


def test_a_process_that_was_overtaken_deletes_nothing_of_what_the_next_one_has_proven(town: SwapTown) -> None:
    """To the first one a ledger was the newest of the list, to the next one it is an ordinary one."""
    town.cluster.produce(TOPIC, b"more")
    newest = max(one.ledger for one in town.cluster.ledgers(TOPIC).spans)
    under_way = town.round(*town.closed, newest)
    first = proven(town.bridge(under_way))
    assert [one.ledger for one in first.to_come] == [newest]
    second = proven(town.bridge(under_way))
    assert (second.to_come, second.ledgers) == ((), under_way.ledgers)
    town.forget_bookkeeper(*(one.ledger for one in under_way.ledgers))
    assert town.read() == town.truth()


def test_a_context_and_its_object_stay_once_bookkeeper_s_copy_is_gone(town: SwapTown) -> None:
    under_way = town.round()
    proven(town.bridge(under_way))
    town.cluster.namespace(TOPIC.namespace).policies["offload_policies"] = {
        "managedLedgerOffloadDeletionLagInMillis": 0
    }
    gone = under_way.ledgers[0].ledger
    for one in town.cluster.state.topics[TOPIC].ledgers:
        if one.context is not None and one.id != gone:
            one.context.timestamp += 10**9
    town.cluster.recorded.now_ms += 1
    town.cluster.check_retention(TOPIC)
    outcome = town.withdraw(under_way)
    assert (outcome.end, outcome.kept) == (SwapEnd.WITHDRAWN, (gone,))
    assert town.contexts() == {gone: under_way.ledgers[0].uuid}
    assert town.objects() == {data_key(under_way.ledgers[0].uuid, gone), index_key(under_way.ledgers[0].uuid, gone)}
    assert town.read() == town.truth()


def test_what_brokers_offloaded_by_themselves_meanwhile_is_no_hindrance(town: SwapTown) -> None:
    under_way = town.round()
    stock = under_way.ledgers[0].ledger
    town.cluster.offload(TOPIC, stock, OTHER)
    outcome = town.withdraw(under_way)
    assert (outcome.end, outcome.kept) == (SwapEnd.WITHDRAWN, ())
    assert town.contexts() == {stock: OTHER}


def test_a_process_that_was_paused_before_the_set_is_refused_after_a_withdrawal(town: SwapTown) -> None:
    """Although nothing was to be taken out: a withdrawal sets the record once."""
    under_way = town.round()
    withdrawn: list[SwapEnd] = []
    at_the_set(town, lambda: withdrawn.append(town.withdraw(under_way).end))
    outcome = town.bridge(under_way)
    assert (withdrawn, outcome.end) == ([SwapEnd.WITHDRAWN], SwapEnd.OVERTAKEN)
    assert (town.contexts(), town.objects()) == ({}, set())
    assert town.read() == town.truth()


def test_of_two_processes_one_paused_at_the_set_both_find_the_round_done(town: SwapTown) -> None:
    under_way = town.round()
    others: list[SwapEnd] = []
    at_the_set(town, lambda: others.append(town.bridge(under_way).end))
    assert proven(town.bridge(under_way)).conflicts == 1
    assert others == [SwapEnd.PROVEN]
    assert town.swapper().look(TOPIC) is StaleOrFine.FINE


# Whoever is asked


UNSURE: dict[str, OffloadError] = {
    "no answer": BrokerUnavailableError("one did not answer"),
    "503 while its bundle moves": BrokerUnavailableError("the broker answered 503: unloading"),
    "404 by the wrong broker": TopicNotFoundError("the broker answered 404: Topic not found"),
}


@pytest.mark.parametrize("effect", [True, False])
@pytest.mark.parametrize("error", UNSURE.values(), ids=UNSURE)
@pytest.mark.parametrize("call", ["admin.unload", "admin.topic_info"])
def test_calls_whose_answers_are_lost_are_made_again(
    town: SwapTown, call: str, error: OffloadError, effect: bool
) -> None:
    under_way = town.round()
    town.cluster.faults.add(call, lambda: error, times=3, effect=effect)
    proven(town.bridge(under_way))
    town.forget_bookkeeper(*(one.ledger for one in under_way.ledgers))
    assert town.read() == town.truth()


@pytest.mark.parametrize("lost", ["lost_requests", "lost_answers"])
def test_the_session_is_lost_at_the_set_so_the_record_is_read_and_the_topic_unloaded_again(
    town: SwapTown, lost: str
) -> None:
    under_way = town.round()
    at_the_set(town, lambda: setattr(town.cluster.nodes, lost, 1))
    assert proven(town.bridge(under_way)).unloads == 2
    assert town.swapper().look(TOPIC) is StaleOrFine.FINE


def test_a_loader_that_wins_before_the_set_is_begun_again_with(town: SwapTown) -> None:
    at_the_set(town, lambda: loads(town))
    outcome = proven(town.bridge(town.round()))
    assert (outcome.unloads, outcome.conflicts) == (2, 1)


def test_a_loader_that_loses_to_the_set_comes_again(town: SwapTown) -> None:
    """Its first list is refused: `Failed to initialize managed ledger`."""
    under_way = town.round()
    town.cluster.faults.add("admin.topic_info", lambda: BrokerUnavailableError("BadVersionException"), after=1)
    assert proven(town.bridge(under_way)).unloads == 1


def test_an_unload_that_nobody_made_is_found_by_what_the_broker_knows(town: SwapTown) -> None:
    """A broker answered that had not got the topic: so it stays loaded, with its old list."""
    under_way = town.round()
    unload, calls = town.cluster.admin.unload, []

    def first_for_nothing(topic: object) -> None:
        calls.append(topic)
        if len(calls) > 1:
            unload(TOPIC)

    town.cluster.admin.unload = first_for_nothing
    outcome = proven(town.bridge(under_way))
    assert (len(calls), outcome.conflicts) == (2, 0)
    assert town.read() == town.truth()


def test_a_former_owner_that_still_answers_costs_an_unload_and_no_more(town: SwapTown) -> None:
    """Its list is the one from before."""
    under_way = town.round()
    old = town.cluster.admin.topic_info(TOPIC)
    info, calls = town.cluster.admin.topic_info, []

    def first_old(topic: TopicName) -> TopicInfo:
        calls.append(topic)
        return old if len(calls) == 2 else info(TOPIC)

    town.cluster.admin.topic_info = first_old
    assert proven(town.bridge(under_way)).unloads == 2


def test_a_withdrawal_does_not_believe_a_former_owner(town: SwapTown) -> None:
    """It says, rightly by its list from before, that it reads nothing from objects; the new owner still does."""
    under_way = town.round()
    old = town.cluster.admin.topic_info(TOPIC)
    proven(town.bridge(under_way))
    info, calls = town.cluster.admin.topic_info, []

    def first_old(topic: TopicName) -> TopicInfo:
        calls.append(topic)
        return old if len(calls) == 2 else info(TOPIC)

    town.cluster.admin.topic_info = first_old
    outcome = town.withdraw(under_way)
    assert (outcome.end, outcome.unloads) == (SwapEnd.WITHDRAWN, 2)


def test_brokers_that_never_answer_end_in_later_and_the_record_is_as_it_was(town: SwapTown) -> None:
    under_way = town.round()
    before = town.cluster.record(TOPIC)
    town.cluster.faults.add("admin.unload", lambda: BrokerUnavailableError("none answers"), times=10**6)
    outcome = town.bridge(under_way)
    assert outcome.end is SwapEnd.LATER
    assert outcome.unloads == SwapLimits().unloads
    assert town.cluster.record(TOPIC) == before
    assert max(town.waits) <= 5


@pytest.mark.parametrize(
    "error", [AuthorizationFailedError("403: unload"), AccessDeniedError("no right")], ids=lambda e: type(e).__name__
)
def test_a_missing_right_is_told_and_the_record_is_as_it_was(town: SwapTown, error: OffloadError) -> None:
    under_way = town.round()
    before = town.cluster.record(TOPIC)
    town.cluster.faults.add("admin.unload", lambda: error, times=10**6)
    outcome = town.bridge(under_way)
    assert (outcome.end, outcome.why) == (SwapEnd.REFUSED, str(error))
    assert town.cluster.record(TOPIC) == before


def test_a_metadata_service_that_is_gone_ends_in_later(town: SwapTown) -> None:
    under_way = town.round()
    town.cluster.nodes.gone = True
    assert town.bridge(under_way).end is SwapEnd.LATER


def test_a_reader_that_is_broken_off_is_opened_again(town: SwapTown) -> None:
    town.cluster.faults.add("source.read", lambda: TopicMovedError("unloaded"), times=2)
    proven(town.bridge(town.round()))


def test_what_is_found_under_a_loaded_topic_is_repaired_although_nothing_can_be_begun(town: SwapTown) -> None:
    """A process of ours ended right after the set. The brokers have another read priority by now."""
    under_way = town.round()
    proven(town.bridge(under_way))
    topic = town.cluster.state.topics[TOPIC]
    for one in topic.ledgers:
        one.context, one.offloaded = None, False  # as a broker that had it loaded before
    town.cluster.configuration["managedLedgerOffloadedReadPriority"] = "bookkeeper-first"
    outcome = town.bridge(under_way)
    assert outcome.end is SwapEnd.REFUSED
    assert town.cluster.admin.topic_info(TOPIC).offloaded == {one.ledger for one in under_way.ledgers}


# The list meanwhile


def test_a_ledger_that_was_trimmed_meanwhile_is_left_out(town: SwapTown) -> None:
    under_way = town.round()
    town.cluster.lose(TOPIC, under_way.ledgers[0].ledger)
    town.cluster.roll(TOPIC)
    outcome = proven(town.bridge(under_way))
    assert outcome.left_out == {under_way.ledgers[0].ledger: LeftOut.OFF_THE_LIST}
    assert outcome.ledgers == under_way.ledgers[1:]


def test_a_ledger_that_is_trimmed_between_the_unload_and_the_set_is_left_out(town: SwapTown) -> None:
    under_way = town.round()

    def trims() -> None:
        loads(town)
        town.cluster.lose(TOPIC, under_way.ledgers[1].ledger)
        town.cluster.roll(TOPIC)

    at_the_set(town, trims)
    outcome = proven(town.bridge(under_way))
    assert outcome.left_out == {under_way.ledgers[1].ledger: LeftOut.OFF_THE_LIST}
    assert under_way.ledgers[1].ledger not in town.contexts()


def test_ledgers_that_the_list_gained_meanwhile_stay_in_it(town: SwapTown) -> None:
    under_way = town.round()
    town.cluster.produce(TOPIC, b"new")
    town.cluster.roll(TOPIC)
    gained = town.closed[-1]
    proven(town.bridge(under_way))
    assert town.recorded().get(gained) is not None
    assert gained not in town.contexts()
    assert town.read() == town.truth()


def test_a_ledger_that_brokers_have_offloaded_by_themselves_is_left_out(town: SwapTown) -> None:
    under_way = town.round()
    stock = under_way.ledgers[0]
    town.cluster.offload(TOPIC, stock.ledger, OTHER)
    outcome = town.bridge(under_way)
    assert outcome.left_out == {stock.ledger: LeftOut.STOCK}
    assert town.contexts()[stock.ledger] == OTHER


def test_what_brokers_have_begun_to_offload_and_all_behind_it_comes_later(town: SwapTown) -> None:
    under_way = town.round()
    town.cluster.offload(TOPIC, under_way.ledgers[2].ledger, OTHER, complete=False)
    outcome = proven(town.bridge(under_way))
    assert (outcome.ledgers, outcome.to_come) == (under_way.ledgers[:2], under_way.ledgers[2:])
    assert f"begun to offload ledger {under_way.ledgers[2].ledger} by themselves" in outcome.why
    assert "pulsar-admin topics offload" in outcome.why
    assert town.contexts().keys() == {one.ledger for one in under_way.ledgers[:2]}
    assert town.swapper().begun(TOPIC) == {under_way.ledgers[2].ledger: OTHER}


def test_where_brokers_have_begun_to_offload_the_first_one_the_round_is_withdrawn(town: SwapTown) -> None:
    under_way = town.round()
    town.cluster.offload(TOPIC, under_way.ledgers[0].ledger, OTHER, complete=False)
    outcome = town.bridge(under_way)
    assert (outcome.end, outcome.unloads, town.contexts()) == (SwapEnd.WITHDRAW, 0, {})
    assert "pulsar-admin topics offload" in outcome.why


def test_what_was_left_for_later_is_put_in_by_nobody_who_was_paused(town: SwapTown) -> None:
    """To the other one the offload that had been begun is not there any more: brokers clean up what has failed."""
    under_way = town.round()
    stuck = under_way.ledgers[-1]
    rest = replace(under_way, phase=BridgePhase.WITHDRAWING, ledgers=(stuck,))
    ends: list[SwapEnd] = []

    def overtakes() -> None:
        town.cluster.offload(TOPIC, stuck.ledger, OTHER, complete=False)
        town.cluster.admin.unload(TOPIC)
        ends.append(proven(town.bridge(under_way)).end)
        ends.append(town.withdraw(rest).end)

    at_the_set(town, overtakes)
    assert town.bridge(under_way).end is SwapEnd.OVERTAKEN
    assert ends == [SwapEnd.PROVEN, SwapEnd.WITHDRAWN]
    assert stuck.ledger not in town.contexts()
    assert town.read() == town.truth()


def test_brokers_offload_a_ledger_between_the_unload_and_the_set(town: SwapTown) -> None:
    under_way = town.round()
    at_the_set(town, lambda: town.cluster.offload(TOPIC, under_way.ledgers[0].ledger, OTHER))
    outcome = town.bridge(under_way)
    assert outcome.left_out == {under_way.ledgers[0].ledger: LeftOut.STOCK}
    assert outcome.conflicts == 1


def test_a_ledger_with_other_entries_than_the_archive_has_is_never_bridged(town: SwapTown) -> None:
    under_way = town.round()
    ledger = under_way.ledgers[0].ledger
    next(one for one in town.cluster.state.topics[TOPIC].ledgers if one.id == ledger).entries.pop()
    town.cluster.roll(TOPIC)
    outcome = town.bridge(under_way)
    assert outcome.end is SwapEnd.WITHDRAW
    assert "2 entries" in outcome.why
    assert town.contexts() == {}


def test_a_topic_that_was_deleted_is_withdrawn(town: SwapTown) -> None:
    under_way = town.round()
    town.cluster.delete(TOPIC)
    assert town.bridge(under_way).end is SwapEnd.WITHDRAW
    assert town.withdraw(under_way).end is SwapEnd.WITHDRAWN
    assert town.objects() == set()


def test_a_topic_that_was_made_anew_gets_nothing_of_the_former_one(town: SwapTown) -> None:
    under_way = town.round()
    town.cluster.delete(TOPIC)
    town.cluster.create(TOPIC)
    town.cluster.produce(TOPIC, b"another")
    town.cluster.roll(TOPIC)
    assert town.bridge(under_way).end is SwapEnd.WITHDRAW
    assert town.withdraw(under_way).end is SwapEnd.WITHDRAWN
    assert (town.contexts(), town.objects()) == ({}, set())
    assert town.read() == town.truth()


def test_a_topic_that_is_deleted_and_made_anew_at_the_set(town: SwapTown) -> None:
    under_way = town.round()

    def anew() -> None:
        town.cluster.delete(TOPIC)
        town.cluster.create(TOPIC)

    at_the_set(town, anew)
    assert town.bridge(under_way).end is SwapEnd.WITHDRAW
    assert town.contexts() == {}


def test_of_a_terminated_topic_all_but_the_last_ledger_are_bridged(town: SwapTown) -> None:
    """Brokers make the last one's part of the list anew at each load: they read it from BookKeeper in any case."""
    town.cluster.produce(TOPIC, b"last")
    town.cluster.terminate(TOPIC)
    under_way = town.round()
    outcome = proven(town.bridge(under_way))
    assert (outcome.left_out, outcome.to_come) == ({}, under_way.ledgers[-1:])
    assert town.swapper().look(TOPIC) is StaleOrFine.FINE
    town.forget_bookkeeper(*(one.ledger for one in outcome.ledgers))
    assert town.read() == town.truth()


def test_of_a_terminated_topic_with_an_empty_end_the_last_one_with_entries_is_left_out(town: SwapTown) -> None:
    """The empty one leaves the list, and then that one is the newest."""
    town.cluster.terminate(TOPIC)
    under_way = town.round()
    assert proven(town.bridge(under_way)).to_come == under_way.ledgers[-1:]


@pytest.mark.parametrize("gone", [True, False])
def test_a_bridged_ledger_that_became_the_end_of_a_terminated_topic(town: SwapTown, gone: bool) -> None:
    """Brokers do not load its context any more. What the record names stays in place."""
    under_way = town.round()
    proven(town.bridge(under_way))
    if gone:
        town.set_lag(0)
        town.cluster.recorded.now_ms += 1
        town.cluster.check_retention(TOPIC)
    town.cluster.terminate(TOPIC)
    end = under_way.ledgers[-1]
    assert proven(town.bridge(under_way)).to_come == (end,)
    assert data_key(end.uuid, end.ledger) in town.objects()
    assert town.swapper().look(TOPIC) is StaleOrFine.FINE
    withdrawn = town.withdraw(under_way)
    assert withdrawn.end is SwapEnd.WITHDRAWN
    assert withdrawn.kept == (tuple(one.ledger for one in under_way.ledgers) if gone else ())
    assert town.contexts().keys() == set(withdrawn.kept)


def test_a_terminated_topic_that_was_loaded_before_the_set_is_unloaded_again(town: SwapTown) -> None:
    """Its load writes no list, so the set is not refused."""
    town.cluster.produce(TOPIC, b"last")
    town.cluster.terminate(TOPIC)
    under_way = town.round()
    at_the_set(town, lambda: loads(town))
    outcome = proven(town.bridge(under_way))
    assert (outcome.unloads, outcome.conflicts) == (2, 0)


def test_a_topic_that_nobody_has_loaded_is_loaded_first(town: SwapTown) -> None:
    """Its unload would load it, and with that change the record, each time."""
    under_way = town.round()
    town.cluster.admin.unload(TOPIC)
    assert not town.cluster.is_loaded(TOPIC)
    outcome = proven(town.bridge(under_way))
    assert (outcome.unloads, outcome.conflicts) == (1, 0)


def test_a_fenced_topic_is_repaired_by_the_unload(town: SwapTown) -> None:
    under_way = town.round()
    node = town.cluster.nodes.get(NODE)
    assert node is not None
    town.cluster.nodes.set(NODE, node.value, node.version)
    town.cluster.roll(TOPIC)
    assert town.cluster.is_fenced(TOPIC)
    proven(town.bridge(under_way))
    assert town.read() == town.truth()


# Objects, and the proof


@pytest.mark.parametrize("missing", [data_key, index_key])
def test_an_object_that_somebody_deleted_is_never_named(town: SwapTown, missing: Callable[[str, int], str]) -> None:
    under_way = town.round()
    one = under_way.ledgers[1]
    town.store.delete([missing(one.uuid, one.ledger)])
    outcome = town.bridge(under_way)
    assert (outcome.end, outcome.broken) == (SwapEnd.BUILD, (one,))
    assert "not in the bucket any more" in outcome.why
    assert (town.contexts(), outcome.unloads) == ({}, 0)


def test_an_object_of_another_size_is_never_named(town: SwapTown) -> None:
    under_way = town.round()
    one = under_way.ledgers[1]
    town.store.put(data_key(one.uuid, one.ledger), b"short")
    assert town.bridge(under_way).end is SwapEnd.BUILD
    assert town.contexts() == {}


def test_of_ledgers_that_are_not_in_the_round_any_more_nobody_misses_the_objects(town: SwapTown) -> None:
    """Brokers delete what they trim. Also once BookKeeper's copies of the others are gone."""
    under_way = town.round()
    first = under_way.ledgers[0]
    proven(town.bridge(under_way))
    town.set_lag(0)
    town.cluster.recorded.now_ms += 1
    town.cluster.check_retention(TOPIC)
    town.cluster.lose(TOPIC, first.ledger)
    town.cluster.roll(TOPIC)
    town.store.delete([data_key(first.uuid, first.ledger), index_key(first.uuid, first.ledger)])
    outcome = proven(town.bridge(under_way))
    assert outcome.ledgers == under_way.ledgers[1:]


def test_an_object_that_is_missing_is_asked_for_although_bookkeeper_s_copies_are_gone(town: SwapTown) -> None:
    under_way = town.round()
    proven(town.bridge(under_way))
    town.set_lag(0)
    town.cluster.recorded.now_ms += 1
    town.cluster.check_retention(TOPIC)
    one = under_way.ledgers[1]
    index = town.store.read(index_key(one.uuid, one.ledger))[0]
    town.store.delete([index_key(one.uuid, one.ledger)])
    outcome = town.bridge(under_way)
    assert (outcome.end, outcome.broken, outcome.deleted) == (SwapEnd.BUILD, (one,), True)
    town.store.put(index_key(one.uuid, one.ledger), index)
    proven(town.bridge(under_way))
    assert town.read() == town.truth()


def test_a_store_that_does_not_answer_begins_nothing(town: SwapTown) -> None:
    under_way = town.round()

    def stat(key: str) -> None:
        raise StoreUnavailableError(f"{key}: the store does not answer")

    town.store.stat = stat
    assert town.bridge(under_way).end is SwapEnd.LATER
    assert town.contexts() == {}


def test_a_broker_that_cannot_read_the_objects_ends_in_a_withdrawal(town: SwapTown) -> None:
    """It loads them all the same, and says `offloaded`: that mirrors the record only."""
    under_way = town.round()
    town.cluster.buckets.clear()
    outcome = town.bridge(under_way)
    assert outcome.end is SwapEnd.WITHDRAW
    assert "has not arrived through the broker" in outcome.why
    assert outcome.unloads == SwapLimits().proofs
    assert town.withdraw(under_way).end is SwapEnd.WITHDRAWN
    assert town.read() == town.truth()


def test_an_entry_that_arrives_with_other_bytes_ends_in_a_withdrawal(town: SwapTown) -> None:
    under_way = town.round()
    other = SwapTown(seed=1)
    other.store.put("x", b"")
    one = under_way.ledgers[-1]
    data = bytearray(town.store.read(data_key(one.uuid, one.ledger))[0])
    at = data.index(b"3:0")
    copy = type(town.store)()
    for key in town.objects():
        copy.put(key, town.store.read(key)[0])
    data[at : at + 3] = b"9:9"
    copy.put(data_key(one.uuid, one.ledger), bytes(data))
    town.cluster.buckets["brokers"] = copy
    outcome = town.bridge(under_way)
    assert outcome.end is SwapEnd.WITHDRAW
    assert "other bytes" in outcome.why


def test_no_withdrawal_where_bookkeeper_s_copy_is_gone_already(town: SwapTown) -> None:
    under_way = town.round()
    proven(town.bridge(under_way))
    town.cluster.namespace(TOPIC.namespace).policies["offload_policies"] = {
        "managedLedgerOffloadDeletionLagInMillis": 0
    }
    town.cluster.recorded.now_ms += 1
    town.cluster.check_retention(TOPIC)
    town.cluster.buckets.clear()
    assert town.bridge(under_way).end is SwapEnd.LATER
    town.cluster.buckets["brokers"] = town.store
    proven(town.bridge(under_way))


def test_a_repair_that_is_not_proven_is_taken_back_as_far_as_bookkeeper_has_it(town: SwapTown) -> None:
    under_way = town.round()
    proven(town.bridge(under_way))
    town.set_lag(0)
    for one in town.cluster.state.topics[TOPIC].ledgers[1:]:
        if one.context is not None:
            one.context.timestamp += 10**9
    town.cluster.recorded.now_ms += 1
    town.cluster.check_retention(TOPIC)
    town.cluster.buckets.clear()
    repair = replace(under_way, repairs=True)
    assert town.bridge(repair).end is SwapEnd.WITHDRAW
    assert town.withdraw(repair).kept == (under_way.ledgers[0].ledger,)
    assert town.read(under_way.ledgers[1].ledger) == town.truth(under_way.ledgers[1].ledger)


def test_what_is_listed_without_a_context_is_missing_and_whether_bookkeeper_has_it(town: SwapTown) -> None:
    under_way = town.round()
    first, second = under_way.ledgers[:2]
    town.cluster.offload(TOPIC, second.ledger, OTHER)
    town.forget_bookkeeper(first.ledger)
    assert town.swapper().missing(TOPIC, under_way.ledgers) == {
        one.ledger: one is not first for one in under_way.ledgers if one is not second
    }
    town.cluster.delete(TOPIC)
    assert town.swapper().missing(TOPIC, under_way.ledgers) == {}


REFUSALS = {
    "bookkeeper-first": ("managedLedgerOffloadedReadPriority", "bookkeeper-first", "tiered-storage-first"),
    "no offloader": ("managedLedgerOffloadDriver", "", "set managedLedgerOffloadDriver"),
    "a file system": ("managedLedgerOffloadDriver", "filesystem", "file system"),
    "auto skip": ("autoSkipNonRecoverableData", "true", "set autoSkipNonRecoverableData=false"),
}


@pytest.mark.parametrize(("name", "value", "remedy"), REFUSALS.values(), ids=REFUSALS)
def test_what_brokers_must_be_set_to_is_said_before_anything_is_touched(
    town: SwapTown, name: str, value: str, remedy: str
) -> None:
    under_way = town.round()
    town.cluster.configuration[name] = value
    outcome = town.bridge(under_way)
    assert outcome.end is SwapEnd.REFUSED
    assert remedy in outcome.why
    assert (outcome.unloads, town.contexts()) == (0, {})


# Stale brokers


def test_a_stale_broker_is_found_and_repaired(town: SwapTown) -> None:
    under_way = town.round()
    proven(town.bridge(under_way))
    assert town.swapper().look(TOPIC) is StaleOrFine.FINE
    for one in town.cluster.state.topics[TOPIC].ledgers:
        one.context, one.offloaded = None, False
    assert town.swapper().look(TOPIC) is StaleOrFine.REPAIRED
    assert town.cluster.admin.topic_info(TOPIC).offloaded == {one.ledger for one in under_way.ledgers}


@pytest.mark.parametrize(
    ("lag", "version", "refused"), [(-1, "3.0.7", True), (-1, "4.0.7", False), (0, "3.0.7", False)]
)
def test_a_lag_below_0_is_refused_by_brokers_that_take_it_for_at_once(
    town: SwapTown, lag: int, version: str, refused: bool
) -> None:
    town.set_lag(lag)
    town.cluster.admin.broker_version = version
    outcome = town.bridge(town.round())
    assert outcome.end is (SwapEnd.REFUSED if refused else SwapEnd.PROVEN)
    assert ("managedLedgerOffloadDeletionLagMs" in outcome.why) is refused
    assert (town.contexts() == {}) is refused


def test_nothing_is_concluded_of_a_topic_that_nobody_answers_for(town: SwapTown) -> None:
    town.cluster.faults.add("admin.topic_info", lambda: BrokerUnavailableError("none"), times=1)
    assert town.swapper().look(TOPIC) is StaleOrFine.UNKNOWN
    town.cluster.nodes.gone = True
    assert town.swapper().look(TOPIC) is StaleOrFine.UNKNOWN


def test_a_lost_session_at_the_read_is_no_news(town: SwapTown) -> None:
    get, calls = town.cluster.nodes.get, []

    def first_lost(
        path: str, fired: Callable[[], None] | None = None, *, latest: bool = False, with_acl: bool = False
    ) -> Node | None:
        calls.append(path)
        if len(calls) == 1:
            raise MetadataUnavailableError("the session is lost")
        return get(path, fired, latest=latest, with_acl=with_acl)

    under_way = town.round()
    town.cluster.nodes.get = first_lost
    proven(town.bridge(under_way))
