"""Objects that the store keeps: nothing of them is told to be deleted, and what was begun can be undone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from offloader.archive.archive import Archive as Reading
from offloader.archive.items import ArchivedEntry
from offloader.archive.opened import OpenArchive
from offloader.archive.reading.stores import Stores
from offloader.errors import FatalError, IntegrityError, OutcomeUnknownError, RetryableError
from offloader.lifecycle.retention.outlook import outlook
from offloader.lifecycle.retention.policy import RetentionPolicy
from offloader.metadata import layout
from offloader.operations.rebuild.remains import Given
from offloader.operations.rebuild.write import rebuild
from offloader.operations.verify.verify import verify
from offloader.ports.object_store import ObjectStore, Stat
from offloader.storage.forwarding import ForwardingStore
from tests.archive.support import APPLICATION, TOPIC, Archive, stream
from tests.times import MINUTE_MS

from .support import HOUR, NOW, OLD, Clock, application

ENDED_AFTER_MS = 3_600_000

GRACE = 11 * MINUTE_MS


class HoldingStore(ForwardingStore):
    """Deletes nothing that is held. `held`: keys, until when (0: until that is lifted). `shown`: whether it says so."""

    def __init__(self, store: ObjectStore, *, shown: bool = True) -> None:
        super().__init__(store)
        self.held: dict[str, int] = {}
        self.shown = shown

    def stat(self, key: str) -> Stat | None:
        found = super().stat(key)
        if found is None or not self.shown or key not in self.held:
            return found
        return replace(found, held=not self.held[key], held_until=self.held[key])

    def delete(self, keys: Iterable[str]) -> None:
        wanted = list(keys)
        super().delete([key for key in wanted if key not in self.held])
        if any(key in self.held for key in wanted):
            raise FatalError("the object is held")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def archive() -> Archive:
    archive = Archive(sealed_at=OLD)
    archive.claim(0)
    for number in range(5):
        archive.add(stream(0, 10 * number, 10 * number + 9))
    return archive


def data_key(archive: Archive, segment: int) -> str:
    return layout.data_key(TOPIC, archive.catalog.segments[segment].uuid)


def index_key(archive: Archive, segment: int) -> str:
    return layout.index_key(TOPIC, archive.catalog.segments[segment].uuid)


def readable(archive: Archive) -> int:
    items = Reading(OpenArchive(Stores.of(archive.store))).topic(TOPIC).items()
    return sum(isinstance(item, ArchivedEntry) for item in items)


def slots(archive: Archive) -> int:
    return archive.catalogs.head(TOPIC).next_slot


@pytest.mark.parametrize("until", [0, NOW + 60 * MINUTE_MS])
@pytest.mark.parametrize("key", [data_key, index_key])
def test_what_the_store_keeps_and_what_is_behind_it_stays_readable(archive, clock, key, until):
    store = HoldingStore(archive.store)
    store.held[key(archive, 2)] = until
    one = application(archive, clock, HOUR, store=store)
    assert "2 segments" in one.visit(TOPIC)
    clock.now += GRACE
    assert "is done" in one.visit(TOPIC)
    before = slots(archive)
    for _ in range(3):  # each look tells it, and writes nothing
        with pytest.raises(FatalError, match="what is due stays: the store keeps"):
            one.visit(TOPIC, noted=False)
    assert (slots(archive), readable(archive)) == (before, 30)
    found = outlook(store, archive.catalogs.head(TOPIC), HOUR, APPLICATION, clock.now, 0)
    assert "the store keeps" in found.note
    if until:
        clock.now = until
    else:
        store.held.clear()
    assert "2 segments" in one.asked(TOPIC)


def test_a_hold_in_the_grace_takes_the_deletion_back(archive, clock):
    store = HoldingStore(archive.store)
    one = application(archive, clock, HOUR, store=store)
    assert "4 segments" in one.visit(TOPIC)
    store.held[data_key(archive, 0)] = 0
    clock.now += GRACE
    assert "is undone: the store keeps" in one.visit(TOPIC)
    assert readable(archive) == 50


def test_a_request_says_what_the_store_keeps(archive, clock):
    store = HoldingStore(archive.store)
    one = application(archive, clock, RetentionPolicy(), store=store)
    store.held[data_key(archive, 1)] = 0
    assert "what is behind it stays: the store keeps" in one.delete(TOPIC, "me")
    one.undelete(TOPIC, "me")
    store.held[data_key(archive, 0)] = 0
    with pytest.raises(IntegrityError, match="nothing goes: the store keeps"):
        one.delete(TOPIC, "me")
    assert readable(archive) == 50


def test_what_a_store_refuses_without_a_word_is_undone_and_not_recorded_again(archive, clock):
    """It would be recorded, begun and undone for ever."""
    store = HoldingStore(archive.store, shown=False)
    store.held.update({data_key(archive, each): 0 for each in range(4)})
    one = application(archive, clock, HOUR, store=store)
    one.visit(TOPIC)
    clock.now += GRACE
    with pytest.raises(FatalError, match="the object is held"):
        one.visit(TOPIC)
    assert archive.catalogs.head(TOPIC).removed.pending is None
    assert readable(archive) == 50
    before = slots(archive)
    for _ in range(5):
        clock.now += GRACE
        with pytest.raises(FatalError, match="the store refused deletion 0, which is undone: the object is held"):
            one.visit(TOPIC, noted=False)
    assert slots(archive) == before
    store.held.clear()
    assert "deletion 1: 4 segments" in one.asked(TOPIC)
    clock.now += GRACE
    assert "is done" in one.visit(TOPIC)


def test_once_an_object_is_gone_nothing_is_undone(archive, clock):
    store = HoldingStore(archive.store, shown=False)
    store.held[data_key(archive, 1)] = 0
    one = application(archive, clock, HOUR, store=store)
    one.visit(TOPIC)
    clock.now += GRACE
    with pytest.raises(FatalError, match="the object is held"):
        one.visit(TOPIC)
    with pytest.raises(IntegrityError, match="it cannot be undone any more, objects of it are gone"):
        one.undelete(TOPIC, "me")
    store.held.clear()
    assert "is done" in one.visit(TOPIC)


def begun(archive: Archive, clock: Clock) -> None:
    """A deletion that has begun, and of which nothing is gone yet."""
    one = application(archive, clock, HOUR)
    one.visit(TOPIC)
    head = archive.catalogs.head(TOPIC)
    assert head.removed.pending is not None
    one.deletion.begin(head, head.removed.pending)


def test_one_that_has_begun_is_undone_on_request_while_every_object_is_there(archive, clock):
    begun(archive, clock)
    assert readable(archive) == 10
    # Nor does a shard undo what another one began a moment ago: each has a journal of its own.
    for alone, after in ((ENDED_AFTER_MS - 1, ENDED_AFTER_MS), (ENDED_AFTER_MS, ENDED_AFTER_MS - 1)):
        clock.now = NOW + after
        successor = application(archive, clock, RetentionPolicy(), alone_ms=alone)
        with pytest.raises(IntegrityError, match="may still delete; ask again"):
            successor.undelete(TOPIC, "me")
    clock.now = NOW + ENDED_AFTER_MS
    one = application(archive, clock, RetentionPolicy(), alone_ms=ENDED_AFTER_MS)
    assert "all of it can be read again" in one.undelete(TOPIC, "me")
    assert readable(archive) == 50
    assert not verify(archive.store).findings
    assert one.visit(TOPIC) == ""


def test_a_deletion_without_an_answer_may_still_happen(archive, clock, monkeypatch):
    alone = [10]
    one = application(archive, clock, HOUR)
    deletion = replace(one.deletion, alone_ms=lambda: alone[0])
    one.visit(TOPIC)
    head = archive.catalogs.head(TOPIC)
    head = deletion.begin(head, head.removed.pending)

    def unanswered(keys):
        raise OutcomeUnknownError("the answer was lost")

    monkeypatch.setattr(archive.store, "delete", unanswered)
    with pytest.raises(OutcomeUnknownError):
        deletion.carry_out(head, head.removed.pending)
    monkeypatch.undo()
    with pytest.raises(IntegrityError, match="may still delete; ask again"):
        deletion.undo(head, "me", "asked for")
    alone[0] += ENDED_AFTER_MS
    deletion.undo(head, "me", "asked for")
    assert readable(archive) == 50


def test_a_shard_deletes_nothing_that_another_one_has_undone(archive, clock):
    one = application(archive, clock, HOUR)
    one.visit(TOPIC)
    head = archive.catalogs.head(TOPIC)
    head = one.deletion.begin(head, head.removed.pending)
    clock.now = NOW + ENDED_AFTER_MS
    application(archive, clock, RetentionPolicy(), alone_ms=ENDED_AFTER_MS).undelete(TOPIC, "me")
    with pytest.raises(RetryableError, match="under way no more"):
        one.deletion.carry_out(head, head.removed.pending)
    assert readable(archive) == 50
    assert not verify(archive.store).findings


@pytest.mark.parametrize("lost", [False, True])
def test_a_rebuild_keeps_that_it_was_undone(archive, clock, lost):
    begun(archive, clock)
    clock.now = NOW + ENDED_AFTER_MS
    application(archive, clock, RetentionPolicy(), alone_ms=ENDED_AFTER_MS).undelete(TOPIC, "me")
    if lost:
        archive.store.delete([key for key, _ in archive.store.list(layout.generations_folder(TOPIC))])
    rebuild(archive.store, TOPIC, Given(APPLICATION, NOW), archive.token)
    assert archive.catalogs.head(TOPIC).removed.pending is None
    assert readable(archive) == 50
