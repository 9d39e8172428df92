"""TLS: with Pulsar's own Python client, and byte by byte."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pulsar
import pytest
from pydantic import ValidationError

from offloader._proto.pulsar_wire_pb2 import Connect, Lookup
from offloader.errors import ConfigError
from offloader.gateway import application
from offloader.gateway.owners.living import LivingGateways
from offloader.gateway.protocol.answers import Address
from offloader.gateway.topics.workers import Workers
from offloader.pulsar.commands import command
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC, Archive, message
from tests.format.support import Stored
from tests.gateway.access.certificates import Authority, Files
from tests.gateway.gateway import free_port, gateway
from tests.gateway.raw import RawClient

NAME = str(TOPIC)
PATIENCE = 60_000  # ms, for hanging
CONNECT = command(connect=Connect(client_version="x", protocol_version=21))


@pytest.fixture(scope="module")
def archive() -> Archive:
    made = Archive(MemoryStore())
    made.claim(10, 0)
    made.add([Stored(10, entry, message(f"m{entry}")) for entry in range(20)])
    return made


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@contextmanager
def secure(archive: Archive, shown: Files, **more: object) -> Iterator[str]:
    """A gateway that is reached by TLS alone."""
    tls = {"listen": "127.0.0.1:0", "certificate": str(shown.certificate), "key": str(shown.key), **more}
    with gateway(archive.store, listen="", tls=tls) as url:
        yield url


def read_first(url: str, **arguments: object) -> bytes:
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(url, operation_timeout_seconds=3, logger=quiet, tls_validate_hostname=True, **arguments)
    try:
        return client.create_reader(NAME, pulsar.MessageId.earliest).read_next(PATIENCE).data()
    finally:
        client.close()


def test_the_stock_client_reads_by_tls(archive: Archive, authority: Authority) -> None:
    with secure(archive, authority.issue("gateway")) as url:
        assert url.startswith("pulsar+ssl://")
        assert read_first(url, tls_trust_certs_file_path=str(authority.certificate)) == b"m0"


def test_a_client_that_does_not_trust_us_hears_nothing(archive: Archive, authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    with secure(archive, authority.issue("gateway")) as url:
        with pytest.raises((pulsar.ConnectError, pulsar.Timeout)):
            read_first(url, tls_trust_certs_file_path=str(other.certificate))
        assert read_first(url, tls_trust_certs_file_path=str(authority.certificate)) == b"m0"


def test_both_kinds_of_addresses_are_told(archive: Archive, authority: Authority) -> None:
    files, port = authority.issue("gateway"), free_port()
    tls = {"listen": f"127.0.0.1:{port}", "certificate": str(files.certificate), "key": str(files.key)}
    with gateway(archive.store, tls=tls) as url:
        with RawClient(url) as client:
            client.send(CONNECT, command(lookup=Lookup(topic=NAME, request_id=1)))
            found = client.answer().lookup_response
        secured = f"pulsar+ssl://127.0.0.1:{port}"
        assert (found.broker_service_url, found.broker_service_url_tls) == (url, secured)
        assert read_first(url) == b"m0"
        assert read_first(secured, tls_trust_certs_file_path=str(authority.certificate)) == b"m0"


def test_clients_that_must_show_a_certificate(archive: Archive, authority: Authority, tmp_path: Path) -> None:
    trusted, good = {"tls_trust_certs_file_path": str(authority.certificate)}, authority.issue("client")
    bad = Authority(tmp_path, "other").issue("stranger")
    with secure(archive, authority.issue("gateway"), clientCa=str(authority.certificate)) as url:
        shown = pulsar.AuthenticationTLS(str(good.certificate), str(good.key))
        assert read_first(url, authentication=shown, **trusted) == b"m0"
        with pytest.raises((pulsar.ConnectError, pulsar.Timeout)):
            read_first(url, authentication=pulsar.AuthenticationTLS(str(bad.certificate), str(bad.key)), **trusted)
        with pytest.raises((pulsar.ConnectError, pulsar.Timeout)):
            read_first(url, **trusted)
        assert asyncio.run(LivingGateways(Workers()).is_living(Address("", url)))  # who refuses us lives


def test_a_new_certificate_is_shown_once_its_files_are_there(
    archive: Archive, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "LOOK_AT_FILES_MS", 50)
    shown = authority.issue("gateway")
    with secure(archive, shown) as url:
        first = certificate(url, authority)
        shown.key.write_bytes(authority.issue("next").key.read_bytes())
        assert certificate(url, authority) == first, "a key that does not belong to it changes nothing"
        authority.issue("gateway")
        while certificate(url, authority) == first:
            pass
        assert read_first(url, tls_trust_certs_file_path=str(authority.certificate)) == b"m0"


def test_what_cannot_be_shown_is_refused_at_the_start(authority: Authority, archive: Archive, tmp_path: Path) -> None:
    good, other = authority.issue("gateway"), authority.issue("other")
    for files in (Files(good.certificate, other.key), Files(good.key, good.key), Files(tmp_path / "none", good.key)):
        with pytest.raises(ConfigError, match=r"^gateway.tls: "), secure(archive, files):
            pass
    with pytest.raises(ValidationError, match="nothing is listened on"), secure(archive, good, listen=""):
        pass


def test_whoever_is_silent_in_the_handshake_takes_nobodys_place(archive: Archive, authority: Authority) -> None:
    shown = authority.issue("gateway")
    tls = {"listen": "127.0.0.1:0", "certificate": str(shown.certificate), "key": str(shown.key)}
    with gateway(archive.store, listen="", tls=tls, connections=3) as url:
        where = urlsplit(url)
        silent = [socket.create_connection((where.hostname, where.port), timeout=20) for _ in range(10)]
        assert read_first(url, tls_trust_certs_file_path=str(authority.certificate)) == b"m0"
        assert silent[0].recv(1) == b"", "the oldest made room"
        for connection in silent:
            connection.close()


def test_what_is_no_tls_ends_its_own_connection(archive: Archive, authority: Authority) -> None:
    with secure(
        archive,
        authority.issue("gateway"),
    ) as url:
        with RawClient(url.replace("+ssl", "")) as client:
            client.send(CONNECT)
            assert client.ends()
        assert read_first(url, tls_trust_certs_file_path=str(authority.certificate)) == b"m0"


def certificate(url: str, authority: Authority) -> bytes | None:
    where = urlsplit(url)
    context = ssl.create_default_context(cafile=str(authority.certificate))
    with (
        socket.create_connection((where.hostname, where.port), timeout=20) as plain,
        context.wrap_socket(plain, server_hostname=where.hostname) as connection,
    ):
        return connection.getpeercert(binary_form=True)
