"""Policies on a real Pulsar: what they must not delete, and what they let alone once they are switched off."""

from __future__ import annotations

import itertools
import json
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from integration.application import RunningApplication
from integration.patient import PatientPulsar
from integration.processes import HANGS
from integration.produce import HANGS_MS, open_client
from integration.pulsar.deliveries import subscribed
from integration.pulsar.waiting import until
from integration.world import PIN, World, keep_everything
from offloader.cli.main import main
from offloader.config import Config
from offloader.lifecycle.clocks import Clocks, host_ms
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import DeletionState
from offloader.lifecycle.explaining.words import size_text
from offloader.metadata.journal import Journal
from offloader.metrics import Metrics
from offloader.model import TopicName
from offloader.offload.lifecycle_tasks import LifecycleParts, lifecycle_tasks
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.settings import PulsarSettings
from offloader.runtime.connections import Dependencies, Runtime
from offloader.storage.memory import MemoryStore
from offloader.storage.settings import StoreSettings

pytestmark = pytest.mark.pulsar

MESSAGES = 1_200  # more than two ledgers
_NAMES = itertools.count()


@pytest.fixture
def pulsar(pulsar_with_zookeeper: PatientPulsar) -> PatientPulsar:
    return pulsar_with_zookeeper


@pytest.fixture
def namespace(pulsar: PatientPulsar) -> str:
    return pulsar.create_namespace(f"public/policies-{next(_NAMES)}")


def send(pulsar: PatientPulsar, topic: TopicName, count: int) -> None:
    with closing(open_client(pulsar.service_url)) as client:
        producer = client.create_producer(str(topic), batching_enabled=False, block_if_queue_full=True)
        for _ in range(count):
            producer.send_async(bytes(100), lambda *_: None)
        producer.flush()


def subscriptions(pulsar: PatientPulsar, topic: TopicName) -> set[str]:
    return {*pulsar.admin("GET", f"{topic.rest_path}/subscriptions").json()}


def configuration(pulsar: PatientPulsar, folder: Path, **more: Any) -> str:
    reached = {
        "serviceUrl": pulsar.service_url,
        "adminUrl": pulsar.admin_url,
        "metadataServiceUri": f"zk://{pulsar.zookeeper_address}/ledgers",
    }
    return json.dumps(
        {"application": "tests", "pulsar": reached, "storage": {"root": (folder / "archive").as_uri()}, **more}
    )


def output(config: Path, *arguments: str) -> str:
    result = CliRunner().invoke(main, [*arguments, "--config", str(config), "--output", "json"])
    assert result.exit_code == 0, result.output
    return result.stdout


def run(config: Path, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output(config, *arguments).splitlines()]


def disable(application: RunningApplication) -> None:
    """Before it starts."""
    config = json.loads(application.config.read_text())
    for namespace in config["namespaces"].values():
        namespace["enabled"] = False
    application.config.write_text(json.dumps(config))


def test_a_namespace_that_is_disabled_is_paused_and_released_by_a_command(
    pulsar: PatientPulsar, namespace: str, tmp_path: Path
) -> None:
    keep_everything(pulsar, namespace)
    topic = TopicName.parse(f"{namespace}/t")
    storage = StoreSettings((tmp_path / "archive").as_uri())
    sealed_soon = {"maxOffloadSegmentRolloverTimeInSeconds": "1s"}
    with World(pulsar, storage, tmp_path / "world", [namespace], policies=sealed_soon, light=True) as world:
        send(pulsar, topic, 50)
        world.catch_up()
        before = world.catalog(topic).end, world.mark_delete(topic)
        send(pulsar, topic, 50)
        application = world.new_application()
        disable(application)
        application.start().wait_ready()
        application.until(lambda: world.state(topic).paused_at, "paused")
        time.sleep(3)  # longer than a segment and a round take
        assert (world.catalog(topic).end, world.mark_delete(topic)) == before
        (listed,) = json.loads(output(application.config, "topics", "list"))
        assert listed["paused"]
        assert listed["keptInPulsar"] > 0

        run(application.config, "topics", "release", str(topic))
        application.until(lambda: PIN not in subscriptions(pulsar, topic), "released")
        assert application.stop() == 0
        catalog = world.catalog(topic)
        assert (sum(one.entries for one in catalog.segments), catalog.losses) == (100, ())


