"""Stores that fail, answers that are lost, uploads that vanish, drivers that are overtaken."""

from __future__ import annotations

from collections import Counter
from contextlib import closing

import pytest

from offloader.archive.findings import FindingKind
from offloader.errors import (
    AccessDeniedError,
    FatalError,
    OvertakenError,
    PartRejectedError,
    StoreUnavailableError,
)
from offloader.metadata.layout import KeyKind, parse_topic_key
from offloader.model import FailureKind, Lane, RollReason, TopicName
from offloader.offload.core import planner
from offloader.storage.memory import MemoryBacking, MemoryStore
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings
from tests.examples import few
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults
from tests.invariants import HARMLESS, check_invariants
from tests.offload.simulation import Simulation
from tests.truth import truth_of_cluster

T = TopicName.parse("public/default/t")
OTHER = TopicName.parse("public/default/other")


def started(faults: StoreFaults, backing: MemoryBacking | None = None, **settings: object) -> Simulation:
    store = FaultyStore(MemoryStore(backing or MemoryBacking()), faults)
    sim = Simulation(1, store=store, **settings)
    sim.cluster.create(T)
    sim.cluster.create(OTHER)
    sim.rounds(4)
    return sim


def check(sim: Simulation, allowed: frozenset[FindingKind] = HARMLESS) -> None:
    truths = {t: truth_of_cluster(sim.cluster, t) for t in (T, OTHER)}
    check_invariants(sim.store, truths, at_rest=True, allowed=allowed, paces=[sim.pace])
    sim.close()


@pytest.mark.parametrize("call", ["begin", "put_part", "commit", "put"])
@pytest.mark.parametrize("effect", [Effect.BEFORE, Effect.LOST, Effect.REPEATED])
def test_a_failed_call_or_a_lost_answer_delays_and_loses_nothing(call: str, effect: Effect) -> None:
    faults = StoreFaults()
    sim = started(faults)
    journal = lambda key: not key.startswith("_journal")  # noqa: E731
    faults.add(StoreFault(call, effect, key=journal, times=3, after=1))
    sim.produce(T, 60)
    sim.produce(OTHER, 60)
    sim.settle()
    check(sim, HARMLESS | {FindingKind.STRAY_OBJECT})


@pytest.mark.parametrize("part", ["-index", "_catalog"])
def test_a_lost_answer_at_each_object_of_a_seal(part: str) -> None:
    faults = StoreFaults()
    sim = started(faults)
    faults.add(StoreFault("put", Effect.LOST, key=lambda key: part in key, times=2))
    sim.produce(T, 60)
    sim.settle()
    check(sim)


def test_a_seal_that_failed_counts_once_although_the_answer_to_its_record_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    faults = StoreFaults()
    sim = started(faults, roll="5s")

    def fail() -> None:
        faults.add(StoreFault("put", Effect.LOST, key=lambda key: key.startswith("_journal")))
        raise StoreUnavailableError("not now")

    faults.add(StoreFault("put", Effect.HOOK, key=lambda key: key.endswith("-index"), times=3, hook=fail))
    sim.produce(T, 60)
    seen = set()
    for _ in range(60):
        sim.rounds(1, 500)
        seen |= {failure.attempts if (failure := sim.driver.state(T).failure) else 0}
    assert caplog.text.count("seal failed") == 3
    assert max(seen) == 3
    sim.settle()
    check(sim)


def parts_ends(key: str) -> bool:
    return parsed.kind is KeyKind.DATA if (parsed := parse_topic_key(key)) else False


def test_a_seal_that_cannot_read_its_parts_indexes_goes_on_later() -> None:
    faults = StoreFaults()
    sim = started(faults)
    faults.add(StoreFault("read", key=parts_ends, times=3, after=2))
    sim.produce(T, 60)
    sim.settle()
    check(sim)


def test_an_object_that_is_damaged_before_its_seal_is_not_committed_and_is_made_again_once_it_is_deleted() -> None:
    backing, faults = MemoryBacking(), StoreFaults()
    sim = started(faults, backing, max_size=10**7)
    store = MemoryStore(backing)

    def damage() -> None:
        (key,) = [key for key, _ in store.list() if parts_ends(key)]
        data, stat = store.read(key)
        store.put(key, data[:-20] + bytes([data[-20] ^ 1]) + data[-19:], meta=stat.meta)

    faults.add(StoreFault("read", Effect.HOOK, key=parts_ends, hook=damage))
    sim.produce(T, 60)
    for _ in range(30):
        if sim.driver.state(T).failure is None:
            sim.rounds(1, 10_000)
    failure, uuid = sim.driver.state(T).failure, sim.driver.state(T).open.uuid
    assert failure.kind is FailureKind.INTEGRITY
    assert f"{uuid}: offset" in failure.reason
    assert not sim.context.catalogs.load(T).segments
    store.delete([key for key, _ in store.list() if uuid in key])
    sim.settle()
    assert sim.context.catalogs.load(T).segments[0].uuid != uuid
    check(sim)


