"""The client over real sockets: every request, many at once; and whatever goes wrong ends in a typed error, never in a
hang."""

import socket
import struct
import threading

import pytest

from offloader.bookkeeper.api import BookieAddress, LastConfirmed
from offloader.bookkeeper.bookies import BookieClient
from offloader.bookkeeper.entry_codec import master_key
from offloader.bookkeeper.settings import BookieSettings
from offloader.bookkeeper.status import NoLedgerError
from offloader.errors import (
    AccessDeniedError,
    BookieUnavailableError,
    FatalError,
    LedgerFencedError,
    OutcomeUnknownError,
    ProtocolError,
)
from tests.bookkeeper.bookie_server import BookieFault, BookieServer
from tests.bookkeeper.entries import stored_entry
from tests.bookkeeper.test_status import CODES

KEY = master_key(b"")
SOON = 10  # seconds; nothing here is slow, but the machine may be
IMPATIENT = BookieSettings(connect_timeout=0.3, request_timeout=0.3)


@pytest.fixture
def server():
    with BookieServer() as running:
        for entry in range(20):
            running.bookie.add(7, entry, stored_entry(entry, ledger_id=7), KEY)
        yield running


@pytest.fixture
def connect(server):
    """Clients that are closed at the end."""
    clients = []

    def make(settings=None, resolve=lambda _: server.address):
        clients.append(BookieClient(settings or BookieSettings(), resolve))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def client(connect):
    return connect()


def kept(entry):
    return stored_entry(entry, ledger_id=7)


def asked(operation, entry=None):
    return lambda request: request.operation == operation and entry in (None, request.entry)


def test_every_request_reaches_the_bookie(client, server):
    assert client.batches
    assert client.read("b1", 7, 3).result(SOON) == kept(3)
    assert client.read("b1", 7, -1).result(SOON) == kept(19)
    assert client.batch("b1", 7, 3, count=4, size=10_000).result(SOON) == [kept(n) for n in range(3, 7)]
    assert client.batch("b1", 7, 3, count=1, size=10_000).result(SOON) == [kept(3)]
    assert client.add("b1", 7, 20, kept(20), KEY).result(SOON) is None
    assert client.write_lac("b1", 7, 20, b"lac", KEY).result(SOON) is None
    assert client.read_lac("b1", 7).result(SOON) == LastConfirmed(b"lac", kept(20))
    assert list(client.entries_of("b1", 7).result(SOON)) == list(range(21))
    assert client.fence("b1", 7, KEY).result(SOON) == kept(20)
    assert client.recovery_add("b1", 7, 21, kept(21), KEY).result(SOON) is None
    assert client.read("b1", 7, 21, fence=KEY).result(SOON) == kept(21)
    assert server.connections == 2  # one for each version of the protocol: a bookie resets one that carries both


def test_a_fence_holds_and_knows_its_key(client):
    assert client.fence("b1", 8, KEY).result(SOON) is None  # nothing there, and yet fenced
    with pytest.raises(LedgerFencedError, match="add of 8:0"):
        client.add("b1", 8, 0, stored_entry(0, ledger_id=8), KEY).result(SOON)
    with pytest.raises(AccessDeniedError):
        client.fence("b1", 7, b"x" * 20).result(SOON)
    with pytest.raises(AccessDeniedError):
        client.recovery_add("b1", 7, 3, kept(3), b"x" * 20).result(SOON)
    assert client.add("b1", 7, 20, kept(20), KEY).result(SOON) is None


def test_a_fence_of_which_nothing_is_known_has_not_happened(client, server):
    server.add(BookieFault(asked("fence"), status=501))
    with pytest.raises(BookieUnavailableError, match="fencing read of 7:-1: status 501"):
        client.fence("b1", 7, KEY).result(SOON)


def test_thousands_may_be_under_way(client, server):
    reading = [client.read("b1", 7, n % 20) for n in range(3000)]
    batches = [client.batch("b1", 7, n % 20, count=3, size=1000) for n in range(300)]
    assert [f.result(SOON) for f in reading] == [kept(n % 20) for n in range(3000)]
    assert all(f.result(SOON)[0] == kept(n % 20) for n, f in enumerate(batches))
    assert server.connections == 2


