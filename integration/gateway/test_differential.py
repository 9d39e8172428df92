"""Stock clients at the gateway and at a broker that still has the topics: the same transcripts, ids included."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from integration.gateway.clients import StockClient, go_command, java_command, python_command
from integration.gateway.ground import archived, gateway
from integration.gateway.scenarios import SCENARIOS, Scenario, Topics
from integration.gateway.scripts import Script
from integration.patient import PatientPulsar
from integration.soak import SOAK

pytestmark = pytest.mark.pulsar

NAMESPACE = "public/differential"
CLIENTS = ("python", "java", *(["go"] if SOAK else []))  # Go's is built first, which takes minutes once


@dataclass(frozen=True)
class Ground:
    """Topics, and by client's name its processes at the broker and at the gateway."""

    topics: Topics
    clients: Mapping[str, tuple[StockClient, StockClient]]


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
        url, _ = stack.enter_context(gateway(archive, folder))
        yield Ground(topics, {name: (brokers[name], client(name, url, "gateway")) for name in commands})


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
