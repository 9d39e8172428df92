"""HTTP service URLs: with Pulsar's own Python client, and request by request."""

from __future__ import annotations

import base64
import http.client
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pulsar
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from offloader._proto.pulsar_wire_pb2 import GetSchema
from offloader.cursors.facts import TopicFacts
from offloader.gateway.server.http_connection import question_of
from offloader.ports.admin import TopicSchema
from offloader.pulsar.commands import command, connect
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC, Archive, message
from tests.fakes.topic_facts import write_facts
from tests.format.support import Stored
from tests.gateway.access.certificates import Authority
from tests.gateway.access.tokens import SECRET, token
from tests.gateway.gateway import durable_gateway, free_port
from tests.gateway.raw import RawClient

NAME = str(TOPIC)
PATHS = [
    "/admin/v2/persistent/public/default/orders/partitions?checkAllowAutoCreation=true",
    "/lookup/v2/topic/persistent/public/default/orders",
    "/admin/v2/namespaces/public/default/topics?mode=PERSISTENT",
    "/admin/v2/schemas/public/default/orders/schema",
]


class Site(NamedTuple):
    binary: str
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture(scope="module")
def archive() -> Archive:
    return archived()


def archived() -> Archive:
    made = Archive(MemoryStore())
    made.claim(10, 0)
    made.add([Stored(10, entry, message(f"m{entry}")) for entry in range(20)])
    schemas = (TopicSchema(0, "JSON", b'{"type":"record"}', 5, (("a", "b"),)), TopicSchema(3, "STRING"))
    facts = TopicFacts(TOPIC, 7, None, terminated=False, schemas=schemas)
    write_facts(made.store, facts)
    return made


@pytest.fixture(scope="module")
def site(archive: Archive) -> Iterator[Site]:
    port = free_port()
    with durable_gateway(archive.store, httpListen=f"127.0.0.1:{port}") as url:
        yield Site(url, port)


@pytest.fixture(scope="module")
def guarded() -> Iterator[Site]:
    port, key = free_port(), base64.b64encode(SECRET).decode()
    roles = {"reader": ["public/default"]}
    with durable_gateway(archived().store, httpListen=f"127.0.0.1:{port}", tokenSecretKey=key, roles=roles) as url:
        yield Site(url, port)


def ask(site: Site, path: str, method: str = "GET", body: bytes = b"", **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=20)
    connection.request(method, path, body or None, headers)
    found = connection.getresponse()
    text = found.read()
    connection.close()
    return found.status, json.loads(text) if text else None


def stock(url: str, **arguments: object) -> pulsar.Client:
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    return pulsar.Client(url, operation_timeout_seconds=5, logger=quiet, **arguments)


def test_the_four_questions_as_brokers_answer_them(site: Site) -> None:
    assert [ask(site, path) for path in PATHS] == [
        (200, {"partitions": 0, "deleted": False}),
        (200, {"brokerUrl": site.binary, "httpUrl": site.url, "nativeUrl": site.binary, "brokerUrlSsl": ""}),
        (200, [NAME]),
        (200, {"version": 3, "type": "STRING", "timestamp": 0, "data": "", "properties": {}}),
    ]
    assert ask(site, PATHS[3] + "/0") == (
        200,
        {"version": 0, "type": "JSON", "timestamp": 5, "data": '{"type":"record"}', "properties": {"a": "b"}},
    )
    assert ask(site, PATHS[2].replace("PERSISTENT", "NON_PERSISTENT")) == (200, [])
    assert ask(site, "/lookup/v2/topic/persistent/public/default/pat-.*")[0] == 200


def test_the_binary_protocol_has_the_same_schema_and_names_it_as_brokers_do(site: Site) -> None:
    with RawClient(site.binary) as client:
        client.send(connect("", b""), command(get_schema=GetSchema(topic=NAME, request_id=1, schema_version=bytes(8))))
        found = client.answer().get_schema_response.schema
    assert (found.name, found.data) == ("public/default/orders", b'{"type":"record"}')


def test_topics_are_listed_as_pulsar_admin_asks(site: Site, guarded: Site) -> None:
    for domain, names in (("persistent", [NAME]), ("non-persistent", [])):
        assert ask(site, f"/admin/v2/{domain}/public/default") == (200, names)
        assert ask(site, f"/admin/v2/{domain}/public/nothing") == (200, [])
        assert ask(guarded, f"/admin/v2/{domain}/public/default")[0] == 401


def test_what_is_not_there_is_not_found_and_says_so(site: Site) -> None:
    for path in (
        PATHS[0].replace("orders", "nothing"), PATHS[3] + "/7", PATHS[3].replace("orders", "nothing"),
        "/", "/admin/v2/persistent/public", "/lookup/v2/topic/non-persistent/public/default/orders",
    ):  # fmt: skip
        status, said = ask(site, path)
        assert status == 404, path
        assert said["reason"]


def test_who_comes_by_a_pulsar_proxy_is_refused(site: Site, guarded: Site) -> None:
    shown = {"Authorization": f"Bearer {token().decode()}"}
    assert ask(guarded, PATHS[0], **shown)[0] == 200
    for one in (site, guarded):
        status, said = ask(one, PATHS[0], **shown, **{"X-Original-Principal": "app"})
        assert (status, "Pulsar Proxy" in said["reason"]) == (401, True)


