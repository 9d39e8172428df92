"""A broker dies, and nobody loads the topic again: its last ledger is closed from the command line, and the topic goes
on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pulsar import MessageId

from integration.conftest import PULSAR_SETTINGS
from integration.patient import PatientPulsar
from integration.produce import HANGS_MS, open_client
from offloader.cli.main import main

pytestmark = pytest.mark.pulsar

TOPIC = "persistent://public/default/orphan"
STATISTICS = {"statsUpdateFrequencyInSecs": "1", "statsUpdateInitialDelayInSecs": "1"}


@pytest.fixture
def pulsar(tmp_path: Path) -> Iterator[PatientPulsar]:
    with PatientPulsar(
        tmp_path / "pulsar", zookeeper=True, configuration={**PULSAR_SETTINGS, **STATISTICS}
    ) as standalone:
        yield standalone


class Command:
    def __init__(self, pulsar: PatientPulsar, folder: Path) -> None:
        self.file = folder / "offloader.yaml"
        self.file.write_text(
            f"""
application: orphans
pulsar:
  serviceUrl: {pulsar.service_url}
  adminUrl: {pulsar.admin_url}
  metadataServiceUri: zk://{pulsar.zookeeper_address}/ledgers
storage: {{root: "file://{folder}/archive"}}
"""
        )

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, [*arguments, "--config", str(self.file), "--output", "json"])


def produce(pulsar: PatientPulsar, first: int, last: int) -> None:
    with closing(open_client(pulsar.service_url)) as client:
        producer = client.create_producer(TOPIC, batching_enabled=False)
        for number in range(first, last):
            producer.send(b"%d" % number)


def ledgers(pulsar: PatientPulsar) -> list[dict[str, Any]]:
    """Without loading the topic."""
    return pulsar.admin("GET", f"{TOPIC.replace('://', '/')}/internal-info").json()["ledgers"]


def test_the_tail_of_a_dead_broker_is_closed_and_the_topic_goes_on(pulsar: PatientPulsar, tmp_path: Path) -> None:
    run = Command(pulsar, tmp_path)
    produce(pulsar, 0, 10)
    tail = ledgers(pulsar)[-1]["ledgerId"]

    loaded = run("topics", "close-orphan-tail", TOPIC)
    assert loaded.exit_code == 1, loaded.output
    assert f"ledger {tail}" in loaded.stderr
    produce(pulsar, 10, 20)  # nothing was fenced
    assert ledgers(pulsar)[-1]["ledgerId"] == tail

    pulsar.kill()
    pulsar.start()
    looked = run("ledgers", "inspect", str(tail))
    assert json.loads(looked.stdout)["outcome"] == "would_close", looked.output
    closed = run("topics", "close-orphan-tail", TOPIC, "--force")  # it is younger than two minutes
    said = [json.loads(line) for line in closed.stdout.splitlines()][-1]
    assert (said["ledger"], said["outcome"], said["lastEntry"]) == (tail, "closed", 19), closed.output
    assert json.loads(run("ledgers", "inspect", str(tail)).stdout)["outcome"] == "adopted"

    produce(pulsar, 20, 30)
    found = {one["ledgerId"]: one for one in ledgers(pulsar)}
    assert found[tail]["entries"] == 20
    assert len(found) == 2
    with closing(open_client(pulsar.service_url)) as client:
        reader = client.create_reader(TOPIC, MessageId.earliest)
        assert [int(reader.read_next(HANGS_MS).data()) for _ in range(30)] == list(range(30))
