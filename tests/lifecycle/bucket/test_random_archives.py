"""Archives that the product itself has written, through kills, zombies and lost answers, with strays put into them: a
scan finds just these, and nothing that is named, also while the application goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import TypeVar

import pytest

from integration.soak import SOAK
from offloader.archive.findings import FindingKind
from offloader.lifecycle.bucket.orphans import ObjectScan
from offloader.metadata import layout
from offloader.metadata.catalog import Catalogs
from offloader.metadata.journal_reading import applications, read_journals
from offloader.metadata.root import open_root
from offloader.model import TopicName
from offloader.operations.verify.verify import verify
from offloader.ports.object_store import ObjectStore
from offloader.storage.forwarding import ForwardingStore, Verb
from offloader.storage.memory import MemoryStore
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults
from tests.invariants import HARMLESS, check_invariants
from tests.offload.simulation import Simulation
from tests.offload.test_exactly_once import chaos
from tests.truth import truth_of_cluster

from .support import HOUR, SUSPECT, StoreClock, Strays, by_id, scanner

T = TypeVar("T")
SEEDS, STEPS = (200, 300) if SOAK else (10, 150)
UNNAMED = HARMLESS | {FindingKind.STRAY_OBJECT}


def memory(sim: Simulation) -> MemoryStore:
    store = sim.store.store if isinstance(sim.store, FaultyStore) else sim.store
    assert isinstance(store, MemoryStore)
    return store


def with_root(sim: Simulation) -> StoreClock:
    """What a simulation leaves out, and all of it old."""
    store, clock = memory(sim), StoreClock()
    if store.stat(layout.ROOT) is None:
        open_root(store, sim.cluster.name, sim.uuid)
    store.backing.clock_ms = clock
    for key, _ in list(store.list()):
        store.put(key, store.read(key)[0])
    clock.now += 2 * HOUR
    return clock


def named(store: ObjectStore) -> Iterator[str]:
    """Every object of a segment, or record, that a catalog or a journal names now: read with no code of the scan's."""
    journals = read_journals(store, applications(store))
    catalogs = Catalogs(store, "")
    for topic in catalogs.topics():
        history = catalogs.history(topic)
        for written in history.read(range(history.head.next_slot)):
            yield layout.record_key(topic, written.token)
        for uuid in [segment.uuid for segment in catalogs.load(topic).segments]:
            yield from (layout.data_key(topic, uuid), layout.index_key(topic, uuid))
        for _, state in journals.of(topic):
            if state.open is not None:
                uuid = state.open.uuid
                yield from (of(topic, uuid) for of in (layout.data_key, layout.index_key, layout.record_key))
                yield state.open.upload or ""


def seeded(sim: Simulation, rng: Random) -> Strays:
    strays = Strays(memory(sim), rng)
    catalogs = Catalogs(sim.store, "")
    for topic in list(catalogs.topics()):
        catalog = catalogs.load(topic)
        for segment in rng.sample(catalog.segments, min(3, len(catalog.segments))):
            rng.choice((strays.data_of_a_segment, strays.index_alone))(topic, segment)
        if catalog.end is not None:
            strays.past_the_end(topic, catalog.end)
        strays.junk(topic)
        strays.upload(topic)
        strays.left_overs(topic)
        strays.of_others(topic)
    return strays


def truths(sim: Simulation) -> dict[TopicName, object]:
    return {topic: truth_of_cluster(sim.cluster, topic) for topic in Catalogs(sim.store, "").topics()}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_just_the_strays_are_found_with_what_the_application_itself_has_left(seed: int):
    rng = Random(seed)
    sim = chaos(seed, steps=STEPS)
    clock = with_root(sim)
    before = {each.id for each in scanner(sim.store, clock).scan().candidates}
    assert not before & set(named(memory(sim)))
    strays = seeded(sim, rng)
    clock.now += 2 * HOUR
    scan = scanner(sim.store, clock, keys_together=rng.choice((1, 20, 50_000))).scan()
    found = by_id(scan)
    assert found.keys() - before == strays.expected.keys()
    assert {key: (found[key].kind, found[key].verdict) for key in strays.expected} == strays.expected
    assert not strays.foreign & found.keys()
    every_stray_is_in_the_scan(sim.store, found.keys())


