"""The application has manifests written as its topics' logs grow, never waits for it, and goes on where the store
refuses."""

from __future__ import annotations

import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from offloader.metadata.layout import manifest_key
from offloader.metadata.manifest import FAN
from offloader.offload.core.changes import TopicChanges
from offloader.offload.core.topic import Topic
from offloader.offload.driver.committing import Compacting
from offloader.offload.driver.work import Work, WorkKind
from tests.fakes.faulty import FaultyStore, StoreFault, StoreFaults
from tests.in_turn import InTurn
from tests.metadata.support import TOPIC
from tests.metadata.test_manifests import written

COMPACT_AGAIN_MS = 60_000


class World:
    def __init__(self, records: int, *faults: StoreFault) -> None:
        self.now = 0
        self.store, self.head = written(records)
        self.faults = StoreFaults(faults)
        self.work = Work(dict.fromkeys(WorkKind, InTurn()), lambda: self.now)
        context = SimpleNamespace(store=FaultyStore(self.store, self.faults), clock_ms=lambda: self.now, work=self.work)
        context.changes = self.changes = TopicChanges()
        self.compacting = Compacting(context)

    def round(self, records: int) -> bool:
        """With so many records; whether the store was asked for anything."""
        before = sum(self.faults.calls.values())
        topic = cast("Topic", SimpleNamespace(name=TOPIC, catalog=replace(self.head, next_slot=records)))
        self.changes.mark([TOPIC])
        self.compacting.look({TOPIC: topic})
        self.work.take()
        return sum(self.faults.calls.values()) > before

    def leaves(self) -> int:
        return sum(self.store.stat(manifest_key(TOPIC, 0, 0, number)) is not None for number in range(5))


def test_manifests_are_written_as_the_log_grows() -> None:
    world = World(2 * FAN + 5)
    assert not world.round(FAN - 1)
    assert world.round(FAN)
    assert world.leaves() == 1
    assert not world.round(2 * FAN - 1)
    assert world.round(2 * FAN + 5)
    assert world.leaves() == 2
    assert not world.round(2 * FAN + 5)


def test_what_the_store_refuses_is_told_and_tried_again_later(caplog: pytest.LogCaptureFixture) -> None:
    world = World(FAN, StoreFault("put", times=2))
    with caplog.at_level(logging.WARNING):
        assert world.round(FAN)
    assert "cannot write manifests of topic=" in caplog.text
    assert not world.round(FAN)
    world.now += COMPACT_AGAIN_MS
    world.round(FAN)
    world.now += COMPACT_AGAIN_MS
    assert world.round(FAN)
    assert world.leaves() == 1