def test_answers_may_come_in_another_order(client, server):
    server.add(BookieFault(asked("read", 3), swap=True))
    server.add(BookieFault(asked("batch", 3), swap=True))
    reading = [client.read("b1", 7, n) for n in (3, 4, 5)]
    batches = [client.batch("b1", 7, n, count=2, size=1000) for n in (3, 4, 5)]
    assert [f.result(SOON) for f in reading] == [kept(n) for n in (3, 4, 5)]
    assert [f.result(SOON) for f in batches] == [[kept(n), kept(n + 1)] for n in (3, 4, 5)]


@pytest.mark.parametrize(("code", "branch"), CODES.items())
def test_each_status_is_told_in_both_versions(client, server, code, branch):
    server.add(BookieFault(times=3, status=code))
    for future in (
        client.read("b1", 7, 3),
        client.batch("b1", 7, 3, count=5, size=1000),
        client.recovery_add("b1", 7, 3, kept(3), KEY),
    ):
        with pytest.raises(branch, match=f"^b1: .*7:3: status {code} ") as caught:
            future.result(SOON)
        assert caught.value.status == code


def test_a_request_without_an_answer_fails_by_itself(connect, server):
    client = connect(BookieSettings(request_timeout=0.3))
    server.add(BookieFault(asked("read", 3)))
    server.add(BookieFault(asked("batch", 3)))
    silent = client.read("b1", 7, 3)
    silent_batch = client.batch("b1", 7, 3, count=2, size=1000)
    assert client.read("b1", 7, 4).result(SOON) == kept(4)
    assert client.batch("b1", 7, 4, count=1, size=1000).result(SOON) == [kept(4)]
    with pytest.raises(BookieUnavailableError, match=r"^b1: read of 7:3: no answer within 0.3 s$"):
        silent.result(SOON)
    with pytest.raises(BookieUnavailableError, match="no answer"):
        silent_batch.result(SOON)
    assert client.read("b1", 7, 3).result(SOON) == kept(3)
    assert client.batch("b1", 7, 3, count=2, size=1000).result(SOON) == [kept(3), kept(4)]
    assert server.connections == 2


def test_a_connection_on_which_nothing_comes_is_given_up(connect, server):
    client = connect(IMPATIENT)
    server.add(BookieFault(times=2))
    silent = [client.read("b1", 7, 3), client.read("b1", 7, 4)]
    for future in silent:
        with pytest.raises(BookieUnavailableError, match="no answer within"):
            future.result(SOON)
    assert client.read("b1", 7, 3).result(SOON) == kept(3)
    assert server.connections == 2


def test_an_add_without_an_answer_may_have_happened(connect, server):
    client = connect(IMPATIENT)
    server.add(BookieFault(asked("recovery-add")))
    with pytest.raises(OutcomeUnknownError, match="b1: recovery add of 7:20: it may have happened"):
        client.recovery_add("b1", 7, 20, kept(20), KEY).result(SOON)


def test_a_cut_connection_fails_what_was_under_way_and_is_made_again(client, server):
    server.add(BookieFault(asked("read", 5)))
    server.add(BookieFault(asked("add", 20), drop=True))
    waiting = client.read("b1", 7, 5)
    adding = client.add("b1", 7, 20, kept(20), KEY)
    with pytest.raises(
        OutcomeUnknownError, match=r"add of 7:20: it may have happened \(the connection to b1 was closed"
    ):
        adding.result(SOON)
    with pytest.raises(BookieUnavailableError, match="read of 7:5: the connection to b1 was closed by the bookie"):
        waiting.result(SOON)
    assert client.read("b1", 7, 20).result(SOON) == kept(20)  # it had happened
    assert server.connections == 2


def test_an_add_that_was_never_sent_did_not_happen(connect):
    client = connect(resolve=lambda _: BookieAddress("127.0.0.1", 1))
    with pytest.raises(BookieUnavailableError, match=r"add of 7:0: b1 at 127.0.0.1:1 cannot be reached"):
        client.add("b1", 7, 0, kept(0), KEY).result(SOON)


