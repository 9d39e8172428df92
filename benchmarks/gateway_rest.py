"""Durable subscriptions with a consumer each, to which nothing happens."""

from __future__ import annotations

import os
import socket
import time
from urllib.parse import urlsplit

from benchmarks.counted import CountedStore
from benchmarks.figures import Figure
from benchmarks.options import Options
from benchmarks.processes import memory
from offloader._proto.pulsar_wire_pb2 import Connect, Flow, Subscribe
from offloader.errors import IntegrityError
from offloader.pulsar.commands import command
from offloader.pulsar.frames import FrameBuffer, encode
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC, Archive, message
from tests.format.support import Stored
from tests.gateway.gateway import durable_gateway

SUBSCRIPTIONS = 10_000
ENTRIES = 100
TOGETHER = 50  # subscribed at a time: a connection has 100 requests under way at most
SECONDS = 20


def at_rest(options: Options) -> list[Figure]:
    """Each stands at the end of its topic."""
    made = Archive(MemoryStore())
    made.claim(10, 0)
    made.add([Stored(10, entry, message("x" * 1000)) for entry in range(ENTRIES)])
    store = CountedStore(made.store)
    with durable_gateway(store, refreshInterval="5s") as url:
        before = memory(os.getpid())["driver"]
        begun = time.perf_counter()
        connection = _subscribed(url)
        took = time.perf_counter() - begun
        options.say(f"gateway: {SUBSCRIPTIONS} subscriptions made in {took:.0f} s")
        time.sleep(10)
        used = memory(os.getpid())["driver"] - before
        store.asked.clear()
        cpu = time.process_time()
        time.sleep(SECONDS)
        cpu = time.process_time() - cpu
        asked = store.asked.total() * 60 / SECONDS
        connection.close()
    name = f"{SUBSCRIPTIONS:,} subscriptions at rest"
    return [
        Figure(f"{name}: made, a second", SUBSCRIPTIONS / took, ""),
        Figure(f"{name}: memory each, with its state in the store in memory", used / SUBSCRIPTIONS / 1024, "KiB"),
        Figure(f"{name}: CPU", 100 * cpu / SECONDS, "% of a core"),
        Figure(f"{name}: requests to the store a minute", asked, ""),
    ]


def _subscribed(url: str) -> socket.socket:
    where = urlsplit(url)
    connection = socket.create_connection((where.hostname, where.port), timeout=120)
    connection.sendall(encode(command(connect=Connect(client_version="benchmark", protocol_version=21))))
    heard, done = FrameBuffer(), 0
    for first in range(0, SUBSCRIPTIONS, TOGETHER):
        connection.sendall(b"".join(_asked(number) for number in range(first, first + TOGETHER)))
        while done < first + TOGETHER:
            count = connection.recv_into(heard.space())
            if not count:
                raise IntegrityError("the gateway closed the connection")
            heard.received(count)
            for frame in heard.frames():
                if frame.command.HasField("error"):
                    raise IntegrityError(frame.command.error.message)
                done += frame.command.HasField("success")
    return connection


def _asked(number: int) -> bytes:
    subscribe = Subscribe(
        topic=str(TOPIC),
        subscription=f"s{number}",
        type=Subscribe.SHARED,
        consumer_id=number,
        request_id=number,
        consumer_name="c",
        initial_position=Subscribe.LATEST,
    )
    flow = Flow(consumer_id=number, permits=1)
    return encode(command(subscribe=subscribe)) + encode(command(flow=flow))
