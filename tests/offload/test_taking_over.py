"""Ledgers that brokers have offloaded become segments as they are: no entry twice, none missing, the pin first."""

from __future__ import annotations

import random
import time
from functools import partial

import pytest

from offloader.archive.findings import FindingKind
from offloader.errors import BrokerUnavailableError
from offloader.metadata import layout, requests
from offloader.metadata.layout import KeyKind, parse_topic_key
from offloader.metadata.requests import Request, RequestKind, RequestOutcome
from offloader.model import V1, FailureKind, GapKind, Source, Taking, TopicName
from offloader.offload.driver.request_handler import RequestHandler
from offloader.offload.driver.uploads import OffloadedCopies
from offloader.storage.memory import MemoryStore
from tests.examples import few
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults
from tests.invariants import HARMLESS, check_invariants
from tests.offload.simulation import Simulation
from tests.offload.stock_offloader import closed_ledgers, offload
from tests.truth import truth_of_cluster

T = TopicName.parse("public/default/t")
OTHER = TopicName.parse("public/default/other")
# what a copy left that was given up
LEFT_OVER = HARMLESS | {FindingKind.STRAY_OBJECT}


def is_data(key: str) -> bool:
    parsed = parse_topic_key(key)
    return parsed is not None and parsed.kind is KeyKind.DATA


def topic_of_brokers(seed: int = 1, count: int = 110, **options: object) -> tuple[Simulation, MemoryStore]:
    """A topic with some ledgers; brokers keep them for another subscription."""
    bucket = MemoryStore()
    sim = Simulation(seed, roll="5s", stock=bucket, **options)
    sim.cluster.create(T)
    sim.cluster.add_subscription(T, "mine")
    sim.produce(T, count)
    return sim, bucket


def ask(sim: Simulation, kind: RequestKind = RequestKind.MIGRATE_COPY) -> str:
    sim.serve_requests()
    return requests.submit(sim.store, "sim", Request(kind, T, sim.clock.now, "test"), sim.uuid)


def answer(sim: Simulation, request: str) -> RequestOutcome:
    found = requests.outcome_of(sim.store, "sim", request)
    assert found is not None
    return found


def sources(sim: Simulation) -> list[tuple[Source, frozenset[int]]]:
    segments = sim.context.catalogs.load(T).segments
    return [(s.source, frozenset(held.ledger for held in s.ledgers)) for s in segments]


def check(sim: Simulation, allowed: frozenset[FindingKind] = HARMLESS) -> None:
    check_invariants(sim.store, {T: truth_of_cluster(sim.cluster, T)}, at_rest=True, allowed=allowed)
    copied = [ledger for source, ledgers in sources(sim) if source is Source.OFFLOADED for ledger in ledgers]
    assert len(copied) == len(set(copied))


def test_ledgers_that_are_offloaded_are_copied_and_the_others_read() -> None:
    sim, bucket = topic_of_brokers()
    closed = closed_ledgers(sim.cluster, T)
    for ledger in closed[:3]:
        offload(sim.cluster, bucket, T, ledger)
    sim.rounds(3)
    assert "migrate to-streaming" in sim.registry.refused[T]
    request = ask(sim)
    sim.rounds(6)
    sim.settle()
    assert answer(sim, request).ok, answer(sim, request)
    assert "3 ledgers that brokers have offloaded are taken over, 3 of them as copies" in answer(sim, request).message
    found = sources(sim)
    assert found[:3] == [(Source.OFFLOADED, frozenset([ledger])) for ledger in closed[:3]]
    assert all(source is Source.BROKER and min(ledgers) > closed[2] for source, ledgers in found[3:])
    segment = sim.context.catalogs.load(T).segments[0]
    copied = sim.store.read(layout.data_key(T, segment.uuid))[0]
    assert copied == bucket.read(next(key for key, _ in bucket.list() if key.endswith(f"-{closed[0]}")))[0]
    assert segment.cuts.version == V1
    check(sim)


def test_brokers_are_asked_once_for_many_copies() -> None:
    sim, bucket = topic_of_brokers()
    closed = closed_ledgers(sim.cluster, T)
    for ledger in closed:
        offload(sim.cluster, bucket, T, ledger)
    ask(sim)
    sim.settle()
    assert [source for source, _ in sources(sim)].count(Source.OFFLOADED) == len(closed) > 3
    assert sim.cluster.faults.count("admin.offloaded_copies", T) == 1
    check(sim)


