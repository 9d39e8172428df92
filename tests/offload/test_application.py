"""The order of a start: a process of the same name that is at work is overtaken only by one that can run itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from offloader.config import Config
from offloader.errors import FatalError, OffloadError, OvertakenError, StoreUnavailableError
from offloader.metadata.catalog import Catalogs
from offloader.metadata.heartbeats import Heartbeat, Heartbeats
from offloader.metadata.journal import Journal
from offloader.metadata.state import TopicState
from offloader.model import TopicName
from offloader.offload.application import Application
from offloader.offload.driver.passing_on import PassingOn
from offloader.offload.settings import chosen_shard
from offloader.offload.spark import session as spark_side
from offloader.runtime.connections import ClosableAdmin, Dependencies
from offloader.storage.memory import MemoryBacking, MemoryStore
from tests.fakes.scripted import ScriptedFaults
from tests.metadata.support import claim

CONFIG = """
application: app
pulsar: {{serviceUrl: "pulsar://localhost:6650", adminUrl: "http://localhost:8080"}}
storage: {{root: "memory://"}}
spark: {{checkpoint: {checkpoint}}}
metrics: {{port: 0}}
"""


class Surroundings:
    """A cluster that answers, a bucket, and an application that is at work on it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        backing = MemoryBacking()
        self.store = MemoryStore(backing)
        self.healthy = Journal.open(MemoryStore(backing), "app", lambda: str(uuid4()))
        brokers = SimpleNamespace(
            close=lambda: None, cluster=lambda: "c", runtime_configuration=dict, time_ms=lambda: None
        )
        admin = cast("ClosableAdmin", brokers)
        self.dependencies = Dependencies(store=lambda _: MemoryStore(backing), admin=lambda _: admin)
        self.session(monkeypatch, lambda: SimpleNamespace(stop=lambda: None))

    def session(self, monkeypatch: pytest.MonkeyPatch, made: Callable[[], object]) -> None:
        monkeypatch.setattr(spark_side, "session", lambda *_: made())
        monkeypatch.setattr(spark_side, "Slots", lambda _: SimpleNamespace(number=2, changed=lambda: False))

    def application(
        self, checkpoint: str = "null", *, shard: int | None = None, more: str = "", **options: Any
    ) -> Application:
        config = chosen_shard(Config.parse(CONFIG.format(checkpoint=checkpoint) + more, {}), shard)
        return Application(config, dependencies=self.dependencies, **options)


@pytest.fixture
def surroundings(monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    return Surroundings(monkeypatch)


def test_without_java_nobody_is_overtaken(surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> object:
        raise FatalError("no Java found")

    surroundings.session(monkeypatch, refused)
    with pytest.raises(FatalError, match="no Java"):
        surroundings.application().run()
    surroundings.healthy.check_not_overtaken()


def test_without_a_folder_for_checkpoints_nobody_is_overtaken(surroundings: Surroundings) -> None:
    with pytest.raises((OSError, OffloadError)):
        surroundings.application("/nowhere/at/all").run()
    surroundings.healthy.check_not_overtaken()


def test_one_that_can_run_overtakes(surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    def query(*_: object) -> object:
        raise FatalError("this far")

    monkeypatch.setattr(spark_side, "start_query", query)
    with pytest.raises(FatalError, match="this far"):
        surroundings.application().run()
    with pytest.raises(OvertakenError):
        surroundings.healthy.check_not_overtaken()


def test_what_tests_wrap_is_what_the_application_reaches(surroundings: Surroundings) -> None:
    fault = '[{"role": "driver", "call": "*", "effect": "before"}]'
    with pytest.raises(StoreUnavailableError):
        surroundings.application(wrapper=ScriptedFaults("driver", fault)).run()
    surroundings.healthy.check_not_overtaken()


def test_a_shard_that_died_again_and_again_leaves_its_journal_to_the_process_that_runs_it(
    surroundings: Surroundings,
) -> None:
    Heartbeats(surroundings.store, "app").write(Heartbeat(0, 2, "topic", 1, "another", 1, taken=9))
    waiting = surroundings.application(shard=0, more="shards: {count: 2, takeOverAfter: 600s}\n")
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(waiting.run()))
    thread.start()
    waiting.stop()
    thread.join(600)
    assert codes == [0]
    surroundings.healthy.check_not_overtaken()


def test_a_shard_that_was_overtaken_says_that_it_may_be_started_again(
    surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overtaken(*_: object) -> object:
        Journal.open(surroundings.store, "app~1", lambda: str(uuid4()))
        return SimpleNamespace(isActive=True, stop=lambda: None)

    context = SimpleNamespace(setLogLevel=lambda _: None)
    surroundings.session(monkeypatch, lambda: SimpleNamespace(stop=lambda: None, sparkContext=context))
    monkeypatch.setattr(spark_side, "start_query", overtaken)
    with pytest.raises(OvertakenError, match="started again, it takes its topics back"):
        surroundings.application(shard=1, more="shards: {count: 2}\n").run()
    surroundings.healthy.check_not_overtaken()  # that of another shard


@pytest.mark.parametrize("section", ["", "shards: {count: 1}\n"])
@pytest.mark.parametrize("until_caught_up", [False, True])
def test_what_is_on_its_way_to_another_shard_arrives_whoever_has_the_journal(
    surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch, section: str, *, until_caught_up: bool
) -> None:
    """Nothing is begun in such a topic: without its claim nobody would offload it."""
    topic, store = TopicName.parse("public/default/t"), surroundings.store
    catalogs = Catalogs(store, "app")
    catalogs.append(catalogs.head(topic), claim())
    with Journal.open(store, "app", lambda: str(uuid4())) as journal:
        journal.record([TopicState(topic, passed_to="app~1")])
    context = SimpleNamespace(setLogLevel=lambda _: None)
    surroundings.session(monkeypatch, lambda: SimpleNamespace(stop=lambda: None, sparkContext=context))
    query = SimpleNamespace(isActive=True, stop=lambda: None)
    monkeypatch.setattr(spark_side, "start_query", lambda *_: query)
    running = surroundings.application(more=section, until_caught_up=until_caught_up, timeout=60)
    monkeypatch.setattr(PassingOn, "_done", lambda *_: running.stop())
    assert running.run() in (0, 2)
    arrived = catalogs.head(topic).claim
    assert arrived is not None
    assert arrived.application == "app~1"