def test_segments_that_end_by_the_size_of_their_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "MAX_INDEX_BYTES", 30 * planner.INDEX_ENTRY_BYTES)
    sim = started(StoreFaults(), roll="60m", max_size=10**7)
    sim.produce(T, 300)
    sim.rounds(30)
    assert {s.roll_reason for s in sim.context.catalogs.load(T).segments} == {RollReason.INDEX}
    sim.settle()
    check(sim)


def test_one_topic_s_store_fails_and_the_others_advance() -> None:
    faults = StoreFaults()
    sim = started(faults, roll="5s")
    faults.add(StoreFault("put_part", key=lambda key: "/t/" in key, times=10**9))
    sim.produce(T, 60)
    sim.produce(OTHER, 60)
    sim.rounds(30)
    assert sim.driver.state(T).failure.kind is FailureKind.RETRYABLE
    assert sim.context.catalogs.load(OTHER).segments
    assert not sim.context.catalogs.load(T).segments
    uuid = sim.driver.state(T).open.uuid
    faults.clear()
    sim.settle(step_ms=300_000)
    assert sim.context.catalogs.load(T).segments[0].uuid == uuid  # the failed segment was resumed
    check(sim)


@pytest.mark.parametrize("settled_by_the_next_look", [True, False])
def test_receipts_count_once_however_often_the_journal_is_tried(
    monkeypatch: pytest.MonkeyPatch, settled_by_the_next_look: bool
) -> None:
    faults = StoreFaults()
    sim = started(faults, roll="10m", max_size=10**7)
    counted: list[str] = []
    for place, name in (
        (sim.context.metrics, "entries_read"),
        (sim.driver.plans.rates, "spent"),
        (sim.context.metrics, "receipt_dropped"),
    ):
        monkeypatch.setattr(place, name, lambda *_, name=name: counted.append(name))
    sim.produce(T, 60)
    while not sim.plans.newest:
        sim.clock.now += 1_000
        sim.round()
    assert len(sim.plans.newest[Lane.FAST].slices) == 1
    if not settled_by_the_next_look:
        monkeypatch.setattr(sim.journal, "check_not_overtaken", lambda: None)  # as between two polls
    faults.add(StoreFault("put", key=lambda key: key.startswith("_journal"), times=3))
    with pytest.raises(StoreUnavailableError):
        sim.batch()
    for _ in range(3):
        assert not sim.driver.state(T).open.parts
        sim.round()
    assert sim.driver.state(T).open.parts
    assert sorted(counted) == ["entries_read", "spent"]
    sim.settle()
    check(sim)


def test_an_upload_aborted_from_outside_gives_the_range_a_new_uuid() -> None:
    sim = started(StoreFaults(), roll="60s", max_size=10**6)
    sim.produce(T, 60)
    sim.rounds(3)
    segment = sim.driver.state(T).open
    assert segment.parts
    sim.store.abort(segment.upload)
    sim.produce(T, 60)
    sim.settle()
    first = sim.context.catalogs.load(T).segments[0]
    assert first.uuid != segment.uuid
    assert first.start == segment.start
    check(sim)


def test_an_upload_aborted_before_its_seal_gives_the_range_a_new_uuid() -> None:
    faults = StoreFaults()
    sim = started(faults, roll="5s", max_size=10**6)

    def abort() -> None:
        sim.store.abort(sim.driver.state(T).open.upload)

    faults.add(StoreFault("commit", Effect.HOOK, hook=abort, key=lambda key: "/t/" in key))
    sim.produce(T, 60)
    sim.settle()
    check(sim)


@pytest.mark.parametrize("call", ["commit", "put"])
@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize("effect", [Effect.BEFORE, Effect.HOOK])
def test_an_overtaken_driver_stops_and_changes_nothing(call: str, after: int, effect: Effect) -> None:
    """The first driver stands still at a step of a seal; another one takes over and finishes; then the first wakes."""
    backing = MemoryBacking()
    faults = StoreFaults()
    sim = started(faults, backing, roll="5s", max_size=10_000)
    stopped: list[Simulation] = []

    def overtake() -> None:
        if stopped:
            return
        sim.pins.close()
        other = Simulation(2, store=MemoryStore(backing), cluster_of=sim, roll="5s", max_size=10_000)
        stopped.append(other)
        other.settle()

    topical = lambda key: not key.startswith("_")  # noqa: E731
    faults.add(StoreFault(call, effect, key=topical, after=after, times=1, hook=overtake))
    sim.produce(T, 60)
    with pytest.raises(OvertakenError):
        sim.rounds(100)
    other = stopped[0]
    other.settle()
    check(other)


