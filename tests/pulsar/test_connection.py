"""One connection: handshake, requests, keep-alive, broken peers, credentials, TLS."""

import dataclasses
import socket
import struct
import threading

import pytest

from offloader.errors import (
    AuthenticationFailedError,
    BrokerUnavailableError,
    FatalError,
    OutcomeUnknownError,
    ProtocolError,
    TopicMovedError,
    TopicNotFoundError,
)
from offloader.pulsar import commands
from offloader.pulsar.auth import Authentication, TokenAuthentication
from offloader.pulsar.connection import BrokerConnection, open_socket
from offloader.pulsar.settings import HostPort, PulsarSettings
from tests.pulsar import fake_broker as fake
from tests.pulsar.certificates import certificate
from tests.pulsar.fake_broker import FakeBroker


class Listener:
    """A consumer that writes down what it hears; `gate` lets a test keep the I/O thread's caller busy."""

    def __init__(self):
        self.entries, self.errors = [], []
        self.heard = threading.Event()

    def on_entry(self, ledger, entry, data):
        self.entries.append((ledger, entry, data))
        self.heard.set()

    def on_closed(self, error):
        self.errors.append(error)
        self.heard.set()


@pytest.fixture
def connect(settings):
    opened = []

    def connect(changed=None, auth=None, broker=None):
        used = changed or settings
        connection = BrokerConnection.open(used, auth or Authentication(), used.service_hosts[0], broker)
        opened.append(connection)
        return connection

    yield connect
    for connection in opened:
        connection.close()


def ask(connection, timeout=60.0, **kwargs):
    return connection.call(lambda n: commands.lookup(n, "t", authoritative=False), timeout, "looking up t", **kwargs)


def test_we_say_who_we_are_and_ask_for_broker_entry_metadata(broker, connect):
    connect()
    said = broker.wait_for(fake.CONNECT).connect
    assert said.auth_method_name == "none"
    assert said.protocol_version >= 18
    assert said.feature_flags.supports_broker_entry_metadata
    assert not said.HasField("proxy_to_broker_url")


def test_a_proxy_is_told_which_broker_we_mean(broker, connect):
    connect(broker=HostPort("inner", 6650))
    assert broker.wait_for(fake.CONNECT).connect.proxy_to_broker_url == "inner:6650"


def test_a_refused_handshake_is_an_authentication_error(broker, connect):
    broker.on(
        fake.CONNECT, lambda peer, c: peer.send(error={"request_id": 2**64 - 1, "error": 3, "message": "bad token"})
    )
    with pytest.raises(AuthenticationFailedError, match=r"connecting to 127.*bad token"):
        connect()


def test_a_peer_that_does_not_shake_hands_is_given_up(broker, connect, impatient):
    broker.ignore(fake.CONNECT)
    with pytest.raises(BrokerUnavailableError, match="did not answer CONNECT"):
        connect(impatient)


def test_a_port_where_nobody_listens_is_unavailable(settings):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(BrokerUnavailableError, match="cannot be reached"):
        BrokerConnection.open(settings, Authentication(), HostPort("127.0.0.1", port))


def test_a_name_that_no_host_can_have_is_unavailable(settings):
    # A broker may have told it: in our own settings it is refused before.
    with pytest.raises(BrokerUnavailableError, match=r"a\.\.b:6650 cannot be reached"):
        open_socket(settings, HostPort("a..b", 6650))


def test_answers_find_their_requests_in_any_order(broker, connect):
    asked = []
    broker.on(fake.LOOKUP, lambda peer, c: asked.append(c))
    connection = connect()
    first = connection.session.request(lambda n: commands.lookup(n, "a", authoritative=False))
    second = connection.session.request(lambda n: commands.lookup(n, "b", authoritative=False))
    broker.wait_for(fake.LOOKUP, 2)
    for c in reversed(asked):
        answer = {"request_id": c.lookup.request_id, "response": 1, "broker_service_url": c.lookup.topic}
        broker.peers[0].send(lookup_response=answer)
    assert first.result(60).lookup_response.broker_service_url == "a"
    assert second.result(60).lookup_response.broker_service_url == "b"


