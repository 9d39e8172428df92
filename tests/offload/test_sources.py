"""Where entries are read from: complete copies, switches of the source, and what a segment keeps over them."""

from __future__ import annotations

import pytest

from offloader.errors import BookieUnavailableError
from offloader.metadata import requests
from offloader.metadata.requests import Request, RequestKind
from offloader.metadata.state import TopicCatalog
from offloader.model import FailureKind, GapKind, Position, RollReason, Source, TopicName
from offloader.storage.memory import MemoryStore
from tests.invariants import check_invariants
from tests.offload.simulation import Simulation
from tests.offload.stock_offloader import closed_ledgers, offload
from tests.truth import truth_of_cluster

T = TopicName.parse("public/default/t")
READ = [source for source in Source if source is not Source.OFFLOADED]  # that one is copied
COMPLETE = [source for source in READ if source.complete]


def started(source: Source, **settings: object) -> Simulation:
    sim = Simulation(5, source=source, **{"roll": "5s", "entries_per_ledger": None, **settings})
    sim.cluster.create(T)
    sim.rounds(4)
    return sim


def produce_transactions(sim: Simulation) -> None:
    """Committed, aborted and open ones, their markers, filtered entries."""
    sim.produce(T, 5)
    for commit in (True, False):
        sim.cluster.add_pending(T, b"in a transaction")
        sim.produce(T, 1)
        sim.cluster.resolve(T, commit=commit)
    sim.cluster.add_withheld(T)
    sim.cluster.roll(T)
    sim.produce(T, 3)
    sim.cluster.add_pending(T, b"open")
    sim.produce(T, 2)


def catalog(sim: Simulation) -> TopicCatalog:
    return sim.context.catalogs.load(T)


def last_place(sim: Simulation) -> Position:
    return Position(0, *max((e.ledger, e.entry) for e in sim.cluster.entries(T)))


def check(sim: Simulation, *, at_rest: bool = True) -> None:
    check_invariants(sim.store, {T: truth_of_cluster(sim.cluster, T)}, at_rest=at_rest, paces=[sim.pace])
    sim.close()


@pytest.mark.parametrize("source", COMPLETE)
def test_a_topic_with_transactions_is_copied_complete_and_nothing_is_recorded_as_missing(source: Source) -> None:
    sim = started(source)
    produce_transactions(sim)
    sim.rounds(25)
    found = catalog(sim)
    assert found.end == last_place(sim), "also what follows the beginning of an open transaction"
    assert found.head.entries == len(sim.cluster.entries(T))
    assert [gap for s in found.segments for gap in s.gaps] == []
    assert {s.source for s in found.segments} == {source}
    check(sim)


@pytest.mark.parametrize("source", COMPLETE)
def test_what_follows_an_open_transaction_is_there_before_and_after_it_ends(source: Source) -> None:
    sim = started(source)
    sim.cluster.add_pending(T, b"open")
    sim.produce(T, 3)
    sim.rounds(20)
    assert catalog(sim).end == last_place(sim)
    sim.cluster.resolve(T, commit=False)
    sim.rounds(30)
    assert catalog(sim).end == last_place(sim), "the marker"
    assert [gap for s in catalog(sim).segments for gap in s.gaps] == []
    check(sim)


def test_through_brokers_alone_gaps_are_classified_and_recorded() -> None:
    sim = started(Source.BROKER)
    sim.produce(T, 5)
    aborted, marker = sim.cluster.add_hidden(T, GapKind.ABORTED), sim.cluster.add_hidden(T, GapKind.MARKER)
    sim.produce(T, 5)
    sim.rounds(20)
    gaps = [(gap.kind, gap.ledger, gap.first, gap.last) for s in catalog(sim).segments for gap in s.gaps]
    assert gaps == [(GapKind.ABORTED, *aborted, aborted[1]), (GapKind.MARKER, *marker, marker[1])]
    check(sim)


