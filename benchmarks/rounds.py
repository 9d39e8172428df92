"""`rounds`: what a round of the driver costs while nearly all topics rest, Pulsar and the store in memory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable

from benchmarks.figures import Figure, Report, median_ratio
from benchmarks.options import Options
from benchmarks.shards_simulated import IndexedStore
from offloader.model import TopicName
from offloader.offload.driver import observed
from tests.in_turn import in_turn
from tests.offload.simulation import Simulation

ROUNDS = 10
ADOPTING_ROUNDS = 6
LATER_MS = 1_500
TARGET_MS = 2.0


def run(options: Options) -> Report:
    with in_turn("metadata.catalog", "offload.driver.discovery"):
        return _run(options)


def _run(options: Options) -> Report:
    simulation = Simulation(1, roll="600s", max_size=10**8, store=IndexedStore(), checked=False)
    simulation.pins.take_disconnected = list  # type: ignore[method-assign] # asks nobody, as the product's
    for number in range(options.simulated_topics):
        simulation.cluster.create(TopicName.parse(f"public/default/topic-{number}"))
    simulation.rounds(ADOPTING_ROUNDS)
    simulation.registry.found._interval_ms = 10**9  # noqa: SLF001
    simulation.rounds(ADOPTING_ROUNDS, step_ms=300_000)  # quiet topics are asked for their ends once a minute
    names = list(simulation.registry.topics)
    options.say(f"rounds: {len(names)} topics rest")
    one = [_changed(simulation, [name]) for name in names[:ROUNDS]]
    for topic in simulation.registry.topics.values():
        observed.soon(topic, 10**15)  # what it costs to ask for ends is not what is measured
    _changed(simulation, names[:1])
    later = [_changed(simulation, [name], after_ms=LATER_MS) for name in names[:ROUNDS]]
    everything = [_changed(simulation, names) for _ in range(ROUNDS)]
    cost = statistics.median(one)
    return Report(
        "rounds",
        f"{len(names)} topics that rest, CPU of a round",
        (
            Figure(
                "one topic changed", cost, "ms", median_ratio(one, everything), "all topics changed",
                f"< {TARGET_MS:.0f} ms", cost < TARGET_MS,
            ),
            Figure(
                "one topic changed, and what is done once a second is due", statistics.median(later), "ms",
                target=f"< {TARGET_MS:.0f} ms", met=statistics.median(later) < TARGET_MS,
            ),
            Figure("all topics changed", statistics.median(everything), "ms"),
        ),
    )  # fmt: skip


def _changed(simulation: Simulation, names: Iterable[TopicName], after_ms: int = 1) -> float:
    """The CPU time of a round before which something of these topics changed, in ms."""
    for name in names:
        topic = simulation.registry.topics[name]
        topic.pin = type(topic.pin)(ours=topic.pin.ours, alarm=f"{simulation.clock.now}")
    simulation.clock.now += after_ms
    began = time.thread_time()
    simulation.driver.round()
    return (time.thread_time() - began) * 1_000