def test_a_host_that_does_not_answer_is_not_waited_for(connect):
    with socket.create_server(("127.0.0.1", 0), backlog=1) as deaf:
        client = connect(BookieSettings(connect_timeout=0.3, tls=True), lambda _: BookieAddress(*deaf.getsockname()))
        with pytest.raises(BookieUnavailableError, match=r"did not answer within 0.3 s"):
            client.read("b1", 7, 0).result(SOON)


def test_nonsense_ends_the_connection_and_not_the_client(client, server):
    server.add(BookieFault(asked("read", 3), spoil=lambda body: b"\xff" * len(body)))
    with pytest.raises(ProtocolError, match=r"b1: .* cannot be parsed"):
        client.read("b1", 7, 3).result(SOON)
    assert client.read("b1", 7, 3).result(SOON) == kept(3)


def test_an_answer_that_is_too_large_is_refused(connect, server):
    server.bookie.add(7, 20, stored_entry(20, ledger_id=7, size=200_000), KEY)
    client = connect(BookieSettings(max_entry=100_000))
    with pytest.raises(ProtocolError, match="a frame of"):
        client.read("b1", 7, 20).result(SOON)
    assert client.read("b1", 7, 19).result(SOON) == kept(19)


@pytest.mark.parametrize("batches", [True, False])
def test_an_answer_that_is_too_large_is_nobody_elses_failure(connect, server, batches):
    server.bookie.add(7, 20, stored_entry(20, ledger_id=7, size=200_000), KEY)
    client = connect(BookieSettings(max_entry=100_000))
    entries = [0, 20, 1, 2]
    server.add(BookieFault(lambda request: request.entry == 0, delay=0.1))  # by then all have been asked

    def read(entry):
        return client.batch("b1", 7, entry, count=2, size=1) if batches else client.read("b1", 7, entry)

    errors = [future.exception(SOON) for future in [read(entry) for entry in entries]]
    assert [type(error) for error in errors] == [
        type(None),
        ProtocolError,
        BookieUnavailableError,
        BookieUnavailableError,
    ]
    assert "a frame of" in str(errors[2])
    assert read(1).exception(SOON) is None


def test_nonsense_is_nobody_elses_failure(client, server):
    server.add(BookieFault(asked("read", 3), delay=0.1, spoil=lambda frame: frame[:-150] + b"\xff" * 150))
    nonsense, other = client.read("b1", 7, 3), client.read("b1", 7, 4)
    assert isinstance(nonsense.exception(SOON), ProtocolError)
    assert type(other.exception(SOON)) is BookieUnavailableError


def test_where_a_bookie_is_is_asked_at_each_connect(connect, server):
    with BookieServer(server.bookie) as other:
        places = [server.address]
        client = connect(resolve=lambda _: places[0])
        assert client.read("b1", 7, 0).result(SOON) == kept(0)
        places[0] = other.address
        server.add(BookieFault(drop=True))
        with pytest.raises(BookieUnavailableError):
            client.read("b1", 7, 1).result(SOON)
        assert client.read("b1", 7, 1).result(SOON) == kept(1)
        assert other.connections == 1


def test_a_bookie_that_is_not_registered_fails_the_request(connect):
    def resolve(bookie):
        raise BookieUnavailableError(f"{bookie} is not registered")

    with pytest.raises(BookieUnavailableError, match="read of 7:0: b1 is not registered"):
        connect(resolve=resolve).read("b1", 7, 0).result(SOON)


def test_a_mistake_in_finding_a_bookie_does_not_leave_the_request_waiting(connect):
    with pytest.raises(BookieUnavailableError, match=r"read of 7:0: connecting to b1 failed \(KeyError"):
        connect(resolve={}.__getitem__).read("b1", 7, 0).result(SOON)


def test_two_bookies_have_connections_of_their_own(connect, server):
    with BookieServer() as other:
        client = connect(resolve={"b1": server.address, "b2": other.address}.__getitem__)
        assert client.read("b1", 7, 0).result(SOON) == kept(0)
        with pytest.raises(NoLedgerError, match="b2: read of 7:0"):
            client.read("b2", 7, 0).result(SOON)