def test_two_applications_on_one_topic_by_different_names() -> None:
    backing = MemoryBacking()
    sim = started(StoreFaults(), backing)
    other = Simulation(2, store=MemoryStore(backing), cluster_of=sim, application="another")
    other.rounds(5)
    assert "claimed by application 'sim'" in other.registry.refused[T]
    assert not other.registry.topics
    other.close()
    sim.close()


@pytest.mark.parametrize("times", [1, 6])
def test_a_journal_that_is_unavailable_after_a_seal_delays_and_no_more(
    monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    faults = StoreFaults()
    sim = started(faults, roll="5s")
    counted: list[object] = []
    monkeypatch.setattr(sim.context.metrics, "segment", lambda _, topic, __: counted.append(topic))
    sim.produce(T, 20)
    committed = False

    def after_commit() -> None:
        nonlocal committed
        if not committed:
            committed = True
            faults.add(StoreFault("put", key=lambda key: key.startswith("_journal"), times=times))

    faults.add(StoreFault("put", Effect.HOOK, key=lambda key: "_catalog" in key and "/t/" in key, hook=after_commit))
    sim.settle()
    assert committed
    assert counted.count(T) == sim.context.catalogs.head(T).segments
    check(sim)


@pytest.mark.parametrize("lost", ["Loss", "Claim"])
def test_a_lost_answer_to_a_loss_or_to_the_next_incarnation_s_claim(lost: str) -> None:
    faults = StoreFaults()
    sim = started(faults, roll="5s", entries_per_ledger=5, fail_on_data_loss=False)
    sim.produce(T, 3)
    sim.rounds(2)
    if lost == "Claim":
        sim.cluster.delete(T)
        sim.cluster.create(T)
        sim.produce(T, 1)
    else:
        sim.cluster.roll(T)
        sim.cluster.lose(T, sim.cluster.ledgers(T).spans[0].ledger)
        sim.produce(T, 3)
    faults.add(StoreFault("put", Effect.LOST, key=lambda key: "_catalog" in key and "/t/" in key, times=2))
    sim.rounds(20)
    sim.until_believed()
    sim.produce(T, 5)
    sim.settle()
    check(sim)


def test_an_outage_of_the_journal_is_no_topic_s_trouble_and_losses_that_wait_write_nothing_each_round() -> None:
    faults = StoreFaults()
    sim = started(faults, roll="10s", max_size=10**8, entries_per_ledger=5)
    sim.produce(T, 7)
    sim.settle()
    held = sim.context.catalogs.head(T).end
    assert held is not None
    sim.produce(T, 12)
    sim.cluster.lose(T, held.ledger)
    sim.rounds(10)
    failure = sim.driver.state(T).failure
    assert failure is not None
    assert failure.kind is FailureKind.DATA_LOST
    before = faults.calls["put"]
    for _ in range(20):
        sim.clock.now += 100
        sim.driver.round()
    assert faults.calls["put"] == before, "nothing has changed"
    faults.add(StoreFault("put", key=lambda key: "_journal" in key, times=1_000))
    sim.clock.now = failure.retry_at
    sim.driver._checked_at = sim.clock.now  # it was looked at a moment ago whether somebody else owns the journal
    with pytest.raises(StoreUnavailableError):
        sim.driver.round()
    assert not any(topic.committed.catalog_error for topic in sim.registry.topics.values())


@pytest.mark.parametrize("error", [AccessDeniedError, FatalError])
def test_a_store_that_refuses_to_say_who_owns_the_journal_is_waited_for_and_nothing_is_done(
    error: type[Exception],
) -> None:
    faults = StoreFaults()
    sim = started(faults, roll="10s", max_size=10**8)
    sim.produce(T, 60)
    faults.add(StoreFault("stat", key=lambda key: "_journal" in key, error=lambda: error("403: not now"), times=10))
    before = faults.calls["put"], faults.calls["begin"]
    problems = sim.context.metrics.health._problems
    for _ in range(10):
        sim.clock.now += 1_000
        assert sim.driver.turn() >= 1
        assert "403: not now" in problems["store"]
    assert (faults.calls["put"], faults.calls["begin"]) == before
    sim.clock.now += 1_000
    sim.driver.turn()
    assert not problems["store"]
    sim.settle()
    check(sim)


def test_a_batch_that_spark_has_done_is_not_overdue_while_the_journal_is_away() -> None:
    faults = StoreFaults()
    sim = started(faults, roll="10s", max_size=10**8)
    sim.produce(T, 60)
    health = sim.context.metrics.health
    while not sim.plans.newest:
        sim.clock.now += 1_000
        sim.round()
    plan = next(iter(sim.plans.newest.values()))
    assert health._batches
    faults.add(StoreFault("put", key=lambda key: "_journal" in key, times=1_000))
    sim.driver.deliver(plan.lane, [sim.run(work) for task in plan.tasks for work in task])
    sim.driver.turn()
    assert not health._batches


def test_a_topic_whose_name_a_file_system_cannot_hold_holds_up_no_other(tmp_path, caplog) -> None:
    long = TopicName("public", "default", "é" * 60)
    with closing(open_store(StoreSettings(f"file://{tmp_path}"))) as store:
        sim = Simulation(1, store=store)
        sim.cluster.create(long)
        sim.cluster.create(T)
        sim.rounds(4)
        sim.produce(T, 60)
        sim.settle()
        check_invariants(sim.store, {T: truth_of_cluster(sim.cluster, T)}, at_rest=True, allowed=HARMLESS)
        sim.close()
    assert "have at most 255 bytes there, URL-encoded" in caplog.text


def refuses(key_of: str, calls: Counter[str]) -> StoreFault:
    """The store takes no catalog record of a topic, and everything else."""

    def refuse() -> None:
        calls[key_of] += 1
        raise AccessDeniedError("403: not here")

    matches = lambda key: "_catalog" in key and key_of in key  # noqa: E731
    return StoreFault("put", Effect.HOOK, key=matches, times=10**9, hook=refuse)


def hours(sim: Simulation, count: float) -> None:
    sim.rounds(int(count * 3_600), 1_000)


@pytest.mark.parametrize("what", few(["ledger closed", "loss"], 1))
def test_a_catalog_that_takes_no_record_is_asked_less_and_less_and_counts_as_a_failure(what: str) -> None:
    faults, calls = StoreFaults(), Counter[str]()
    sim = started(faults, roll="5s", entries_per_ledger=5, fail_on_data_loss=False)
    sim.produce(T, 7)
    sim.settle()
    held = sim.context.catalogs.head(T).end
    assert held is not None
    fault = faults.add(refuses("/t/", calls))
    if what == "loss":
        sim.produce(T, 12)
        sim.cluster.lose(T, held.ledger)
    else:
        sim.cluster.roll(T)
    sim.rounds(90)
    failure = sim.driver.state(T).failure
    assert failure is not None
    assert failure.attempts >= 6
    assert "403" in failure.reason
    (status,) = [s for s in sim.driver.statuses.latest if s.topic == T]
    assert status.trouble is not None
    assert status.trouble.attempts >= 6
    hours(sim, 1)
    assert 12 <= calls["/t/"] <= 30
    assert (sim.driver.state(T).failure or failure).attempts == calls["/t/"]
    fault.times = 0
    sim.settle()
    sim.rounds(10, 60_000)
    assert sim.driver.state(T).failure is None
    check(sim)


@pytest.mark.large
def test_a_store_that_never_completes_an_upload_gets_its_bytes_again_at_ever_longer_intervals() -> None:
    faults = StoreFaults()
    sim = started(faults, roll="5s")
    rejected = StoreFault(
        "commit", key=lambda key: "/t/" in key, times=10**9, error=lambda: PartRejectedError("parts differ")
    )
    faults.add(rejected)
    sim.produce(T, 60)
    hours(sim, 1)
    assert 12 <= 10**9 - rejected.times <= 25
    failure = sim.driver.state(T).failure
    assert failure is not None
    assert failure.attempts >= 12
    rejected.times = 0
    sim.settle()
    check(sim)


def test_a_claim_that_cannot_be_written_is_tried_less_and_less() -> None:
    faults, calls = StoreFaults(), Counter[str]()
    sim = Simulation(1, store=FaultyStore(MemoryStore(MemoryBacking()), faults))
    fault = faults.add(refuses("/t/", calls))
    sim.cluster.create(T)
    sim.cluster.create(OTHER)
    hours(sim, 1)
    assert 12 <= calls["/t/"] <= 25
    assert "403" in sim.registry.refused[T]
    assert OTHER in sim.registry.topics
    fault.times = 0
    sim.rounds(400)
    assert T in sim.registry.topics
    check(sim)
