"""Stock clients at the gateway and at a broker that still has the topics: the same transcripts, ids included."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from integration.gateway.clients import StockClient, go_command, java_command, python_command
from integration.gateway.command_lines import CommandLines, said_of_messages
from integration.gateway.ground import archived, gateway
from integration.gateway.scenarios import SCENARIOS, Scenario, Topics
from integration.gateway.scripts import Script
from integration.patient import PatientPulsar
from integration.soak import SOAK
from tests.storage.servers import free_port

pytestmark = pytest.mark.pulsar

NAMESPACE = "public/differential"
CLIENTS = ("python", "java", *(["go"] if SOAK else []))  # Go's is built first, which takes minutes once


@dataclass(frozen=True)
class Ground:
    """Topics, and at the broker and the gateway: by client's name its processes, and Pulsar's command lines."""

    topics: Topics
    clients: Mapping[str, tuple[StockClient, StockClient]]
    command_lines: tuple[CommandLines, CommandLines]


@pytest.fixture(scope="module")
def ground(pulsar: PatientPulsar, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    folder = tmp_path_factory.mktemp("differential")
    makers = {"python": python_command, "java": lambda: java_command(folder / "java"), "go": go_command}
    commands = {name: makers[name]() for name in CLIENTS}
    with ExitStack() as stack:

        def client(name: str, url: str, where: str) -> StockClient:
            found = StockClient(name, commands[name], url, folder / where)
            stack.callback(found.end)
            return found

        brokers = {name: client(name, pulsar.service_url, "broker") for name in commands}
        topics, archive = archived(pulsar, NAMESPACE, brokers["java"], folder)
        web = f"127.0.0.1:{free_port()}"
        url, _ = stack.enter_context(gateway(archive, folder, httpListen=web))
        clients = {name: (brokers[name], client(name, url, "gateway")) for name in commands}
        at_broker = CommandLines(folder / "tools-broker", pulsar.service_url, pulsar.admin_url)
        yield Ground(topics, clients, (at_broker, CommandLines(folder / "tools-gateway", url, f"http://{web}")))


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_no_client_can_tell_it_from_a_broker(ground: Ground, client: str, scenario: Scenario) -> None:
    def transcript(process: StockClient) -> list[str]:
        script = Script(process, scenario.__name__)
        scenario(script, ground.topics)
        script.end()
        return script.transcript

    with ThreadPoolExecutor(2) as pool:
        broker, gateway_ = pool.map(transcript, ground.clients[client])
    assert broker == gateway_, "\n".join(difflib.unified_diff(broker, gateway_, "broker", "gateway", "", "", 2))


def test_pulsars_command_lines_say_the_same(ground: Ground) -> None:
    """`pulsar-client` and `pulsar-perf` consume and read, `pulsar-admin` lists topics."""
    single, batched, customers = (ground.topics[name] for name in ("single", "batched", "customers"))
    script = Script(ground.clients["java"][0], "first")
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