def test_nothing_can_be_changed(site: Site) -> None:
    for method in ("POST", "PUT", "DELETE"):
        assert ask(site, PATHS[0], method, b"{}")[0] == 405
    assert ask(site, PATHS[0], "HEAD") == (405, None)


def test_a_connection_is_used_again_and_again(site: Site) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=20)
    for path in PATHS * 3:
        connection.request("GET", path)
        assert connection.getresponse().read()
    connection.close()


def test_requests_that_come_together_are_answered_in_order(site: Site) -> None:
    head = "GET {} HTTP/1.1\r\nHost: x\r\n{}\r\n"
    last = head.format(PATHS[1], "Connection: close\r\n")
    with socket.create_connection(("127.0.0.1", site.port), timeout=20) as connection:
        connection.sendall("".join([head.format(path, "") for path in PATHS] + [last]).encode())
        heard = b""
        while part := connection.recv(65536):
            heard += part
    assert [heard.find(word) for word in (b"partitions", b"brokerUrl", b"orders", b"STRING")] == sorted(
        heard.find(word) for word in (b"partitions", b"brokerUrl", b"orders", b"STRING")
    )
    assert heard.count(b"HTTP/1.1 200") == 5


def test_the_stock_client_reads_by_http(site: Site) -> None:
    client = stock(site.url)
    assert client.create_reader(NAME, pulsar.MessageId.earliest).read_next(20_000).data() == b"m0"
    pattern = re.compile("persistent://public/default/ord.*")
    consumer = client.subscribe(pattern, "s", initial_position=pulsar.InitialPosition.Earliest)
    assert consumer.receive(20_000).data() == b"m0"
    with pytest.raises((pulsar.TopicNotFound, pulsar.ConnectError)):  # which one a 404 is depends on its version
        client.subscribe("nothing", "s")
    client.close()


def test_the_stock_client_shows_its_token(guarded: Site) -> None:
    client = stock(guarded.url, authentication=pulsar.AuthenticationToken(token().decode()))
    assert client.create_reader(NAME, pulsar.MessageId.earliest).read_next(20_000).data() == b"m0"
    client.close()
    stranger = stock(guarded.url, authentication=pulsar.AuthenticationToken(token(sub="stranger").decode()))
    with pytest.raises(pulsar.PulsarException):
        stranger.create_reader(NAME, pulsar.MessageId.earliest)
    stranger.close()


@pytest.mark.parametrize("path", PATHS)
def test_each_door_asks(guarded: Site, path: str) -> None:
    assert ask(guarded, path)[0] == 401
    assert ask(guarded, path, Authorization="Basic abc")[0] == 401
    assert ask(guarded, path, Authorization=f"Bearer {token(exp=1).decode()}")[0] == 401
    assert ask(guarded, path, Authorization=f"Bearer {token(sub='stranger').decode()}")[0] == 403
    assert ask(guarded, path, Authorization=f"Bearer {token().decode()}")[0] == 200
    assert ask(guarded, path, authorization=f"bearer  {token().decode()} ")[0] == 200


def test_whoever_is_unknown_does_not_learn_what_there_is(guarded: Site) -> None:
    assert ask(guarded, "/nothing")[0] == 401
    assert ask(guarded, PATHS[0], "DELETE")[0] == 401


def test_https(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files, port = authority.issue("gateway"), free_port()
    tls = {
        "listen": "127.0.0.1:0",
        "httpListen": f"127.0.0.1:{port}",
        "certificate": str(files.certificate),
        "key": str(files.key),
    }
    with durable_gateway(archived().store, listen="", tls=tls):
        client = stock(f"https://127.0.0.1:{port}", tls_trust_certs_file_path=str(authority.certificate))
        assert client.create_reader(NAME, pulsar.MessageId.earliest).read_next(20_000).data() == b"m0"
        client.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100_000,
        b"GET /" + b"a" * 100_000,
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" + b"a" * 1_000_000,
        b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + b"ffff\r\n" + b"a" * 65535 + b"\r\n" * 9,
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        b"\r\n" * 100_000,
    ],
    ids=["header", "target", "body", "chunks", "host", "tls", "lines"],
)
def test_what_is_too_large_or_no_request_ends_its_own_connection(site: Site, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", site.port), timeout=20) as connection:
        try:
            connection.sendall(sent)
            while connection.recv(65536):
                pass
        except ConnectionError:
            pass
    assert ask(site, PATHS[2]) == (200, [NAME])


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_end_their_own_connection(site: Site, data: bytes, begins: bool) -> None:
    with socket.create_connection(("127.0.0.1", site.port), timeout=20) as connection:
        connection.sendall((b"GET / HTTP/1.1\r\nHost: x\r\n" if begins else b"") + data)
        assert ask(site, PATHS[2]) == (200, [NAME])


@given(st.text())
@example("/lookup/v2/topic/persistent/%ff/%00/%2F")
@example("/admin/v2/schemas/a/b/c/schema/" + "9" * 50)
def test_any_target_is_a_question_or_none(target: str) -> None:
    found = question_of(target)
    assert found is None or found.kind in ("partitions", "lookup", "topics", "schema")


def test_names_are_decoded_once() -> None:
    found = question_of("/admin/v2/persistent/t/n/a%2Fb%252F/partitions")
    assert found == ("partitions", "t/n", "persistent://t/n/a/b%2F", None, True)