def every_stray_is_in_the_scan(store: ObjectStore, found: object) -> None:
    """Number 5 of what must always hold: whatever verify finds unnamed, a scan reports, but for what is foreign."""
    kinds = (FindingKind.STRAY_OBJECT, FindingKind.ABANDONED_OBJECT, FindingKind.UNCOMMITTED_RECORD)
    foreign = ("its name is none that the offloader writes", "Pulsar's own offloader wrote it")
    findings = verify(store, quick=True).findings
    unnamed = {each.key for each in findings if each.kind in kinds and each.message not in foreign}
    assert unnamed <= set(found)  # type: ignore[call-overload]


class GoesOn(ForwardingStore):
    """The application goes on at some of the scan's calls."""

    def __init__(self, store: ObjectStore, step: Callable[[], None], rng: Random) -> None:
        super().__init__(store)
        self._step = step
        self._rng = rng
        self._within = False

    def _call(self, verb: Verb, key: str, work: Callable[[], T]) -> T:
        if not self._within and self._rng.random() < 0.2:
            self._within = True
            self._step()
            self._within = False
        return work()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_scan_beside_a_running_application_calls_nothing_an_orphan_that_is_named(seed: int, monkeypatch):
    monkeypatch.setattr("offloader.lifecycle.bucket.scan.READERS", 1)
    rng = Random(seed)
    faults = StoreFaults(seed=seed)
    broken = FaultyStore(MemoryStore(), faults)
    sim = Simulation(seed, max_size=rng.choice((3_000, 20_000)), part=4_096, roll="1s", store=broken)
    topics = [TopicName.parse(f"public/default/t{i}") for i in range(2)]
    for topic in topics:
        sim.cluster.create(topic)
    for _ in range(4):
        sim.clock.now += 1_000
        sim.round()
    clock = with_root(sim)
    lost = [StoreFault(call, Effect.LOST) for call in ("commit", "begin", "put_part")]
    faults.at_random(0.2, *lost, StoreFault("put", Effect.LOST, key=lambda key: key.endswith("-record")))

    def step() -> None:
        sim.produce(rng.choice(topics), rng.randint(1, 20), largest=2_000)
        sim.clock.now += rng.choice((100, 5_000))
        rng.choice((sim.round, sim.batch, sim.round, sim.kill))()

    for _ in range(6):
        found = sure_of(scanner(GoesOn(memory(sim), step, rng), clock, grace=0).scan())
        assert not found & set(named(memory(sim)))
        clock.now += HOUR
    faults.clear()
    for _ in range(30):
        step()
    everything = scanner(sim.store, clock, grace=0).scan()
    assert not {each.id for each in everything.candidates} & set(named(memory(sim)))


def sure_of(scan: ObjectScan) -> set[str]:
    return {each.id for each in scan.orphans if each.deletable}


@pytest.mark.parametrize("seed", range(SEEDS // 2))
def test_with_all_orphans_gone_that_are_certain_every_topic_reads_the_same(seed: int):
    sim = chaos(seed, steps=STEPS)
    clock = with_root(sim)
    strays = seeded(sim, Random(seed))
    clock.now += 2 * HOUR
    scan = scanner(sim.store, clock).scan()
    sim.store.delete([each.key for each in scan.orphans if each.deletable and not each.upload])
    for each in scan.orphans:
        if each.upload:
            sim.store.abort(each.upload)
    check_invariants(sim.store, truths(sim), allowed=UNNAMED)
    left = {each.id: each.verdict for each in scanner(sim.store, clock).scan().candidates}
    assert set(left.values()) <= {SUSPECT}
    assert left.keys() >= {key for key, (_, verdict) in strays.expected.items() if verdict is SUSPECT}
