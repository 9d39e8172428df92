"""What the doctor concludes of bookies, and which entry it reads from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from offloader.bookkeeper.entry_codec import digest_for, encode, master_key
from offloader.bookkeeper.model import StoredEntry
from offloader.errors import ConfigError
from offloader.model import LedgerList, LedgerSpan, TopicName
from offloader.offload.core.check import Verdict
from offloader.operations.doctor.probes import LedgerProbes, RealProbes
from offloader.operations.doctor.pulsar_checks import bookies_reachable
from offloader.ports.admin import TopicInfo
from tests.fakes.bookkeeper import SimulatedCluster
from tests.lifecycle.ledgers.clusters import cluster
from tests.lifecycle.ledgers.written import Meanwhile, Written
from tests.runtime.support import runtime_of

TOPIC = TopicName.parse("public/default/t")


def test_a_cluster_without_bookies_is_a_failure() -> None:
    (check,) = bookies_reachable({})
    assert (check.name, check.verdict, check.message) == ("metadata-service", Verdict.FAIL, "no bookie is registered")


BASE = """
application: app
pulsar: {serviceUrl: "pulsar://h:6650", adminUrl: "http://h:8080", metadataServiceUri: "zk://memory:1/ledgers"}
storage: {root: "file:///unused"}
"""


@pytest.fixture
def ledgers():
    """Ledger 13 has one entry; 12 was offloaded by Pulsar itself and deleted from BookKeeper."""
    cluster = SimulatedCluster(1, 3, prompt=True)
    metadata = cluster.create(13, 3, 3, 2)
    stored = encode(StoredEntry(13, 0, -1, 1, b"x"), digest_for(metadata))
    for bookie in cluster.bookies.values():
        bookie.memory.add(13, 0, stored, master_key(b""))
    bookies, store = cluster.client()
    return LedgerProbes(runtime_of(BASE, bookkeeper=lambda *_: (store, bookies)))


def info(last_confirmed):
    spans = LedgerList((LedgerSpan(12, 5), LedgerSpan(13, None)))
    return TopicInfo("created", spans, {}, last_confirmed, False, frozenset({12}))


def test_a_ledger_that_pulsar_has_offloaded_is_not_looked_for_on_bookies(ledgers) -> None:
    assert ledgers.read(TOPIC, info((13, 0))) == f"{TOPIC}: entry 13:0 was read from its bookies"


def test_where_pulsar_has_offloaded_everything_nothing_is_read(ledgers) -> None:
    assert ledgers.read(TOPIC, info((12, 5))).endswith(
        "has only entries that Pulsar itself has offloaded: none was read"
    )


def test_the_stock_bucket_is_opened_listed_and_read(tmp_path: Path) -> None:
    def probes(section: str) -> RealProbes:
        return RealProbes(runtime_of(f"{BASE}lifecycle: {{{section}}}"))

    assert probes("").stock_bucket() is None
    there = tmp_path / "offload"
    there.mkdir()
    assert probes(f"stockBucket: 'file://{there}'").stock_bucket() == f"file://{there}"
    with pytest.raises(ConfigError):
        probes("stockBucket: 's4://bucket'").stock_bucket()


@pytest.mark.parametrize(
    ("lifecycle", "expected"),
    [
        ("", None),
        ("lifecycle: {bookkeeperIsNotShared: true}", ()),
        (
            "lifecycle: {limits: {number: 7}}",
            ("Say lifecycle.bookkeeperIsNotShared: true if no other cluster uses this BookKeeper.",),
        ),
    ],
)
def test_what_would_be_refused_is_told_without_a_scan(lifecycle, expected) -> None:
    written = Written(cluster(1))
    asked: list[str] = []
    bookies, tree = written.bookkeeper.client()
    tree.nodes = Meanwhile(written.nodes, asked.append)
    admin = written.pulsar.admin
    found = runtime_of(BASE + lifecycle, admin=lambda _: admin, bookkeeper=lambda *_: (tree, bookies))
    probes = RealProbes(found)
    assert probes.ledger_deletion() == expected
    assert not [path for path in asked if path.startswith("/managed-ledgers/")]
