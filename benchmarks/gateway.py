"""`gateway`: stock clients read a topic through `offloader gateway`, and the same topic through a broker that has it in
tiered storage alone; and 10,000 subscriptions at rest in a gateway."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.bridged import SETTINGS, STORE, filled
from benchmarks.figures import Figure, Report, rates
from benchmarks.gateway_rest import at_rest
from benchmarks.options import Options
from benchmarks.processes import TICK, cpu_seconds
from integration.bridge.place import Place, place
from integration.gateway.ground import gateway
from integration.processes import HANGS
from integration.world import World
from offloader.model import KIB, TopicName

BROKER, GATEWAY = "broker", "gateway"
CLIENTS = (1, 4)


@dataclass(frozen=True, slots=True)
class _Read:
    """One round at one server. MB/s of all clients together; `first`: ms; CPU in s: of a client, of the gateway."""

    rate: float
    first: float
    client_cpu: float
    server_cpu: float


def run(options: Options) -> Report:
    figures: list[Figure] = []
    os.environ.setdefault(STORE, "minio")
    with place(options.folder / "gateway", direct=True, settings=SETTINGS) as here:
        for kind, size in (("batches", options.batched_bytes), ("unbatched", options.unbatched_bytes)):
            if size:
                figures += _one_kind(options, here, kind, size)
    figures += at_rest(options)
    notes = [
        "Clients are processes with pulsar-client (C++) and read all of the topic; each server has one topic in MinIO.",
        "first: ms until a client that begins has its first message, the median of all clients.",
        "CPU of the gateway: all of its threads, with what a topic and a client cost once.",
        "The broker's CPU is not comparable: its JVM does other things, too.",
    ]
    return Report("gateway", "an archived topic for stock clients", figures, notes)


def _one_kind(options: Options, here: Place, kind: str, size: int) -> list[Figure]:
    topic = filled(here, size, batched=kind == "batches")
    messages = size // KIB
    connection = {"metadataServiceUri": here.cluster.books.metadata_uri}
    settings = here.store.archive(kind)
    with World(
        here, settings, options.folder / f"world-{kind}", [topic.namespace], connection=connection, light=True
    ) as world:
        world.catch_up()
    here.offload(topic)
    here.forget_bookkeepers_copies(topic)
    here.restart()
    folder = options.folder / f"served-{kind}"
    folder.mkdir()
    found: dict[str, list[_Read]] = {}
    with gateway(settings, folder) as (url, pid):
        servers: dict[str, tuple[str, Callable[[], float]]] = {
            BROKER: (here.service_url, lambda: 0.0),
            GATEWAY: (url, lambda: cpu_seconds(pid)[pid][1]),
        }
        for number in range(options.rounds + 1):
            for clients in CLIENTS:
                for name in list(servers) if number % 2 == 0 else list(reversed(servers)):
                    read = _read(*servers[name], topic, messages, clients)
                    options.say(f"gateway: round {number}: {kind}, {name}, {clients} clients: {read}")
                    if number:  # the first one compiles the broker's code
                        found.setdefault(f"{name}, {kind}, {clients} clients", []).append(read)
    return _figures(found, kind, messages)


def _read(url: str, server_cpu: Callable[[], float], topic: TopicName, messages: int, clients: int) -> _Read:
    before = server_cpu()
    command = [sys.executable, "-m", "benchmarks.gateway_client", url, str(topic), str(messages)]
    with ExitStack() as stack:
        running = []
        for _ in range(clients):
            running.append(subprocess.Popen(command, stdout=subprocess.PIPE))
            stack.callback(running[-1].kill)
        said = [json.loads(each.communicate(timeout=HANGS)[0]) for each in running]
    used = server_cpu() - before
    slowest = max(each["all"] for each in said)
    megabytes = clients * messages * KIB / 1e6
    return _Read(
        megabytes / slowest,
        1000 * statistics.median(each["first"] for each in said),
        statistics.median(each["cpu"] for each in said),
        used,
    )


def _figures(found: dict[str, list[_Read]], kind: str, messages: int) -> list[Figure]:
    figures: list[Figure] = []
    for clients in CLIENTS:
        broker, ours = (f"{server}, {kind}, {clients} clients" for server in (BROKER, GATEWAY))
        figures += rates({name: [each.rate for each in found[name]] for name in (broker, ours)}, broker)
        firsts = {f"{name}: first": [each.first for each in found[name]] for name in (broker, ours)}
        figures += rates(firsts, f"{broker}: first", "ms")
        server = max(statistics.median(each.server_cpu for each in found[ours]), 1 / TICK)
        client = statistics.median(each.client_cpu for each in found[ours])
        total = clients * messages
        figures.append(Figure(f"{ours}: its CPU a MB", 1e3 * server / (total * KIB / 1e6), "ms"))
        figures.append(Figure(f"{ours}: its CPU a message", 1e6 * server / total, "µs"))
        ratio = clients * client / server
        figures.append(
            Figure(f"{ours}: a client's CPU a message", 1e6 * client / messages, "µs", ratio, "the gateway's")
        )
    return figures
