"""Brokers beside the service, over one ZooKeeper in memory: they create, list, roll, trim, are paused between any two
steps for as long as they like, and go on. What somebody lists is never deleted by us, and what the product says is
gone is gone. The same without the guard fails.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from integration.soak import SOAK
from offloader._proto.managed_ledger_pb2 import ManagedLedgerInfo
from offloader.bookkeeper.nodes import DeleteNode
from offloader.errors import VersionConflictError
from offloader.lifecycle.deletion.records import DeletionAnswer
from offloader.lifecycle.deletion.timing import DeletionTiming
from tests.examples import tries

from .cluster import DyingNodes, JudgingScanner, OrphanCluster, list_node
from .test_service import DELETED, Setting, Told

WALKS, STEPS = (400, 300) if SOAK else (tries("OFFLOADER_WALKS", 8, 25), 150)
TOPIC = "t"


@dataclass
class Broker:
    """Does one step at a time; `step` is where it was paused."""

    cluster: OrphanCluster
    ids: list[int]
    step: str = "out"
    version: int = 0
    listed: list[int] = field(default_factory=list)
    new: int = 0
    dying: list[int] = field(default_factory=list)

    def go_on(self, rng: random.Random) -> None:
        getattr(self, f"_{self.step}")(rng)

    def _out(self, rng: random.Random) -> None:
        node = self.cluster.metadata.nodes.get(list_node(TOPIC))
        if node is None:
            return
        self.version = node.version
        self.listed = [one.ledgerId for one in ManagedLedgerInfo.FromString(node.value).ledgerInfo]
        self.step = "takes"

    def _takes(self, rng: random.Random) -> None:
        self.ids[0] += 1
        self.new = self.ids[0]
        self.step = "makes"

    def _makes(self, rng: random.Random) -> None:
        self.cluster.ledger(self.new, TOPIC, 0, is_open=rng.random() < 0.3)
        self.step = "lists"

    def _lists(self, rng: random.Random) -> None:
        self.step = "owns" if self._write([*self.listed, self.new]) else "out"

    def _owns(self, rng: random.Random) -> None:
        if rng.random() < 0.5 or len(self.listed) < 2:
            self.step = rng.choice(("takes", "out"))  # rolls, or dies
            return
        dying = self.listed[: rng.randrange(1, len(self.listed))]
        if self._write(self.listed[len(dying) :]):
            self.dying, self.step = dying, "deletes"
        else:
            self.step = "out"

    def _deletes(self, rng: random.Random) -> None:
        """Or dies in between: an orphan."""
        if rng.random() < 0.5:
            for ledger in self.dying:
                if self.cluster.metadata.nodes.get(self.cluster.path(ledger)) is not None:
                    self.cluster.metadata.cluster.delete_ledger(ledger)
        self.step = rng.choice(("owns", "out"))

    def _write(self, ledgers: list[int]) -> bool:
        info = ManagedLedgerInfo(ledgerInfo=[ManagedLedgerInfo.LedgerInfo(ledgerId=one) for one in ledgers])
        try:
            written = self.cluster.metadata.nodes.set(list_node(TOPIC), info.SerializeToString(), self.version)
        except VersionConflictError:
            return False
        if written is None:
            return False
        self.version, self.listed = written, ledgers
        return True


class Unguarded(DyingNodes):
    """Deletes without any check."""

    def multi(self, operations):
        super().multi([operations[-1]] if isinstance(operations[-1], DeleteNode) else operations)


class Restorer:
    """Somebody who edits the list: what was an orphan is listed again, if it is there."""

    def __init__(self, cluster: OrphanCluster) -> None:
        self.cluster = cluster

    def go_on(self, rng: random.Random) -> None:
        node = self.cluster.metadata.nodes.get(list_node(TOPIC))
        listed = {one.ledgerId for one in ManagedLedgerInfo.FromString(node.value).ledgerInfo}
        found = sorted(self.cluster.ledger_ids() - listed)
        if found and listed and rng.random() < 0.2:
            chosen = rng.choice([one for one in found if one < max(listed)] or [0])
            if chosen:
                info = ManagedLedgerInfo(
                    ledgerInfo=[ManagedLedgerInfo.LedgerInfo(ledgerId=one) for one in sorted({*listed, chosen})]
                )
                self.cluster.metadata.nodes.set(list_node(TOPIC), info.SerializeToString(), node.version)


class Walk:
    """One topic, three brokers, two services; every call of ours to ZooKeeper may let the others go on first."""

    def __init__(self, seed: int, nodes_of=DyingNodes) -> None:
        self.rng = random.Random(seed)
        self.setting = Setting(seed)
        self.setting.timing = DeletionTiming(delay=1, floor=0, reconsume_later=1, longest_wait=1, max_tries=1000)
        self.setting.on()
        self.cluster = self.setting.cluster
        ids = [0]
        self.cluster.list_ledgers(TOPIC)
        self.brokers: list[Broker | Restorer] = [Broker(self.cluster, ids) for _ in range(3)]
        self.brokers.append(Restorer(self.cluster))
        self.sides = [self._side(nodes_of(self.cluster, self.rng)) for _ in range(2)]
        self.told = [Told(), Told()]
        self.inside = False

    def _side(self, nodes):
        scanner = JudgingScanner(nodes, lambda: self.cluster.now_ms, between=self.others)
        return self.cluster.side(nodes, scanner=scanner)

    def others(self) -> None:
        """Brokers go on, whenever we do something."""
        self.inside, before = True, self.inside
        while not before and self.rng.random() < 0.5:
            self.rng.choice(self.brokers).go_on(self.rng)
            self.check()
        self.inside = before

    def run(self) -> None:
        self.cluster.metadata.nodes.before_write = self.others
        for _ in range(STEPS):
            self.cluster.network.now += 1
            chosen = self.rng.random()
            if chosen < 0.7:
                self.inside = True
                self.rng.choice(self.brokers).go_on(self.rng)
                self.inside = False
            elif chosen < 0.85:
                self.setting.mark(side=self.rng.choice(self.sides))
            else:
                self.a_round()
            self.check()
        self.cluster.metadata.nodes.before_write = lambda: None

    def a_round(self) -> None:
        number = self.rng.randrange(2)
        self.setting.service(self.sides[number], told=self.told[number], parallelism=1).round()

    def check(self) -> None:
        node = self.cluster.metadata.nodes.get(list_node(TOPIC))
        listed = [one.ledgerId for one in ManagedLedgerInfo.FromString(node.value).ledgerInfo]
        assert self.cluster.deleted.keys().isdisjoint(listed), "we deleted what is listed"
        assert max(self.cluster.deleted.values(), default=1) == 1, "a ledger was deleted twice"

    def check_ends(self) -> None:
        there = self.cluster.ledger_ids()
        for one in self.setting.queue.records():
            record = one.record
            if (record.state, record.answer) == DELETED or record.answer is DeletionAnswer.ALREADY_GONE:
                assert record.ledger_id not in there


@pytest.mark.explores
def test_brokers_that_are_paused_anywhere_lose_nothing():
    ours = 0
    for seed in range(WALKS):
        walk = Walk(seed)
        walk.run()
        walk.check_ends()
        ours += len(walk.cluster.deleted)
    assert ours > WALKS


def test_a_walk_finds_what_is_lost_without_the_guard():
    def walks():
        for seed in range(200):
            Walk(seed, Unguarded).run()

    with pytest.raises(AssertionError, match="we deleted what is listed"):
        walks()
