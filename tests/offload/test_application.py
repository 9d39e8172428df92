"""The order of a start: a process of the same name that is at work is overtaken only by one that can run itself."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from offloader.config import Config
from offloader.errors import FatalError, OffloadError, OvertakenError, StoreUnavailableError
from offloader.metadata.journal import Journal
from offloader.offload import application as module
from offloader.offload.application import Application
from offloader.storage.memory import MemoryBacking, MemoryStore
from offloader.testing.scripted import ScriptedFaults

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
        self.healthy = Journal.open(MemoryStore(backing), "app", module.new_uuid)
        brokers = SimpleNamespace(close=lambda: None, cluster=lambda: "c", runtime_configuration=dict)
        monkeypatch.setattr(module, "AdminClient", lambda _: brokers)
        monkeypatch.setattr(module, "open_store", lambda _: MemoryStore(backing))
        self.session(monkeypatch, lambda: SimpleNamespace(stop=lambda: None))

    def session(self, monkeypatch: pytest.MonkeyPatch, made: Callable[[], object]) -> None:
        monkeypatch.setattr(module.spark_side, "session", lambda *_: made())
        monkeypatch.setattr(module.spark_side, "Slots", lambda _: SimpleNamespace(number=2))


@pytest.fixture
def surroundings(monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    return Surroundings(monkeypatch)


def application(checkpoint: str = "null") -> Application:
    return Application(Config.parse(CONFIG.format(checkpoint=checkpoint), {}))


def test_without_java_nobody_is_overtaken(surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> object:
        raise FatalError("no Java found")

    surroundings.session(monkeypatch, refused)
    with pytest.raises(FatalError, match="no Java"):
        application().run()
    surroundings.healthy.check_not_overtaken()


def test_without_a_folder_for_checkpoints_nobody_is_overtaken(surroundings: Surroundings) -> None:
    with pytest.raises((OSError, OffloadError)):
        application("/nowhere/at/all").run()
    surroundings.healthy.check_not_overtaken()


def test_one_that_can_run_overtakes(surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    def query(*_: object) -> object:
        raise FatalError("this far")

    monkeypatch.setattr(module.spark_side, "start_query", query)
    with pytest.raises(FatalError, match="this far"):
        application().run()
    with pytest.raises(OvertakenError):
        surroundings.healthy.check_not_overtaken()


def test_what_tests_wrap_is_what_the_application_reaches(surroundings: Surroundings) -> None:
    fault = '[{"role": "driver", "call": "*", "effect": "before"}]'
    with pytest.raises(StoreUnavailableError):
        Application(Config.parse(CONFIG.format(checkpoint="null"), {}), wrapper=ScriptedFaults("driver", fault)).run()
    surroundings.healthy.check_not_overtaken()
