"""Answers that clients do not read take no more memory than there is for them."""

from __future__ import annotations

import http.client
import json
import resource
import socket
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from offloader._proto.pulsar_wire_pb2 import Connect, GetSchema
from offloader.cursors.facts import TopicFacts
from offloader.gateway.server.limits import UnreadAnswers
from offloader.model import MIB
from offloader.ports.admin import TopicSchema
from offloader.pulsar.commands import command
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC, Archive, message
from tests.fakes.topic_facts import write_facts
from tests.format.support import Stored
from tests.gateway.gateway import free_port, gateway
from tests.gateway.raw import RawClient

SCHEMA = MIB
LARGE = 8 * MIB  # more than the system takes for a socket
CONNECTIONS = 30
MEMORY = 16 * MIB  # of which answers have 10 MiB: two of the largest
PATH = f"/admin/v2/schemas/{TOPIC.schema_name}/schema"
CONNECT = command(connect=Connect(client_version="x", protocol_version=21))
ASKED = [command(get_schema=GetSchema(topic=str(TOPIC), request_id=number)) for number in range(64)]


@contextmanager
def serving(size: int = SCHEMA) -> Iterator[tuple[str, int, int]]:
    """Its address, its port for HTTP and for metrics."""
    made = Archive(MemoryStore())
    made.claim(10, 0)
    made.add([Stored(10, 0, message("m"))])
    schemas = (TopicSchema(0, "BYTES", b"x" * size),)
    facts = TopicFacts(TOPIC, 7, None, terminated=False, schemas=schemas)
    write_facts(made.store, facts)
    port, status = free_port(), free_port()
    listen = {"httpListen": f"127.0.0.1:{port}", "metricsListen": f"127.0.0.1:{status}"}
    with gateway(made.store, memory=str(MEMORY), **listen) as url:
        yield url, port, status


def most_buffered(status: int, seconds: float) -> int:
    most, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        with urllib.request.urlopen(f"http://127.0.0.1:{status}/status", timeout=20) as found:
            most = max(most, json.load(found)["buffered"])
    return most


def test_connections_that_read_no_answers_end_before_the_memory_does() -> None:
    with serving() as (url, _, status), RawClient(url) as good, ExitStack() as greedy:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        good.send(CONNECT)
        for _ in range(CONNECTIONS):
            client = greedy.enter_context(RawClient(url))
            with suppress(ConnectionError):
                client.send(CONNECT, *ASKED)
        most = most_buffered(status, 5)
        assert most < MEMORY
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown * 1024 < 10 * MEMORY, "64 answers of 30 connections have 1.9 GiB"
        good.send(ASKED[0])
        assert len(good.until("get_schema_response").get_schema_response.schema.data) == SCHEMA


def test_answers_of_http_count_too() -> None:
    with serving(LARGE) as (_, port, _), ExitStack() as greedy:
        clients = []
        for _ in range(CONNECTIONS):
            client = greedy.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(20)
            client.connect(("127.0.0.1", port))
            client.sendall(f"GET {PATH} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            clients.append(client)
        good = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        good.request("GET", PATH)
        assert len(json.loads(good.getresponse().read())["data"]) == LARGE
        good.close()
        assert any(is_cut(client) for client in clients), "they have 240 MiB together"


def is_cut(client: socket.socket) -> bool:
    """Whether the connection ends before its answer does."""
    size = 0
    try:
        while size < LARGE and (part := client.recv(65536)):
            size += len(part)
    except ConnectionResetError:
        return True
    return size < LARGE


class Client:
    def __init__(self, unread: int) -> None:
        self.unread, self.ended = unread, False

    def end_at_once(self, _why: str) -> None:
        self.ended = True


def test_whoever_has_most_goes_first_and_what_was_read_counts_no_more() -> None:
    answers, clients = UnreadAnswers(100), [Client(40), Client(50), Client(10)]
    for client in clients:
        answers.holds(client, client.unread)
    late = Client(20)
    clients[1].unread = 5
    answers.holds(late, late.unread)
    assert not any(client.ended for client in clients)
    late.unread = 60
    answers.holds(late, late.unread)
    assert [client.ended for client in (*clients, late)] == [False, False, False, True]
    answers.holds(clients[2], 55)
    assert not clients[2].ended
