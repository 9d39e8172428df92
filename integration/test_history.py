"""A topic whose producers wrote much before the application came: real Spark reads several of its segments at the same
time, commits them in order, and everything is read back equal."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from dev.embedded.standalone import PulsarStandalone
from integration.produce import MODES, open_client, produce, random_contents
from integration.world import World, keep_everything
from offloader.model import KIB, RollReason, TopicName
from offloader.storage.settings import StoreSettings

pytestmark = [pytest.mark.pulsar, pytest.mark.spark]

SEGMENT = 512 * KIB
POLICIES = {
    "maxOffloadSegmentSizeInBytes": SEGMENT,
    "partSizeInBytes": "64K",
    "blockSizeInBytes": "16K",
    "indexStepInBytes": "16K",
}


def test_two_tasks_upload_one_topics_history_at_the_same_time(pulsar: PulsarStandalone, tmp_path: Path) -> None:
    namespace = pulsar.create_namespace("public/history")
    keep_everything(pulsar, namespace)
    topic = TopicName.parse(f"persistent://{namespace}/t")
    client = open_client(pulsar.service_url)
    single = next(mode for mode in MODES if not mode.batched)
    produce(client, str(topic), random_contents(7, 5_000, largest=2 * KIB), single)
    client.close()
    storage = StoreSettings((tmp_path / "archive").as_uri())
    spark = {"master": "local[3]"}  # one slot is the slow lane's
    limits = {"historySegments": 2, "slice": {"byteBudget": "5M"}}
    with World(pulsar, storage, tmp_path, [namespace], policies=POLICIES, limits=limits, spark=spark) as world:
        application = world.new_application()
        assert application.run_until_caught_up(600) == 0
        found = world.catalog(topic).segments
        together = [plan.split(",") for plan in re.findall(r" topics=(\S+)", application.log.read_text())]
        assert max(topics.count(str(topic)) for topics in together) == 2
        assert sum(s.roll_reason is RollReason.SIZE for s in found) >= 3
        assert all(s.size <= SEGMENT for s in found)
        for before, after in pairwise(found):
            assert (after.predecessor_uuid, after.predecessor_end) == (before.uuid, before.end)
        world.check(timeout=60)