def test_the_open_ledger_counts(pulsar: PatientPulsar, namespace: str, tmp_path: Path) -> None:
    keep_everything(pulsar, namespace)
    topic = TopicName.parse(f"{namespace}/t")
    pulsar.admin("PUT", topic.rest_path)
    pulsar.admin("PUT", f"{topic.rest_path}/subscription/slow", {"ledgerId": -1, "entryId": -1})
    send(pulsar, topic, 700)
    stats = pulsar.admin("GET", f"{topic.rest_path}/internalStats").json()
    assert stats["currentLedgerSize"] > 0
    config = tmp_path / "offloader.yaml"
    config.write_text(configuration(pulsar, tmp_path))
    with closing(AdminClient(PulsarSettings(admin_url=pulsar.admin_url))) as admin:
        until(lambda: str(topic) in admin.loaded_topics())
    told = "\n".join(run(config, "explain", str(topic))[0]["because"])
    size = size_text(stats["totalSize"])
    assert f"has 2 ledgers of {size} in all; the oldest was closed" in told
    assert f"slow holds back {size}" in told
    assert "700 entries are not acknowledged." in told
    assert run(config, "topics", "cursors", "remove", str(topic), "slow")[0]["held"] == stats["totalSize"]

    reached = json.loads(config.read_text())
    del reached["pulsar"]["metadataServiceUri"]
    config.write_text(json.dumps(reached))
    told = "\n".join(run(config, "explain", str(topic))[0]["because"])
    assert f"slow holds back {size}" in told
    assert "700 entries are not acknowledged." in told


def doctor(config: Path) -> dict[str, dict[str, str]]:
    """Its checks by name."""
    result = CliRunner().invoke(main, ["doctor", "--config", str(config), "--output", "json"])
    assert result.exit_code in (0, 2), result.output
    return {check["check"]: check for check in map(json.loads, result.stdout.splitlines())}


def test_the_doctor_holds_the_subscription_and_reads_beside_it(
    pulsar: PatientPulsar, namespace: str, tmp_path: Path
) -> None:
    keep_everything(pulsar, namespace)
    topic = TopicName.parse(f"{namespace}/t")
    send(pulsar, topic, 10)
    config = tmp_path / "offloader.yaml"

    def examined() -> dict[str, str]:
        return doctor(config)["read-topic"]

    def set_policy(name: str, value: object) -> None:
        pulsar.admin("POST", f"namespaces/{namespace}/{name}", json=value)

    config.write_text(configuration(pulsar, tmp_path, namespaces={namespace: {"enabled": True}}))
    assert examined()["verdict"] == "ok"
    assert subscriptions(pulsar, topic) == set()
    with closing(open_client(pulsar.service_url)) as client:
        holder = client.subscribe(str(topic), PIN, consumer_name="stranger")
        assert "held by the consumer 'stranger'" in examined()["message"]
        assert examined()["remedy"].startswith("stop the other consumer")
        holder.close()
        assert examined()["verdict"] == "ok"
        assert subscriptions(pulsar, topic) == {PIN}  # it was there before
        subscribed(client, topic, "other").close()
        pulsar.admin("DELETE", f"{topic.rest_path}/subscription/{PIN}")

    set_policy("maxConsumersPerTopic", 1)  # the reader is the second
    until(lambda: examined()["verdict"] == "fail")
    assert "maxConsumersPerTopic" in examined()["remedy"]
    assert subscriptions(pulsar, topic) == {"other"}
    set_policy("maxConsumersPerTopic", 0)
    set_policy("maxSubscriptionsPerTopic", 1)
    until(lambda: "NotAllowedError" in examined()["message"])
    assert examined()["remedy"].startswith("no permission is missing")

    config.write_text(configuration(pulsar, tmp_path, namespaces={f"{namespace}-misspelt": {"enabled": True}}))
    assert doctor(config)["namespace"]["message"] == f"{namespace}-misspelt does not exist"


