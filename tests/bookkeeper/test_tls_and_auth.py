"""TLS on the upgraded connection, and the hook for authentication, in both versions of the protocol."""

import ssl

import pytest

from offloader.bookkeeper.bookies import BookieClient
from offloader.bookkeeper.settings import BookieSettings, PlainAuthentication
from offloader.errors import (
    AccessDeniedError,
    AuthenticationFailedError,
    BookieUnavailableError,
    ConfigError,
    FatalError,
)
from tests.bookkeeper.bookie_server import BookieServer, ServerAuthentication
from tests.bookkeeper.entries import stored_entry
from tests.fakes.memory_bookie import MemoryBookie
from tests.pulsar.certificates import certificate

SOON = 10
PLUGIN = "org.example.Secret"


class Conversation:
    """Three steps, each of which depends on the bookie's answer."""

    plugin = PLUGIN

    def first(self):
        return b"hello"

    def next(self, answer):
        return {b"who?": b"me", b"prove it": b"secret", b"welcome": None}[answer]


TALKATIVE = ServerAuthentication(PLUGIN, {b"hello": b"who?", b"me": b"prove it", b"secret": b"welcome"}, last=b"secret")
SHORT = ServerAuthentication(PLUGIN, {b"secret": b""}, last=b"secret")


@pytest.fixture
def bookie():
    made = MemoryBookie()
    for entry in range(3):
        made.add(7, entry, stored_entry(entry, ledger_id=7), b"k" * 20)
    return made


@pytest.fixture
def pair(bookie):
    """A server and a client for it, closed at the end."""
    open_ones = []

    def make(settings, **server):
        running = BookieServer(bookie, **server).__enter__()
        client = BookieClient(settings, lambda _: running.address)
        open_ones.append((running, client))
        return running, client

    yield make
    for running, client in open_ones:
        client.close()
        running.__exit__(None, None, None)


def read(client):
    return client.read("b1", 7, 1).result(SOON)


def read_batch(client):
    return client.batch("b1", 7, 1, count=2, size=1000).result(SOON)


ENTRIES = [stored_entry(entry, ledger_id=7) for entry in (1, 2)]


def test_everything_goes_through_tls(pair, tmp_path):
    context, trusted = certificate(tmp_path)
    server, client = pair(BookieSettings(tls=True, tls_trust_certs_file=str(trusted)), tls=context)
    assert read(client) == ENTRIES[0]
    assert [client.read("b1", 7, n % 3).result(SOON)[32 + 4 :] for n in range(500)][1::3] == [ENTRIES[0][36:]] * 167
    assert not client.batches
    assert server.connections == 1


def test_a_large_answer_passes_tls(pair, bookie, tmp_path):
    context, trusted = certificate(tmp_path)
    large = stored_entry(3, ledger_id=7, size=3_000_000)
    bookie.add(7, 3, large, b"k" * 20)
    _, client = pair(BookieSettings(tls=True, tls_trust_certs_file=str(trusted)), tls=context)
    assert client.read("b1", 7, 3).result(SOON) == large
    client.recovery_add("b1", 7, 4, large, b"k" * 20).result(SOON)
    assert bookie.ledgers[7].stored[4] == large


def test_a_certificate_that_nobody_vouches_for_is_refused(pair, tmp_path):
    context, _ = certificate(tmp_path)
    _, client = pair(BookieSettings(tls=True), tls=context)
    with pytest.raises(FatalError, match="its certificate is not trusted"):
        read(client)


def test_a_certificate_need_not_be_checked(pair, tmp_path):
    context, _ = certificate(tmp_path)
    _, client = pair(BookieSettings(tls=True, tls_allow_insecure=True), tls=context)
    assert read(client) == ENTRIES[0]


def test_a_bookie_without_tls_is_told(pair):
    _, client = pair(BookieSettings(tls=True))
    with pytest.raises(FatalError, match="the bookie does not speak TLS"):
        read(client)


def test_a_bookie_may_ask_for_our_certificate(pair, tmp_path):
    context, trusted = certificate(tmp_path)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(trusted)
    ours = {"tls_certificate_file": str(trusted), "tls_key_file": str(tmp_path / "key.pem")}
    _, client = pair(BookieSettings(tls=True, tls_trust_certs_file=str(trusted), **ours), tls=context)
    assert read(client) == ENTRIES[0]
    _, stranger = pair(BookieSettings(tls=True, tls_trust_certs_file=str(trusted)), tls=context)
    with pytest.raises(BookieUnavailableError):
        read(stranger)


def test_a_certificate_file_that_is_not_there_is_named(pair):
    _, client = pair(
        BookieSettings(tls=True, tls_trust_certs_file="/nowhere.pem"), tls=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    )
    with pytest.raises(ConfigError, match="certificate or key file"):
        read(client)


@pytest.mark.parametrize(
    ("authentication", "expected"),
    [(Conversation, TALKATIVE), (lambda: PlainAuthentication(PLUGIN, b"secret"), SHORT)],
)
def test_whoever_proves_it_is_let_in(pair, authentication, expected):
    _, client = pair(BookieSettings(authentication=authentication), authentication=expected)
    assert read(client) == ENTRIES[0]
    assert read_batch(client) == ENTRIES


def test_both_at_once(pair, tmp_path):
    context, trusted = certificate(tmp_path)
    settings = BookieSettings(tls=True, tls_trust_certs_file=str(trusted), authentication=Conversation)
    _, client = pair(settings, tls=context, authentication=TALKATIVE)
    assert read(client) == ENTRIES[0]


def test_a_bookie_that_asks_nobody_is_content(pair):
    _, client = pair(BookieSettings(authentication=Conversation))
    assert read(client) == ENTRIES[0]


def test_the_wrong_secret_is_refused(pair):
    _, client = pair(BookieSettings(authentication=lambda: PlainAuthentication(PLUGIN, b"wrong")), authentication=SHORT)
    with pytest.raises(AuthenticationFailedError, match="does not accept who we are"):
        read(client)
    with pytest.raises(BookieUnavailableError, match="closed by the bookie"):  # version 2 has no words for it
        read_batch(client)


def test_another_plugin_than_the_bookies_is_told(pair):
    server = ServerAuthentication(PLUGIN, {b"secret": b""}, last=b"secret")
    _, client = pair(
        BookieSettings(authentication=lambda: PlainAuthentication("other", b"secret")), authentication=server
    )
    with pytest.raises(AuthenticationFailedError):
        read(client)


def test_whoever_proves_nothing_is_told(pair):
    _, client = pair(BookieSettings(), authentication=SHORT)
    with pytest.raises(AccessDeniedError, match="read of 7:1: status 502"):
        read(client)
