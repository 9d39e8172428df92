"""Seeded worlds: segments are handed over to brokers beside readers, with kills between any two calls, and with copies
that vanish before the second look. Whoever reads gets every position, always. And broken variants are caught."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache

import pytest

from offloader.archive.archive import Archive as ReadArchive
from offloader.archive.items import EntryRun
from offloader.archive.opened import OpenArchive
from offloader.archive.reading.reader import ReadOptions
from offloader.archive.reading.stores import Stores
from offloader.errors import OffloadError
from offloader.lifecycle.retention.handing_over import HandingOver
from offloader.lifecycle.retention.own_copies import ReadableLedgers
from offloader.lifecycle.retention.phases import ArchiveDeletion
from offloader.lifecycle.retention.policy import MINUTE_MS, RetentionPolicy
from offloader.lifecycle.retention.retention import ArchiveRetention
from offloader.lifecycle.retention.second_look import SecondLook
from offloader.metadata.bridge_reader import BridgeReader
from offloader.metadata.bridged import HandedLedger
from offloader.metadata.catalog import Catalogs
from offloader.metadata.deletions import Deleting, range_of
from offloader.metadata.state import CatalogHead
from offloader.metadata.stock_keys import data_key, index_key
from offloader.model import TopicName
from tests.archive.bridges import Bridging, opened
from tests.archive.support import TOPIC

from .world import A_LEDGER, GRACE, World

WORLDS = int(os.environ.get("OFFLOADER_RETENTION_WORLDS", "5"))
STEPS = 30
HANDS_OVER = RetentionPolicy(hands_over=True)


class BridgedWorld(World):
    """Every closed ledger is bridged some time. `make`: what hands over."""

    def __init__(self, seed: int, make: Callable[[ArchiveDeletion, BridgedWorld], ArchiveRetention]) -> None:
        super().__init__(seed, lambda deletion, _: make(deletion, self))
        self.policy = HANDS_OVER
        self.bridging = Bridging(self._archive)
        self.bridged = self.vanished = 0

    def entries_of(self, ledger: int) -> list[bytes]:
        return [data for (each, _), data in self.written if each == ledger]

    def bridge(self) -> None:
        """The next closed ledger, up to any step of its round."""
        if self.bridging._head.state is not None and self.bridging.state.round is not None:
            self.bridging.withdraw() if self.rng.random() < 0.3 else self.bridging.swap()
            if self.bridging.state.round.phase == "withdrawing":
                self.bridging.withdrawn()
            else:
                self.bridging.finish()
                self.bridged += 1
            return
        if self._segments // A_LEDGER > self.bridged:
            ledgers = {self.bridged: self.entries_of(self.bridged)}
            self.bridging.begin(ledgers)
            self.bridging.build(ledgers)

    def vanish(self) -> None:
        """A copy goes that the archive does not depend on yet: brokers may delete it at any time."""
        head = Catalogs(self.store, "").head(TOPIC)
        gone = [s for s in self._archive.catalog.segments if range_of(head.removed.absent, s.end) is not None]
        needed = {held.ledger for segment in gone for held in segment.ledgers}
        known = BridgeReader(self.store).of(TOPIC).ledgers
        free = [known[ledger].ledger for ledger in sorted(known.keys() - needed)]
        if free and self.rng.random() < 0.5:
            one, key = self.rng.choice(free), self.rng.choice([data_key, index_key])
            self.bridging.brokers.delete([key(one.uuid, one.ledger)])
            self.vanished += 1

    def live(self) -> None:
        actions = ["seal"] * 2 + ["wait"] * 2 + ["visit"] * 3 + ["bridge"] * 2 + ["vanish", "mind"]
        for _ in range(STEPS):
            match self.rng.choice(actions):
                case "seal":
                    self.seal()
                case "wait":
                    self.now += self.rng.randint(1, 15) * MINUTE_MS
                case "visit":
                    self.visit()
                case "bridge":
                    self.bridge()
                case "vanish":
                    self.vanish()
                case _ if self.rng.random() < 0.3:
                    self.undelete()
                case _:
                    self.policy = self.rng.choice([HANDS_OVER, HANDS_OVER, RetentionPolicy()])
            if self.rng.random() < 0.3:
                self.read_all()
        self.policy = HANDS_OVER
        for _ in range(4):
            self.now += GRACE + 1
            self.visit(killed=False)
        self.check()
        self.read_all(at_rest=True)

    def read_all(self, *, at_rest: bool = False) -> None:
        """Each position. What vanishes in the grace is told, until the second look takes the deletion back."""
        if not self.written:
            return
        archive = ReadArchive(OpenArchive(Stores.of(self.store)), options=ReadOptions(prefetch=0))
        got, told = [], []
        for item in archive.topic(TOPIC).runs():
            if isinstance(item, EntryRun):
                got += [(entry.position.place, entry.data) for entry in item.entries()]
            else:
                told.append(item)
        assert all(item.deleted and item.why.startswith("deleted by Pulsar") for item in told), f"{told}"
        head = Catalogs(self.store, "").head(TOPIC)
        undecided = head.removed.pending is not None and head.removed.begun is None
        assert not told or (undecided and not at_rest), f"{told} went, and nobody has another copy"
        hidden = [m for m, _ in self.written if any(x.start.place <= m <= x.end.place for x in told)]
        assert [*got] == [each for each in self.written if each[0] not in hidden], "not what was written"

    def _step_readers(self) -> None:
        """What was planned before is told after the grace: here all is read anew."""


def handing(world: BridgedWorld) -> HandingOver:
    return HandingOver(BridgeReader(world.store), opened)


def sound(deletion: ArchiveDeletion, world: BridgedWorld) -> ArchiveRetention:
    return ArchiveRetention(deletion, lambda _: world.policy, lambda _: None, GRACE, handing_over=handing(world))


@cache
def lived(seed: int) -> BridgedWorld:
    world = BridgedWorld(seed, sound)
    world.live()
    return world


@pytest.mark.parametrize("seed", range(WORLDS))
def test_whoever_reads_gets_every_position_whatever_goes_and_vanishes_and_is_killed_meanwhile(seed: int):
    lived(seed)


def test_the_worlds_hand_over_and_copies_vanish():
    worlds = [lived(seed) for seed in range(5)]
    assert sum(world.deleted_by_now() for world in worlds) > 3
    assert sum(world.kills for world in worlds) > 0
    assert sum(world.vanished for world in worlds) > 0


class NoSecondLook(ArchiveRetention):
    """What was sound when it was recorded goes."""

    def _why_not_handed_over(self, head: CatalogHead, pending: Deleting, whole: SecondLook) -> str:
        return ""


class NoObjects(HandingOver):
    """What the log says is believed."""

    def why_not(self, found: ReadableLedgers, segments: object, look: SecondLook | None = None) -> str:
        return ""


class Everything(dict[int, HandedLedger]):
    def __contains__(self, _: object) -> bool:
        return True


class AllBridged(NoObjects):
    def readable(self, topic: TopicName) -> ReadableLedgers:
        return ReadableLedgers(Everything(super().readable(topic).ledgers))


VARIANTS: dict[str, Callable[[ArchiveDeletion, BridgedWorld], ArchiveRetention]] = {
    "no second look": lambda deletion, world: NoSecondLook(
        deletion, lambda _: world.policy, lambda _: None, GRACE, handing_over=handing(world)
    ),
    "the log is believed": lambda deletion, world: ArchiveRetention(
        deletion,
        lambda _: world.policy,
        lambda _: None,
        GRACE,
        handing_over=NoObjects(BridgeReader(world.store), opened),
    ),
    "not all of its ledgers": lambda deletion, world: ArchiveRetention(
        deletion,
        lambda _: world.policy,
        lambda _: None,
        GRACE,
        handing_over=AllBridged(BridgeReader(world.store), opened),
    ),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_broken_variant_is_caught(variant: str):
    def caught(seed: int) -> bool:
        try:
            BridgedWorld(seed, VARIANTS[variant]).live()
        except (AssertionError, OffloadError):
            return True
        return False

    assert any(caught(seed) for seed in range(25))