def test_a_cancelled_request_does_not_disturb_others(client, server):
    server.add(BookieFault(asked("read", 3), delay=0.05))
    first, second = client.read("b1", 7, 3), client.read("b1", 7, 4)
    assert first.cancel()
    assert second.result(SOON) == kept(4)


def test_answers_may_be_used_to_ask_again(client):
    found, done = [], threading.Event()

    def go_on(future):
        found.append(future.result())
        if len(found) < 5:
            client.read("b1", 7, len(found)).add_done_callback(go_on)
        else:
            done.set()

    client.read("b1", 7, 0).add_done_callback(go_on)
    assert done.wait(SOON)
    assert found == [kept(n) for n in range(5)]


def test_closing_fails_what_waits_and_what_comes_after(connect, server):
    client = connect()
    server.add(BookieFault(times=2))
    waiting = [client.read("b1", 7, 3), client.batch("b1", 7, 3, count=2, size=1000)]
    client.close()
    client.close()
    for future in [*waiting, client.read("b1", 7, 3)]:
        with pytest.raises(BookieUnavailableError, match="the client was closed"):
            future.result(SOON)


def test_closing_while_it_connects_leaves_nothing_waiting(connect):
    asked_for, go_on = threading.Event(), threading.Event()

    def resolve(_):
        asked_for.set()
        go_on.wait(SOON)
        return BookieAddress("127.0.0.1", 1)

    client = connect(resolve=resolve)
    waiting = client.read("b1", 7, 3)
    assert asked_for.wait(SOON)
    closing = threading.Thread(target=client.close)
    closing.start()
    with pytest.raises(BookieUnavailableError):
        waiting.result(SOON)
    go_on.set()
    closing.join()


def test_closing_in_the_middle_of_a_handshake_leaves_nothing_open(connect):
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        client = connect(BookieSettings(tls=True), lambda _: BookieAddress(*deaf.getsockname()))
        waiting = client.read("b1", 7, 3)
        accepted, _ = deaf.accept()
        with accepted:
            accepted.settimeout(SOON)
            assert accepted.recv(1000)
            client.close()
            assert accepted.recv(1000) == b""
        with pytest.raises(BookieUnavailableError, match="the client was closed"):
            waiting.result(SOON)


def test_an_id_that_does_not_exist_is_told_to_whoever_asked(client):
    wrong = [client.read("b1", 2**63, 0), client.batch("b1", 7, -(2**63) - 1, count=2, size=1000)]
    right = client.read("b1", 7, 0)
    for future in wrong:
        with pytest.raises((ValueError, struct.error)):
            future.result(SOON)
    assert right.result(SOON) == kept(0)


def test_several_threads_may_ask(client):
    found = []

    def ask():
        found.append([client.read("b1", 7, n % 20).result(SOON) for n in range(50)])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[kept(n % 20) for n in range(50)]] * 4


def test_a_request_that_a_version_does_not_have_fails_at_once(connect):
    client = connect(BookieSettings(tls=True))
    assert not client.batches
    with pytest.raises(FatalError, match="cannot be had over TLS"):
        client.batch("b1", 7, 0, count=2, size=1000).result(SOON)


@pytest.mark.parametrize("batches", [True, False])
def test_a_large_answer_that_nobody_waits_for_any_more_is_not_blamed_on_whoever_does(connect, server, batches):
    server.bookie.add(7, 20, stored_entry(20, ledger_id=7, size=200_000), KEY)
    client = connect(BookieSettings(max_entry=100_000))
    server.add(BookieFault(lambda request: request.entry == 20, delay=0.3))

    def read(entry):
        return client.batch("b1", 7, entry, count=2, size=1) if batches else client.read("b1", 7, entry)

    assert client.read("b1", 7, 0).result(SOON) == kept(0)  # connected
    gone, waiting = read(20), read(1)
    gone.cancel()
    assert type(waiting.exception(SOON)) is BookieUnavailableError