def test_an_answered_error_is_typed_and_says_what_was_asked(broker, connect):
    broker.on(fake.LOOKUP, fake.fail("lookup", 11, "no such topic"))
    with pytest.raises(TopicNotFoundError, match="looking up t: the broker answered TopicNotFound: no such topic"):
        ask(connect())


def test_a_missing_answer_is_unavailable_for_a_question_and_unknown_for_a_write(broker, connect):
    broker.ignore(fake.LOOKUP)
    connection = connect()
    with pytest.raises(BrokerUnavailableError, match="did not answer within"):
        ask(connection, 0.1)
    with pytest.raises(OutcomeUnknownError, match="it may have happened"):
        ask(connection, 0.1, write=True)


def test_a_late_answer_hurts_nobody(broker, connect):
    late = []
    broker.on(fake.LOOKUP, lambda peer, c: late.append((peer, c)))
    connection = connect()
    with pytest.raises(BrokerUnavailableError):
        ask(connection, 0.1)
    assert not connection.session._replies, "what nobody waits for is kept"
    fake.found(*late[0])
    broker.on(fake.LOOKUP, fake.found)
    assert ask(connection).lookup_response.broker_service_url == broker.url


def test_a_connection_that_ends_fails_what_waits_and_tells_consumers(broker, connect):
    broker.on(fake.LOOKUP, lambda peer, c: peer.close())
    connection = connect()
    listener = Listener()
    connection.session.add_consumer(listener)
    with pytest.raises(OutcomeUnknownError, match="closed the connection"):
        ask(connection, write=True)
    assert listener.heard.wait(60)
    assert isinstance(listener.errors[0], BrokerUnavailableError)
    assert not connection.alive
    with pytest.raises(BrokerUnavailableError, match="closed the connection"):
        ask(connection, write=True)  # nothing was sent, so nothing is unknown


def test_ping_is_answered_while_every_consumer_is_busy(broker, connect):
    connection = connect()
    listener = Listener()
    consumer = connection.session.add_consumer(listener)
    broker.peers[0].entry(consumer, 1, 0, b"data")
    assert listener.heard.wait(60)  # and nobody reads it
    for number in range(1, 4):
        broker.peers[0].send(ping={})
        broker.wait_for(fake.PONG, number)


def test_a_peer_that_stops_answering_is_given_up(broker, connect, settings):
    broker.ignore(fake.PING)
    connection = connect(dataclasses.replace(settings, keep_alive=0.2))
    listener = Listener()
    connection.session.add_consumer(listener)
    assert listener.heard.wait(60)
    assert "stopped answering" in str(listener.errors[0])
    assert len(broker.received(fake.PING)) == 1


def test_a_silent_peer_that_answers_ping_is_kept(broker, connect, settings):
    connection = connect(dataclasses.replace(settings, keep_alive=0.5))
    broker.wait_for(fake.PING, 3)
    assert connection.alive


@pytest.mark.parametrize(
    ("garbage", "error"),
    [
        (struct.pack(">II", 100_000_000, 10), "a frame of 100000000 bytes"),
        (struct.pack(">II", 7, 3) + b"\xff\xff\xff", "cannot be parsed"),
    ],
)
def test_a_peer_that_breaks_the_protocol_is_left(broker, connect, garbage, error):
    connection = connect()
    listener = Listener()
    connection.session.add_consumer(listener)
    broker.peers[0].raw(garbage)
    assert listener.heard.wait(60)
    assert isinstance(listener.errors[0], ProtocolError)
    assert error in str(listener.errors[0])


