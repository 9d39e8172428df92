"""A process that runs other shards goes on whatever becomes of these."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from offloader.config import Config
from offloader.errors import FatalError, OffloadError, OvertakenError
from offloader.metadata.deal import Deal
from offloader.metadata.heartbeats import Heartbeats
from offloader.metrics import Metrics
from offloader.offload import standing_in as module
from offloader.offload.fleet import Fleet
from offloader.offload.settings import chosen_shard
from offloader.offload.standing_in import StandingIn
from offloader.storage.memory import MemoryStore

LOOKS = 4

AFTER = 60_000
CONFIG = """
application: app
pulsar: {serviceUrl: "pulsar://localhost:6650", adminUrl: "http://localhost:8080"}
storage: {root: "memory://"}
shards: {count: 5, takeOverAfter: 60s}
metrics: {port: 0}
"""


@pytest.mark.parametrize("error", [FatalError("its journal is damaged"), OvertakenError("another was first")])
def test_a_shard_that_cannot_be_run_here_keeps_no_other_from_it(
    error: OffloadError, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, tried = [0], []

    class Refused:
        def __init__(self, config: Config, *_: object) -> None:
            tried.append(config.application)

        def open(self, _: object) -> object:
            raise error

    monkeypatch.setattr(module, "Seat", Refused)
    config = chosen_shard(Config.parse(CONFIG, {}), 0)
    fleet = Fleet(Heartbeats(MemoryStore(), "app"), Deal("app", 0, 5), AFTER, lambda: now[0], "run")
    fleet.joins(0, lambda: now[0])
    reached: Any = SimpleNamespace()
    standing_in = StandingIn(config, reached, Metrics(), fleet)
    for _ in range(7 * LOOKS):  # who comes first waits for its turn; nobody else lives, so nobody else has it
        now[0] += AFTER // LOOKS
        for index in fleet.look():
            standing_in._begin(index)
            standing_in._threads[index].join()
    assert set(tried) == {"app~1", "app~2", "app~3", "app~4"}
    assert max(map(tried.count, tried)) <= 7