def test_what_brokers_have_offloaded_anew_is_asked_for_again() -> None:
    sim, bucket = topic_of_brokers()
    closed = closed_ledgers(sim.cluster, T)
    for ledger in closed[:2]:
        offload(sim.cluster, bucket, T, ledger)
    asked = OffloadedCopies(sim.cluster.admin, lambda: sim.clock.now)
    before = asked.uuid(T, closed[0])
    assert before is not None
    assert asked.uuid(T, closed[2]) is None
    offload(sim.cluster, bucket, T, closed[2])
    assert asked.uuid(T, closed[2]) is not None, "what was not there is asked for each time"
    sim.cluster.state.topic(T).ledgers[0].offloaded_as = "another"
    assert asked.uuid(T, closed[0]) == before
    asked.doubt(T)
    assert asked.uuid(T, closed[0]) == "another"


def test_what_lies_between_copies_ends_where_the_next_one_begins() -> None:
    sim, bucket = topic_of_brokers()
    closed = closed_ledgers(sim.cluster, T)
    for ledger in (closed[1], closed[3]):
        offload(sim.cluster, bucket, T, ledger)
    ask(sim)
    sim.settle()
    copies = [ledgers for source, ledgers in sources(sim) if source is Source.OFFLOADED]
    assert copies == [{closed[1]}, {closed[3]}]
    check(sim)


def test_entries_that_no_consumer_gets_are_in_a_copy() -> None:
    sim, bucket = topic_of_brokers(count=10)
    for _ in range(3):
        sim.cluster.add_hidden(T, GapKind.MARKER)
    sim.produce(T, 30)
    first = closed_ledgers(sim.cluster, T)[0]
    offload(sim.cluster, bucket, T, first)
    ask(sim)
    sim.settle()
    segment = sim.context.catalogs.load(T).segments[0]
    assert (segment.source, segment.gaps, segment.entries) == (Source.OFFLOADED, (), segment.end.entry + 1)
    check(sim)


def test_rewriting_reads_what_is_offloaded_like_everything_else() -> None:
    sim, bucket = topic_of_brokers()
    offload(sim.cluster, bucket, T, closed_ledgers(sim.cluster, T)[0])
    request = ask(sim, RequestKind.MIGRATE_REWRITE)
    sim.settle()
    assert answer(sim, request).ok
    assert {source for source, _ in sources(sim)} == {Source.BROKER}
    check(sim)


def test_a_failed_attempt_of_a_broker_is_not_taken_for_a_copy() -> None:
    sim, bucket = topic_of_brokers()
    offload(sim.cluster, bucket, T, closed_ledgers(sim.cluster, T)[0], complete=False)
    ask(sim)
    sim.settle()
    assert {source for source, _ in sources(sim)} == {Source.BROKER}
    check(sim)


def test_a_broker_s_object_that_is_damaged_stops_the_topic_until_its_entries_are_rewritten() -> None:
    """The pin keeps everything meanwhile, and no attempt leaves another object."""
    sim, bucket = topic_of_brokers()
    key = offload(sim.cluster, bucket, T, closed_ledgers(sim.cluster, T)[0])
    data = bucket.read(key)[0]
    bucket.put(key, data[:-1])
    ask(sim)
    sim.rounds(30, step_ms=60_000)
    failure = sim.driver.state(T).failure
    assert failure is not None
    assert failure.kind is FailureKind.INTEGRITY
    assert key in failure.reason
    assert sim.context.catalogs.load(T).segments == ()
    assert len([key for key, _ in sim.store.list() if is_data(key)]) == 1
    ask(sim, RequestKind.MIGRATE_REWRITE)
    sim.rounds(3, step_ms=400_000)
    sim.settle()
    assert {source for source, _ in sources(sim)} == {Source.BROKER}
    check(sim, LEFT_OVER)


def test_an_object_that_is_not_in_the_bucket_is_named_with_the_setting() -> None:
    sim, _ = topic_of_brokers()
    offload(sim.cluster, MemoryStore(), T, closed_ledgers(sim.cluster, T)[0])
    ask(sim)
    sim.rounds(5)
    failure = sim.driver.state(T).failure
    assert failure is not None
    assert "lifecycle.stockBucket" in failure.reason
    sim.stock = None
    sim.kill()
    sim.rounds(5, step_ms=400_000)
    failure = sim.driver.state(T).failure
    assert failure is not None
    assert "set lifecycle.stockBucket" in failure.reason


