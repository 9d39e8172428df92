"""The application visits unloaded topics only where it is told to, and reaches nothing before."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any, NoReturn, cast

import pytest

import offloader.offload.lifecycle_tasks
from offloader.config import Config
from offloader.errors import ConfigError, MetadataUnavailableError
from offloader.lifecycle.topics.visit_task import UnloadedTopicsTask
from offloader.metrics import Metrics
from offloader.model import TopicName
from offloader.offload.lifecycle_tasks import unloaded_topics
from offloader.runtime.connections import ClosableAdmin, Dependencies, Runtime
from tests.fakes.cluster import MemoryCluster
from tests.lifecycle.topics.support import Idle

CONFIG = """
application: app
pulsar: {serviceUrl: "pulsar://localhost:6650", adminUrl: "http://localhost:8080"%s}
storage: {root: "file:///unused"}
lifecycle: {visitUnloaded: %s}
"""


def config(*, on: bool, more: str = "") -> Config:
    return Config.parse(CONFIG % (more, str(on).lower()))


def task_of(found: Config, **opened: Any) -> UnloadedTopicsTask | None:
    """The application's task; `opened`: how what it reaches is opened, by default an idle cluster's admin alone."""
    dependencies = replace(Dependencies(admin=lambda _: cast("ClosableAdmin", MemoryCluster().admin)), **opened)
    return unloaded_topics(Runtime(found, dependencies), Metrics(), lambda: False)


def test_off_there_is_no_task() -> None:
    assert task_of(config(on=False)) is None


def test_on_it_reaches_nothing_before_it_runs() -> None:
    def away(found: Config, _timeout: float) -> NoReturn:
        raise MetadataUnavailableError(f"{found.pulsar.metadata_service_uri} does not answer")

    cluster = MemoryCluster()
    service = ', metadataServiceUri: "zk://127.0.0.1:1/ledgers"'
    task = task_of(config(on=True, more=service), admin=lambda _: cluster.admin, bookkeeper=away)
    assert task is not None
    assert cluster.faults.calls.total() == 0
    with pytest.raises(MetadataUnavailableError):
        task.run()


def test_without_a_metadata_service_the_missing_setting_is_named() -> None:
    with pytest.raises(ConfigError, match=r"pulsar\.metadataServiceUri"):
        run_once(config(on=True))


def run_once(found: Config) -> None:
    task = task_of(found)
    assert task is not None
    task.run()


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> Idle:
    """A cluster in its own time, whose brokers and metadata service the application reaches."""
    cluster, module = Idle(), offloader.offload.lifecycle_tasks
    monkeypatch.setattr(module, "host_ms", lambda: cluster.now_ms)
    monkeypatch.setattr(module, "sleep_until_stopping", lambda _, seconds: cluster.sleep(seconds))
    return cluster


def due(cluster: Idle, number: int, visits: str) -> UnloadedTopicsTask:
    """The application's task, with so many topics to visit."""
    for one in range(number):
        cluster.written(f"t{one}", 100)
    cluster.tick(3600)
    text = CONFIG.replace("visitUnloaded: %s", f"visitUnloaded: true, visits: {{{visits}}}")
    found = Config.parse(text % ', metadataServiceUri: "zk://127.0.0.1:1/ledgers"')
    task = task_of(found, bookkeeper=lambda *_: (cluster.metadata, cluster), visits=lambda _: cluster)
    assert task is not None
    return task


def test_visits_a_minute_are_as_many_as_the_configuration_says(idle: Idle) -> None:
    due(idle, 6, "atOnce: 1, aMinute: 30").run()
    assert len(idle.trimmed) == 6
    assert idle.slept == pytest.approx(5 * 2, abs=0.1)


def test_visits_at_once_are_as_many_as_the_configuration_says(idle: Idle) -> None:
    together, lock, now, most = threading.Barrier(3, timeout=10), threading.Lock(), 0, 0

    def visited(_: TopicName) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        together.wait()
        with lock:
            now -= 1

    idle.on_use = visited
    due(idle, 6, "atOnce: 3, aMinute: 100000").run()
    assert (len(idle.trimmed), most) == (6, 3)


def test_looks_for_topics_are_as_far_apart_as_the_configuration_says(idle: Idle) -> None:
    assert due(idle, 1, "interval: 5m").run() == 300
