"""Following a topic: archive, then Pulsar, then the archive again where Pulsar has trimmed: each entry once, in
order."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Generator, Iterator
from contextlib import nullcontext
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.archive.following.follower import Following
from offloader.archive.following.live import FollowLimits, Live
from offloader.archive.items import EntryRun, Missing, ReadItem
from offloader.archive.opened import CatalogCache
from offloader.archive.reading.reader import PlannedReader
from offloader.archive.reading.stores import Stores
from offloader.archive.records import TopicRecords
from offloader.archive.selection import Selection
from offloader.errors import BrokerUnavailableError, DataLostError, TopicMovedError, UnexplainedGapError
from offloader.model import GapKind, Position, TopicName
from tests.examples import worlds
from tests.offload.simulation import Simulation

TOPIC = TopicName.parse("persistent://public/default/t0")


class Seconds:
    """Advances whenever it is asked, so that an idle follower comes to its end."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.01
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds


def follow(sim: Simulation, after: Position | None = None, idle: float | None = 0.2) -> Iterator[ReadItem]:
    def runs_after(records: TopicRecords, after: Position | None) -> Iterator[ReadItem]:
        for item in PlannedReader(Stores.of(sim.store)).read(records.plan(Selection(after))):
            rest = item.since(after.next_entry) if after is not None and isinstance(item, EntryRun) else item
            if rest is not None and (after is None or rest.end > after):
                yield rest

    seconds = Seconds()
    patience = FollowLimits(idle=idle, trouble=60.0)
    live = Live(lambda: nullcontext((sim.cluster.source, sim.cluster.admin)), patience, seconds, seconds.pause)
    return Following(live, *[CatalogCache(sim.store).records] * 2).runs(TOPIC, runs_after, after)


def delivered(sim: Simulation) -> list[tuple[int, int, bytes]]:
    return [(e.ledger, e.entry, e.data) for e in sim.cluster.entries(TOPIC) if e.delivered]


def entries_of(found: list[ReadItem]) -> list[tuple[int, int, bytes]]:
    return [
        (e.position.ledger, e.position.entry, e.data)
        for run in found
        if isinstance(run, EntryRun)
        for e in run.entries()
    ]


def started(seed: int, **options: object) -> Simulation:
    sim = Simulation(seed, **options)
    sim.cluster.create(TOPIC)
    sim.rounds(4)
    return sim


@worlds
@given(st.integers(0, 10**9))
def test_each_entry_comes_once_in_order_while_the_offloader_works_and_pulsar_trims(seed: int) -> None:
    rng = random.Random(seed)
    sim = started(
        seed, max_size=rng.choice([3_000, 20_000]), part=4_096, roll="1s", entries_per_ledger=rng.choice([3, 20, None])
    )
    actions = [
        lambda: sim.produce(TOPIC, rng.randint(1, 20), largest=2_000),
        lambda: sim.rounds(2),
        lambda: sim.cluster.roll(TOPIC),
        lambda: sim.cluster.unload(TOPIC),
        lambda: sim.cluster.add_hidden(TOPIC, rng.choice([GapKind.ABORTED, GapKind.MARKER])),
        lambda: sim.cluster.faults.add(
            rng.choice(["source.read", "source.open", "admin.topic_info"]),
            rng.choice([lambda: TopicMovedError("moved"), lambda: BrokerUnavailableError("gone")]),
            effect=False,
        ),
    ]
    found: list[ReadItem] = []
    count = 0
    reading = follow(sim, idle=1e9)
    for _ in range(60):
        rng.choices(actions, [4, 6, 1, 0.5, 1, 1])[0]()
        there = len(delivered(sim))
        for _ in range(rng.choice([0, 3, 30])):
            if count >= there:
                break
            found.append(next(reading))
            count += len(entries_of(found[-1:]))
    assert isinstance(reading, Generator)
    reading.close()
    sim.cluster.faults.clear()
    found += follow(sim, found[-1].end if found else None)
    assert entries_of(found) == delivered(sim)
    assert all(before.end < after.start for before, after in pairwise(found))
    sim.close()


@pytest.mark.parametrize("looks", [1, 2, 3])
def test_what_is_archived_and_trimmed_between_two_looks_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    sim = started(6, roll="10s", pin_holds_last_entry=False)
    sim.produce(TOPIC, 5)
    before = itertools.count()
    armed = False

    def then_trimmed(look: Callable[..., object]) -> Callable[..., object]:
        def looked(*args: object) -> object:
            seen = look(*args)
            if armed and next(before) == looks - 1:
                sim.settle()
                sim.cluster.check_retention(TOPIC)
                sim.produce(TOPIC, 3)
            return seen

        return looked

    monkeypatch.setattr(sim.cluster.admin, "topic_info", then_trimmed(sim.cluster.admin.topic_info))
    monkeypatch.setattr(sim.context.catalogs, "refresh_head", then_trimmed(sim.context.catalogs.refresh_head))
    reading = follow(sim, idle=30)
    found: list[ReadItem] = []
    while len(entries_of(found)) < 5:
        found.append(next(reading))
    sim.cluster.unload(TOPIC)
    armed = True
    found += reading
    assert next(before) >= looks
    assert found[0].start.ledger not in sim.cluster.admin.topic_info(TOPIC).ledgers
    assert entries_of(found) == delivered(sim)
    sim.close()


def test_an_aborted_entry_of_the_live_topic_is_told() -> None:
    sim = started(1, roll="10m")
    sim.produce(TOPIC, 2)
    ledger, entry = sim.cluster.add_hidden(TOPIC, GapKind.ABORTED)
    sim.produce(TOPIC, 1)
    missing = [i for i in follow(sim) if isinstance(i, Missing)]
    assert [(m.start, m.end, m.kind) for m in missing] == [
        (Position(0, ledger, entry), Position(0, ledger, entry), GapKind.ABORTED)
    ]
    sim.close()


def test_an_entry_that_is_withheld_without_a_reason_ends_the_reading() -> None:
    sim = started(2, roll="10m")
    sim.produce(TOPIC, 1)
    ledger, entry = sim.cluster.add_withheld(TOPIC)
    sim.produce(TOPIC, 1)
    with pytest.raises(UnexplainedGapError, match=f"{ledger}:{entry}"):
        list(follow(sim))
    sim.close()


def test_a_ledger_that_vanished_before_it_was_archived_ends_the_reading() -> None:
    sim = started(3, roll="10m", entries_per_ledger=None)
    sim.produce(TOPIC, 3)
    first = list(follow(sim))
    sim.produce(TOPIC, 3)
    sim.cluster.roll(TOPIC)
    sim.produce(TOPIC, 3)
    sim.cluster.lose(TOPIC, first[-1].end.ledger)
    with pytest.raises(DataLostError):
        list(follow(sim, first[-1].end))
    sim.close()


def test_a_topic_created_again_is_not_taken_for_the_archived_one() -> None:
    sim = started(4, roll="1s")
    sim.produce(TOPIC, 3)
    sim.settle()
    sim.cluster.delete(TOPIC)
    sim.cluster.create(TOPIC)
    with pytest.raises(DataLostError, match="created again"):
        list(follow(sim))
    sim.close()


def test_patience_with_trouble_has_an_end() -> None:
    sim = started(5, roll="10m")
    sim.produce(TOPIC, 3)
    for _ in range(1_000):
        sim.cluster.faults.add("source.open", lambda: BrokerUnavailableError("gone"), effect=False)
    with pytest.raises(BrokerUnavailableError):
        list(follow(sim, idle=None))
    sim.close()
