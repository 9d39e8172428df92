"""Archives for retention, and applications that look after them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from offloader.lifecycle.retention.phases import ArchiveDeletion
from offloader.lifecycle.retention.policy import RetentionPolicy
from offloader.lifecycle.retention.retention import ArchiveRetention, GoneDoubt
from offloader.metadata import layout
from offloader.metadata.catalog import Catalogs, released
from offloader.metadata.state import CatalogHead, Said
from offloader.ports.object_store import ObjectStore
from offloader.storage.forwarding import ForwardingStore, Verb
from tests.archive.support import APPLICATION, TOPIC, Archive, stream
from tests.times import MINUTE_MS

T = TypeVar("T")

NOW = 1_800_000_000_000
OLD = NOW - 100 * MINUTE_MS
HOUR = RetentionPolicy(minutes=60)


def retention(archive: Archive, policy: RetentionPolicy, store: object = None, gone: int | None = None):
    reached = store or archive.store
    catalogs = Catalogs(reached, APPLICATION)
    deletion = ArchiveDeletion(
        reached,
        catalogs,
        catalogs.append,
        lambda: None,
        lambda: NOW,
        "memory",
        APPLICATION,
    )
    return ArchiveRetention(deletion, lambda _: policy, lambda _: gone, grace_ms=0)


def append(archive: Archive, record: Said) -> CatalogHead:
    return archive.catalogs.append(archive.catalogs.head(TOPIC), record)


def incarnations() -> Archive:
    """Three topics of one name, of two segments each; the last one is there."""
    archive = Archive(sealed_at=OLD)
    for number in range(3):
        archive.incarnation = number
        archive.claim(10 * number, created=number)
        archive.add(stream(10 * number, 0, 9))
        archive.add(stream(10 * number, 10, 19))
    return archive


def told(archive: Archive) -> list[tuple[str, str]]:
    return [(str(each.start), str(each.end)) for each in archive.catalogs.head(TOPIC).removed.told]


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


def application(
    archive: Archive,
    clock: Clock,
    policy: RetentionPolicy,
    name: str = APPLICATION,
    gone: int | GoneDoubt | None = None,
    store: ObjectStore | None = None,
    alone_ms: int = 0,
) -> ArchiveRetention:
    """One of several in one root; its grace is ten minutes. Its clock is the store's, too."""
    archive.store.backing.clock_ms = clock
    reached = store or archive.store
    catalogs = Catalogs(reached, name)
    deletion = ArchiveDeletion(
        reached, catalogs, catalogs.append, lambda: None, clock, "memory", name, alone_ms=lambda: alone_ms
    )
    return ArchiveRetention(deletion, lambda _: policy, lambda _: gone, 10 * MINUTE_MS)


def visit_all(one: ArchiveRetention) -> None:
    """As the application does it."""
    noted = one.deletion.marked()
    if TOPIC in noted or one.policy_of(TOPIC).says_anything:
        one.visit(TOPIC, noted=TOPIC in noted)


def released_archive(*, before_the_field: bool = False) -> Archive:
    archive = incarnations()
    claim = archive.catalogs.head(TOPIC).claim
    assert claim is not None
    left = released(claim, NOW, "released")
    append(archive, replace(left, released_by="") if before_the_field else left)
    return archive


class PausedStore(ForwardingStore):
    """Before the first call that `wanted` chooses, something else happens."""

    def __init__(
        self, store: ObjectStore, wanted: Callable[[Verb, str], bool], meanwhile: Callable[[], object]
    ) -> None:
        super().__init__(store)
        self._wanted, self._meanwhile, self.paused = wanted, meanwhile, False

    def _call(self, verb: Verb, key: str, work: Callable[[], T]) -> T:
        if not self.paused and self._wanted(verb, key):
            self.paused = True
            self._meanwhile()
        return work()


def is_note_forgotten(verb: Verb, key: str) -> bool:
    return verb == "delete" and key == layout.archive_deletion_key("memory", TOPIC)
