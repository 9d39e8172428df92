"""What operators see of a gateway that serves: `offloader gateway status`, metrics, probes."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from queue import Queue

import httpx
import pulsar
import pytest

from dev.embedded.settings import free_ports
from offloader.archive.opened import OpenArchive
from offloader.archive.reading.stores import Stores
from offloader.config.gateway import Gateway
from offloader.errors import ConfigError
from offloader.gateway.application import GatewayApplication
from offloader.gateway.status import GatewayStatus, NamespaceStatus, SubscriptionStatus, from_json, rates
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC, Archive, message
from tests.cli.support import CONFIG, Line
from tests.format.support import Stored
from tests.gateway.gateway import durable_gateway
from tests.gateway.test_stock_client import EARLIEST, connected, received

NAME = str(TOPIC)
ENTRIES = 50
ONE = SubscriptionStatus(NAME, "s", "Shared", True, 1, 900, 3, "10:4", 45, 10, 10, 1000, 0, 5)
SEEN = GatewayStatus(
    5.0, 1, 1, 0, 1, 0, {}, {"read": 0}, 1, 1, [NamespaceStatus("public/default", 10, 10, 1000, 0, 5)], [ONE]
)


@pytest.fixture
def archive() -> Archive:
    made = Archive(MemoryStore())
    made.claim(10, 0)
    made.add([Stored(10, entry, message(f"m{entry}")) for entry in range(ENTRIES)])
    return made


@pytest.fixture
def port() -> int:
    return free_ports(1, random.SystemRandom())[0]


@pytest.fixture
def client(archive: Archive, port: int) -> Iterator[pulsar.Client]:
    with durable_gateway(archive.store, metricsListen=f"127.0.0.1:{port}", flushInterval="50ms") as url:
        found = connected(url)
        yield found
        found.close()


@pytest.fixture
def line(tmp_path: Path, archive: Archive, port: int) -> Line:
    return Line(tmp_path, archive, config=f'{CONFIG}gateway: {{metricsListen: "127.0.0.1:{port}"}}\n')


def page(port: int, path: str) -> httpx.Response:
    return httpx.get(f"http://127.0.0.1:{port}{path}", trust_env=False)


def series(port: int) -> dict[str, float]:
    lines = [text.rpartition(" ") for text in page(port, "/metrics").text.splitlines() if not text.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def subscribe_and_acknowledge(client: pulsar.Client, count: int) -> pulsar.Consumer:
    consumer = client.subscribe(
        NAME, "s", consumer_type=pulsar.ConsumerType.Shared, initial_position=EARLIEST, receiver_queue_size=20
    )
    for _ in range(count):
        consumer.acknowledge(consumer.receive(20_000))
    return consumer


def test_status_tells_who_reads_what_and_how_much_is_left(client: pulsar.Client, line: Line) -> None:
    subscribe_and_acknowledge(client, 10)
    while True:  # acknowledgements are sent by and by
        (found,) = line.json("gateway", "status", "--interval", "0")["subscriptions"]
        if found["backlog"] == ENTRIES - 10:
            break
    assert (found["topic"], found["name"], found["type"], found["consumers"]) == (NAME, "s", "Shared", 1)
    assert (found["mark_delete"], found["acknowledgements"], found["durable"]) == ("10:9", 10, True)
    assert found["entries"] >= 10
    assert "1 connections, 1 consumers, 1 topics" in line.ok("gateway", "status")


def test_a_reader_is_no_durable_subscription(client: pulsar.Client, line: Line) -> None:
    reader = client.create_reader(NAME, pulsar.MessageId.earliest)
    assert reader.read_next(20_000).data() == b"m0"
    assert "Exclusive (reader)" in line.ok("gateway", "status")
    reader.close()


def test_metrics_count_what_was_delivered_acknowledged_and_refused(client: pulsar.Client, port: int) -> None:
    consumer = subscribe_and_acknowledge(client, ENTRIES)
    with pytest.raises(pulsar.NotAllowedError):
        client.create_producer(NAME)
    namespace = '{namespace="public/default"}'
    while series(port)[f"offloader_gateway_acknowledgements_total{namespace}"] < ENTRIES:
        pass
    while series(port)["offloader_gateway_unwritten_seconds"]:
        pass
    found = series(port)
    assert found[f"offloader_gateway_messages_total{namespace}"] == ENTRIES
    assert found[f"offloader_gateway_redelivered_entries_total{namespace}"] == 0
    assert found['offloader_gateway_writes_total{namespace="public/default",outcome="ok"}'] >= 1
    assert found['offloader_gateway_refused_total{error="not_allowed"}'] >= 1
    assert found['offloader_gateway_subscriptions{durable="true"}'] == 1
    assert found['offloader_gateway_work_seconds_count{kind="read"}'] >= 1
    consumer.close()
    assert series(port)["offloader_gateway_consumers"] == 0
    assert series(port)[f"offloader_gateway_messages_total{namespace}"] == ENTRIES


@pytest.mark.usefixtures("client")
def test_it_is_alive_and_ready(port: int) -> None:
    assert page(port, "/healthz").status_code == 200
    while page(port, "/readyz").status_code != 200:
        pass


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("path", ["/status", "/metrics", "/healthz", "/readyz"])
def test_a_page_of_somebody_elses_name_reads_nothing(port: int, path: str) -> None:
    """A browser on this machine asks so for a name that resolves to it (DNS rebinding)."""
    url = f"http://127.0.0.1:{port}{path}"
    for host in ("attacker.example", f"attacker.example:{port}"):
        answer = httpx.get(url, headers={"Host": host}, trust_env=False)
        assert (answer.status_code, "localhost" in answer.text) == (403, True)
    assert httpx.get(url, headers={"Host": f"localhost:{port}"}, trust_env=False).status_code != 403


def test_what_answers_nowhere_or_is_no_gateway_is_one_line(line: Line, port: int) -> None:
    assert f"no gateway answers at http://127.0.0.1:{port}/status" in line.error("gateway", "status")
    line.config = f'{CONFIG}gateway: {{metricsListen: ""}}\n'
    assert "gateway.metricsListen is empty" in line.error("gateway", "status")


def test_rates_are_those_of_the_time_between_two_looks() -> None:
    later = replace(SEEN, at=7.0, subscriptions=[replace(ONE, messages=30, size=5000)])
    assert rates(SEEN, later) == {(NAME, "s"): (10.0, 2000.0)}
    begun_anew = replace(SEEN, at=7.0, subscriptions=[replace(ONE, messages=1, size=100)])
    assert rates(SEEN, begun_anew) == {}
    assert rates(replace(SEEN, subscriptions=[]), later) == {}


def test_a_status_is_read_as_it_was_written() -> None:
    assert from_json(asdict(SEEN)) == SEEN


@pytest.mark.parametrize("said", [None, [], {}, {"namespaces": 5}, {"namespaces": [], "subscriptions": [{}]}])
def test_another_answer_is_no_status(said: object) -> None:
    with pytest.raises((TypeError, KeyError, ValueError)):
        from_json(said)


def test_a_second_gateway_on_a_machine_serves_where_nobody_chose_its_address_for_metrics(
    archive: Archive, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    taken, heard = f"127.0.0.1:{port}", Queue[str]()
    settings = Gateway.model_validate({"listen": "127.0.0.1:0", "metricsListen": taken, "durableSubscriptions": True})
    second = GatewayApplication(OpenArchive(Stores.of(archive.store)), settings, lambda: "second", heard.put)
    with durable_gateway(archive.store, metricsListen=taken):
        with pytest.raises(ConfigError, match=re.escape(f"gateway.metricsListen: cannot listen on {taken}")):
            second.run()
        settings.model_fields_set.discard("metrics_listen")  # it is the default
        thread = threading.Thread(target=second.run)
        thread.start()
        client = connected(heard.get(timeout=60))
        assert received(client.subscribe(NAME, "s", initial_position=EARLIEST), 1) == [b"m0"]
        client.close()
        second.stop()
        thread.join(60)
    assert "gateway: no metrics and no status: gateway.metricsListen: cannot listen" in caplog.text


def test_a_gateway_without_an_address_for_metrics_serves_all_the_same(archive: Archive) -> None:
    with durable_gateway(archive.store, metricsListen="") as url:
        client = connected(url)
        assert received(client.subscribe(NAME, "s", initial_position=EARLIEST), 1) == [b"m0"]
        client.close()