def test_bookies_fill_only_what_the_broker_keeps_back() -> None:
    sim = started(Source.BROKER_WITH_BOOKIES)
    sim.produce(T, 40)
    sim.rounds(20)
    assert catalog(sim).head.entries == 40
    assert sim.cluster.faults.count("bookies.read") == 0
    check(sim)


@pytest.mark.parametrize("after", COMPLETE)
def test_what_nothing_explains_fails_until_bookies_may_be_asked_and_is_then_copied(after: Source) -> None:
    sim = started(Source.BROKER)
    sim.produce(T, 30)
    sim.cluster.add_withheld(T)
    sim.produce(T, 5)
    sim.rounds(20)
    state = sim.driver.state(T)
    assert state.failure is not None
    assert state.failure.kind is FailureKind.INTEGRITY
    assert "metadataServiceUri" in state.failure.reason
    assert state.open is not None
    before = state.open.uuid
    sim.switch(after)
    sim.settle(step_ms=1_000)
    found = catalog(sim)
    assert found.end == last_place(sim)
    assert {s.source for s in found.segments} == {after}
    assert before not in {s.uuid for s in found.segments}
    check(sim)


@pytest.mark.parametrize(
    ("before", "after"), [(a, b) for a in READ for b in READ if a is not b and (b.complete or not a.complete)]
)
def test_an_open_segment_keeps_its_source_and_the_next_one_has_the_new_one(before: Source, after: Source) -> None:
    sim = started(before, roll="60s", max_size=10**6)
    sim.produce(T, 60)
    sim.rounds(3)
    opened = sim.driver.state(T).open
    assert opened is not None
    assert opened.parts
    sim.switch(after)
    sim.produce(T, 30)
    sim.settle(step_ms=5_000)
    sim.produce(T, 30)
    sim.settle(step_ms=5_000)
    found = catalog(sim).segments
    assert found[0].uuid == opened.uuid
    assert [p.crc32c for p in found[0].parts[: len(opened.parts)]] == [p.crc32c for p in opened.parts]
    assert (found[0].source, found[-1].source) == (before, after)
    check(sim)


def test_a_segment_whose_source_is_not_configured_any_more_is_begun_anew() -> None:
    sim = started(Source.BOOKKEEPER, roll="60s", max_size=10**6)
    sim.produce(T, 60)
    sim.cluster.add_hidden(T, GapKind.MARKER)
    sim.rounds(3)
    opened = sim.driver.state(T).open
    assert opened is not None
    assert opened.parts
    sim.switch(Source.BROKER)
    sim.produce(T, 60)
    sim.settle(step_ms=5_000)
    found = catalog(sim).segments
    assert (found[0].start, found[0].source) == (opened.start, Source.BROKER)
    assert found[0].uuid != opened.uuid
    assert [gap.kind for gap in found[0].gaps] == [GapKind.MARKER]
    check(sim)


def test_bookies_that_are_gone_hold_up_the_topic_and_nothing_is_lost() -> None:
    sim = started(Source.BOOKKEEPER)
    sim.produce(T, 20)
    fault = sim.cluster.faults.add("bookies.read", lambda: BookieUnavailableError("bookie-1 is gone"), times=10**6)
    sim.rounds(10)
    failure = sim.driver.state(T).failure
    assert failure is not None
    assert failure.kind is FailureKind.RETRYABLE
    assert "bookie-1 is gone" in failure.reason
    fault.times = 0
    sim.settle()
    check(sim)


def test_a_ledger_that_bookkeeper_has_lost_is_a_loss_that_waits_to_be_accepted() -> None:
    sim = started(Source.BOOKKEEPER, roll="2h", max_size=10**6)
    ledger, _ = sim.cluster.produce(T, b"x")
    sim.cluster.roll(T)
    sim.produce(T, 5)
    sim.cluster.vanish(T, ledger)
    reads = sim.cluster.faults.count("ledgers.read")
    sim.rounds(30, step_ms=10 * 60_000)
    failure = sim.driver.state(T).failure
    assert failure is not None
    assert failure.kind is FailureKind.DATA_LOST
    assert f"ledger {ledger} is gone" in failure.reason
    assert sim.cluster.faults.count("ledgers.read") - reads <= 30
    sim.close()


