"""Exactly once, whatever is killed and whenever: every entry once and byte for byte, on disk and on S3."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from integration import versitygw
from integration.application import RunningApplication
from integration.produce import LARGEST, produce_mixed
from integration.producing import Producing
from integration.world import World, keep_everything
from offloader.embedded.standalone import PulsarStandalone
from offloader.storage.open import StoreSettings
from tests.storage.servers import S3Server

SOAK = 20 if os.environ.get("OFFLOADER_SOAK") == "1" else 1
KILLS = 5 * SOAK
PARTITIONS = 3

pytestmark = [pytest.mark.pulsar, pytest.mark.spark, pytest.mark.timeout(900 * SOAK)]


@dataclass(frozen=True)
class Sizes:
    """What the configuration may say while this store is used."""

    parts: tuple[str, ...]
    blocks: tuple[str, ...] = ("64K", "256K", "1M")
    segments: tuple[str, ...] = ("3M", "12M", "40M")

    def choose(self, choice: random.Random) -> dict[str, Any]:
        """Policies for one run."""
        return {
            "partSizeInBytes": choice.choice(self.parts),
            "blockSizeInBytes": choice.choice(self.blocks),
            "indexStepInBytes": choice.choice(("4K", "256K")),
            "maxOffloadSegmentSizeInBytes": choice.choice(self.segments),
            "maxOffloadSegmentRolloverTimeInSeconds": choice.choice(("3s", "10s", "10m")),
        }


DISK = Sizes(parts=("1M", "2M", "8M"))
S3 = Sizes(parts=("5M", "8M"), segments=("6M", "12M", "40M"))


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with versitygw.running(tmp_path_factory.mktemp("versitygw")) as server:
        yield server


def test_exactly_once_under_kills_on_disk(pulsar: PulsarStandalone, namespace: str, tmp_path: Path) -> None:
    kill_and_check(pulsar, namespace, StoreSettings((tmp_path / "archive").as_uri()), tmp_path, DISK, seed=1)


@pytest.mark.versitygw
def test_exactly_once_under_kills_on_s3(pulsar: PulsarStandalone, namespace: str, tmp_path: Path, s3: S3Server) -> None:
    kill_and_check(pulsar, namespace, s3.settings(s3.fresh_root()), tmp_path, S3, seed=2)


def kill_and_check(
    pulsar: PulsarStandalone, namespace: str, storage: StoreSettings, folder: Path, sizes: Sizes, *, seed: int
) -> None:
    """Kill one application after another while entries are produced, let the last one catch up, check everything."""
    choice = random.Random(seed)
    keep_everything(pulsar, namespace)
    topics = [f"persistent://{namespace}/{name}" for name in ("plain", "large", "in parts")]
    pulsar.admin("PUT", f"persistent/{namespace}/in%20parts/partitions", json=PARTITIONS)
    partitioned = frozenset(topics[2:])
    first = produce_mixed(pulsar.service_url, topics[1], seed=seed, messages=100, largest=LARGEST)
    producing = Producing(
        pulsar.service_url, topics, seed=1000 * seed, messages=60, largest=LARGEST // 16, partitioned=partitioned
    )
    with World(pulsar, storage, folder / "world", [namespace]) as world:
        with producing:
            for number in range(KILLS):
                kill_once(world, choice, number, sizes.choose(choice))
        world.catch_up(**sizes.choose(choice))
        truths = world.check()
    for produced in (first, producing.produced):
        for topic, positions in produced.positions.items():
            seen = next(truth.entries for name, truth in truths.items() if str(name) == topic)
            assert seen.keys() >= set(positions), f"{topic}: entries were produced that Pulsar does not have"


def kill_once(world: World, choice: random.Random, number: int, policies: dict[str, Any]) -> None:
    """Run an application and kill it: its driver or first some workers, at random moments, or right after a journal record."""
    if number % 5 in (1, 3):
        journaled = {"role": "driver", "call": "put", "key": "^_journal/", "after": choice.randrange(1, 8), "then": "kill"}
        application = world.new_application(faults=[journaled], **policies).start()
        assert application.exit_code() == -9
        return
    application = world.new_application(**policies).start().wait_ready()
    if number % 5 == 2:
        kill_workers(application, choice)
    time.sleep(choice.uniform(0, 6))
    application.kill()


def kill_workers(application: RunningApplication, choice: random.Random) -> None:
    """Three workers, one after another; the application must live on."""
    for _ in range(3):
        application.until(lambda: len(application.workers()) > 1 and application.kill_worker(choice), "working on a batch")
        time.sleep(choice.uniform(0, 2))
