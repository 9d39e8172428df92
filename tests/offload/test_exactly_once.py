"""Exactly once, whatever happens: kills, lost tasks, zombies, failing calls, rolls, gaps, transactions, switches
between the sources, many topics, small segments."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from offloader.errors import BookieUnavailableError, BrokerUnavailableError, MetadataUnavailableError, TopicMovedError
from offloader.model import GapKind, Source, TopicName
from tests.examples import worlds
from tests.invariants import check_invariants
from tests.offload.simulation import Simulation
from tests.truth import truth_of_cluster

TOPICS = [TopicName.parse(f"public/default/t{i}") for i in range(4)]


def chaos(seed: int, steps: int = 120) -> Simulation:
    rng = random.Random(seed)
    sim = Simulation(
        seed,
        max_size=rng.choice([3_000, 20_000, 64_000, 10**9]),
        part=rng.choice([4_096, 8_192, 16_384]),
        roll=rng.choice(["1s", "60s", "10m"]),
        entries_per_ledger=rng.choice([3, 20, None]),
        source=rng.choice(list(Source)),
    )
    topics = TOPICS[: rng.randint(1, 4)]
    for topic in topics:
        sim.cluster.create(topic)
    for _ in range(4):
        sim.clock.now += 1_000
        sim.round()
    actions = [
        lambda: sim.produce(rng.choice(topics), rng.randint(1, 30), largest=rng.choice([200, 3_000, 20_000])),
        lambda: sim.round(),
        lambda: sim.batch(deaths=rng.choice([0, 0, 0.3])),
        lambda: sim.zombie(),
        lambda: sim.kill(),
        lambda: sim.cluster.roll(rng.choice(topics)),
        lambda: sim.cluster.unload(rng.choice(topics)),
        lambda: sim.cluster.add_hidden(rng.choice(topics), rng.choice([GapKind.ABORTED, GapKind.MARKER])),
        lambda: setattr(sim.clock, "now", sim.clock.now + rng.choice([100, 5_000, 70_000])),
        lambda: sim.cluster.faults.add(
            rng.choice(["source.read", "source.open", "pins.acknowledge", "pins.ends", "admin.topic_info"]),
            rng.choice([lambda: TopicMovedError("moved"), lambda: BrokerUnavailableError("gone")]),
            effect=rng.random() < 0.5,
        ),
        lambda: sim.cluster.faults.add(
            rng.choice(["bookies.read", "ledgers.read"]),
            rng.choice([lambda: BookieUnavailableError("busy"), lambda: MetadataUnavailableError("gone")]),
            effect=rng.random() < 0.5,
        ),
        lambda: sim.cluster.add_pending(rng.choice(topics), b"pending"),
        lambda: sim.cluster.resolve(rng.choice(topics), commit=rng.random() < 0.5),
        lambda: sim.cluster.add_withheld(rng.choice(topics)),
        lambda: sim.switch(rng.choice(list(Source))),
    ]
    weights = [4, 8, 8, 1, 0.5, 0.5, 0.3, 1, 2, 1, 1, 0.5, 0.5, 0.1, 0.3]
    for _ in range(steps):
        rng.choices(actions, weights)[0]()
    sim.cluster.faults.clear()
    make_readable(sim, topics, rng)
    return sim


def make_readable(sim: Simulation, topics: list[TopicName], rng: random.Random) -> None:
    """Open transactions end; what no broker delivers is left to bookies."""
    for topic in topics:
        entries = sim.cluster.entries(topic)
        if any(e.hidden is None and not e.delivered for e in entries):
            sim.cluster.resolve(topic, commit=rng.random() < 0.5)
    withheld = any(e.hidden is None and not e.delivered for topic in topics for e in sim.cluster.entries(topic))
    if withheld and not sim.source.complete:
        sim.switch(rng.choice([Source.BROKER_WITH_BOOKIES, Source.BOOKKEEPER]))


@worlds
@given(st.integers(0, 10**9))
def test_every_entry_is_in_exactly_one_segment_whatever_happens(seed: int) -> None:
    sim = chaos(seed)
    sim.settle()
    truths = {t: truth_of_cluster(sim.cluster, t) for t in sim.registry.topics}
    check_invariants(sim.store, truths, at_rest=True, paces=[sim.pace])
    sim.close()
