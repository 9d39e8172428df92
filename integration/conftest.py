"""Fixtures for tests against real servers: an embedded Pulsar, a fresh namespace, S3 servers. Which tests run when."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

import tests.examples  # noqa: F401
from dev.embedded.settings import BATCH_INDEX_ACKS, ENTRY_METADATA, SMALL_LEDGERS, TRANSACTIONS
from integration import azurite as azure
from integration import fake_gcs as google
from integration import versitygw as server
from integration.azurite import AzuriteServer
from integration.fake_gcs import GoogleServer
from integration.hdfs import cluster
from integration.hdfs.cluster import Hdfs
from integration.patient import PatientPulsar
from integration.sharing import make_shared_classes
from integration.starting import started
from tests.storage.servers import S3Server, moto_server

PULSAR_SETTINGS = {**SMALL_LEDGERS, **TRANSACTIONS, **ENTRY_METADATA, **BATCH_INDEX_ACKS}
STATISTICS = {"statsUpdateFrequencyInSecs": "1", "statsUpdateInitialDelayInSecs": "1"}

# The files that take longest, in this order, begin first: several processes work on files side by side, and the one
# that begins a long file last ends long after the others.
LONGEST = (
    "image/test_image.py",
    "bridge/test_bridge.py",
    "test_faults.py",
    "test_slow_topics.py",
    "test_spark_cluster.py",
    "test_kills.py",
    "test_shards.py",
    "test_kills_on_stores.py",
    "test_sources.py",
    "bookkeeper/test_closing.py",
    "lifecycle/test_commands.py",
    "lifecycle/test_end_of_data.py",
    "test_embedded.py",
    "test_retention.py",
    "bridge/test_ways.py",
    "test_cli.py",
    "gateway/test_differential.py",
    "pulsar/test_restored_cursors.py",
    "test_evidence.py",
    "bookkeeper/test_zookeeper.py",
    "test_migration.py",
    "test_stock_ledgers.py",
    "test_archive.py",
    "pulsar/test_authorization.py",
    "test_spark_archive.py",
)
# What `make test` runs: one test of each kind that needs only Python and Java. The others are marked `large`.
ALWAYS = (
    "test_kills_on_stores.py::test_exactly_once_under_kills_on_s3",
    "test_spark_archive.py",
    "test_retention.py::test_what_is_due_goes_while_it_is_read_and_an_operator_can_take_it_back",
    "test_gateways.py::test_killed_and_paused_gateways_lose_nothing_and_forget_nothing_that_was_confirmed[moto]",
    "lifecycle/test_commands.py::test_the_commands_take_orphans_through_both_phases_and_one_of_them_back",
    "test_restore.py::test_a_mixed_topic_comes_back_as_it_was",
    "test_restore.py::test_a_process_that_is_killed_and_started_again",
    "test_cli.py",
)
_HERE = Path(__file__).parent

_NAMES = itertools.count()


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_turn)
    for item in items:
        if item.path.is_relative_to(_HERE) and not {_name(item), _name(item, item.name)} & {*ALWAYS}:
            item.add_marker("large")


def _turn(item: pytest.Item) -> int:
    name = _name(item)
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)


def _name(item: pytest.Item, *test: str) -> str:
    """Of its file, and of the test where that is named."""
    path = item.path.relative_to(_HERE).as_posix() if item.path.is_relative_to(_HERE) else ""
    return "::".join((path, *test))


def pytest_collection_finish(session: pytest.Session) -> None:
    """What JVMs share is made before the first of them starts; they start without it where it cannot be made."""
    if not session.config.option.collectonly:
        make_shared_classes({mark.name for item in session.items for mark in item.iter_markers()})


@pytest.fixture(scope="session")
def pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PatientPulsar]:
    """A Pulsar with small ledgers, transactions and broker entry metadata; retention 0. Shared: do not stop it."""
    with started(
        tmp_path_factory.mktemp("pulsar"), lambda f: PatientPulsar(f, configuration=PULSAR_SETTINGS)
    ) as standalone:
        yield standalone


@pytest.fixture(scope="session")
def pulsar_with_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PatientPulsar]:
    """The same with its metadata in ZooKeeper, as direct reads from bookies need, and statistics of each second.
    Shared: do not stop it."""
    folder, settings = tmp_path_factory.mktemp("pulsar-zk"), {**PULSAR_SETTINGS, **STATISTICS}
    with started(folder, lambda f: PatientPulsar(f, zookeeper=True, configuration=settings)) as standalone:
        yield standalone


@pytest.fixture
def namespace(pulsar: PatientPulsar) -> str:
    """A fresh namespace in the shared Pulsar, as `tenant/namespace`."""
    return pulsar.create_namespace(f"public/test-{next(_NAMES)}")


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server from PyPI with a bucket. Shared: use a root of your own."""
    with started(tmp_path_factory.mktemp("moto"), moto_server) as running:
        yield running


@pytest.fixture(scope="session")
def versitygw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server with a bucket. Shared: use a root of your own."""
    with started(tmp_path_factory.mktemp("versitygw"), server.running) as running:
        yield running


@pytest.fixture(scope="session")
def fake_gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoogleServer]:
    """An emulator of Google Cloud Storage with a bucket. Shared: use a root of your own."""
    with started(tmp_path_factory.mktemp("fake-gcs"), google.running) as running:
        yield running


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """HDFS with one datanode. Shared: use a root of your own."""
    with started(tmp_path_factory.mktemp("hdfs"), cluster.running) as running:
        yield running


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzuriteServer]:
    """An emulator of Azure Blob Storage with a container. Shared: use a root of your own."""
    with started(tmp_path_factory.mktemp("azurite"), azure.running) as running:
        yield running
