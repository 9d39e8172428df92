"""Fixtures for tests against real servers: an embedded Pulsar, a fresh namespace, versitygw."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from dev.embedded.settings import ENTRY_METADATA, SMALL_LEDGERS, TRANSACTIONS
from integration import versitygw as server
from integration.patient import PatientPulsar
from integration.starting import started
from tests.storage.servers import S3Server

PULSAR_SETTINGS = {**SMALL_LEDGERS, **TRANSACTIONS, **ENTRY_METADATA}

_NAMES = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("OFFLOADER_SKIP_VERSITYGW") != "1":
        return
    for item in items:
        if item.get_closest_marker("versitygw"):
            item.add_marker(pytest.mark.skip(reason="OFFLOADER_SKIP_VERSITYGW=1"))


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
