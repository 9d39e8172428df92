"""Reader, client and bookies together: a ledger of three replicas is read through whatever happens to its bookies."""

from contextlib import ExitStack, closing

import pytest

from offloader.bookkeeper.bookies import BookieClient
from offloader.bookkeeper.entry_codec import master_key
from offloader.bookkeeper.reading import LedgerReader
from offloader.bookkeeper.settings import BookieSettings
from offloader.errors import BookieUnavailableError, LedgerNotFoundError
from offloader.model import KIB, EntryRange
from tests.bookkeeper.bookie_server import BookieFault, BookieServer
from tests.bookkeeper.entries import LEDGER, ledger, payload, stored_entry
from tests.examples import few
from tests.pulsar.certificates import certificate

NAMES = ("b1", "b2", "b3")
LAST = 2999
METADATA = ledger((0, NAMES), quorums=(3, 2), last=LAST)
EXPECTED = [payload(entry) for entry in range(LAST + 1)]
SOON = 10


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(params=["batches", "tls"])
def cluster(request, tls):
    """Three servers that hold everything, and a client for them."""
    context, trusted = tls
    settings = {"tls": True, "tls_trust_certs_file": str(trusted)} if request.param == "tls" else {}
    with ExitStack() as stack:
        servers = {name: stack.enter_context(BookieServer(tls=context)) for name in NAMES}
        for server in servers.values():
            for entry in range(LAST + 1):
                server.bookie.add(LEDGER, entry, stored_entry(entry), master_key(b""))
        client = BookieClient(BookieSettings(request_timeout=3.0, **settings), lambda name: servers[name].address)
        stack.enter_context(closing(client))
        yield servers, client


def read_all(client, after_first=lambda: None, **more):
    with closing(LedgerReader(client, EntryRange(LEDGER, 0, LAST + 1), METADATA, max_bytes=64 * KIB, **more)) as reader:
        found = reader.read(SOON)
        after_first()
        while not reader.finished:
            entries = reader.read(SOON)
            assert entries
            found += entries
    assert [e.entry for e in found] == list(range(LAST + 1))
    return [e.data for e in found]


def test_all_is_well(cluster):
    assert read_all(cluster[1]) == EXPECTED


def test_connections_are_cut(cluster):
    servers, client = cluster
    assert read_all(client, lambda: [server.hang_up() for server in servers.values()]) == EXPECTED


def test_two_bookies_fall_silent(cluster):
    servers, client = cluster

    def silence():
        for name in ("b1", "b2"):
            servers[name].add(BookieFault(times=1_000_000))

    assert read_all(client, silence, speculate_after=0.05) == EXPECTED


@pytest.mark.parametrize("status", few([402, 403, 501, 506, 507, 599], 1))
def test_two_bookies_know_nothing(cluster, status):
    servers, client = cluster
    for name in ("b1", "b3"):
        servers[name].add(BookieFault(times=1_000_000, status=status))
    assert read_all(client) == EXPECTED


def test_a_ledger_is_deleted_while_it_is_read(cluster):
    servers, client = cluster

    def delete():
        for server in servers.values():
            del server.bookie.ledgers[LEDGER]

    with pytest.raises(LedgerNotFoundError, match="was it deleted"):
        read_all(client, delete)


def test_all_bookies_are_gone(cluster):
    servers, client = cluster
    for server in servers.values():
        server.add(BookieFault(times=1_000_000, drop=True))
    with pytest.raises(BookieUnavailableError, match=r"b1: .*b2: .*b3: "):
        read_all(client)
