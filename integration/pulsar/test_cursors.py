"""Subscriptions of a real Pulsar: told without loading their topics, removed, brought back; a bookie that explains
itself."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dev.embedded.settings import free_ports
from integration.conftest import PULSAR_SETTINGS
from integration.patient import PatientPulsar
from integration.produce import HANGS_MS, open_client
from integration.pulsar.deliveries import delivered, subscribed
from integration.pulsar.waiting import until
from offloader.cli.main import main
from offloader.errors import SubscriptionBusyError, TopicNotFoundError
from offloader.metadata.root import open_root
from offloader.model import TopicName
from offloader.ports.subscriptions import SubscriptionLook
from offloader.pulsar.settings import PulsarSettings
from offloader.pulsar.subscriptions import BrokerSubscriptions
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings

pytestmark = pytest.mark.pulsar

TOPIC = TopicName.parse("public/default/cursors")
SUB = "old/job"
BATCHES, IN_BATCH = 40, 10


@pytest.fixture(scope="module")
def http_port() -> int:
    return free_ports(1, random.SystemRandom())[0]


@pytest.fixture(scope="module")
def pulsar(tmp_path_factory: pytest.TempPathFactory, http_port: int) -> Iterator[PatientPulsar]:
    """Acknowledgements of parts of batches, a bookie that can be asked by HTTP, statistics of each second."""
    settings = {
        **PULSAR_SETTINGS,
        "acknowledgmentAtBatchIndexLevelEnabled": "true",
        "managedLedgerMaxEntriesPerLedger": "15",
        "defaultRetentionTimeInMinutes": "-1",
        "defaultRetentionSizeInMB": "-1",
        "statsUpdateFrequencyInSecs": "1",
        "statsUpdateInitialDelayInSecs": "1",
        "httpServerEnabled": "true",
        "httpServerClass": "org.apache.bookkeeper.http.vertx.VertxHttpServer",
        "httpServerPort": str(http_port),
        "httpServerHost": "127.0.0.1",
    }
    folder = tmp_path_factory.mktemp("pulsar-cursors")
    with PatientPulsar(folder, zookeeper=True, configuration=settings) as standalone:
        yield standalone


class Command:
    """A command line whose quarantine is a second long."""

    def __init__(self, pulsar: PatientPulsar, folder: Path) -> None:
        self.file = folder / "offloader.yaml"
        self.file.write_text(
            f"""
application: cursors
pulsar:
  serviceUrl: {pulsar.service_url}
  adminUrl: {pulsar.admin_url}
  metadataServiceUri: zk://{pulsar.zookeeper_address}/ledgers
