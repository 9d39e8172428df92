"""Stock clients at the gateway and at a broker that still has the topics: the same transcripts, ids included."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from dev.embedded.lock import CLIENT_2_11
from integration.gateway.clients import StockClient, go_command, java_command, older_python_command, python_command
from integration.gateway.command_lines import CommandLines, said_of_messages
from integration.gateway.consumer_stats import stats_transcript
from integration.gateway.ground import archived, gateway
from integration.gateway.scenarios import OF_READERS, SCENARIOS, Scenario, Topics
from integration.gateway.scripts import Script
from integration.patient import PatientPulsar
from integration.soak import SOAK
from offloader._proto.pulsar_wire_pb2 import Subscribe
from tests.storage.servers import free_port

pytestmark = pytest.mark.pulsar

NAMESPACE = "public/differential"
MAKERS: Mapping[str, Callable[[Path], list[str]]] = {
    "python": lambda _: python_command(),
    "java": java_command,
    "go": lambda _: go_command(),
    "java-2.11.4": lambda folder: java_command(folder, CLIENT_2_11),
    "python-3.4.0": lambda folder: older_python_command("3.4.0", folder),
}
CLIENTS = tuple(MAKERS) if SOAK else ("python", "java")  # Go's is built first, which takes minutes once


@dataclass(frozen=True)
class Ground:
    """Topics; and at the broker and at the gateway their addresses, Pulsar's command lines, and clients. `readers`: the
    same clients, the second one at a gateway without durable subscriptions."""

    topics: Topics
    urls: tuple[str, str]
    command_lines: tuple[CommandLines, CommandLines]
    clients: Callable[[str], tuple[StockClient, StockClient]]
    readers: Callable[[str], tuple[StockClient, StockClient]]


@pytest.fixture(scope="module")
def ground(pulsar: PatientPulsar, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    folder = tmp_path_factory.mktemp("differential")
    with ExitStack() as stack:

        @cache
        def command(name: str) -> list[str]:
            return MAKERS[name](folder / name)

        @cache
        def client(name: str, url: str, where: str) -> StockClient:
            found = StockClient(name, command(name), url, folder / where)
            stack.callback(found.end)
            return found

        topics, archive = archived(pulsar, NAMESPACE, client("java", pulsar.service_url, "broker"), folder)
        web = f"127.0.0.1:{free_port()}"
        url, _ = stack.enter_context(gateway(archive, folder, httpListen=web))
        (folder / "reading").mkdir()
        reading, _ = stack.enter_context(gateway(archive, folder / "reading", durableSubscriptions=False))
        at_broker = CommandLines(folder / "tools-broker", pulsar.service_url, pulsar.admin_url)
        at_gateway = CommandLines(folder / "tools-gateway", url, f"http://{web}")

        def clients(name: str) -> tuple[StockClient, StockClient]:
            return client(name, pulsar.service_url, "broker"), client(name, url, "gateway")

        def readers(name: str) -> tuple[StockClient, StockClient]:
            return client(name, pulsar.service_url, "broker"), client(name, reading, "reading-gateway")

        yield Ground(topics, (pulsar.service_url, url), (at_broker, at_gateway), clients, readers)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_no_client_can_tell_it_from_a_broker(ground: Ground, client: str, scenario: Scenario) -> None:
    def transcript(process: StockClient) -> list[str]:
        script = Script(process, scenario.__name__)
        scenario(script, ground.topics)
        script.end()
        return script.transcript

    clients = ground.readers if scenario in OF_READERS else ground.clients
    with ThreadPoolExecutor(2) as pool:
        broker, gateway_ = pool.map(transcript, clients(client))
    assert broker == gateway_, "\n".join(difflib.unified_diff(broker, gateway_, "broker", "gateway", "", "", 2))


def test_consumers_are_told_the_same_of_themselves(ground: Ground) -> None:
    """Of batches where consumers share: to others brokers give more entries than they have permits for."""

    def told(url: str) -> list[str]:
        single, batched = (ground.topics[name].name for name in ("single", "batched"))
        return [*stats_transcript(url, single), *stats_transcript(url, batched, [Subscribe.SHARED])]

    with ThreadPoolExecutor(2) as pool:
        broker, gateway_ = pool.map(told, ground.urls)
    assert broker == gateway_, "\n".join(difflib.unified_diff(broker, gateway_, "broker", "gateway", "", "", 2))


def test_pulsars_command_lines_say_the_same(ground: Ground) -> None:
    """`pulsar-client` and `pulsar-perf` consume and read, `pulsar-admin` lists topics."""
    single, batched, customers = (ground.topics[name] for name in ("single", "batched", "customers"))
    script = Script(ground.clients("java")[0], "first")
    script.reader("r", single)
    ledger, entry, *_ = script.take("r", 12)[-1]["id"]
    script.end()

    def said(at: CommandLines) -> list[str]:
        return said_of_messages(at, single, batched, customers, f"{ledger}:{entry}")

    with ThreadPoolExecutor(2) as pool:
        broker, gateway_ = pool.map(said, ground.command_lines)
    assert "100 records received" in "\n".join(broker)
    assert sum("got message" in line for line in broker) == 120
    assert broker == gateway_, "\n".join(difflib.unified_diff(broker, gateway_, "broker", "gateway", "", "", 2))
