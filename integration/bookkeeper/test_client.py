"""Our client beside BookKeeper's own: what either wrote the other reads, and bookies answer ours as the protocol
says."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from integration.bookkeeper.cluster import PATIENT, BookKeeperCluster
from integration.bookkeeper.contents import Contents
from integration.bookkeeper.official import OfficialError, Shape
from integration.processes import HANGS
from offloader.bookkeeper import entry_codec
from offloader.bookkeeper.bookies import BookieClient
from offloader.bookkeeper.entry_codec import digest_for, master_key
from offloader.bookkeeper.metadata import MetadataTree
from offloader.bookkeeper.model import LedgerMetadata, StoredEntry
from offloader.bookkeeper.reading import LedgerReader
from offloader.bookkeeper.requests import BatchRead, EntryRead
from offloader.bookkeeper.settings import BookieSettings
from offloader.bookkeeper.status import FencedError, NoEntryError, NoLedgerError, UnauthorizedError
from offloader.bookkeeper.v2 import V2
from offloader.bookkeeper.v3 import V3
from offloader.bookkeeper.zookeeper import connect
from offloader.errors import EntryNotFoundError, LedgerNotFoundError
from offloader.model import KIB, MIB, EntryRange
from tests.bookkeeper.entries import ledger as ledger_metadata
from tests.pulsar.certificates import certificate

pytestmark = pytest.mark.pulsar

KEY = master_key(b"")
PAIR = Shape(2, 2, 2)


@pytest.fixture
def ledgers(cluster: BookKeeperCluster) -> Iterator[MetadataTree]:
    with closing(connect(cluster.metadata_uri, timeout=HANGS)) as tree:
        yield tree


@pytest.fixture
def client(ledgers: MetadataTree) -> Iterator[BookieClient]:
    with closing(BookieClient(PATIENT, ledgers.address)) as bookies:
        yield bookies


class WithoutBatches(BookieClient):
    """As over TLS."""

    batches = False


def read_all(
    bookies: BookieClient, ledger: int, metadata: LedgerMetadata, last: int, first: int = 0, **more: float
) -> list[bytes]:
    found: list[bytes] = []
    with closing(
        LedgerReader(bookies, EntryRange.closed(ledger, first, last), metadata, max_bytes=MIB, **more)
    ) as reader:
        while not reader.finished:
            entries = reader.read(HANGS)
            assert entries, f"nothing after {len(found)} entries"
            assert [e.entry for e in entries] == list(range(first + len(found), first + len(found) + len(entries)))
            found += [entry.data for entry in entries]
    return found


@pytest.mark.parametrize("wire", [2, 3])
@pytest.mark.parametrize("digest", ["MAC", "CRC32", "CRC32C", "DUMMY"])
def test_every_digest_of_the_official_client_is_read(
    cluster: BookKeeperCluster, ledgers: MetadataTree, client: BookieClient, digest: str, wire: int
) -> None:
    contents = Contents(seed=wire)
    ledger = cluster.official.write(Shape(3, 3, 2, digest=digest, password="secret", wire=wire), 200, contents)
    metadata = ledgers.read(ledger).metadata
    assert read_all(client, ledger, metadata, metadata.last_entry) == [contents.of(entry) for entry in range(200)]


@pytest.mark.parametrize("batches", [True, False])
@pytest.mark.parametrize("shape", [Shape(1, 1, 1), Shape(3, 1, 1), Shape(3, 2, 2), Shape(4, 3, 2), Shape(4, 4, 3)])
def test_every_shape_of_ledger_is_read(
    cluster: BookKeeperCluster, ledgers: MetadataTree, shape: Shape, batches: bool
) -> None:
    contents = Contents(seed=7, largest=5000)
    ledger = cluster.official.write(shape, 2000, contents)
    metadata = ledgers.read(ledger).metadata
    kind = BookieClient if batches else WithoutBatches
    with closing(kind(PATIENT, ledgers.address)) as bookies:
        assert read_all(bookies, ledger, metadata, 1999) == [contents.of(entry) for entry in range(2000)]
        assert read_all(bookies, ledger, metadata, 1234, 777) == [contents.of(entry) for entry in range(777, 1235)]


def test_large_entries_are_read(cluster: BookKeeperCluster, ledgers: MetadataTree, client: BookieClient) -> None:
    contents = Contents(seed=8, smallest=400 * KIB, largest=2 * MIB)
    ledger = cluster.official.write(PAIR, 20, contents)
    assert read_all(client, ledger, ledgers.read(ledger).metadata, 19) == [contents.of(entry) for entry in range(20)]


@pytest.mark.parametrize("batches", [True, False])
@pytest.mark.parametrize("how", ["kill", "pause"])
def test_a_bookie_that_goes_away_is_done_without(
    cluster: BookKeeperCluster, ledgers: MetadataTree, batches: bool, how: str
) -> None:
    contents = Contents(seed=9, largest=3000)
    ledger = cluster.official.write(Shape(3, 3, 2), 3000, contents)
    metadata = ledgers.read(ledger).metadata
    kind = BookieClient if batches else WithoutBatches
    with closing(kind(BookieSettings(request_timeout=5.0), ledgers.address)) as bookies:
        reader = LedgerReader(bookies, EntryRange(ledger, 0, 3000), metadata, max_bytes=256 * KIB, speculate_after=0.2)
        found = reader.read(HANGS)
        getattr(cluster.bookie(metadata.write_set(0)[0]), how)()
        while not reader.finished:
            entries = reader.read(HANGS)
            assert entries
            found += entries
        reader.close()
    assert [entry.data for entry in found] == [contents.of(entry) for entry in range(3000)]


def test_a_ledger_with_changed_ensembles_is_read(
    cluster: BookKeeperCluster, ledgers: MetadataTree, client: BookieClient
) -> None:
    contents = Contents(seed=10)
    writer = cluster.client()
    ledger = writer.create(Shape(3, 3, 2))
    writer.add(ledger, 50, contents).result(HANGS)
    cluster.bookie(ledgers.read(ledger).metadata.fragments[-1].ensemble[0]).kill()
    writer.add(ledger, 50, contents).result(HANGS)
    writer.close_ledger(ledger)
    metadata = ledgers.read(ledger).metadata
    assert len(metadata.fragments) > 1
    assert read_all(client, ledger, metadata, 99) == [contents.of(entry) for entry in range(100)]


def test_what_is_not_there_is_told_apart(
    cluster: BookKeeperCluster, ledgers: MetadataTree, client: BookieClient
) -> None:
    ledger = cluster.official.write(PAIR, 5, Contents(1))
    metadata = ledgers.read(ledger).metadata
    bookie = metadata.write_set(0)[0]
    for future, kind in (
        (client.read(bookie, ledger, 5), NoEntryError),
        (client.batch(bookie, ledger, 5, count=10, size=MIB), NoEntryError),
        (client.batch(bookie, ledger, 5, count=1, size=MIB), NoEntryError),
        (client.read(bookie, 999_999, 0), NoLedgerError),
        (client.batch(bookie, 999_999, 0, count=10, size=MIB), NoLedgerError),
        (client.read_lac(bookie, 999_999), NoLedgerError | NoEntryError),  # which one, depends on its storage
        (client.entries_of(bookie, 999_999), NoLedgerError),
        (client.fence(bookie, ledger, b"x" * 20), UnauthorizedError),
    ):
        assert isinstance(future.exception(HANGS), kind)
    with pytest.raises(EntryNotFoundError):
        read_all(client, ledger, metadata, 9)
    with pytest.raises(LedgerNotFoundError):
        read_all(client, 999_999, metadata, 4)


def test_a_batch_keeps_to_its_limits(cluster: BookKeeperCluster, ledgers: MetadataTree, client: BookieClient) -> None:
    ledger = cluster.official.write(PAIR, 100, Contents(1, 100, 100))
    bookie = ledgers.read(ledger).metadata.write_set(0)[0]
    assert len(client.batch(bookie, ledger, 0, count=7, size=MIB).result(HANGS)) == 7
    assert len(client.batch(bookie, ledger, 0, count=1000, size=36 + 10 * 140).result(HANGS)) == 10
    assert len(client.batch(bookie, ledger, 98, count=1000, size=MIB).result(HANGS)) == 2
    assert len(client.batch(bookie, ledger, 0, count=1000, size=1).result(HANGS)) == 1


def test_each_bookie_lists_the_entries_that_it_holds(
    cluster: BookKeeperCluster, ledgers: MetadataTree, client: BookieClient
) -> None:
    ledger = cluster.official.write(Shape(4, 3, 3), 40, Contents(1))
    metadata = ledgers.read(ledger).metadata
    answering = [
        b.id for n, b in enumerate(cluster.bookies) if n % 4 < 2
    ]  # the others store as Pulsar's do, and never answer this
    asked = [bookie for bookie in metadata.fragments[0].ensemble if bookie in answering]
    assert asked
    for bookie in asked:
        held = client.entries_of(bookie, ledger).result(HANGS)
        assert list(held) == [entry for entry in range(40) if bookie in metadata.write_set(entry)]


def test_a_fence_stops_the_official_writer_and_not_a_recovery(
    cluster: BookKeeperCluster, ledgers: MetadataTree, client: BookieClient
) -> None:
    contents = Contents(seed=11)
    writer = cluster.client()
    ledger = writer.create(PAIR)
    writer.add(ledger, 10, contents).result(HANGS)
    metadata = ledgers.read(ledger).metadata
    digest = digest_for(metadata)
    for bookie in metadata.fragments[0].ensemble:
        last = client.fence(bookie, ledger, KEY).result(HANGS)
        assert last is not None
        found = entry_codec.decode(last, digest, ledger)
        assert (found.entry, found.length) == (9, sum(len(contents.of(n)) for n in range(10)))
        assert found.payload == contents.of(9)
    ours = entry_codec.encode(StoredEntry(ledger, 10, 9, 1000, b"recovered"), digest)
    for bookie in metadata.fragments[0].ensemble:
        with pytest.raises(FencedError):
            client.add(bookie, ledger, 10, ours, KEY).result(HANGS)
        for _ in range(2):
            client.recovery_add(bookie, ledger, 10, ours, KEY).result(HANGS)
        assert client.read(bookie, ledger, 10, fence=KEY).result(HANGS) == ours
    recovered = cluster.official.recover(ledger, PAIR).result(HANGS)
    assert recovered["last"] == 10
    assert cluster.official.read(ledger, 10, 10, PAIR)[0].payload == b"recovered"
    with pytest.raises(OfficialError, match="LedgerFenced"):
        writer.add(ledger, 1, contents).result(HANGS)


@pytest.mark.parametrize("number", range(4))
def test_a_fence_of_a_ledger_that_a_bookie_never_saw_holds(
    cluster: BookKeeperCluster, client: BookieClient, number: int
) -> None:
    bookie, ledger = cluster.bookies[number].id, 5_000_000 + number
    assert client.fence(bookie, ledger, KEY).result(HANGS) is None
    late = entry_codec.encode(StoredEntry(ledger, 0, -1, 1, b"x"), digest_for(ledger_metadata((0, (bookie,)))))
    with pytest.raises(FencedError):
        client.add(bookie, ledger, 0, late, KEY).result(HANGS)


def test_what_we_write_the_official_client_reads(
    cluster: BookKeeperCluster, ledgers: MetadataTree, client: BookieClient
) -> None:
    ledger = cluster.official.create(Shape(1, 1, 1))
    metadata = ledgers.read(ledger).metadata
    digest, bookie = digest_for(metadata), metadata.write_set(0)[0]
    adding = [
        client.add(
            bookie,
            ledger,
            n,
            entry_codec.encode(StoredEntry(ledger, n, n - 1, (n + 1) * 10, f"entry {n:4}".encode()), digest),
            KEY,
        )
        for n in range(300)
    ]
    for future in adding:
        future.result(HANGS)
    client.write_lac(bookie, ledger, 299, entry_codec.encode_lac(ledger, 299, digest), KEY).result(HANGS)
    lac = client.read_lac(bookie, ledger).result(HANGS)
    assert lac.explicit is not None
    assert lac.last_entry is not None
    assert entry_codec.decode_lac(lac.explicit, digest, ledger) == 299
    assert entry_codec.decode(lac.last_entry, digest, ledger).entry == 299
    other = cluster.client()
    assert other.recover(ledger, Shape(1, 1, 1)).result(HANGS)["last"] == 299
    assert [e.payload for e in other.read(ledger, 0, 299, Shape(1, 1, 1))] == [
        f"entry {n:4}".encode() for n in range(300)
    ]


def test_a_bookie_resets_a_connection_that_goes_on_in_another_version(
    cluster: BookKeeperCluster, ledgers: MetadataTree
) -> None:
    ledger = cluster.official.write(Shape(1, 1, 1), 2, Contents(1))
    address = ledgers.address(ledgers.read(ledger).metadata.write_set(0)[0])
    with socket.create_connection(address, HANGS) as connection:
        connection.sendall(V2("b").encode(1, BatchRead(ledger, 0, 2, 1000)))
        size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL))
        assert len(connection.recv(size, socket.MSG_WAITALL)) == size
        connection.sendall(V3("b").encode(1, EntryRead(ledger, 0)))
        with suppress(ConnectionResetError):
            assert connection.recv(1) == b""


def test_tls(tmp_path: Path) -> None:
    _, trusted = certificate(tmp_path)
    tls = {
        "tlsProvider": "JDK",
        "tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
        "tlsKeyStoreType": "PEM",
        "tlsKeyStore": str(tmp_path / "key.pem"),
        "tlsCertificatePath": str(trusted),
        "tlsClientAuthentication": "false",
    }
    contents = Contents(seed=12, largest=100 * KIB)
    with BookKeeperCluster(tmp_path / "cluster", bookies=1, configuration=tls) as cluster:
        ledger = cluster.official.write(Shape(1, 1, 1), 100, contents)
        with closing(connect(cluster.metadata_uri, timeout=HANGS)) as ledgers:
            settings = replace(PATIENT, tls=True, tls_trust_certs_file=str(trusted))
            with closing(BookieClient(settings, ledgers.address)) as bookies:
                metadata = ledgers.read(ledger).metadata
                assert read_all(bookies, ledger, metadata, 99) == [contents.of(entry) for entry in range(100)]
