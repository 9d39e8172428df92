"""Where the archive ends: stock clients of the gateway go on at a real broker that has trimmed what they began with."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pulsar as stock
import pytest

from dev.embedded.lock import CLIENT_2_11, PULSAR_4_2
from integration.conftest import PULSAR_SETTINGS
from integration.gateway.clients import StockClient, java_command
from integration.patient import PatientPulsar
from integration.processes import HANGS
from integration.produce import HANGS_MS, open_client
from integration.pulsar.waiting import until
from integration.soak import SOAK
from integration.world import World, keep_everything
from offloader.model import TopicName
from offloader.storage.settings import StoreSettings
from tests.gateway.access.certificates import Authority, Files
from tests.storage.servers import free_port

pytestmark = pytest.mark.pulsar

ARCHIVED, LATER = 10_000, 2_000
IN_BATCH = 5
HELD = 1_500  # of the topic with a durable subscription
EARLIEST, SHARED = stock.InitialPosition.Earliest, stock.ConsumerType.Shared


def goes_on_with_all_of_it(pulsar: PatientPulsar, tmp_path: Path) -> None:
    with archived(pulsar, "public/hand-over", tmp_path) as (config, read, held), gateway(config, tmp_path) as served:
        goes_to_the_broker(pulsar, open_client(served.url), served, read, held)


def goes_to_a_newer_broker_with_and_without_tls(_: PatientPulsar, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("server")
    settings = settings_with_tls(files, free_port())
    with PatientPulsar(tmp_path / "newer", zookeeper=True, configuration=settings, jars=PULSAR_4_2) as newer:
        plain, secure = tmp_path / "plain", tmp_path / "secure"
        plain.mkdir()
        secure.mkdir()
        with archived(newer, "public/plain", plain) as (config, read, held), gateway(config, plain) as served:
            goes_to_the_broker(newer, open_client(served.url), served, read, held)
        with (
            archived(newer, "public/secure", secure) as (config, read, held),
            gateway(config, secure, files) as served,
        ):
            client = stock.Client(
                served.url,
                operation_timeout_seconds=HANGS_MS // 1000,
                tls_trust_certs_file_path=str(authority.certificate),
                logger=stock.ConsoleLogger(stock.LoggerLevel.Error),
            )
            goes_to_the_broker(newer, client, served, read, held)


def goes_partition_by_partition(pulsar: PatientPulsar, tmp_path: Path) -> None:
    namespace = pulsar.create_namespace("public/hand-over-partitions")
    keep_everything(pulsar, namespace)
    topic = TopicName.parse(f"persistent://{namespace}/parted")
    pulsar.admin("PUT", f"{topic.rest_path}/partitions", json=3)
    at_broker = open_client(pulsar.service_url)
    send(at_broker, topic, 0, 3_000)
    with World(pulsar, StoreSettings((tmp_path / "archive").as_uri()), tmp_path, [namespace], light=True) as world:
        config = json.loads(world.catch_up().config.read_text())
        with gateway(config, tmp_path) as served:
            client = open_client(served.url)
            reader, found = client.create_reader(str(topic), stock.MessageId.earliest), []
            consumer = client.subscribe(str(topic), "jobs", consumer_type=SHARED, initial_position=EARLIEST)
            while len(found) < 3_000:
                found.append(reader.read_next(HANGS_MS).data())
            assert sorted(found) == sorted(numbers(0, 3_000))
            left = set(numbers(0, 3_000)[7::11])
            for got in (consumer.receive(HANGS_MS) for _ in range(3_000)):
                if got.data() not in left:
                    consumer.acknowledge(got)
            parts = [TopicName.parse(f"{topic}-partition-{number}") for number in range(3)]
            until(lambda: all("jobs" in cursors(pulsar, part) for part in parts))
            send(at_broker, topic, 3_000, 300)
            later = sorted(numbers(3_000, 300))
            assert sorted(reader.read_next(HANGS_MS).data() for _ in range(300)) == later
            assert sorted(taken(consumer, len(left) + 300)) == sorted([*left, *later])
            with pytest.raises(stock.Timeout):
                consumer.receive(500)
            client.close()
    at_broker.close()


def looks_up_again(pulsar: PatientPulsar, tmp_path: Path) -> None:
    """Java 2.11, from before PIP-307, takes no address from CLOSE_CONSUMER."""
    command = java_command(tmp_path / "java", CLIENT_2_11)
    with (
        archived(pulsar, "public/hand-over-older", tmp_path) as (config, read, held),
        gateway(config, tmp_path) as served,
    ):
        java, at_broker = StockClient("java", command, served.url, tmp_path), open_client(pulsar.service_url)
        java.ask(do="reader", topic=str(read), start="earliest", **{"as": "r"})
        assert shas(java, "r", ARCHIVED + LATER) == list(map(sha, numbers(0, ARCHIVED + LATER)))
        send(at_broker, read, ARCHIVED + LATER, 10, in_batch=IN_BATCH)
        assert shas(java, "r", 10) == list(map(sha, numbers(ARCHIVED + LATER, 10)))
        subscribed = {"as": "c", "subscription": "jobs", "type": "Shared", "topics": [str(held)]}
        assert "error" not in java.ask(do="consumer", **subscribed)
        came = took(java, "c", HELD)
        left = set(map(sha, numbers(0, HELD)[7::11]))
        java.ask(do="ack", of="c", ids=[one["id"] for one in came if one["sha256"] not in left], cumulative=False)
        until(lambda: "jobs" in cursors(pulsar, held))
        wanted = sorted([*left, *map(sha, numbers(HELD, 100))])
        assert sorted(shas(java, "c", len(wanted))) == wanted
        java.end()
        at_broker.close()


WAYS = (
    goes_on_with_all_of_it,
    goes_to_a_newer_broker_with_and_without_tls,
    goes_partition_by_partition,
    looks_up_again,
)


@pytest.mark.parametrize("way", WAYS if SOAK else WAYS[:1], ids=lambda way: way.__name__)
def test_a_client_of_the_gateway(
    pulsar: PatientPulsar, tmp_path: Path, way: Callable[[PatientPulsar, Path], None]
) -> None:
    way(pulsar, tmp_path)


@contextmanager
def archived(
    pulsar: PatientPulsar, namespace: str, folder: Path
) -> Iterator[tuple[dict[str, object], TopicName, TopicName]]:
    """A topic of which brokers have let go of the begin, and one that they have; both went on since."""
    pulsar.create_namespace(namespace)
    keep_everything(pulsar, namespace)
    read, held = (TopicName.parse(f"persistent://{namespace}/{name}") for name in ("read", "held"))
    at_broker = open_client(pulsar.service_url)
    send(at_broker, read, 0, ARCHIVED, in_batch=IN_BATCH)
    send(at_broker, held, 0, HELD)
    with World(pulsar, StoreSettings((folder / "archive").as_uri()), folder, [namespace], light=True) as world:
        config = json.loads(world.catch_up().config.read_text())
        trim(pulsar, namespace, read)
        assert first_ledger(pulsar, read) > world.catalog(read).segments[0].start.ledger
        send(at_broker, read, ARCHIVED, LATER, in_batch=IN_BATCH)
        send(at_broker, held, HELD, 100)
        at_broker.close()
        yield config, read, held


def goes_to_the_broker(
    pulsar: PatientPulsar, client: stock.Client, served: Served, read: TopicName, held: TopicName
) -> None:
    at_broker = open_client(pulsar.service_url)
    reads_on(client, at_broker, read)
    goes_with_its_holes(pulsar, client, served, held)
    client.close()
    at_broker.close()


def reads_on(client: stock.Client, at_broker: stock.Client, topic: TopicName) -> None:
    """All of it once, in order, until no more is available; then what is sent when it is at the broker; and somebody
    else meanwhile, too."""
    reader, found = client.create_reader(str(topic), stock.MessageId.earliest), []
    while reader.has_message_available():
        found.append(reader.read_next(HANGS_MS).data())
    assert found == numbers(0, ARCHIVED + LATER)
    send(at_broker, topic, ARCHIVED + LATER, 10, in_batch=IN_BATCH)
    assert [reader.read_next(HANGS_MS).data() for _ in range(10)] == numbers(ARCHIVED + LATER, 10)
    other = client.create_reader(str(topic), stock.MessageId.earliest)
    assert [other.read_next(HANGS_MS).data() for _ in range(1_000)] == numbers(0, 1_000)


def goes_with_its_holes(pulsar: PatientPulsar, client: stock.Client, served: Served, topic: TopicName) -> None:
    """The gateway is killed while the broker has got the subscription, and before its log says so."""
    consumer = client.subscribe(
        str(topic), "jobs", consumer_type=SHARED, initial_position=EARLIEST, receiver_queue_size=HELD
    )
    left = set(numbers(0, HELD)[7::11])
    for got in (consumer.receive(HANGS_MS) for _ in range(HELD)):
        if got.data() not in left:
            consumer.acknowledge(got)
    until(lambda: "jobs" in cursors(pulsar, topic))
    served.kill()
    served.start()  # whoever subscribes again makes it go on
    wanted = sorted([*left, *numbers(HELD, 100)])
    assert sorted(taken(consumer, len(wanted))) == wanted
    with pytest.raises(stock.Timeout):
        consumer.receive(500)


def taken(consumer: stock.Consumer, count: int) -> list[bytes]:
    """And acknowledged."""
    found = []
    while len(found) < count:
        got = consumer.receive(HANGS_MS)
        consumer.acknowledge(got)
        found.append(got.data())
    return found


def took(java: StockClient, of: str, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = java.ask(do="take", of=of, count=count, ms=HANGS_MS)["answer"]["messages"]
    return found


def shas(java: StockClient, of: str, count: int) -> list[str]:
    return [one["sha256"] for one in took(java, of, count)]


def sha(data: bytes) -> str:
    """As the clients of tests say it."""
    return hashlib.sha256(data).hexdigest()[:16]


class Served:
    """`offloader gateway` as a process of its own, always at the same address. `files`: with TLS, and nothing else."""

    def __init__(self, config: dict[str, object], folder: Path, files: Files | None) -> None:
        address = f"127.0.0.1:{free_port()}"
        self.url = f"pulsar://{address}" if files is None else f"pulsar+ssl://{address}"
        self._config, self._log = folder / "gateway.yaml", folder / "gateway.log"
        settings: dict[str, object] = {"metricsListen": "", "atEnd": "handOver", "flushInterval": "500ms"}
        settings["listen"] = address if files is None else ""
        if files is not None:
            settings["tls"] = {"listen": address, "certificate": str(files.certificate), "key": str(files.key)}
        self._config.write_text(json.dumps({**config, "gateway": settings}))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = Path(sys.executable).with_name("offloader")
        with self._log.open("ab") as log:
            begun = log.tell()
            self._process = subprocess.Popen([program, "gateway", "--config", self._config], stdout=log, stderr=log)
        until(lambda: b"serving" in self._log.read_bytes()[begun:])

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(HANGS) == 0, self._log.read_text()[-5_000:]


@contextmanager
def gateway(config: dict[str, object], folder: Path, files: Files | None = None) -> Iterator[Served]:
    served = Served(config, folder, files)
    served.start()
    try:
        yield served
        served.stop()
    finally:
        served.kill()


def send(client: stock.Client, topic: TopicName, first: int, count: int, *, in_batch: int = 1) -> None:
    producer = client.create_producer(
        str(topic),
        batching_enabled=in_batch > 1,
        batching_max_messages=max(in_batch, 2),
        batching_max_publish_delay_ms=60_000,
        block_if_queue_full=True,
    )
    for data in numbers(first, count):
        producer.send_async(data, lambda *_: None)
    producer.flush()
    producer.close()


def numbers(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def trim(pulsar: PatientPulsar, namespace: str, topic: TopicName) -> None:
    """What is archived goes, but for the ledger that is written."""
    nothing = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    pulsar.admin("POST", f"namespaces/{namespace}/retention", json=nothing)
    before = first_ledger(pulsar, topic)

    def trimmed() -> bool:
        pulsar.admin("POST", f"{topic.rest_path}/trim")
        return first_ledger(pulsar, topic) > before

    until(trimmed)


def settings_with_tls(files: Files, port: int) -> dict[str, str]:
    return {
        **PULSAR_SETTINGS,
        "brokerServicePortTls": str(port),
        "tlsCertificateFilePath": str(files.certificate),
        "tlsKeyFilePath": str(files.key),
    }


def cursors(pulsar: PatientPulsar, topic: TopicName) -> dict[str, Any]:
    found: dict[str, Any] = pulsar.admin("GET", f"{topic.rest_path}/internalStats").json()["cursors"]
    return found


def first_ledger(pulsar: PatientPulsar, topic: TopicName) -> int:
    found: int = pulsar.admin("GET", f"{topic.rest_path}/internalStats").json()["ledgers"][0]["ledgerId"]
    return found
