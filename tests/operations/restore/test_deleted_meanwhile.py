"""A restore that is under way while what it restores is deleted: it has each entry, or is told plainly why not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from threading import Lock
from typing import TypeVar

import pytest

from offloader.archive.archive import Archive as ReadArchive
from offloader.archive.messages.envelope import parse_envelope
from offloader.archive.opened import OpenArchive
from offloader.archive.reading.stores import Stores
from offloader.errors import DataLostError
from offloader.metadata.deletions import Deleted, DeletionBegun
from offloader.operations.restore.choice import Choice
from offloader.operations.restore.progress import RateLimiter, RestoreProgress
from offloader.operations.restore.provenance import read_provenance
from offloader.operations.restore.restore import ArchiveSource, Restore, Tools
from offloader.ports.object_store import ObjectStore
from offloader.storage.forwarding import ForwardingStore, Verb
from tests.archive.support import TOPIC, Archive
from tests.archive.test_deleted import ENTRIES, POLICY, append, archived, deleting, remove

from .support import ORIGIN, Clock, MemoryTarget

T = TypeVar("T")

SEGMENTS, GO = 6, 4
TOLD = f"deleted by {POLICY} on 1970-01-01T00:00:01Z"


def deletion(archive: Archive) -> Iterator[None]:
    """A deletion of the oldest segments, a step at a time."""
    pending = append(archive, deleting(archive, GO)).removed.pending
    assert pending is not None
    yield
    append(archive, DeletionBegun(pending.number, "app", 1_100))
    for segment in archive.catalog.segments[:GO]:
        yield
        remove(archive, [segment])
    yield
    append(archive, Deleted(pending.number, pending.ranges, pending.reason, POLICY, "retention", 1_000))


class SteppingStore(ForwardingStore):
    """Before each read, from the `moment`-th on, a step is done."""

    def __init__(self, store: ObjectStore, steps: Iterator[None], moment: int) -> None:
        super().__init__(store)
        self._steps, self._left, self._lock = steps, moment, Lock()

    def _call(self, verb: Verb, key: str, work: Callable[[], T]) -> T:
        if verb == "read":
            with self._lock:
                self._left -= 1
                if self._left < 0:
                    next(self._steps, None)
        return work()


def restore(store: ObjectStore, target: MemoryTarget, *, allow_missing: bool) -> RestoreProgress:
    source, clock = ArchiveSource(ReadArchive(OpenArchive(Stores.of(store))).topic(TOPIC)), Clock()
    begun: list[RestoreProgress] = []

    def begin(tail) -> RestoreProgress:
        begun.append(RestoreProgress(ORIGIN, tail, Choice(source.outcomes(), allow_missing)))
        return begun[0]

    Restore(target, source.items, begin, RateLimiter(None), Tools(clock, clock.sleep, retry_for=1e9)).run()
    return begun[0]


def restored(target: MemoryTarget) -> list[int]:
    """The numbers of the restored entries in the topic, from its beginning."""
    found = (read_provenance(parse_envelope(data).metadata) for data in target.stored)
    return [2 * ENTRIES * each.position.ledger + each.position.entry for each in found if each is not None]


@pytest.mark.parametrize("moment", range(14))
def test_at_any_moment_it_has_each_entry_or_ends_and_says_by_what_it_was_deleted(moment) -> None:
    archive, target = archived(SEGMENTS), MemoryTarget(Random(moment))
    everything = list(range(SEGMENTS * ENTRIES))
    store = SteppingStore(archive.store, deletion(archive), moment)
    said = ""
    try:
        restore(store, target, allow_missing=False)
    except DataLostError as error:
        said = str(error)
    if said:
        assert TOLD in said
        target.attach()
        again = ArchiveSource(ReadArchive(OpenArchive(Stores.of(archive.store))).topic(TOPIC))
        assert TOLD in again.outline(target.tail().position).lost[0]
    assert restored(target) == everything[: len(target.stored)], "a hole"
    assert said or len(target.stored) == len(everything)


@pytest.mark.parametrize("moment", range(14))
def test_where_that_is_accepted_it_goes_on_behind_it_and_counts_it(moment) -> None:
    archive, target = archived(SEGMENTS), MemoryTarget(Random(moment))
    progress = restore(SteppingStore(archive.store, deletion(archive), moment), target, allow_missing=True)
    got = restored(target)
    assert got == sorted(set(got))
    assert got[-(SEGMENTS - GO) * ENTRIES :] == list(range(GO * ENTRIES, SEGMENTS * ENTRIES))
    assert (progress.counts.losses > 0) == (len(got) < SEGMENTS * ENTRIES), "what is passed over is counted"


def test_both_were_seen() -> None:
    ends = []
    for moment in range(30):
        archive, target = archived(SEGMENTS), MemoryTarget(Random(moment))
        try:
            restore(SteppingStore(archive.store, deletion(archive), moment), target, allow_missing=False)
            ends.append("whole")
        except DataLostError:
            ends.append("told" if target.sends else "refused")
    assert {"whole", "told"} <= {*ends}, ends