def test_a_copy_that_is_damaged_on_its_way_is_made_anew() -> None:
    sim, bucket = topic_of_brokers()
    first = closed_ledgers(sim.cluster, T)[0]
    offload(sim.cluster, bucket, T, first)
    faults = StoreFaults()
    real, sim.store = sim.store, FaultyStore(sim.store, faults)
    sim.kill()
    seen: list[str] = []

    def spoil() -> None:
        key = layout.data_key(T, sim.driver.state(T).open.uuid)
        seen.append(key)
        real.put(key, b"\0" + real.read(key)[0][1:])

    faults.add(StoreFault("read", Effect.HOOK, key=is_data, hook=spoil))
    ask(sim)
    sim.settle()
    assert len(seen) == 1
    assert layout.data_key(T, sim.context.catalogs.load(T).segments[0].uuid) not in seen
    sim.store = real
    check(sim, LEFT_OVER)


def test_a_topic_that_begins_behind_its_offloaded_ledgers_keeps_its_beginning() -> None:
    sim, bucket = topic_of_brokers(start_after_offloaded=True)
    closed = closed_ledgers(sim.cluster, T)
    offload(sim.cluster, bucket, T, closed[0])
    sim.rounds(3)
    request = ask(sim)
    sim.settle()
    assert "1 others end before" in answer(sim, request).message
    assert sim.context.catalogs.load(T).claim.taking is Taking.COPY
    check_invariants(sim.store, {T: truth_of_cluster(sim.cluster, T)}, at_rest=True)


def test_there_and_back_and_there_again() -> None:
    """Released in the middle of a ledger that brokers then offload whole: what is archived of it is not copied."""
    sim, bucket = topic_of_brokers(count=35)
    offload(sim.cluster, bucket, T, closed_ledgers(sim.cluster, T)[0])
    ask(sim)
    sim.settle()
    sim.serve_requests()
    requests.submit(sim.store, "sim", Request(RequestKind.RELEASE, T, sim.clock.now, "test"), sim.uuid)
    sim.rounds(20)
    assert T not in sim.registry.topics
    sim.produce(T, 60)
    closed = closed_ledgers(sim.cluster, T)
    for ledger in closed[1:4]:
        offload(sim.cluster, bucket, T, ledger)
    sim.kill()
    ask(sim)
    sim.settle()
    copies = [ledgers for source, ledgers in sources(sim) if source is Source.OFFLOADED]
    assert copies == [{closed[0]}, {closed[2]}, {closed[3]}]
    check(sim)


@pytest.mark.parametrize("seed", few(range(40), 10))
def test_killed_and_refused_anywhere(seed: int) -> None:
    """Each seed another order of offloads, kills, and of stores that do not answer."""
    rng = random.Random(seed)
    sim, bucket = topic_of_brokers(seed, count=rng.randrange(30, 120))
    real, faults = sim.store, StoreFaults(seed=seed)
    sim.store = FaultyStore(real, faults)
    sim.stock = FaultyStore(bucket, faults)
    sim.kill()
    others = lambda key: not key.startswith("_")  # noqa: E731
    lost = [StoreFault(call, Effect.LOST, key=others) for call in ("begin", "put", "put_part", "commit")]
    faults.at_random(rng.choice([0.02, 0.1]), StoreFault("*", key=others), *lost)
    waiting = closed_ledgers(sim.cluster, T)
    ask(sim)
    for _ in range(rng.randrange(10, 60)):
        event = rng.random()
        if event < 0.15 and waiting:
            offload(sim.cluster, bucket, T, waiting.pop(rng.randrange(len(waiting))))
        elif event < 0.25:
            sim.produce(T, rng.randrange(12))
            waiting += [one for one in closed_ledgers(sim.cluster, T)[-1:] if one not in waiting]
        elif event < 0.35:
            with faults.no_random():
                sim.kill()
            sim.serve_requests()
        else:
            sim.rounds(1, step_ms=rng.choice([100, 3_000, 60_000]))
        assert sim.cluster.mark_delete(T, "mine") is not None
    faults.clear()
    sim.settle()
    sim.store = real
    check(sim, LEFT_OVER)


