"""Following a topic whose ledgers are bridged and handed over to brokers meanwhile, each with an unload: each entry
once, in order."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from offloader.archive.items import EntryRun, ReadItem
from offloader.lifecycle.retention.handing_over import HandingOver
from offloader.lifecycle.retention.phases import ArchiveDeletion
from offloader.lifecycle.retention.policy import RetentionPolicy
from offloader.lifecycle.retention.retention import ArchiveRetention
from offloader.metadata.bridge_reader import BridgeReader
from offloader.metadata.catalog import Catalogs
from tests.archive.bridges import Bridging, opened
from tests.archive.support import Archive
from tests.examples import worlds
from tests.offload.simulation import Simulation

from .test_follow import TOPIC, delivered, entries_of, follow, started


class Bridge:
    """What the application does with closed ledgers that are archived as a whole."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        sim.cluster.add_subscription(TOPIC, "slow")  # which keeps the ledgers in their list until they are bridged
        self.bridging = Bridging(Archive(store=sim.store, topic=TOPIC))
        self.done: set[int] = set()

    def bridge(self) -> bool:
        """The next ledgers, by one unload."""
        end = Catalogs(self.sim.store, "").head(TOPIC).end
        spans = self.sim.cluster.admin.topic_info(TOPIC).ledgers.spans
        ready = [
            span.ledger
            for span in spans
            if span.last is not None and span.last >= 0 and end is not None and end.place >= (span.ledger, span.last)
        ]
        wanted = [ledger for ledger in ready if ledger not in self.done]
        if not wanted:
            return False
        stored = self.sim.cluster.entries(TOPIC)
        self.bridging.bridge({ledger: [e.data for e in stored if e.ledger == ledger] for ledger in wanted})
        self.done |= set(wanted)
        self.sim.cluster.unload(TOPIC)
        return True

    def visit(self) -> str:
        """One phase of retention, the second of which finds no grace any more."""
        sim = self.sim
        catalogs = Catalogs(sim.store, sim.application)
        deletion = ArchiveDeletion(
            sim.store, catalogs, catalogs.append, lambda: None, sim.clock, "memory", sim.application
        )
        handing_over = HandingOver(BridgeReader(sim.store), opened)
        policy = RetentionPolicy(hands_over=True)
        one = ArchiveRetention(deletion, lambda _: policy, lambda _: None, 0, handing_over=handing_over)
        return replace(one, deletion=deletion).visit(TOPIC)


@worlds
@given(st.integers(0, 10**9))
def test_each_entry_comes_once_while_ledgers_are_bridged_and_segments_go(seed: int) -> None:
    rng = random.Random(seed)
    sim = started(seed, max_size=3_000, part=4_096, roll="1s", entries_per_ledger=rng.choice([3, 8]))
    bridge = Bridge(sim)
    found: list[ReadItem] = []
    reading = follow(sim, idle=1e9)
    visited = 0
    for _ in range(18):
        action = rng.choice(["produce", "produce", "offload", "offload", "bridge", "visit"])
        if action == "produce":
            sim.produce(TOPIC, rng.randint(1, 8), largest=600)
        elif action == "offload":
            sim.rounds(2)
        elif action == "bridge":
            bridge.bridge()
        else:
            while len(entries_of(found)) < len(delivered(sim)):  # what was planned before is read in the grace
                found.append(next(reading))
            visited += "done" in bridge.visit()
        if rng.random() < 0.4 and len(entries_of(found)) < len(delivered(sim)):
            found.append(next(reading))
    reading.close()
    found += follow(sim, found[-1].end if found else None)
    assert entries_of(found) == delivered(sim)
    assert all(before.end < after.start for before, after in pairwise(found))
    again = list(follow(sim))
    assert entries_of(again) == delivered(sim)
    assert all(isinstance(item, EntryRun) or item.kind is not None for item in again)
    sim.close()


def test_the_worlds_hand_segments_over() -> None:
    sim = started(3, max_size=3_000, part=4_096, roll="1s", entries_per_ledger=4)
    bridge = Bridge(sim)
    for _ in range(4):
        sim.produce(TOPIC, 12, largest=600)
        sim.rounds(6)
        sim.settle()
    assert bridge.bridge()
    assert "segments" in bridge.visit()
    assert "done" in bridge.visit()
    head = Catalogs(sim.store, "").head(TOPIC)
    assert head.removed.handed_over
    assert entries_of(list(follow(sim))) == delivered(sim)
    sim.close()
