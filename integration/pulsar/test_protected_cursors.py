"""What a real Pulsar forgets of subscriptions is acknowledged again; what somebody resets is not.

The bounds are lowered: 4.0.7 stores 21 ranges, by default 10,001; 4.2.4 nothing behind the ledger with which 20 entries
are exceeded, by default 10,000."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dev.embedded.lock import PULSAR_4_2
from integration.conftest import PULSAR_SETTINGS
from integration.patient import PatientPulsar
from integration.processes import HANGS
from integration.produce import HANGS_MS, open_client
from integration.pulsar.deliveries import delivered, subscribed
from integration.pulsar.waiting import until
from offloader.cursors.protection_store import ProtectionStore
from offloader.metadata.root import open_root
from offloader.model import TopicName
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings

pytestmark = pytest.mark.pulsar

SUB = "team/job"
HOLES, UNPROTECTED, BATCHES, RESET = (
    TopicName.parse(f"public/default/{name}") for name in ("holes", "unprotected", "batches", "reset")
)
COUNT, STORED, IN_LEDGER = 100, 21, 60
IN_BATCH = 10


SETTINGS = {
    **PULSAR_SETTINGS,
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "managedLedgerMaxUnackedRangesToPersist": str(STORED - 1),
    "managedLedgerMaxUnackedRangesToPersistInMetadataStore": "5",
    "managedLedgerMaxEntriesPerLedger": str(IN_LEDGER),
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
    "statsUpdateFrequencyInSecs": "1",
    "statsUpdateInitialDelayInSecs": "1",
}


@pytest.fixture(scope="module")
def pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PatientPulsar]:
    folder = tmp_path_factory.mktemp("pulsar-protected")
    with PatientPulsar(folder, zookeeper=True, configuration=SETTINGS) as standalone:
        yield standalone


@dataclass
class Protecting:
    """The command, running."""

    told: Path
    store: ProtectionStore

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.told.read_text().splitlines()]

    def outcomes(self, topic: TopicName) -> list[str]:
        return [one["outcome"] for one in self.lines() if one["topic"] == str(topic)]

    def restored(self, topic: TopicName) -> list[int]:
        """How many entries, each time."""
        told = (one for one in self.lines() if one["topic"] == str(topic))
        return [one["entries"] for one in told if one["outcome"] == "acknowledged again"]

    def has(self, topic: TopicName) -> Any:
        return self.store.read(topic).get(SUB)


@contextmanager
def protecting(pulsar: PatientPulsar, folder: Path, *topics: TopicName) -> Iterator[Protecting]:
    config, told = folder / "offloader.yaml", folder / "told.jsonl"
    config.write_text(
        f"""
application: protecting
pulsar:
  serviceUrl: {pulsar.service_url}
  adminUrl: {pulsar.admin_url}
  metadataServiceUri: zk://{pulsar.zookeeper_address}/ledgers
storage: {{root: "file://{folder}/archive"}}
protection: {{interval: 2s}}
"""
    )
    (folder / "archive").mkdir()
    command = [str(Path(sys.executable).with_name("offloader")), "subscriptions", "protect", *map(str, topics)]
    with (
        closing(open_store(StoreSettings(f"file://{folder}/archive"))) as store,
        told.open("w") as out,
        (folder / "log").open("w") as log,
    ):
        open_root(store, "standalone", lambda: "token")
        process = subprocess.Popen([*command, "--config", str(config), "--output", "json"], stdout=out, stderr=log)
        try:
            yield Protecting(told, ProtectionStore(store, lambda: "token"))
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(HANGS) == os.EX_OK, (folder / "log").read_text()


def fill(pulsar: PatientPulsar, topic: TopicName) -> set[int]:
    """Messages, every other one acknowledged; those that are left."""
    with closing(open_client(pulsar.service_url)) as client:
        consumer = subscribed(client, topic, SUB)
        producer = client.create_producer(
            str(topic),
            batching_enabled=topic is BATCHES,
            batching_max_messages=IN_BATCH,
            batching_max_publish_delay_ms=60_000,
        )
        for number in range(COUNT):
            producer.send_async(b"%d" % number, lambda *_: None)
        producer.flush()
        received = {int(one.data()): one for one in (consumer.receive(HANGS_MS) for _ in range(COUNT))}
        for number in range(1, COUNT - 2, 2):
            consumer.acknowledge(received[number])
        time.sleep(1.2)  # brokers store a position once a second, and the next acknowledgement then
        consumer.acknowledge(received[COUNT - 1])
        time.sleep(0.5)
    return set(range(0, COUNT, 2))


def reset(pulsar: PatientPulsar, topic: TopicName) -> None:
    """To the beginning."""
    path = f"{topic.rest_path}/subscription/{SUB.replace('/', '%2F')}/resetcursor"
    pulsar.admin("POST", path, {"ledgerId": -1, "entryId": -1, "partitionIndex": -1})


def test_what_brokers_forget_is_acknowledged_again_and_a_reset_is_not_undone(
    pulsar: PatientPulsar, tmp_path: Path
) -> None:
    topics = HOLES, UNPROTECTED, BATCHES, RESET
    with protecting(pulsar, tmp_path, HOLES, BATCHES, RESET) as protection, ThreadPoolExecutor() as at_once:
        left = dict(zip(topics, at_once.map(partial(fill, pulsar), topics), strict=True))
        until(lambda: protection.has(HOLES) and protection.has(RESET))

        # An operator's reset: told, and left alone.
        reset(pulsar, RESET)
        until(lambda: protection.outcomes(RESET)[-1:] == ["ended"])
        assert delivered(pulsar, RESET, SUB, COUNT) == set(range(COUNT))

        # A clean unload.
        first = protection.has(HOLES)
        list(at_once.map(lambda topic: pulsar.admin("PUT", f"{topic.rest_path}/unload"), topics))
        until(lambda: all("acknowledged again" in protection.outcomes(topic) for topic in (HOLES, BATCHES)))
        counts = {UNPROTECTED: COUNT - STORED, HOLES: COUNT // 2, BATCHES: COUNT // 2}
        given = at_once.map(lambda topic: delivered(pulsar, topic, SUB, counts[topic]), counts)
        found = dict(zip(counts, given, strict=True))
        assert found[UNPROTECTED] > left[UNPROTECTED]
        assert (found[HOLES], found[BATCHES]) == (left[HOLES], left[BATCHES])

        # A crash, and an upgrade to a version that stores another form.
        until(lambda: protection.has(HOLES) not in (None, first))
        before = protection.has(HOLES)
        pulsar.kill()
        with PatientPulsar(pulsar.directory, zookeeper=True, configuration=SETTINGS, jars=PULSAR_4_2) as later:
            until(lambda: protection.outcomes(HOLES).count("acknowledged again") == 2)
            assert delivered(later, HOLES, SUB, COUNT // 2) == left[HOLES]
            until(lambda: protection.has(HOLES) not in (None, before))
            later.admin("PUT", f"{HOLES.rest_path}/unload")
            until(lambda: protection.outcomes(HOLES).count("acknowledged again") == 3)
            assert delivered(later, HOLES, SUB, COUNT // 2) == left[HOLES]
        assert "acknowledged again" not in protection.outcomes(RESET)
    assert protection.restored(HOLES) == [COUNT // 2 - STORED] * 2 + [(COUNT - IN_LEDGER) // 2]
