"""Where the archive ends: stock clients of the gateway go on at a real broker that has trimmed what they began with."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pulsar as stock
import pytest

from integration.patient import PatientPulsar
from integration.processes import HANGS
from integration.produce import HANGS_MS, open_client
from integration.pulsar.waiting import until
from integration.world import World, keep_everything
from offloader.model import TopicName
from offloader.storage.settings import StoreSettings
from tests.storage.servers import free_port

pytestmark = pytest.mark.pulsar

ARCHIVED, LATER = 10_000, 2_000
IN_BATCH = 5
HELD = 1_500  # of the topic with a durable subscription
EARLIEST, SHARED = stock.InitialPosition.Earliest, stock.ConsumerType.Shared


def test_readers_and_durable_subscriptions_go_from_the_gateway_to_the_broker(
    pulsar: PatientPulsar, tmp_path: Path
) -> None:
    namespace = pulsar.create_namespace("public/hand-over")
    keep_everything(pulsar, namespace)
    read, held = (TopicName.parse(f"persistent://{namespace}/{name}") for name in ("read", "held"))
    at_broker = open_client(pulsar.service_url)
    send(at_broker, read, 0, ARCHIVED, in_batch=IN_BATCH)
    send(at_broker, held, 0, HELD)
    with World(pulsar, StoreSettings((tmp_path / "archive").as_uri()), tmp_path, [namespace], light=True) as world:
        application = world.catch_up()
        config = json.loads(application.config.read_text())
        trim(pulsar, namespace, read)
        assert first_ledger(pulsar, read) > world.catalog(read).segments[0].start.ledger
        send(at_broker, read, ARCHIVED, LATER, in_batch=IN_BATCH)
        send(at_broker, held, HELD, 100)
        with gateway(config, tmp_path) as served:
            client = open_client(served.url)
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
    until(lambda: "jobs" in pulsar.admin("GET", f"{topic.rest_path}/internalStats").json()["cursors"])
    served.kill()
    served.start()  # whoever subscribes again makes it go on
    found = []
    wanted = sorted([*left, *numbers(HELD, 100)])
    while len(found) < len(wanted):
        got = consumer.receive(HANGS_MS)
        consumer.acknowledge(got)
        found.append(got.data())
    assert sorted(found) == wanted
    with pytest.raises(stock.Timeout):
        consumer.receive(500)


class Served:
    """`offloader gateway` as a process of its own, always at the same address."""

    def __init__(self, config: dict[str, object], folder: Path) -> None:
        port = free_port()
        self.url = f"pulsar://127.0.0.1:{port}"
        self._config, self._log = folder / "gateway.yaml", folder / "gateway.log"
        settings = {"listen": f"127.0.0.1:{port}", "metricsListen": "", "atEnd": "handOver", "flushInterval": "500ms"}
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
def gateway(config: dict[str, object], folder: Path) -> Iterator[Served]:
    served = Served(config, folder)
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


def first_ledger(pulsar: PatientPulsar, topic: TopicName) -> int:
    found: int = pulsar.admin("GET", f"{topic.rest_path}/internalStats").json()["ledgers"][0]["ledgerId"]
    return found