@pytest.mark.parametrize("source", COMPLETE)
def test_a_topic_that_is_released_is_copied_to_its_very_end(source: Source) -> None:
    sim = started(source, roll="2h")
    sim.produce(T, 5)
    sim.rounds(4)
    sim.cluster.add_hidden(T, GapKind.ABORTED)
    sim.cluster.add_hidden(T, GapKind.MARKER)
    sim.release(T)
    sim.rounds(20)
    assert sim.cluster.mark_delete(T) is None, "released"
    assert catalog(sim).end == last_place(sim)
    assert {s.roll_reason for s in catalog(sim).segments} == {RollReason.RELEASED}
    check(sim)


def test_markers_alone_move_the_end_of_a_topic_that_is_read_from_bookies() -> None:
    """Consumers see nothing of them: the ledger's own end is asked for now and then."""
    sim = started(Source.BOOKKEEPER, roll="60s")
    sim.produce(T, 3)
    sim.rounds(100)
    assert catalog(sim).end == last_place(sim)
    for _ in range(3):
        sim.cluster.add_hidden(T, GapKind.MARKER)
        sim.rounds(130)
        assert catalog(sim).end == last_place(sim)
    check(sim)


@pytest.mark.parametrize("source", COMPLETE)
def test_a_quiet_topic_costs_little(source: Source) -> None:
    sim = started(source, roll="600s")
    sim.produce(T, 3)
    sim.rounds(700)
    before = sim.cluster.faults.count("admin.topic_info")
    sim.rounds(600)
    assert sim.cluster.faults.count("admin.topic_info") - before <= 20
    sim.close()


@pytest.mark.parametrize("source", COMPLETE)
@pytest.mark.parametrize("known", ["before", "late"])
def test_ledgers_that_only_tiered_storage_has_are_read_through_brokers(source: Source, known: str) -> None:
    """BookKeeper's copy of what brokers have offloaded is deleted: that is no loss, and what brokers keep back of it is
    explained. `late`: the segment was assigned before."""
    bucket = MemoryStore()
    sim = Simulation(5, source=source, roll="5s", entries_per_ledger=None, stock=bucket)
    sim.cluster.create(T)
    sim.cluster.add_subscription(T, "mine")
    sim.produce(T, 5)
    sim.cluster.add_hidden(T, GapKind.MARKER)
    sim.cluster.add_hidden(T, GapKind.ABORTED)
    sim.produce(T, 3)
    sim.cluster.add_hidden(T, GapKind.MARKER)
    sim.cluster.roll(T)
    sim.cluster.add_hidden(T, GapKind.MARKER)
    sim.produce(T, 3)
    first = closed_ledgers(sim.cluster, T)[0]
    if known == "late":
        sim.cluster.vanish(T, first)
        sim.rounds(30, step_ms=60_000)
        offload(sim.cluster, bucket, T, first)
    else:
        offload(sim.cluster, bucket, T, first)
        sim.cluster.vanish(T, first)
        sim.serve_requests()
        requests.submit(sim.store, "sim", Request(RequestKind.MIGRATE_REWRITE, T, sim.clock.now, "test"), sim.uuid)
    sim.settle()
    segments = catalog(sim).segments
    assert {s.source for s in segments if first in {held.ledger for held in s.ledgers}} == {Source.BROKER_WITH_BOOKIES}
    gaps = {(gap.ledger, entry) for s in segments for gap in s.gaps for entry in gap.ids}
    assert gaps == {(first, 5), (first, 6), (first, 10)}, "those of the other ledger come from bookies"
    assert not catalog(sim).losses
    check(sim)