def test_a_truncated_frame_is_a_broken_connection(broker, connect):
    connection = connect()
    listener = Listener()
    consumer = connection.session.add_consumer(listener)
    broker.peers[0].raw(struct.pack(">II", 1000, 10) + b"half")
    broker.peers[0].close()
    assert listener.heard.wait(60)
    assert isinstance(listener.errors[0], BrokerUnavailableError)
    assert listener.entries == []
    assert consumer > 0


@pytest.mark.parametrize(
    "closing",
    [
        lambda consumer: {"close_consumer": {"consumer_id": consumer, "request_id": 1}},
        lambda consumer: {"topic_migrated": {"resource_id": consumer, "resource_type": 1}},
    ],
)
def test_a_consumer_that_is_closed_hears_that_its_topic_moved(broker, connect, closing):
    connection = connect()
    listener, other = Listener(), Listener()
    consumer = connection.session.add_consumer(listener)
    connection.session.add_consumer(other)
    broker.peers[0].send(**closing(consumer))
    assert listener.heard.wait(60)
    assert isinstance(listener.errors[0], TopicMovedError)
    assert other.errors == []
    assert connection.alive


def test_what_comes_for_an_unknown_consumer_and_unknown_commands_are_passed_over(broker, connect):
    connection = connect()
    broker.peers[0].entry(12345, 1, 0, b"data")
    broker.peers[0].send(close_consumer={"consumer_id": 12345, "request_id": 1})
    broker.peers[0].send(active_consumer_change={"consumer_id": 12345, "is_active": True})
    assert ask(connection).lookup_response.broker_service_url == broker.url


def test_the_current_token_answers_a_challenge(broker, connect, tmp_path):
    path = tmp_path / "token"
    path.write_text("first")
    connect(auth=TokenAuthentication(f"file://{path}"))
    assert broker.wait_for(fake.CONNECT).connect.auth_data == b"first"
    path.write_text("second")
    broker.peers[0].send(auth_challenge={})
    answer = broker.wait_for(fake.AUTH_RESPONSE).auth_response.response
    assert (answer.auth_method_name, answer.auth_data) == ("token", b"second")


def test_tls_with_a_trusted_certificate(tmp_path):
    context, trusted = certificate(tmp_path)
    broker = FakeBroker(tls=context)
    try:
        settings = PulsarSettings(service_url=broker.url, tls_trust_certs_file=str(trusted), connect_timeout=60)
        connection = BrokerConnection.open(settings, Authentication(), broker.address)
        listener = Listener()
        consumer = connection.session.add_consumer(listener)
        large = bytes(range(256)) * 16 * 1024
        broker.peers[0].entry(consumer, 1, 0, large)  # many TLS records
        assert listener.heard.wait(60)
        assert listener.entries == [(1, 0, large)]
        assert ask(connection).lookup_response.broker_service_url_tls == broker.url
        connection.close()
    finally:
        broker.close()


def test_tls_refuses_a_certificate_that_nobody_vouches_for_unless_told_otherwise(tmp_path):
    context, _ = certificate(tmp_path)
    broker = FakeBroker(tls=context)
    try:
        settings = PulsarSettings(service_url=broker.url, connect_timeout=60)
        with pytest.raises(FatalError, match="not trusted"):
            BrokerConnection.open(settings, Authentication(), broker.address)
        careless = dataclasses.replace(settings, tls_allow_insecure=True)
        BrokerConnection.open(careless, Authentication(), broker.address).close()
    finally:
        broker.close()


def test_tls_with_a_peer_that_speaks_plain_is_unavailable(broker, settings):
    tls = dataclasses.replace(settings, service_url=f"pulsar+ssl://{broker.address}", connect_timeout=1)
    with pytest.raises(BrokerUnavailableError, match="TLS handshake"):
        BrokerConnection.open(tls, Authentication(), broker.address)


def test_closing_twice_is_harmless_and_leaves_no_thread(broker, connect):
    connection = connect()
    connection.close()
    connection.close()
    assert not connection.alive
    assert not any(t.name == f"pulsar {connection.name}" for t in threading.enumerate())
