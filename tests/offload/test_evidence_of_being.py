"""A topic is deleted, or another one, only where our own cluster has said so again and again: never after one answer,
never by an ingress that fails or leads elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.errors import (
    AuthorizationFailedError,
    BrokerUnavailableError,
    NamespaceNotFoundError,
    OffloadError,
    ProtocolError,
    TopicNotFoundError,
)
from offloader.metadata import requests
from offloader.metadata.requests import Request, RequestKind
from offloader.model import TopicName
from offloader.offload.core.evidence import Being, Look, being
from offloader.ports.admin import Identity
from tests.fakes.cluster import MemoryCluster
from tests.fakes.cluster_clients import MemoryAdmin
from tests.invariants import check_invariants
from tests.offload.simulation import Simulation
from tests.truth import truth_of_cluster

CONFIRM_MS = 60_000
GAP_MS = 20_000

T = TopicName.parse("public/default/t")
OTHER = TopicName.parse("public/default/other")

OURS = Identity("ours", "zk")
at = st.integers(0, 400_000)
absent = st.builds(Look, at, st.just(OURS), st.just("other"), absent=st.just(True))
others = st.one_of(
    st.builds(
        Look,
        at,
        st.sampled_from([OURS, Identity("ours", "rocksdb")]),
        st.sampled_from(["", "other"]),
        another=st.integers(1, 2),
    ),
    st.builds(Look, at, st.just(OURS), st.just(""), absent=st.just(True)),
    st.builds(Look, at, st.just(Identity("another")), st.just("other"), absent=st.just(True)),
    st.builds(Look, at, why=st.just("a 404 that is no broker's")),
)
here = st.builds(Look, at, st.just(OURS), same=st.just(True))
looks = st.lists(absent | others | here, max_size=30)


@given(looks)
def test_never_deleted_without_a_minute_of_looks_at_our_own_cluster(seen):
    if being("ours", seen) is not Being.DELETED:
        return
    last_here = max((look.at for look in seen if look.same), default=-1)
    proof = sorted(
        {look.at for look in seen if look.absent and look.witness and look.cluster == OURS and look.at >= last_here}
    )
    assert sum(min(after - before, GAP_MS) for before, after in pairwise(proof)) >= CONFIRM_MS
    assert len(proof) >= 1 + CONFIRM_MS // GAP_MS


@given(looks, st.randoms())
def test_neither_order_nor_repetition_changes_what_is_concluded(seen, random):
    again = [*seen, *seen[:5]]
    random.shuffle(again)
    assert being("ours", again) is being("ours", seen)


@given(looks)
def test_another_cluster_s_answers_and_failures_prove_nothing(seen):
    theirs = [replace(look, same=False) for look in seen if look.cluster is None or look.cluster.cluster != "ours"]
    assert being("ours", theirs) is Being.UNKNOWN


@given(st.lists(absent, max_size=30), st.integers(0, 10**12))
def test_a_clock_that_jumps_proves_nothing(seen, jump):
    """One jump counts as one gap at most."""
    seen = [replace(look, at=look.at % (CONFIRM_MS - GAP_MS)) for look in seen]
    jumped = [replace(look, at=look.at + jump * (i % 2)) for i, look in enumerate(seen)]
    moments = sorted({look.at for look in jumped})
    lasted = sum(min(after - before, GAP_MS) for before, after in pairwise(moments))
    assert being("ours", jumped) is (Being.DELETED if lasted >= CONFIRM_MS else Being.UNKNOWN)
    assert being("ours", [replace(look, at=look.at + jump) for look in seen]) is Being.UNKNOWN


def steady(count: int, **what: object) -> list[Look]:
    return [Look(n * 10_000, OURS, "other", **what) for n in range(count)]


def test_what_is_seen_for_a_minute_is_believed():
    assert being("ours", steady(6, absent=True)) is Being.UNKNOWN
    assert being("ours", steady(7, absent=True)) is Being.DELETED
    assert being("ours", steady(7, another=5)) is Being.ANOTHER
    assert being("ours", [*steady(7, absent=True), Look(61_000, OURS, same=True)]) is Being.SAME
    assert (
        being("ours", [*steady(7, absent=True), *(replace(x, at=x.at + 60_001) for x in steady(3, another=5))])
        is Being.UNKNOWN
    )


def test_where_all_vanishes_at_once_somebody_must_say_so():
    seen = [replace(look, witness="") for look in steady(9, absent=True)]
    assert being("ours", seen) is Being.UNKNOWN
    assert being("ours", seen, vouched=True) is Being.DELETED


# The whole application


def started() -> Simulation:
    sim = Simulation(1, roll="2h", max_size=10**6)
    sim.cluster.create(T)
    sim.cluster.create(OTHER)
    sim.produce(OTHER, 3)
    sim.rounds(4)
    sim.produce(T, 60, largest=3000)
    sim.rounds(3)
    assert sim.driver.state(T).open.parts
    return sim


def goes_on(sim: Simulation) -> None:
    """Nothing was given up: everything is offloaded in the end."""
    sim.produce(T, 5)
    sim.settle(step_ms=300_000)
    for topic in (T, OTHER):
        assert not sim.context.catalogs.load(topic).losses
        assert sim.context.catalogs.load(topic).claim.incarnation == 0
    check_invariants(
        sim.store, {t: truth_of_cluster(sim.cluster, t) for t in (T, OTHER)}, at_rest=True, paces=[sim.pace]
    )
    sim.close()


def fail(
    sim: Simulation, call: str, error: Callable[[], Exception], times: int = 10**6, topic: TopicName | None = None
) -> None:
    sim.cluster.faults.add(call, error, times=times, topic=topic)


def test_an_ingress_that_answers_404_to_everything_deletes_nothing() -> None:
    sim = started()
    for call in ("admin.*",):
        fail(sim, call, lambda: BrokerUnavailableError("the broker answered 404: default backend - 404"))
    fail(sim, "pins.ends", lambda: TopicNotFoundError("gone, says the broker"), times=20, topic=T)
    sim.rounds(30, step_ms=10_000)
    assert T in sim.registry.topics
    assert sim.driver.state(T).open.parts
    sim.cluster.faults.clear()
    goes_on(sim)


@pytest.mark.parametrize(
    "error",
    [TopicNotFoundError("404"), BrokerUnavailableError("404"), ProtocolError("null"), AuthorizationFailedError("no")],
)
def test_a_topic_that_is_not_found_but_listed_is_not_deleted(error: OffloadError) -> None:
    sim = started()
    fail(sim, "pins.ends", lambda: TopicNotFoundError("gone"), topic=T)
    fail(sim, "admin.topic_info", lambda: error, topic=T)
    sim.rounds(30, step_ms=10_000)
    assert sim.driver.state(T).open.parts
    assert sim.registry.topics[T].poll.error
    sim.cluster.faults.clear()
    goes_on(sim)


def test_a_topic_that_is_gone_for_less_than_a_minute_is_not_deleted() -> None:
    sim = started()
    found, sim.cluster.state.topics = sim.cluster.state.topics, {OTHER: sim.cluster.state.topics[OTHER]}
    sim.rounds(5, step_ms=10_000)
    assert sim.registry.topics[T].inquiry is not None
    sim.cluster.state.topics = found
    goes_on(sim)


def elsewhere(sim: Simulation, *topics: TopicName) -> MemoryCluster:
    """The ingress leads to another healthy Pulsar of the same name."""
    other = MemoryCluster(seed=77, name=sim.cluster.name)
    other.state.created = 5_000
    other.namespace("public/default")
    for topic in topics:
        other.create(topic)
    return other


@pytest.mark.parametrize("topics", [(), (T,), (T, OTHER)])
@pytest.mark.parametrize("restarted", [False, True])
def test_another_healthy_pulsar_behind_the_same_address_deletes_nothing(
    topics: tuple[TopicName, ...], restarted: bool
) -> None:
    sim = started()
    ours = sim.cluster.state
    sim.cluster.state = elsewhere(sim, *topics).state
    for cursor in (cursor for topic in ours.topics.values() for cursor in topic.cursors.values()):
        cursor.owner = None  # its connection is lost
    if restarted:
        sim.kill()
    sim.rounds(40, step_ms=10_000)
    assert sim.driver.state(T).open.parts
    assert "accept-loss" in sim.registry.topics[T].poll.error
    sim.cluster.state = ours
    sim.kill()
    goes_on(sim)


@pytest.mark.parametrize("level", ["namespace", "tenant"])
def test_a_namespace_or_tenant_is_deleted_by_the_same_rule_one_level_up(level: str) -> None:
    there = TopicName.parse("acme/orders/t")
    sim = Simulation(1, roll="2h", max_size=10**6)
    for topic in (there, OTHER):
        sim.cluster.create(topic)
    if level == "namespace":
        sim.cluster.namespace("acme/kept")
    sim.rounds(4)
    sim.produce(there, 60, largest=3000)
    sim.rounds(3)
    assert sim.driver.state(there).open.parts
    sim.cluster.delete(there)
    del sim.cluster.state.namespaces["acme/orders"]
    sim.rounds(4, step_ms=11_000)
    assert there in sim.registry.topics
    sim.until_believed()
    assert there not in sim.registry.topics
    assert sim.context.catalogs.load(there).losses
    sim.close()


def test_a_namespace_that_is_not_found_but_listed_deletes_nothing() -> None:
    sim = started()
    fail(sim, "pins.ends", lambda: TopicNotFoundError("gone"), topic=T)
    fail(sim, "admin.topic_info", lambda: TopicNotFoundError("gone"), topic=T)
    fail(sim, "admin.topics", lambda: NamespaceNotFoundError("gone"))
    sim.rounds(30, step_ms=10_000)
    assert sim.driver.state(T).open.parts
    sim.cluster.faults.clear()
    goes_on(sim)


@pytest.mark.parametrize("call", ["admin.topic_info", "pins.ends", "pins.open", "pins.acknowledge", "source.explain"])
def test_an_error_that_nobody_foresaw_is_its_topic_s_trouble(call: str) -> None:
    sim = started()
    fail(sim, call, lambda: TypeError("'NoneType' object is not subscriptable"), topic=T)
    if call == "pins.open":
        sim.kill()
    sim.produce(T, 5)
    sim.cluster.roll(T)
    sim.produce(OTHER, 30)
    sim.rounds(30, step_ms=300_000)
    assert sim.context.catalogs.load(OTHER).end is not None
    sim.cluster.faults.clear()
    goes_on(sim)


def test_somebody_may_say_that_everything_was_deleted() -> None:
    sim = started()
    for topic in (T, OTHER):
        sim.cluster.delete(topic)
    sim.until_believed()
    assert "--deleted" in sim.registry.topics[T].poll.error
    request = Request(RequestKind.ACCEPT_LOSS, T, sim.clock.now, "test")
    sim.serve_requests()
    asked = requests.submit(sim.store, "sim", request, sim.uuid)
    sim.until_believed()
    assert T not in sim.registry.topics
    assert OTHER in sim.registry.topics
    assert requests.outcome_of(sim.store, "sim", asked).ok
    assert sim.context.catalogs.load(T).losses
    sim.close()


class InAnotherZone(MemoryAdmin):
    """Says of every topic that it was created at another time, as one that compares texts would understand it."""

    def topic_info(self, topic: TopicName):
        info = super().topic_info(topic)
        return replace(info, created=info.created + 3_600_000)


def test_another_creation_date_of_a_topic_with_our_ledgers_is_no_other_incarnation() -> None:
    sim = started()
    admin = sim.cluster.admin
    sim.cluster.admin = InAnotherZone(sim.cluster)
    sim.kill()
    sim.rounds(20, step_ms=10_000)
    assert sim.driver.state(T).open is not None
    assert "another creation time" in sim.registry.topics[T].poll.error
    sim.cluster.admin = admin
    sim.kill()
    goes_on(sim)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_topic_of_a_rebuilt_cluster_is_not_ours_though_its_ledgers_have_the_same_ids(restarted: bool) -> None:
    """Nothing of it is taken for offloaded, and nothing is concluded before somebody says that ours is gone."""
    sim = started()
    first = sim.context.admin.topic_info(T).ledgers.spans[0].ledger
    before = sim.context.catalogs.head(T)
    sim.cluster.rebuild()
    for topic in (T, OTHER):
        sim.cluster.create(topic)
    sim.cluster.state.topics[T].ledgers[0].id = first
    sim.produce(T, 7)
    if restarted:
        sim.kill()
    sim.rounds(30, step_ms=10_000)
    assert sim.driver.state(T).open.parts
    assert sim.context.catalogs.head(T) == before
    assert f"accept-loss {T} --deleted" in sim.registry.topics[T].poll.error
    for topic in (T, OTHER):
        sim.serve_requests()
        request = Request(RequestKind.ACCEPT_LOSS, topic, sim.clock.now, "test")
        requests.submit(sim.store, "sim", request, sim.uuid)
        sim.until_believed()
    sim.settle(step_ms=300_000)
    catalog = sim.context.catalogs.load(T)
    assert catalog.claim is not None
    assert catalog.claim.incarnation == 1
    assert sum(segment.entries for segment in catalog.segments if segment.start.incarnation == 1) == 7
    sim.close()
