"""Seeded ages of a topic: whatever goes was somebody's to delete, at that moment. And broken variants are caught."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import astuple
from functools import cache

import pytest

from offloader.errors import OffloadError
from offloader.lifecycle.retention import retention
from offloader.lifecycle.retention.phases import ArchiveDeletion
from offloader.lifecycle.retention.retention import ArchiveRetention
from offloader.metadata.deletions import (
    Deleted,
    DeletionBegun,
    DeletionRecord,
    DeletionUndone,
    Removal,
    Tombstone,
    in_order,
)
from offloader.metadata.layout import archive_deletion_key
from offloader.metadata.state import CatalogHead
from offloader.model import TopicName
from offloader.operations.rebuild import remains
from tests.examples import few_rows, tries

from . import prologues
from .ages import Ages
from .processes import Process

WORLDS = tries("OFFLOADER_RETENTION_WORLDS", 1, 12)
STEPS = 60
SEEDS = 8


@cache
def lived(seed: int) -> Ages:
    world = Ages(seed)
    world.begin(world.rng.choice(prologues.PROLOGUES))
    world.run(STEPS)
    world.finish()
    return world


@pytest.mark.explores
@pytest.mark.parametrize("seed", range(WORLDS))
def test_whatever_becomes_of_a_topic_nothing_goes_that_was_not_decided(seed):
    assert lived(seed).counts is not None


@pytest.mark.large
def test_the_ages_have_seen_everything():
    sums = [sum(counts) for counts in zip(*(astuple(lived(seed).counts) for seed in range(12)), strict=True)]
    assert all(sums), sums
    assert sum(lived(seed).told for seed in range(12)) > 10


def whole_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Removal, "continued", lambda removal, _: removal)


def anybody_decides(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(retention, "last_owner", lambda _, head: head.claim.application or "anybody's")
    patch.setattr(ArchiveRetention, "visit", _visit_of_anybody)


def _visit_of_anybody(one: ArchiveRetention, topic: TopicName, *, noted: bool = True) -> str:
    head = one.deletion.catalogs.head(topic)
    claim = head.claim
    if claim is not None and claim.application in ("", one.deletion.by):
        retention.last_owner, former = (lambda *_: one.deletion.by), retention.last_owner  # type: ignore[attr-defined]
        try:
            return VISIT(one, topic, noted=noted)
        finally:
            retention.last_owner = former  # type: ignore[attr-defined]
    return ""


VISIT = ArchiveRetention.visit


def a_start_disproves(patch: pytest.MonkeyPatch) -> None:
    known = Process.gone_since
    patch.setattr(Process, "gone_since", lambda process, head: retention._known(known(process, head)))


def no_look_for_chunks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ArchiveRetention, "_why_not_readable", lambda *_: "")


def forgets_for_good(patch: pytest.MonkeyPatch) -> None:
    def forget(deletion: ArchiveDeletion, topic: TopicName) -> CatalogHead:
        deletion.store.delete([archive_deletion_key(deletion.cluster, topic)])
        return deletion.catalogs.head(topic)

    patch.setattr(ArchiveDeletion, "forget", forget)


def an_undo_counts_over_a_beginning(patch: pytest.MonkeyPatch) -> None:
    def undone(records: Iterable[DeletionRecord], tombstones: Iterable[Tombstone]) -> list[DeletionRecord]:
        found = list(records)
        numbers = {each.number for each in found if isinstance(each, DeletionUndone)}
        done = {each.number for each in found if isinstance(each, Deleted)}
        sound = (each for each in found if not (isinstance(each, DeletionBegun) and each.number in numbers - done))
        return in_order(sound, tombstones)

    patch.setattr(remains, "in_order", undone)


VARIANTS = (
    (whole_for_ever, prologues.sealed_behind_all_that_went),
    (anybody_decides, prologues.released_under_a_hold),
    (a_start_disproves, prologues.started_again_and_again),
    (no_look_for_chunks, prologues.a_message_over_three_segments),
    (forgets_for_good, prologues.asked_twice),
    (an_undo_counts_over_a_beginning, prologues.an_undo_that_never_counted),
)


@pytest.mark.parametrize(("variant", "prologue"), few_rows(VARIANTS, 2))
def test_a_broken_variant_is_caught(
    variant: Callable[[pytest.MonkeyPatch], None], prologue: Callable[[Ages], None], monkeypatch: pytest.MonkeyPatch
):
    def caught(seed: int) -> bool:
        world = Ages(seed)
        try:
            world.begin(prologue)
            world.finish()
        except (AssertionError, OffloadError):
            return True
        return False

    assert not any(caught(seed) for seed in range(SEEDS)), "it is sound"
    variant(monkeypatch)
    assert any(caught(seed) for seed in range(16 * SEEDS))  # ends with the first
