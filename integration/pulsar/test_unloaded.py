"""Topics that nobody has loaded, on a real broker: what loads them, what trims them, and two visits without any client.

With OFFLOADER_SOAK=1 retention is a minute between them, Pulsar's shortest; else it is changed to none.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from integration.conftest import PULSAR_SETTINGS
from integration.patient import PatientPulsar
from integration.produce import open_client
from integration.pulsar.waiting import until
from integration.soak import SOAK
from offloader.bookkeeper.metadata import MetadataTree
from offloader.bookkeeper.zookeeper import connect
from offloader.cli.main import main
from offloader.errors import TopicNotFoundError
from offloader.lifecycle.deletion.owners import used_by
from offloader.lifecycle.topics.node_reader import TopicNodeReader
from offloader.model import TopicName
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.settings import PulsarSettings
from offloader.state.topic import PulsarTopic

pytestmark = pytest.mark.pulsar

NAMESPACE = "public/unloaded"
MINUTES = 1 if SOAK else 0
SETTINGS = {
    "managedLedgerMaxEntriesPerLedger": "20",
    "statsUpdateFrequencyInSecs": "1",
    "statsUpdateInitialDelayInSecs": "1",
    "retentionCheckIntervalInSeconds": "3600",  # no broker trims by itself
}


@pytest.fixture(scope="module")
def pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PatientPulsar]:
    folder = tmp_path_factory.mktemp("pulsar-unloaded")
    with PatientPulsar(folder, zookeeper=True, configuration={**PULSAR_SETTINGS, **SETTINGS}) as standalone:
        standalone.create_namespace(NAMESPACE)
        retain(standalone, 60)
        yield standalone


def retain(pulsar: PatientPulsar, minutes: int) -> None:
    retention = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": -1 if minutes else 0}
    pulsar.admin("POST", f"namespaces/{NAMESPACE}/retention", json=retention)


@pytest.fixture
def brokers(pulsar: PatientPulsar) -> Iterator[AdminClient]:
    with closing(AdminClient(PulsarSettings(admin_url=pulsar.admin_url))) as visits:
        yield visits


@pytest.fixture
def tree(pulsar: PatientPulsar) -> Iterator[MetadataTree]:
    with closing(connect(f"zk://{pulsar.zookeeper_address}/ledgers", timeout=10)) as tree:
        yield tree


def name(local: str) -> TopicName:
    return TopicName.parse(f"{NAMESPACE}/{local}")


def nodes(tree: MetadataTree, topic: TopicName) -> PulsarTopic:
    found = TopicNodeReader(tree).read_again(topic)
    assert isinstance(found, PulsarTopic)
    return found


def size(tree: MetadataTree, topic: TopicName) -> int:
    return sum(one.size for one in nodes(tree, topic).ledgers)


def produce(pulsar: PatientPulsar, topic: TopicName, count: int, subscription: str | None = None) -> None:
    with closing(open_client(pulsar.service_url)) as client:
        if subscription is not None:
            client.subscribe(str(topic), subscription)
        producer = client.create_producer(str(topic), batching_enabled=False)
        for _ in range(count):
            producer.send(bytes(1000))


class Commands:
    def __init__(self, pulsar: PatientPulsar, folder: Path) -> None:
        self.file = folder / "offloader.yaml"
        self.file.write_text(
            f"""
application: unloaded
pulsar:
  serviceUrl: {pulsar.service_url}
  adminUrl: {pulsar.admin_url}
  metadataServiceUri: zk://{pulsar.zookeeper_address}/ledgers
