"""The command line and the truth collector against a real Pulsar."""

from __future__ import annotations

import json
from contextlib import closing

import pytest
from click.testing import CliRunner

from integration.processes import HANGS
from integration.produce import MODES, open_client, produce, random_contents
from integration.pulsar.waiting import limits_in_force
from offloader.cli.main import main
from offloader.model import TopicName
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.broker_source import BrokerSource
from offloader.pulsar.settings import PulsarSettings
from offloader.pulsar.subscriptions import BrokerSubscriptions
from tests.truth import TruthCollector

pytestmark = pytest.mark.pulsar

CONFIG = """
application: tests
pulsar: {{serviceUrl: "{service}", adminUrl: "{admin}"}}
storage: {{root: "file://{folder}"}}
spark: {{trigger: 200ms}}
namespaces:
  {namespace}: {{enabled: true}}
"""


@pytest.fixture
def run(pulsar, namespace, tmp_path):
    config = tmp_path / "offloader.yaml"
    folder = tmp_path / "archive"
    config.write_text(
        CONFIG.format(service=pulsar.service_url, admin=pulsar.admin_url, folder=folder, namespace=namespace)
    )
    return lambda *arguments: CliRunner().invoke(main, [*arguments, "--config", str(config)])


@pytest.fixture
def topic(pulsar, namespace):
    name = TopicName.parse(f"{namespace}/orders")
    pulsar.admin("PUT", name.rest_path)
    pulsar.admin("PUT", f"{name.rest_path}/subscription/keep", {"ledgerId": -1, "entryId": -1})
    client = open_client(pulsar.service_url)
    produce(client, str(name), random_contents(1, 50, largest=1000), MODES[0])
    client.close()
    return name


def test_the_doctor_finds_a_fresh_installation_sound_but_for_retention(run, topic) -> None:
    result = run("doctor", "--output", "json")
    assert result.exit_code == 0, result.output
    checks = [json.loads(line) for line in result.stdout.splitlines()]
    assert {c["check"] for c in checks if c["verdict"] != "ok"} == {"retention"}, checks
    assert {
        "broker-port",
        "admin-port",
        "exact-bytes",
        "admin-clock",
        "read-topic",
        "message-ttl",
        "backlog-quota",
    } <= {c["check"] for c in checks}


def test_the_doctor_sees_policies_of_the_namespace(run, pulsar, namespace, topic) -> None:
    pulsar.admin("POST", f"namespaces/{namespace}/messageTTL", 60)
    pulsar.admin("POST", f"namespaces/{namespace}/subscriptionExpirationTime", 5)
    quota = {"limitSize": 1_000_000, "limitTime": -1, "policy": "consumer_backlog_eviction"}
    pulsar.admin("POST", f"namespaces/{namespace}/backlogQuota", quota)
    settings = PulsarSettings(service_url=pulsar.service_url, admin_url=pulsar.admin_url)
    with closing(AdminClient(settings)) as admin:
        limits_in_force(admin, topic)
    result = run("doctor", "--output", "json")
    assert result.exit_code == 2, result.output
    failed = {c["check"] for c in map(json.loads, result.stdout.splitlines()) if c["verdict"] == "fail"}
    assert failed == {"message-ttl", "subscription-expiration", "backlog-quota"}


def test_offload_without_an_application(run, topic, monkeypatch) -> None:
    monkeypatch.setattr("offloader.cli.asking.STARTS_MS", 2_000)
    result = run("topics", "offload", str(topic))
    assert result.exit_code == 1
    assert "no application answers" in result.stderr
    assert "does not exist" in run("topics", "offload", f"{topic}-not").stderr


def test_a_policy_is_explained(run, topic) -> None:
    assert "enabled" in run("config", "explain", str(topic)).stdout


def test_a_topic_is_explained_without_the_metadata_service(run, pulsar, topic) -> None:
    result = run("explain", str(topic), "--output", "json")
    assert result.exit_code == 0, result.output
    assert "The subscription keep holds back" in str(json.loads(result.stdout)["because"])
    settings = PulsarSettings(service_url=pulsar.service_url, admin_url=pulsar.admin_url, application="tests")
    with closing(BrokerSubscriptions(settings)) as subscriptions:
        report = subscriptions.report(topic, loaded=True)
    assert report.newest is not None
    assert not report.newest.closed
    assert report.newest.size > 0
    assert set(report.cursors) == {"keep"}


def test_the_truth_is_read_from_the_topic(pulsar, topic) -> None:
    settings = PulsarSettings(service_url=pulsar.service_url, admin_url=pulsar.admin_url, application="tests")
    source, admin = BrokerSource(settings), AdminClient(settings)
    collector = TruthCollector(source, admin, topic)
    assert collector.read(HANGS) > 0
    entries = collector.truth(None).entries
    assert all(entry.sha256 is not None for entry in entries.values())
    counted = sum(count for count, _ in admin.topic_info(topic).sizes.values())
    assert len(entries) == counted
    source.close()
    admin.close()
