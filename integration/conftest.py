"""Fixtures for tests against real servers: an embedded Pulsar, a fresh namespace, versitygw."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.embedded.settings import BATCH_INDEX_ACKS, ENTRY_METADATA, SMALL_LEDGERS, TRANSACTIONS
from integration import azurite as azure
from integration import fake_gcs as google
from integration import versitygw as server
from integration.azurite import AzuriteServer
from integration.fake_gcs import GoogleServer
from integration.hdfs import cluster
from integration.hdfs.cluster import Hdfs
from integration.patient import PatientPulsar
from integration.programs import SKIP, SKIP_BROWSER
from integration.sharing import make_shared_classes
from integration.starting import started
from tests.storage.servers import S3Server

PULSAR_SETTINGS = {**SMALL_LEDGERS, **TRANSACTIONS, **ENTRY_METADATA, **BATCH_INDEX_ACKS}

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
    "pulsar/test_protected_cursors.py",
    "test_evidence.py",
    "bookkeeper/test_zookeeper.py",
    "test_migration.py",
    "test_stock_ledgers.py",
    "test_archive.py",
    "pulsar/test_authorization.py",
    "test_spark_archive.py",
)
# Marks of tests of servers that are built or fetched, by `programs.py`.
SERVERS = ("versitygw", "fake_gcs", "azurite", "hdfs", "helm")
_HERE = Path(__file__).parent

_NAMES = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_turn)
    for switch, marks in ((SKIP, SERVERS), (SKIP_BROWSER, ("browser",))):
        for item in items if os.environ.get(switch) == "1" else ():
            if any(item.get_closest_marker(mark) for mark in marks):
                item.add_marker(pytest.mark.skip(reason=f"{switch}=1"))


def _turn(item: pytest.Item) -> int:
    name = item.path.relative_to(_HERE).as_posix() if item.path.is_relative_to(_HERE) else ""
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)


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
    """The same with its metadata in ZooKeeper, as direct reads from bookies need. Shared: do not stop it."""
    folder = tmp_path_factory.mktemp("pulsar-zk")
    with started(folder, lambda f: PatientPulsar(f, zookeeper=True, configuration=PULSAR_SETTINGS)) as standalone:
        yield standalone


@pytest.fixture
def namespace(pulsar: PatientPulsar) -> str:
    """A fresh namespace in the shared Pulsar, as `tenant/namespace`."""
    return pulsar.create_namespace(f"public/test-{next(_NAMES)}")


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
