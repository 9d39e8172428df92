"""Following a topic whose ledgers are bridged meanwhile, each with an unload: each entry once, in order."""

from __future__ import annotations

import random
from collections.abc import Generator
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from offloader.archive.items import EntryRun, ReadItem
from offloader.metadata.catalog import Catalogs
from tests.archive.bridges import Bridging
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


@worlds
@given(st.integers(0, 10**9))
def test_each_entry_comes_once_while_ledgers_are_bridged(seed: int) -> None:
    rng = random.Random(seed)
    sim = started(seed, max_size=3_000, part=4_096, roll="1s", entries_per_ledger=rng.choice([3, 8]))
    bridge = Bridge(sim)
    found: list[ReadItem] = []
    reading = follow(sim, idle=1e9)
    for _ in range(18):
        action = rng.choice(["produce", "produce", "offload", "offload", "bridge"])
        if action == "produce":
            sim.produce(TOPIC, rng.randint(1, 8), largest=600)
        elif action == "offload":
            sim.rounds(2)
        else:
            bridge.bridge()
        if rng.random() < 0.4 and len(entries_of(found)) < len(delivered(sim)):
            found.append(next(reading))
    assert isinstance(reading, Generator)
    reading.close()
    found += follow(sim, found[-1].end if found else None)
    assert entries_of(found) == delivered(sim)
    assert all(before.end < after.start for before, after in pairwise(found))
    again = list(follow(sim))
    assert entries_of(again) == delivered(sim)
    assert all(isinstance(item, EntryRun) or item.kind is not None for item in again)
    sim.close()