def test_brokers_that_go_on_offloading_do_not_keep_a_topic_from_migrating() -> None:
    """Else the policy would have to be switched off before anybody keeps the topic."""
    sim, bucket = topic_of_brokers()
    offload(sim.cluster, bucket, T, closed_ledgers(sim.cluster, T)[0])
    policies = sim.cluster.namespace("public/default").policies
    policies["offload_policies"] = {"managedLedgerOffloadDriver": "S3", "managedLedgerOffloadThresholdInBytes": 0}
    sim.rounds(5)
    assert "copies its ledgers, too" in sim.registry.refused[T]
    policies["message_ttl_in_seconds"] = 1
    refused = ask(sim)
    sim.rounds(5)
    assert T not in sim.registry.topics, "what would lose data still keeps it out"
    assert not answer(sim, refused).ok
    policies["message_ttl_in_seconds"] = 0
    sim.rounds(5, step_ms=60_000)
    assert T not in sim.registry.topics, "a request that was refused is over: nobody switches brokers' offload off"
    ask(sim)
    sim.rounds(5)
    assert T in sim.registry.topics
    sim.settle()
    check(sim)


def test_a_topic_that_is_deleted_before_it_is_taken_over_has_its_answer() -> None:
    """Nothing is retried for it any more: whoever asked would wait for ever."""
    sim, bucket = topic_of_brokers()
    offload(sim.cluster, bucket, T, closed_ledgers(sim.cluster, T)[0])
    sim.rounds(3)
    sim.cluster.faults.add("pins.open", lambda: BrokerUnavailableError("not now"), times=10**6)
    request = ask(sim)
    sim.rounds(10, step_ms=60_000)
    assert requests.outcome_of(sim.store, "sim", request) is None, "it is tried again"
    sim.cluster.delete(T)
    sim.rounds(2)  # it is not listed any more, and the next try is later
    sim.rounds(5, step_ms=60_000)
    assert not answer(sim, request).ok


def test_a_topic_that_was_deleted_after_it_was_taken_over_has_its_answer() -> None:
    sim, _ = topic_of_brokers()
    sim.cluster.create(OTHER)
    ask(sim)
    sim.settle()
    sim.cluster.delete(T)
    request = ask(sim)
    sim.until_believed()
    sim.rounds(10)
    assert T not in sim.registry.topics
    assert not answer(sim, request).ok


def test_a_topic_that_is_made_anew_is_not_said_to_be_taken_over_before_it_is_kept() -> None:
    """After this answer nobody else offloads it."""
    sim, _ = topic_of_brokers()
    sim.cluster.create(OTHER)
    ask(sim)
    sim.settle()
    sim.cluster.delete(T)
    sim.cluster.create(T)
    request = ask(sim)
    for _ in range(40):
        sim.rounds(1, step_ms=5_000)
        if requests.outcome_of(sim.store, "sim", request) is not None:
            break
    assert answer(sim, request).ok
    assert sim.registry.topics[T].incarnation == 1


def test_requests_that_are_taken_are_not_read_and_others_are_seen_one_after_the_other() -> None:
    """A namespace has thousands of topics: whoever asks for them gives up where nobody sees one in time."""
    sim, _ = topic_of_brokers()
    asked = [ask(sim) for _ in range(5)]
    faults, calls = StoreFaults(), list[str]()
    sim.store = FaultyStore(sim.store, faults)
    sim.kill()
    for call in ("read", "put"):
        told = partial(calls.append, call)
        faults.add(StoreFault(call, Effect.HOOK, key=lambda key: "_requests/" in key, times=100, hook=told))
    handler = RequestHandler(sim.context, 1, sim.retaining, sim.bridging)
    handler._remove_at = 2 * sim.clock.now
    assert {found for found, _ in handler._look(frozenset(asked[:2]), sim.clock.now)} == set(asked[2:])
    assert calls == ["read", "put"] * 3


def test_what_a_request_takes_back_is_found_among_those_of_its_topic_alone() -> None:
    """Each round looks at each request: with all of them it would take a namespace's topics squared."""
    sim, _ = topic_of_brokers()
    handler = RequestHandler(sim.context, 1, sim.retaining, sim.bridging)
    count = 3_000
    requested = [
        Request(RequestKind.HAND_OVER, TopicName.parse(f"public/default/t{n}"), n, "test") for n in range(count)
    ]
    began = time.process_time()
    for number, request in enumerate(requested):
        handler._take(f"{number:014d}-x", request, number)
    assert all(not handler._taken_back_by(f"{n:014d}-x", request) for n, request in enumerate(requested))
    assert time.process_time() - began < 1
