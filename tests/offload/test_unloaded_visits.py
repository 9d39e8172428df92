"""The application visits unloaded topics only where it is told to, and reaches nothing before."""

from __future__ import annotations

from typing import NoReturn

import pytest

import offloader.offload.unloaded_visits
from offloader.bookkeeper.connect import BookKeeperSettings
from offloader.config import Config
from offloader.errors import ConfigError, MetadataUnavailableError
from offloader.offload.unloaded_visits import unloaded_topics
from offloader.testing.cluster import MemoryCluster

CONFIG = """
application: app
pulsar: {serviceUrl: "pulsar://localhost:6650", adminUrl: "http://localhost:8080"%s}
storage: {root: "file:///unused"}
lifecycle: {visitUnloaded: %s}
"""


def config(*, on: bool, more: str = "") -> Config:
    return Config.parse(CONFIG % (more, str(on).lower()))


def test_off_there_is_no_task() -> None:
    assert unloaded_topics(config(on=False), MemoryCluster().admin, lambda: False) is None


def test_on_it_reaches_nothing_before_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(settings: BookKeeperSettings) -> NoReturn:
        raise MetadataUnavailableError(f"{settings.metadata_uri} does not answer")

    monkeypatch.setattr(offloader.offload.unloaded_visits, "clients", away)
    cluster = MemoryCluster()
    service = ', metadataServiceUri: "zk://127.0.0.1:1/ledgers"'
    task = unloaded_topics(config(on=True, more=service), cluster.admin, lambda: False)
    assert task is not None
    assert cluster.faults.calls.total() == 0
    with pytest.raises(MetadataUnavailableError):
        task.run()


def test_without_a_metadata_service_the_missing_setting_is_named() -> None:
    with pytest.raises(ConfigError, match=r"pulsar\.metadataServiceUri"):
        run_once(config(on=True))


def run_once(found: Config) -> None:
    task = unloaded_topics(found, MemoryCluster().admin, lambda: False)
    assert task is not None
    task.run()
