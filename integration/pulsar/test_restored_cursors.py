"""Subscriptions copied by the application come back with a restored topic: consumers then get exactly what was not
acknowledged, on the version that they were copied from and on a newer one."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pulsar import ConsumerType, InitialPosition, Timeout

from dev.embedded.lock import PULSAR_4_2
from integration.application import RunningApplication
from integration.conftest import PULSAR_SETTINGS
from integration.gateway.clients import StockClient, go_command, java_command
from integration.patient import PatientPulsar
from integration.processes import HANGS
from integration.produce import HANGS_MS, open_client
from integration.pulsar.transactions import Transactions
from integration.soak import SOAK
from offloader.cli.main import main
from offloader.cursors.copies import CopiedCursor
from offloader.cursors.copy_store import read_copy
from offloader.model import TopicName
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings
from tests.storage.servers import free_port

pytestmark = pytest.mark.pulsar

SETTINGS = {
    **PULSAR_SETTINGS,
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "managedLedgerMaxEntriesPerLedger": "60",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
}
PLAIN, TRANSACTIONAL = (TopicName.parse(f"public/default/{name}") for name in ("plain", "transactional"))
TYPES = {
    "one": ConsumerType.Exclusive,
    "spare/one": ConsumerType.Failover,
    "team job": ConsumerType.Shared,
    "by key": ConsumerType.KeyShared,
}
KINDS = {"one": "Exclusive", "spare/one": "Failover", "team job": "Shared", "by key": "Key_Shared"}
REPLICATED = "team job"
BATCHES, IN_BATCH = 200, 10
MESSAGES = BATCHES * IN_BATCH
BY_DIGEST = {hashlib.sha256(b"%d" % number).hexdigest()[:16]: number for number in range(MESSAGES)}
Left = dict[str, set[int]]
"""By subscription: the numbers of messages that are not acknowledged."""


@pytest.fixture(scope="module")
def pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PatientPulsar]:
    folder = tmp_path_factory.mktemp("pulsar-restored")
    with PatientPulsar(folder, zookeeper=True, configuration=SETTINGS) as standalone:
        yield standalone


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archive-restored")
    (folder / "archive").mkdir()
    return folder


@pytest.fixture(scope="module")
def left(pulsar: PatientPulsar, archive: Path) -> Mapping[TopicName, Left]:
    """What consumers have left of two topics that are archived with their subscriptions."""
    with closing(open_client(pulsar.service_url)) as client:
        found = {topic: consumed(pulsar, client, topic) for topic in (PLAIN, TRANSACTIONAL)}
    config = json.loads(configuration(pulsar, archive, application="restored"))
    config |= {
        "spark": {"trigger": "500ms"},
        "metrics": {"port": free_port()},
        "discoveryInterval": "2s",
        "policies": {"archiveCursors": True, "cursorInterval": "1s"},
        "namespaces": {"public/default": {"enabled": True}},
    }
    with RunningApplication(json.dumps(config), archive / "run", light=True) as application:
        application.start()
        with closing(open_store(StoreSettings(f"file://{archive}/archive"))) as store:
            application.until(lambda: is_copied(store, found), "done")
        assert application.stop() == 0
        assert application.run_until_caught_up(HANGS) == 0
    return found


def configuration(pulsar: PatientPulsar, archive: Path, **more: object) -> str:
    return json.dumps(
        {
            "pulsar": {
                "serviceUrl": pulsar.service_url,
                "adminUrl": pulsar.admin_url,
                "metadataServiceUri": f"zk://{pulsar.zookeeper_address}/ledgers",
                "source": "bookkeeper",
            },
            "storage": {"root": f"file://{archive}/archive"},
            **more,
        }
    )


def subscribed(client: Any, topic: TopicName, name: str) -> Any:
    return client.subscribe(
        str(topic),
        name,
        consumer_type=TYPES[name],
        initial_position=InitialPosition.Earliest,
        batch_index_ack_enabled=True,
        receiver_queue_size=5000,
        replicate_subscription_state_enabled=name == REPLICATED,
    )


def consumed(pulsar: PatientPulsar, client: Any, topic: TopicName) -> Left:
    """Batches, on one of the topics with aborted transactions between; consumers of all types acknowledge whole batches
    and parts of others."""
    with ExitStack() as stack:
        consumers = {}
        for name in TYPES:
            consumers[name] = subscribed(client, topic, name)
            stack.callback(consumers[name].close)
        producer = client.create_producer(
            str(topic),
            batching_enabled=True,
            batching_max_messages=IN_BATCH,
            batching_max_publish_delay_ms=60_000,
            block_if_queue_full=True,
        )
        for part in range(4):
            for number in range(part * MESSAGES // 4, (part + 1) * MESSAGES // 4):
                producer.send_async(b"%d" % number, lambda *_: None)
            producer.flush()
            if topic == TRANSACTIONAL:
                abort_some(pulsar, topic)
        found = {
            name: acknowledged(received(consumer), random.Random(f"{topic}{name}"), consumer)
            for name, consumer in consumers.items()
        }
        time.sleep(1.2)  # brokers store a position once a second, and the next acknowledgement then
        for name, (_, last) in found.items():
            consumers[name].acknowledge(last)
        return {name: left for name, (left, _) in found.items()}


def abort_some(pulsar: PatientPulsar, topic: TopicName) -> None:
    with Transactions(pulsar.service_url) as transactions:
        transaction = transactions.begin(str(topic))
        for _ in range(5):
            transactions.send(str(topic), b"aborted", transaction)
        transactions.end(transaction, commit=False)


def received(consumer: Any) -> list[Any]:
    found = [consumer.receive(HANGS_MS) for _ in range(MESSAGES)]
    assert [int(one.data()) for one in found] == list(range(MESSAGES))
    return found


def acknowledged(messages: list[Any], choose: random.Random, consumer: Any) -> tuple[set[int], Any]:
    """The messages that are left, and the last one, which is still to be acknowledged."""
    shares = [choose.choice((0.0, 0.3, 1.0)) if batch >= 5 else float(batch < 3) for batch in range(BATCHES)]
    done = {number for number in range(MESSAGES - 1) if choose.random() < shares[number // IN_BATCH]}
    for number in done:
        consumer.acknowledge(messages[number])
    return set(range(MESSAGES - 1)) - done, messages[-1]


def is_copied(store: Any, expected: Mapping[TopicName, Left]) -> bool:
    """Whether the copies say what was acknowledged."""
    for topic, left in expected.items():
        copy = read_copy(store, topic)
        if copy is None or {one.name for one in copy.cursors} != set(TYPES) or any(one.missing for one in copy.cursors):
            return False
        if not all(is_exact(one, left[one.name]) for one in copy.cursors):
            return False
    return True


def is_exact(cursor: CopiedCursor, left: set[int]) -> bool:
    """By how many messages of batches are left."""
    batches = [batch for acks in cursor.acks().values() for batch in acks.batches.values()]
    expected = parts(left)
    pending = sum(len(of_batch(left, batch)) for batch in expected)
    return (len(batches), sum(one.left.bit_count() for one in batches)) == (len(expected), pending)


def of_batch(left: set[int], batch: int) -> set[int]:
    return left & set(range(batch * IN_BATCH, (batch + 1) * IN_BATCH))


def delivered(pulsar: PatientPulsar, topic: TopicName, name: str, count: int) -> list[int]:
    """So many messages of a subscription, and what comes within a while behind them. Acknowledges nothing."""
    with closing(open_client(pulsar.service_url)) as client:
        consumer = subscribed(client, topic, name)
        found = [int(consumer.receive(HANGS_MS).data()) for _ in range(count)]
        try:
            while True:
                found.append(int(consumer.receive(500).data()))
        except Timeout:
            return found


def delivered_by(stock: StockClient, topic: TopicName, name: str, count: int) -> list[int]:
    """The same to a client of another language."""
    asked = {"as": "c", "topics": [str(topic)], "subscription": name, "type": KINDS[name]}
    assert "error" not in stock.ask(do="consumer", batch_index=True, queue=5000, **asked)
    found = [
        BY_DIGEST[message["sha256"]]
        for most, ms in ((count, HANGS_MS), (MESSAGES, 1000))
        for message in stock.ask(do="take", of="c", count=most, ms=ms)["answer"]["messages"]
    ]
    stock.ask(do="close", of="c")
    return found


@contextmanager
def other_clients(pulsar: PatientPulsar, folder: Path) -> Iterator[list[StockClient]]:
    """Java's and Go's, in soaks."""
    with ExitStack() as stack:
        found = []
        for name, command in (("java", java_command), ("go", lambda _: go_command())) if SOAK else ():
            found.append(StockClient(name, command(folder / name), pulsar.service_url, folder))
            stack.callback(found[-1].end)
        yield found


def restore(archive: Path, target: PatientPulsar, topic: TopicName, to: TopicName) -> list[dict[str, Any]]:
    """What is told of each subscription."""
    config = archive / "target.yaml"
    config.write_text(configuration(target, archive, application="restoring"))
    arguments = ["topics", "restore", str(topic), "--to", str(to), "--config", str(config), "--output", "json"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return [one for one in map(json.loads, result.stdout.splitlines()) if "subscription" in one]


def check(pulsar: PatientPulsar, folder: Path, to: TopicName, told: list[dict[str, Any]], left: Left) -> None:
    """All stand as wanted, and exactly what was not acknowledged is delivered."""
    stats = pulsar.admin("GET", f"{to.rest_path}/stats").json()["subscriptions"]
    assert {name for name in TYPES if stats[name]["isReplicated"]} == {REPLICATED}
    assert {one["subscription"]: one["standing"] for one in told} == dict.fromkeys(TYPES, "restored")
    for one in told:
        name = one["subscription"]
        assert all("not in the target" in note for note in one["notes"]), one
        assert min(one["ranges"], one["batches"]) > 20
        assert sorted(delivered(pulsar, to, name, len(left[name]))) == sorted(left[name]), name
    with other_clients(pulsar, folder) as others:
        for stock, name in itertools.product(others, TYPES):
            assert sorted(delivered_by(stock, to, name, len(left[name]))) == sorted(left[name]), (stock.name, name)


def forgotten(told: list[dict[str, Any]], when: str) -> dict[str, tuple[int, int]]:
    """By subscription: entries, and parts of batches, of which it is told that the broker will forget them then."""
    return {
        one["subscription"]: tuple(
            sum(loss[what] for loss in one["losses"] if loss["when"] == when) for what in ("entries", "batches")
        )
        for one in told
    }


@pytest.mark.parametrize("topic", [PLAIN, TRANSACTIONAL], ids=lambda one: one.name)
def test_consumers_get_exactly_what_was_not_acknowledged(
    pulsar: PatientPulsar, archive: Path, left: Mapping[TopicName, Left], topic: TopicName
) -> None:
    to = TopicName.parse(f"public/default/{topic.name}-again")
    told = restore(archive, pulsar, topic, to)
    check(pulsar, archive / "clients", to, told, left[topic])
    if topic == PLAIN:
        again = restore(archive, pulsar, topic, to)
        assert {one["standing"] for one in again} == {"there already"}
        return
    lost = {name: parts(left[topic][name]) for name in TYPES}
    assert forgotten(told, "unload") == {name: (0, len(batches)) for name, batches in lost.items()}
    pulsar.admin("PUT", f"{to.rest_path}/unload")  # as was told, batches of which a part was acknowledged come whole
    for name, batches in lost.items():
        wanted = left[topic][name].union(*(range(IN_BATCH * one, IN_BATCH * (one + 1)) for one in batches))
        assert sorted(delivered(pulsar, to, name, len(wanted))) == sorted(wanted), name


def parts(left: set[int]) -> list[int]:
    """Batches of which some messages are left, and others are not."""
    return [batch for batch in range(BATCHES) if 0 < len(of_batch(left, batch)) < IN_BATCH]


def test_a_newer_version_delivers_exactly_that_too(
    pulsar: PatientPulsar, archive: Path, left: Mapping[TopicName, Left], tmp_path: Path
) -> None:
    """In soaks it is killed, too, with a bound that is low enough: what then comes again is as many as was told."""
    pulsar.stop()
    settings = SETTINGS | ({"managedLedgerMaxUnackedRangesToPersist": "40"} if SOAK else {})
    with PatientPulsar(tmp_path / "newer", zookeeper=True, configuration=settings, jars=PULSAR_4_2) as newer:
        to = TopicName.parse("public/default/newer")
        told = restore(archive, newer, TRANSACTIONAL, to)
        check(newer, tmp_path / "clients", to, told, left[TRANSACTIONAL])
        if not SOAK:
            return
        newer.kill()
        newer.start()
        for name, (entries, batches) in forgotten(told, "crash").items():
            assert entries > 0
            assert batches == 0
            wanted, count = left[TRANSACTIONAL][name], len(left[TRANSACTIONAL][name]) + IN_BATCH * entries
            found = delivered(newer, to, name, count)
            assert (len(found), len(set(found) & wanted)) == (count, len(wanted)), name
