"""From a stock broker's own offload to streaming: a real broker, its offloader, its bucket, and kills of ours."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import boto3
import pytest
from click.testing import CliRunner, Result

from dev.embedded.settings import ENTRY_METADATA, OffloaderSettings
from integration.patient import PatientPulsar
from integration.processes import HANGS
from integration.produce import produce_mixed
from integration.starting import started
from integration.stock_store import stock_store
from integration.world import World, keep_everything
from offloader.archive.findings import FindingKind
from offloader.archive.items import ArchivedEntry
from offloader.archive.topic import ArchivedTopic
from offloader.bookkeeper.zookeeper import connect
from offloader.cli.main import main
from offloader.errors import LedgerNotFoundError
from offloader.model import MIB, Source, TopicName
from offloader.operations.verify.verify import verify
from offloader.pulsar.broker_source import BrokerSource
from offloader.pulsar.settings import PulsarSettings
from offloader.storage.settings import StoreSettings

pytestmark = [pytest.mark.pulsar, pytest.mark.spark]

NAMESPACE = "public/migrates"
KEY, SECRET = "key", "secret"
SETTINGS = {
    **ENTRY_METADATA,
    "managedLedgerMaxEntriesPerLedger": "60",
    "managedLedgerOffloadDeletionLagMs": "0",
}
Entries = dict[tuple[int, int], bytes]


@dataclass
class Migration:
    """A broker that has offloaded a topic by itself, all states of ledgers in it."""

    pulsar: PatientPulsar
    world: World
    topic: TopicName
    entries: Entries
    stock: str  # the brokers' bucket

    def run(self, config: Path, *arguments: str) -> Result:
        environment = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
        return CliRunner(env=environment).invoke(main, [*arguments, "--config", str(config)])


@pytest.fixture
def migration(tmp_path: Path) -> Iterator[Migration]:
    topic = TopicName("public", "migrates", "orders")
    # moto keeps the buckets of all its servers in one place: another Pulsar has ledgers of the same ids
    stock, ours = (f"migration-{what}-{secrets.token_hex(4)}" for what in ("stock", "archive"))
    with stock_store() as endpoint:
        s3 = boto3.client(
            "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=KEY, aws_secret_access_key=SECRET
        )
        for bucket in (stock, ours):
            s3.create_bucket(Bucket=bucket)
        s3.close()
        offloader = OffloaderSettings(endpoint, stock, KEY, SECRET)
        archive = StoreSettings(f"s3://{ours}/archive", endpoint, "us-east-1", KEY, SECRET)
        with started(
            tmp_path / "pulsar",
            lambda f: PatientPulsar(f, zookeeper=True, configuration=SETTINGS, offloader=offloader),
        ) as pulsar:
            pulsar.create_namespace(NAMESPACE)
            keep_everything(pulsar, NAMESPACE)
            pulsar.admin("PUT", topic.rest_path)
            lifecycle = {"stockBucket": f"s3://{stock}"}
            policies = {"maxOffloadSegmentRolloverTimeInSeconds": "2s"}
            with World(pulsar, archive, tmp_path, [NAMESPACE], policies=policies, lifecycle=lifecycle) as world:
                yield Migration(pulsar, world, topic, _states(pulsar, topic), stock)


def _states(pulsar: PatientPulsar, topic: TopicName) -> Entries:
    """Ledgers that are offloaded and deleted, offloaded and kept, closed, and open; what they hold."""
    service, entries = pulsar.service_url, dict[tuple[int, int], bytes]()
    for seed, (messages, deletes) in enumerate([(300, True), (300, False), (150, None)]):
        produce_mixed(service, str(topic), seed=seed, messages=messages, largest=20_000)
        entries.update(_read(pulsar, topic, max(entries, default=(0, 0))))
        if deletes is None:
            continue
        lag = 0 if deletes else 3_600_000
        pulsar.admin("PUT", f"namespaces/{NAMESPACE}/offloadDeletionLagMs", lag)
        _offload(pulsar, topic)
        if deletes:
            _wait_until_bookkeeper_forgets(pulsar, topic)
    pulsar.admin("PUT", f"{topic.rest_path}/unload")  # an empty ledger in the list is replaced by the next
    return entries


def _read(pulsar: PatientPulsar, topic: TopicName, after: tuple[int, int]) -> Entries:
    """What brokers deliver up to the topic's end."""
    source = BrokerSource(PulsarSettings(service_url=pulsar.service_url, admin_url=pulsar.admin_url))
    last = _position(pulsar.admin("GET", f"{topic.rest_path}/internalStats").json()["lastConfirmedEntry"])
    found: Entries = {}
    with closing(source), closing(source.open(topic, *after, max_bytes=16 * MIB)) as reader:
        while max(found, default=(-1, -1)) < last:
            arrived = reader.read(HANGS)
            assert arrived, f"{topic} ends with {max(found)} and not with {last}"
            found.update({(e.ledger, e.entry): e.data for e in arrived})
    return found


def _position(text: str) -> tuple[int, int]:
    ledger, _, entry = text.partition(":")
    return int(ledger), int(entry)


