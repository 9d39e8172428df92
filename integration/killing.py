"""Kills applications while entries are produced and trimmed, and checks that every entry is stored exactly once."""

from __future__ import annotations

import itertools
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev.embedded.standalone import PulsarStandalone
from integration.produce import LARGEST, produce_mixed
from integration.producing import Producing
from integration.pulsar.waiting import until
from integration.soak import AFTER, BEFORE, SOAK, STEPS, seal_steps
from integration.world import World
from offloader.model import TopicName
from offloader.storage.settings import StoreSettings
from tests.truth import Truth

PARTITIONS = 3
CATCH_UP = 1_800.0 if SOAK else 600.0  # seconds after which it hangs: hundreds of segments may be left after the kills
Kill = Callable[[World, random.Random, dict[str, Any]], None]


@dataclass(frozen=True)
class Sizes:
    """What the configuration may say while this store is used."""

    parts: tuple[str, ...]
    blocks: tuple[str, ...] = ("64K", "256K", "1M")
    segments: tuple[str, ...] = ("2M", "6M", "40M")

    def choose(self, choice: random.Random) -> dict[str, Any]:
        """Policies for one run."""
        return {
            "partSizeInBytes": choice.choice(self.parts),
            "blockSizeInBytes": choice.choice(self.blocks),
            "indexStepInBytes": choice.choice(("4K", "256K")),
            "maxOffloadSegmentSizeInBytes": choice.choice(self.segments),
            "maxOffloadSegmentRolloverTimeInSeconds": choice.choice(("2s", "5s", "10m")),
        }


def limits(choice: random.Random) -> dict[str, Any]:
    """How much one run may do at a time."""
    return {
        "tasksPerCore": choice.choice((1, 2)),
        "threadsPerTask": choice.choice((2, 4)),
        "slice": {
            "byteBudget": choice.choice(("5M", "1G")),
            "timeBudget": choice.choice(("500ms", "5s")),
            "hardLimit": choice.choice(("5s", "20s")),
        },
    }


def kill_and_check(
    pulsar: PulsarStandalone,
    namespace: str,
    storage: StoreSettings,
    folder: Path,
    sizes: Sizes,
    *,
    seed: int,
    kills: Sequence[Kill],
    light_end: bool = False,
) -> None:
    """Kill one application after another while entries are produced and trimmed, let the last one catch up, check
    everything. `light_end`: the last one without Spark."""
    choice = random.Random(seed)
    topics = [f"persistent://{namespace}/{name}" for name in ("plain", "large", "parts")]
    for topic, path in zip(topics, ("", "", "/partitions"), strict=True):
        pulsar.admin("PUT", TopicName.parse(topic).rest_path + path, json=PARTITIONS if path else None)
    producing = Producing(
        pulsar.service_url,
        topics,
        seed=1000 * seed,
        messages=60,
        largest=LARGEST // 16,
        partitioned=frozenset(topics[2:]),
    )
    with World(pulsar, storage, folder / "world", [namespace]) as world:
        world.see()
        first = produce_mixed(pulsar.service_url, topics[1], seed=seed, messages=100, largest=LARGEST)
        # What follows is in another ledger: Pulsar may trim this one as soon as its pin has moved on.
        pulsar.admin("PUT", f"{TopicName.parse(topics[1]).rest_path}/unload")
        with producing:
            for kill in kills:
                world.limits = limits(choice)
                kill(world, choice, sizes.choose(choice))
                world.see()
                pulsar.admin("PUT", f"{choice.choice(world.topics()).rest_path}/unload")
        world.light = light_end
        world.catch_up(CATCH_UP, **sizes.choose(choice))
        truths = world.check()
        # Else the pins were not put to the test. Pulsar trims in the background.
        until(lambda: any(trimmed(world, topic, truth) for topic, truth in truths.items()))
    for produced in (first, producing.produced):
        for topic, positions in produced.positions.items():
            assert truths[TopicName.parse(topic)].entries.keys() >= set(positions), (
                f"{topic}: the test has not seen everything"
            )


def trimmed(world: World, topic: TopicName, truth: Truth) -> bool:
    """Whether Pulsar has dropped some of what was offloaded."""
    return not {ledger for ledger, _ in truth.entries} <= world.admin.topic_info(topic).sizes.keys()


def kill_driver(world: World, choice: random.Random, policies: dict[str, Any]) -> None:
    application = world.new_application(**policies).start().wait_ready()
    time.sleep(choice.uniform(0, 6))
    application.kill()


def kill_after_a_journal_record(world: World, choice: random.Random, policies: dict[str, Any]) -> None:
    """Between the journal and Spark's commit of the batch, among other moments."""
    fault = {"role": "driver", "call": "put", "key": "^_journal/", "after": choice.randrange(1, 8), "then": "kill"}
    application = world.new_application(faults=[fault], **policies).start()
    assert application.exit_code() == -signal.SIGKILL


def kill_workers(world: World, choice: random.Random, policies: dict[str, Any]) -> None:
    """Three workers, one after another, which the application must survive; then the driver."""
    application = world.new_application(**policies).start().wait_ready()
    for _ in range(3):
        application.until(lambda: application.workers() and application.kill_worker(choice), "working on a batch")
        time.sleep(choice.uniform(0, 2))
    application.kill()


def leave_workers_behind(world: World, choice: random.Random, policies: dict[str, Any]) -> None:
    """Kill driver and JVM while slices are read; their workers go on while another application is at work."""
    slow = {"role": "worker", "source": "bytes_per_second", "topic": "", "value": 50_000}
    former = world.new_application(faults=[slow, {"role": "worker", "outlive": True}], **policies).start().wait_ready()
    former.until(former.workers, "working on a batch")
    time.sleep(choice.uniform(1, 3))
    former.crash()
    latter = world.new_application(**policies).start()
    assert former.living(), "nobody was left behind"
    latter.wait_ready()
    time.sleep(choice.uniform(2, 6))
    latter.kill()


def kill_in_a_seal(step: str, moment: str) -> Kill:
    """Before or after one of its steps."""

    def kill(world: World, choice: random.Random, policies: dict[str, Any]) -> None:
        fault = {"role": "driver", moment: "kill", "after": choice.randrange(2), **seal_steps()[step]}
        soon = {"maxOffloadSegmentRolloverTimeInSeconds": "2s"}
        assert world.new_application(faults=[fault], **policies | soon).start().exit_code() == -signal.SIGKILL

    return kill


def kill_a_worker_and_after_a_commit(world: World, choice: random.Random, policies: dict[str, Any]) -> None:
    """Where stores differ: a worker while it uploads, then the driver when the second segment's object is there."""
    fault = {"role": "driver", BEFORE: "kill", "after": 1, **seal_steps()["index"]}
    soon = {"maxOffloadSegmentRolloverTimeInSeconds": "2s"}
    application = world.new_application(faults=[fault], **policies | soon).start().wait_ready()
    application.until(lambda: application.workers() and application.kill_worker(choice), "working on a batch")
    assert application.exit_code() == -signal.SIGKILL


KINDS = (kill_driver, kill_after_a_journal_record, kill_workers, kill_after_a_journal_record, leave_workers_behind)
IN_SEALS = tuple(kill_in_a_seal(*place) for place in itertools.product(("object", *STEPS[1:]), (BEFORE, AFTER)))
ALL = (*KINDS, *IN_SEALS)
