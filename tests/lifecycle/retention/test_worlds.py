"""Seeded worlds: retention beside readers, with kills. And that broken variants of it are caught."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from offloader.errors import OffloadError
from offloader.lifecycle.retention.phases import ArchiveDeletion
from offloader.lifecycle.retention.retention import ArchiveRetention
from offloader.metadata.catalog_codec import encode_catalog
from offloader.metadata.deletions import Deleting, buried
from offloader.metadata.layout import data_key, index_key, record_key
from offloader.metadata.state import CatalogHead
from offloader.model import Segment, TopicName
from tests.examples import few, tries

from .world import World

WORLDS = tries("OFFLOADER_RETENTION_WORLDS", 1, 12)
STEPS = 50


@cache
def lived(seed: int) -> World:
    """A world that came to its end."""
    world = World(seed)
    world.hold_in_time()
    assert world.deleted_by_now() == 0
    world.run(STEPS)
    world.finish()
    return world


@pytest.mark.explores
@pytest.mark.parametrize("seed", range(WORLDS))
def test_each_read_is_complete_or_told_whatever_is_deleted_and_killed_meanwhile(seed):
    assert lived(seed).reads > 0


@pytest.mark.large
def test_the_worlds_delete_and_kill_and_tell():
    worlds = [lived(seed) for seed in range(12)]
    assert sum(world.deleted for world in worlds) > 40
    assert sum(world.kills for world in worlds) > 5
    assert sum(world.told for world in worlds) > 10


class IndexFirst(ArchiveDeletion):
    def _delete(self, topic: TopicName, pending: Deleting, segments: list[Segment]) -> int:
        self.store.delete([index_key(topic, segment.uuid) for segment in segments])
        return super()._delete(topic, pending, segments)


class NoRecord(ArchiveRetention):
    """Deletes what is due without saying so."""

    def visit(self, topic: TopicName, *, noted: bool = True) -> str:
        head = self.deletion.catalogs.head(topic)
        segments = self.deletion.catalogs.load(topic).segments[:-1]
        now, limit = self.deletion.clock_ms(), self.policy_of(topic).time_ms or 0
        for segment in segments:
            if now - segment.offloaded_at > limit and not self.policy_of(topic).hold:
                self.deletion.store.delete([data_key(topic, segment.uuid)])
                self.deletion.store.delete([index_key(topic, segment.uuid)])
                stone = buried(segment, None, "", now) if head is None else segment
                self.deletion.store.put(record_key(topic, segment.uuid), encode_catalog(segment.uuid, stone))
        return ""


class NoSecondLook(ArchiveRetention):
    def _why_not(self, head: CatalogHead, pending: Deleting) -> str:
        return ""


class NoGrace(ArchiveRetention):
    def visit(self, topic: TopicName, *, noted: bool = True) -> str:
        early = replace(self.deletion, clock_ms=lambda: self.deletion.clock_ms() + self.grace_ms)
        head = self.deletion.catalogs.head(topic)
        pending = head.removed.pending
        if pending is None or head.removed.begun is not None or self._why_not(head, pending):
            return super().visit(topic, noted=noted)
        head = self.deletion.begin(head, pending)
        early.carry_out(head, pending)
        return ""


class UndoneAnyway(ArchiveDeletion):
    """The second look is a look, and no record: what is undone between it and the deletion goes."""

    def begin(self, head: CatalogHead, pending: Deleting) -> CatalogHead:
        return head


VARIANTS = {
    "index before data": lambda deletion, world: ArchiveRetention(
        IndexFirst(**vars(deletion)), lambda _: world.policy, lambda _: None, 600_000
    ),
    "no record": lambda deletion, world: NoRecord(deletion, lambda _: world.policy, lambda _: None, 600_000),
    "no second look": lambda deletion, world: NoSecondLook(deletion, lambda _: world.policy, lambda _: None, 600_000),
    "no grace": lambda deletion, world: NoGrace(deletion, lambda _: world.policy, lambda _: None, 600_000),
    "a look that is no record": lambda deletion, world: ArchiveRetention(
        UndoneAnyway(**vars(deletion)), lambda _: world.policy, lambda _: None, 600_000
    ),
}


@pytest.mark.parametrize("variant", few(VARIANTS, 1))
def test_a_broken_variant_is_caught(variant):
    def caught(seed: int) -> bool:
        world = World(seed, VARIANTS[variant])
        try:
            world.hold_in_time()
            world.run(STEPS)
            world.finish()
        except (AssertionError, OffloadError):
            return True
        return False

    assert any(caught(seed) for seed in range(20))
