"""A rebuild of a topic of which segments were deleted, are being deleted, or were about to be: what is gone is told,
what is there is kept, and nothing else is told."""

from __future__ import annotations

from contextlib import suppress
from random import Random

from hypothesis import given as examples
from hypothesis import strategies as st

from offloader.archive.findings import FindingKind
from offloader.errors import OffloadError
from offloader.lifecycle.retention.phases import ArchiveDeletion
from offloader.lifecycle.retention.policy import RetentionPolicy
from offloader.lifecycle.retention.retention import ArchiveRetention
from offloader.metadata import layout
from offloader.metadata.catalog import Catalogs
from offloader.metadata.deletions import TopicGone, range_of
from offloader.operations.verify.verify import verify
from tests.archive.support import TOPIC
from tests.operations.rebuild.history import History, again, catalog_keys, look, missing, read
from tests.operations.rebuild.test_rebuild import some

ALL_BUT_THE_NEWEST = RetentionPolicy(minutes=0, megabytes=0)


class Deletions(History):
    """Between any two steps retention may take the topic a phase further, or somebody changes their mind; each is
    interrupted at any write."""

    def steps(self, count: int) -> History:
        for _ in range(count):
            super().steps(1)
            if self.random.random() < 0.6:
                self._retain()
        return self

    def _retain(self) -> None:
        self.clock += 1
        store, asked = self._unsafe(), self.random.random()
        catalogs, gone = Catalogs(store, self.application), self.clock if asked < 0.2 else None
        deletion = ArchiveDeletion(
            store, catalogs, catalogs.append, lambda: None, lambda: self.clock, "memory", self.application
        )
        one = ArchiveRetention(deletion, lambda _: ALL_BUT_THE_NEWEST, lambda _: gone, grace_ms=0)
        with suppress(OffloadError):
            if gone is not None:  # and comes back: what follows goes behind all that went
                catalogs.append(catalogs.head(TOPIC), TopicGone(self.incarnation, gone))
            if asked < 0.8:
                one.visit(TOPIC)
            else:
                one.undelete(TOPIC, "somebody")


@examples(st.integers(0, 2**32).map(Random))
def test_what_is_deleted_is_told_after_any_loss_of_the_catalog_and_nothing_else_is(random: Random) -> None:
    history = Deletions(random).steps(random.randint(1, 14))
    before, store = history.catalog, history.store
    for _ in range(2):
        store.delete(some(random, catalog_keys(store)))
        again(store)
        after = history.catalog
        for segment in before.segments:
            there = not segment.size or store.stat(layout.data_key(TOPIC, segment.uuid)) is not None
            told = range_of(after.head.removed.absent, segment.end) is not None
            assert there or told, f"{segment.start} is damage by now"
            assert not told or range_of(before.head.removed.absent, segment.end) is not None, f"{segment.start} is kept"
        assert look(store).in_force
    have, reported = read(store, after), missing(after)
    assert have.items() <= history.truth.items()
    for position in history.truth.keys() - have.keys():
        assert any(start <= position <= end for start, end in reported), position
    assert {f.kind for f in verify(store).findings} <= {
        FindingKind.LEFT_OVER,
        FindingKind.UNCOMMITTED_RECORD,
        FindingKind.STRAY_OBJECT,
    }