def test_topics_that_are_to_be_offloaded_are_not_trimmed_before_their_first_offload(
    pulsar: PatientPulsar, namespace: str, tmp_path: Path
) -> None:
    retention = f"namespaces/{namespace}/retention"
    keep_everything(pulsar, namespace)
    topic = TopicName.parse(f"{namespace}/t")
    send(pulsar, topic, MESSAGES)
    pulsar.admin("PUT", f"{topic.rest_path}/unload")
    with closing(AdminClient(PulsarSettings(admin_url=pulsar.admin_url))) as admin:
        until(lambda: str(topic) not in admin.loaded_topics())
        pulsar.admin("POST", retention, json={"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
        config = tmp_path / "offloader.yaml"
        config.write_text(configuration(pulsar, tmp_path, namespaces={namespace: {"enabled": True}}))
        assert run(config, "topics", "trim-unloaded", "run", namespace, "--yes")[-1]["visits"] == 0
        assert until(lambda: admin.topic_info(topic)).ledgers.spans[0].last == 499

        pulsar.admin("PUT", f"{topic.rest_path}/unload")  # without the policy a visit frees them
        until(lambda: str(topic) not in admin.loaded_topics())
        config.write_text(configuration(pulsar, tmp_path))
        assert run(config, "topics", "trim-unloaded", "run", namespace, "--yes")[-1]["freedBytes"] > 0


def test_the_policy_removes_neither_replicated_subscriptions_nor_those_that_offload(
    pulsar: PatientPulsar, namespace: str, tmp_path: Path
) -> None:
    keep_everything(pulsar, namespace)
    topic = TopicName.parse(f"{namespace}/t")
    send(pulsar, topic, 10)
    body = {"ledgerId": -1, "entryId": -1}
    pulsar.admin("PUT", f"{topic.rest_path}/subscription/archive", {**body, "properties": {"pin": "a token"}})
    names = ("standby", "archive", "unused")
    with closing(open_client(pulsar.service_url)) as client:
        for name in names:
            consumer = subscribed(client, topic, name)
            if name == "standby":
                pulsar.admin("POST", f"{topic.rest_path}/subscription/{name}/replicatedSubscriptionStatus", True)
            consumer.acknowledge(consumer.receive(HANGS_MS))
            consumer.close()
    pulsar.admin("PUT", f"{topic.rest_path}/unload")  # it stores when each was used

    lifecycle = {"removeCursorsAfter": "1s", "quarantine": "1s", "quarantineFloor": "0s"}
    config = Config.parse(configuration(pulsar, tmp_path, lifecycle=lifecycle))
    store = MemoryStore()
    journal = Journal.open(store, "main", lambda: "token")
    with closing(AdminClient(PulsarSettings(admin_url=pulsar.admin_url))) as admin:
        clocks = Clocks(broker_ms=host_ms, broker_is_independent=True)  # as if this Pulsar had a host of its own
        dependencies = Dependencies(store=lambda _: store, admin=lambda _: admin)
        made = LifecycleParts(Runtime(config, dependencies), journal, Metrics(), "standalone", clocks)
        tasks = lifecycle_tasks(made, bool, ExitStack())
        assert [task.name for task in tasks] == ["deletion", "cursors"]
        queue = DeletionQueue(store, "standalone", lambda: str(next(_NAMES)))
        deadline = time.monotonic() + HANGS
        while subscriptions(pulsar, topic) != {"standby", "archive"}:
            assert time.monotonic() < deadline, list(queue.records())
            for task in tasks:
                task.run()
            time.sleep(0.2)
        tasks[0].run()
    found = {one.record.cursor_name: one.record for one in queue.readable() if one.record.topic_name == str(topic)}
    assert {name: record.state for name, record in found.items()} == {"unused": DeletionState.DELETED}