storage: {{root: "file://{folder}/archive"}}
"""
        )

    def __call__(self, *arguments: str) -> dict[str, dict[str, Any]]:
        """What is said of each topic, by its local name; `""`: of all."""
        arguments = ("topics", "trim-unloaded", *arguments, NAMESPACE, "--config", str(self.file), "--output", "json")
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code in (0, 2), result.output
        said = [json.loads(line) for line in result.stdout.splitlines()]
        return {one.get("topic", "").rpartition("/")[2]: one for one in said}


def test_retention_holds_within_two_visits_without_any_client(
    pulsar: PatientPulsar, brokers: AdminClient, tree: MetadataTree, tmp_path: Path
) -> None:
    idle, held, used = name("idle"), name("held"), name("used")
    produce(pulsar, idle, 70)
    produce(pulsar, held, 30, "slow")
    produce(pulsar, used, 30)
    for topic in (idle, held):
        pulsar.admin("PUT", f"{topic.rest_path}/unload")
    until(lambda: set(brokers.loaded_topics()) & {str(idle), str(held), str(used)} == {str(used)})
    bytes_before = size(tree, idle)
    assert nodes(tree, idle).list.ledgers[-1].timestamp_ms == 0  # an unload does not finish the list
    assert bytes_before > 70_000

    run = Commands(pulsar, tmp_path)
    assert run("plan")["idle"]["dueNow"] is False  # nothing has expired yet
    retain(pulsar, MINUTES)
    time.sleep(MINUTES * 60 + 2)
    used_before = nodes(tree, used).list.version
    first = run("run", "--yes")
    assert "used" not in first
    bytes_between = size(tree, idle)
    assert first["idle"]["end"] == "visited"
    assert first["idle"]["freedBytes"] == bytes_before - bytes_between
    if MINUTES:
        assert bytes_between == nodes(tree, idle).ledgers[0].size > 10_000  # only what was the last ledger
    plan = run("plan")
    assert plan["held"]["held"][0]["cursor"] == "slow"
    assert plan["held"]["held"][0]["bytes"] > 30_000
    assert nodes(tree, used).list.version == used_before
    until(lambda: set(brokers.loaded_topics()) & {str(idle), str(held), str(used)} == {str(used)})

    time.sleep(MINUTES * 60 + 2)
    second = run("run", "--yes")
    assert second[""]["freedBytes"] == bytes_between
    assert size(tree, idle) == 0
    assert size(tree, held) > 30_000
    until(lambda: set(brokers.loaded_topics()) & {str(idle), str(held), str(used)} == {str(used)})
    assert run("plan")[""]["due"] == 0
    print(f"bytes: {bytes_before} before, {bytes_between} after the first visit, {size(tree, idle)} after the second")


def test_what_brokers_answer(pulsar: PatientPulsar, brokers: AdminClient, tree: MetadataTree) -> None:
    with pytest.raises(TopicNotFoundError):
        brokers.trim(name("missing"))
    with pytest.raises(TopicNotFoundError):
        brokers.unload(name("missing"))
    with pytest.raises(TopicNotFoundError):
        brokers.use(name("missing"))
    assert TopicNodeReader(tree).read_again(name("missing")) is None  # nothing was made

    topic, parted = name("answers"), name("parted")
    produce(pulsar, topic, 1, "s")
    pulsar.admin("PUT", f"{parted.rest_path}/partitions", json=2)
    partitions = {f"{parted}-partition-{number}" for number in range(2)}
    for one in (str(topic), *partitions):
        brokers.unload(TopicName.parse(one))
    ours = {str(topic), *partitions}
    until(lambda: not ours & set(brokers.loaded_topics()))
    known = brokers.known_topics(NAMESPACE)
    assert ours <= {str(one) for one in known.topics}
    assert str(parted) in known.partitioned
    assert brokers.applied_retention(topic) == brokers.namespace_policies(NAMESPACE)["retention_policies"]
    time.sleep(1.5)
    assert not ours & set(brokers.loaded_topics())  # none of these calls loads anything

    before = nodes(tree, topic)
    brokers.trim(topic)
    after = nodes(tree, topic)
    assert after.list.version > before.list.version  # every load writes the list
    assert after.list.ledgers[0].timestamp_ms > 0  # and dates what was its last ledger
    assert brokers.use(topic).clients == 0
    brokers.unload(topic)
    active_ms = nodes(tree, topic).cursors["s"].last_active_ms
    assert active_ms != before.cursors["s"].last_active_ms  # a visit counts as a subscription's activity
    brokers.trim(parted)  # goes to all partitions
    until(lambda: partitions <= set(brokers.loaded_topics()))


def test_a_health_check_is_found_among_the_topics_that_brokers_have_loaded(
    pulsar: PatientPulsar, tree: MetadataTree
) -> None:
    """Its managed ledger's name is of the old form, with a cluster. One of a broker that is gone nobody has loaded."""
    pulsar.admin("GET", "brokers/health?topicVersion=V1")
    ((cluster, address),) = [
        (cluster, address)
        for cluster in tree.nodes.children("/managed-ledgers/pulsar") or ()
        for address in tree.nodes.children(f"/managed-ledgers/pulsar/{cluster}") or ()
        if ":" in address
    ]
    with closing(AdminClient(PulsarSettings(admin_url=pulsar.admin_url))) as admin:
        name = f"pulsar/{cluster}/{address}/persistent/healthcheck"
        assert until(lambda: used_by(name, tree.nodes, "", admin.loaded_by))
        gone = f"pulsar/{cluster}/gone:8080/persistent/healthcheck"
        assert used_by(gone, tree.nodes, "", admin.loaded_by) == ""