def _offload(pulsar: PatientPulsar, topic: TopicName) -> None:
    """Let the stock broker offload all closed ledgers."""
    path = topic.rest_path
    ledger, entry = _position(pulsar.admin("GET", f"{path}/internalStats").json()["lastConfirmedEntry"])
    pulsar.admin("PUT", f"{path}/offload", {"ledgerId": ledger, "entryId": entry})
    deadline = time.monotonic() + HANGS
    while (status := pulsar.admin("GET", f"{path}/offload").json())["status"] == "RUNNING":
        assert time.monotonic() < deadline, status
        time.sleep(0.1)
    assert status["status"] == "SUCCESS", status


def _offloaded(pulsar: PatientPulsar, topic: TopicName) -> list[int]:
    stats = pulsar.admin("GET", f"{topic.rest_path}/internalStats").json()
    return sorted(one["ledgerId"] for one in stats["ledgers"] if one["offloaded"])


def _in_bookkeeper(pulsar: PatientPulsar, ledgers: list[int]) -> list[int]:
    assert pulsar.zookeeper_address is not None
    found = []
    with closing(connect(f"zk:{pulsar.zookeeper_address}")) as metadata:
        for ledger in ledgers:
            try:
                metadata.read(ledger)
            except LedgerNotFoundError:
                continue
            found.append(ledger)
    return found


def _wait_until_bookkeeper_forgets(pulsar: PatientPulsar, topic: TopicName) -> None:
    """Until the broker has deleted its own copies of what is offloaded."""
    deadline = time.monotonic() + HANGS
    while left := _in_bookkeeper(pulsar, _offloaded(pulsar, topic)):
        assert time.monotonic() < deadline, left
        pulsar.admin("POST", f"{topic.rest_path}/trim")
        time.sleep(0.2)


def _threshold(pulsar: PatientPulsar) -> int:
    return int(pulsar.admin("GET", f"namespaces/{NAMESPACE}/offloadThreshold").text)


def _archived(migration: Migration) -> Entries:
    topic = ArchivedTopic.of(migration.world.store, migration.world.catalog(migration.topic))
    items = list(topic.items())
    assert all(isinstance(item, ArchivedEntry) for item in items)
    return {item.position.place: item.data for item in items if isinstance(item, ArchivedEntry)}


def _at_the_end(migration: Migration) -> bool:
    end = migration.world.catalog(migration.topic).end
    return end is not None and end.place >= max(migration.entries)


def _told(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def _without_their_objects(migration: Migration) -> None:
    """As retention or an operator deletes them: the archive does not need them."""
    world = migration.world
    s3 = boto3.resource(
        "s3", endpoint_url=world.storage.endpoint, region_name="us-east-1",
        aws_access_key_id=KEY, aws_secret_access_key=SECRET,
    )  # fmt: skip
    s3.Bucket(migration.stock).objects.all().delete()


def test_from_stock_offload_to_streaming(migration: Migration) -> None:
    pulsar, world, topic = migration.pulsar, migration.world, migration.topic
    offloaded = _offloaded(pulsar, topic)
    kept = _in_bookkeeper(pulsar, offloaded)
    assert 0 < len(kept) < len(offloaded)
    pulsar.admin("PUT", f"namespaces/{NAMESPACE}/offloadThreshold", 10**12)

    first = world.new_application().start().wait_ready()
    first.until(lambda: "cannot offload topic" in "\n".join(first.log_lines()), "refusing the topic", 60)
    (report, _) = _told(migration.run(first.config, "migrate", "to-streaming", NAMESPACE, "--dry-run", "-o", "json"))
    assert isinstance(report["ledgers"], list)
    copies = [one["ledger"] for one in report["ledgers"] if one["action"] == "copy"]
    assert copies == offloaded
    assert {one["action"] for one in report["ledgers"] if one["ledger"] > max(offloaded)} <= {"read", "nothing"}
    assert world.catalog(topic).claim is None
    assert _threshold(pulsar) == 10**12

    told = _told(migration.run(first.config, "migrate", "to-streaming", NAMESPACE, "-o", "json"))
    assert told[1]["ok"] is True, told
    assert _threshold(pulsar) == -1
    assert "__offloader" in pulsar.admin("GET", f"{topic.rest_path}/subscriptions").json()
    first.until(lambda: world.catalog(topic).segments, "copying", 60)
    first.kill()

    second = world.new_application().start().wait_ready()
    migration.entries |= _more(migration)
    second.until(lambda: _at_the_end(migration), "at the topic's end", 90)
    second.stop()
    segments = world.catalog(topic).segments
    assert [s.start.ledger for s in segments if s.source is Source.OFFLOADED] == offloaded
    assert sum(s.entries for s in segments) == len(migration.entries)
    _without_their_objects(migration)
    assert _archived(migration) == migration.entries
    found = [f for f in verify(world.store).findings if f.key and "/orders/" in f.key]
    # The one that was killed may have begun an upload whose name it never heard: that costs, and harms nothing.
    assert [f for f in found if f.kind is not FindingKind.OPEN_UPLOAD] == []


def _more(migration: Migration) -> Entries:
    produce_mixed(migration.pulsar.service_url, str(migration.topic), seed=9, messages=50, largest=5_000)
    return _read(migration.pulsar, migration.topic, max(migration.entries))