storage: {{root: "file://{folder}/archive"}}
lifecycle: {{quarantine: 1s, quarantineFloor: 0s}}
"""
        )
        (folder / "archive").mkdir()
        with closing(open_store(StoreSettings(f"file://{folder}/archive"))) as store:
            open_root(store, "standalone", lambda: "token")

    def __call__(self, *arguments: str) -> Any:
        result = CliRunner().invoke(main, [*arguments, "--config", str(self.file), "--output", "json"])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)


@pytest.fixture
def run(pulsar: PatientPulsar, tmp_path: Path) -> Command:
    return Command(pulsar, tmp_path)


@pytest.fixture
def brokers(pulsar: PatientPulsar) -> Iterator[BrokerSubscriptions]:
    settings = PulsarSettings(service_url=pulsar.service_url, admin_url=pulsar.admin_url, application="tests")
    with closing(BrokerSubscriptions(settings)) as found:
        yield found


def fill(pulsar: PatientPulsar, topic: TopicName) -> set[int]:
    """Batches of `IN_BATCH` messages, of which the subscription has acknowledged whole ones and parts of others; those
    that are left."""
    choose, left = random.Random(1), set(range(BATCHES * IN_BATCH))
    with closing(open_client(pulsar.service_url)) as client:
        consumer = subscribed(client, topic, SUB)
        producer = client.create_producer(
            str(topic),
            batching_enabled=True,
            batching_max_messages=IN_BATCH,
            batching_max_publish_delay_ms=60_000,
        )
        for number in range(BATCHES * IN_BATCH):
            producer.send_async(b"%d" % number, lambda *_: None)
        producer.flush()
        received = [consumer.receive(HANGS_MS) for _ in range(BATCHES * IN_BATCH)]
        shares = [choose.choice((0.0, 0.3, 1.0)) if 5 <= n < BATCHES - 5 else float(n < 3) for n in range(BATCHES)]
        acknowledged = [one for at, one in enumerate(received) if choose.random() < shares[at // IN_BATCH]]
        for message in acknowledged:
            consumer.acknowledge(message)
        time.sleep(1.2)  # brokers store a position once a second, and the next acknowledgement then
        consumer.acknowledge(received[-3])
        time.sleep(0.5)
    return left - {int(one.data()) for one in (*acknowledged, received[-3])}


def test_a_subscription_with_holes_and_parts_of_batches_comes_back_as_it_was(
    pulsar: PatientPulsar, run: Command, brokers: BrokerSubscriptions
) -> None:
    expected = fill(pulsar, TOPIC)
    assert 50 < len(expected) < 350

    def without_consumers() -> SubscriptionLook | None:
        found = brokers.look(TOPIC, SUB)
        return None if found is None or found.consumers else found

    before = until(without_consumers)
    assert len(before.ranges) > 3

    told = run("topics", "cursors", str(TOPIC))
    assert [(one["subscription"], one["kind"]) for one in told] == [(SUB, "user")]
    assert told[0]["bytes"] > 0
    marked = run("topics", "cursors", "remove", str(TOPIC), SUB, "--yes")
    assert marked["deletion"]["state"] == "marked"

    def is_deleted() -> bool:
        """The quarantine ends by the broker's clock, too, which tells whole seconds."""
        state = run("topics", "cursors", "remove", str(TOPIC), SUB, "--yes")["deletion"]["state"]
        assert state in ("marked", "deleted")
        return bool(state == "deleted")

    until(is_deleted)
    assert brokers.look(TOPIC, SUB) is None
    assert run("topics", "cursors", "undo", str(TOPIC), SUB, "--yes")["deletion"]["state"] == "undone"
    after = brokers.look(TOPIC, SUB)
    assert (after.mark_delete, after.ranges) == (before.mark_delete, before.ranges)
    assert delivered(pulsar, TOPIC, SUB, len(expected)) == expected


def test_a_connected_consumer_keeps_its_subscription(pulsar: PatientPulsar, brokers: BrokerSubscriptions) -> None:
    topic = TopicName.parse("public/default/busy")
    with closing(open_client(pulsar.service_url)) as client:
        subscribed(client, topic, SUB)
        assert brokers.look(topic, SUB).consumers == 1
        with pytest.raises(SubscriptionBusyError):
            brokers.delete(topic, SUB)
    until(lambda: not brokers.look(topic, SUB).consumers)
    brokers.delete(topic, SUB)
    assert brokers.look(topic, SUB) is None
    with pytest.raises(TopicNotFoundError):
        brokers.delete(topic, SUB)
    assert brokers.create(topic, SUB, {"owner": "joe"})
    assert not brokers.create(topic, SUB, {})
    assert brokers.look(topic, SUB).properties == (("owner", "joe"),)


def test_telling_does_not_load_a_topic(pulsar: PatientPulsar, run: Command, brokers: BrokerSubscriptions) -> None:
    topic = TopicName.parse("public/default/quiet")
    fill(pulsar, topic)
    until(lambda: topic in brokers.uses())
    pulsar.admin("PUT", f"{topic.rest_path}/unload")
    until(lambda: topic not in brokers.uses())
    (told,) = run("topics", "cursors", str(topic))
    assert told["bytes"] > 0
    assert told["consumers"] is None
    assert told["last active"]
    explained = run("explain", str(topic))
    assert any("No broker has it loaded" in one for one in explained["because"])
    assert any("keeps everything for ever" in one for one in explained["because"])
    time.sleep(2.5)  # statistics are a second old at most
    assert topic not in brokers.uses()


def test_a_bookie_explains_itself_by_http(pulsar: PatientPulsar, run: Command, http_port: int) -> None:
    bookie = f"127.0.0.1:{pulsar.ports.bookie}"
    found = run("explain", bookie, "--bookie-http", f"http://127.0.0.1:{http_port}")
    assert found["unknown"] == [], found
    assert any("looks which of its ledgers are deleted" in one for one in found["because"])
    assert any("(major compaction)" in one for one in found["because"])
    assert any("free of" in one for one in found["because"])
    assert any("entry log" in one for one in found["because"])
