"""Two shards as real processes, each with a Spark of its own: one is killed, the other one runs it as well, and gives
it back."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.embedded.standalone import PulsarStandalone
from integration.processes import HANGS
from integration.produce import MODES, open_client, produce, random_contents
from integration.world import World
from offloader.metadata.deal import Deal
from offloader.model import TopicName
from offloader.storage.settings import StoreSettings

pytestmark = [pytest.mark.pulsar, pytest.mark.spark, pytest.mark.timeout(1_800)]

DEAL = Deal("tests", 0, 2)


def test_a_shard_that_is_killed_is_run_by_the_other_one_and_comes_back(
    pulsar: PulsarStandalone, namespace: str, tmp_path: Path
) -> None:
    topics = [TopicName.parse(f"{namespace}/t{number}") for number in range(6)]
    for topic in topics:
        pulsar.admin("PUT", topic.rest_path)
    client = open_client(pulsar.service_url)
    policies = {"maxOffloadSegmentRolloverTimeInSeconds": "3s", "partSizeInBytes": "1M", "blockSizeInBytes": "64K"}
    world = World(
        pulsar,
        StoreSettings((tmp_path / "archive").as_uri()),
        tmp_path / "world",
        [namespace],
        policies=policies,
        shards={"count": 2, "takeOverAfter": "5s"},
    )

    def write(seed: int) -> None:
        for topic in topics:
            produce(client, str(topic), random_contents(seed, 40, largest=2_000), MODES[-1])
        world.see()

    with world:
        world.see()
        first = world.new_application(shard=0).start().wait_ready()
        second = world.new_application(shard=1).start().wait_ready()
        first.until(lambda: owners(world, topics) == {topic: DEAL.owner_of(topic) for topic in topics}, "dealt out")
        write(1)
        second.crash()
        write(2)
        first.until(lambda: first.logged("shard 0 runs it as well"), "running both")
        first.until(world.at_rest, "at rest")
        assert owners(world, topics) == {topic: DEAL.owner_of(topic) for topic in topics}
        back = world.new_application(shard=1).start().wait_ready()
        write(3)
        first.until(lambda: first.logged("shard 1 is run by another process"), "relieved of it")
        back.until(world.at_rest, "at rest again", HANGS)
        assert back.stop() == 0
        assert first.stop() == 0
        client.close()
        world.check()


def owners(world: World, topics: list[TopicName]) -> dict[TopicName, str]:
    claims = {topic: world.catalog(topic).claim for topic in topics}
    return {topic: claim.application for topic, claim in claims.items() if claim is not None}
