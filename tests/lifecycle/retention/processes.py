"""Runs of two applications in the ages of a topic, each call of which may be the last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from offloader.errors import OffloadError, OvertakenError
from offloader.lifecycle.retention.phases import ArchiveDeletion
from offloader.lifecycle.retention.plan import DueRange
from offloader.lifecycle.retention.policy import RetentionPolicy
from offloader.lifecycle.retention.retention import ArchiveRetention, GoneDoubt
from offloader.metadata import layout
from offloader.metadata.catalog import Catalogs
from offloader.metadata.deletions import (
    Deleting,
    TopicGone,
)
from offloader.metadata.state import CatalogHead
from offloader.storage.forwarding import ForwardingStore, Verb
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC

from .world import GRACE

T = TypeVar("T")

if TYPE_CHECKING:
    from .ages import Ages

APPLICATIONS = ("app", "other")
POLICIES = (
    RetentionPolicy(),
    RetentionPolicy(minutes=30),
    RetentionPolicy(minutes=0, megabytes=0),
    RetentionPolicy(gone_minutes=20),
    RetentionPolicy(minutes=30, hold="court"),
    RetentionPolicy(hold="court"),
    RetentionPolicy(follow_pulsar=True),
)
LOOKS = 3  # until a topic is proven to be gone
Making = Callable[[ArchiveDeletion, "Process"], ArchiveRetention]


class WatchedStore(ForwardingStore):
    """Before each call something else may happen; a call may be the last one."""

    def __init__(self, store: MemoryStore, before: Callable[[Verb, str], None]) -> None:
        super().__init__(store)
        self._before = before

    def _call(self, verb: Verb, key: str, work: Callable[[], T]) -> T:
        self._before(verb, key)
        return work()


def is_note(verb: Verb, key: str) -> bool:
    return verb in ("put", "delete") and key.startswith(layout.archive_deletions_folder("memory"))


def is_slot(verb: Verb, key: str) -> bool:
    return verb == "put" and f"/{layout.CATALOG}/" in key


class Process:
    """One run of an application."""

    def __init__(self, world: Ages, name: str) -> None:
        self.world, self.name, self.looks = world, name, 0
        world.epochs[name] += 1
        self.epoch = world.epochs[name]
        store = WatchedStore(world.store, world.between)
        self.catalogs = Catalogs(store, name)
        deletion = Watched(
            store,
            self.catalogs,
            self.catalogs.append,
            self.check,
            lambda: world.now,
            "memory",
            name,
            self,
        )
        self.retention = world.make(deletion, self)

    def check(self) -> None:
        if self.world.epochs[self.name] != self.epoch:
            raise OvertakenError("there is a newer process")

    def policy(self) -> RetentionPolicy:
        return self.world.policies[self.name]

    def gone_since(self, head: CatalogHead) -> int | GoneDoubt | None:
        world, gone = self.world, head.removed.gone
        if head.claim is None or (world.there and head.claim.incarnation == world.incarnation):
            self.looks = 0
            return None
        self.looks += 1
        if self.looks < LOOKS or (world.left_open and not world.rolled_back):
            return None if gone is None else GoneDoubt.NOT_KNOWN_YET
        if gone is None:
            gone = TopicGone(head.claim.incarnation, world.now)
            self.catalogs.append(head, gone)
        return gone.at

    def visit_all(self) -> None:
        noted = TOPIC in self.retention.deletion.marked()
        if noted or self.policy().says_anything:
            self.retention.visit(TOPIC, noted=noted)


@dataclass(frozen=True)
class Watched(ArchiveDeletion):
    """Says whether what is decided may be decided."""

    process: Process

    def record(self, head: CatalogHead, due: Sequence[DueRange], by: str, grace_ms: int) -> CatalogHead:
        world = self.process.world
        before, world.changed = world.changed, world.moved  # since it was decided
        try:
            return super().record(head, due, by, grace_ms)
        except OffloadError:  # it is not this one that stands
            world.changed = world.changed or before
            raise

    def begin(self, head: CatalogHead, pending: Deleting) -> CatalogHead:
        found = super().begin(head, pending)
        self.process.world.has_begun(self.process, found)
        return found

    def undo(self, head: CatalogHead, by: str, why: str) -> CatalogHead:
        found = super().undo(head, by, why)
        self.process.world.has_undone(by, why)
        return found


def sound(deletion: ArchiveDeletion, process: Process) -> ArchiveRetention:
    return ArchiveRetention(deletion, lambda _: process.policy(), process.gone_since, GRACE)
