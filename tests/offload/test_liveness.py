"""Which shard is tried by whom: by a sign of life that does not change, seen by one's own clock, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.metadata.deal import Deal
from offloader.metadata.heartbeats import FoundSign, Heartbeat, Heartbeats
from offloader.offload.core.liveness import Liveness, wait_before_return
from offloader.offload.fleet import Fleet
from offloader.storage.memory import MemoryStore

LONGEST_WAIT_MS = 3_600_000
LOOKS = 4
MOST_STAND_INS = 2

AFTER = 1_000


def found(*signs: tuple[int, int], count: int = 4, host: int | None = None) -> Mapping[int, FoundSign]:
    """Signs of life, each of a shard and with a number that counts up."""
    return {
        index: FoundSign(
            f"{index} {beat}".encode(), Heartbeat(index, count, "topic", index if host is None else host, "run", beat)
        )
        for index, beat in signs
    }


def lived(liveness: Liveness, until: int, silent: set[int], step: int = 100) -> Liveness:
    """Looks up to a moment, at shards of which some do not move."""
    for now in range(liveness.began, until + 1, step):
        liveness = liveness.observed(found(*((i, 0 if i in silent else now) for i in range(4))), now)
    return liveness


def test_the_next_living_shard_runs_a_silent_one_and_others_only_if_it_does_not() -> None:
    for silent, order in ((1, (2, 3, 0)), (3, (0, 1, 2))):
        for rank, index in enumerate(order):
            first = AFTER * (1 + rank)
            seen = lived(Liveness(Deal("app", index, 4), AFTER, 0), 4 * AFTER, {silent})
            assert seen.due({index}, first - 1) == []
            assert seen.due({index}, first) == [silent]


def test_one_that_is_silent_itself_is_not_waited_for() -> None:
    seen = lived(Liveness(Deal("app", 3, 4), AFTER, 0), AFTER, {1, 2})
    assert seen.due({3}, AFTER) == [1, 2]


def test_what_changes_lives_whatever_it_says_and_what_was_never_there_is_silent() -> None:
    liveness = Liveness(Deal("app", 0, 2), AFTER, 0)
    for now in range(0, 5_000, 500):
        liveness = liveness.observed({1: FoundSign(str(now).encode(), None)}, now)
    assert liveness.silent(4_600) == [0]
    assert not liveness.agrees(1, 4_600)
    assert Liveness(Deal("app", 0, 2), AFTER, 0).due({0}, AFTER) == [1]


def test_topics_are_passed_on_only_to_whom_we_saw_live_and_who_deals_as_we_do() -> None:
    liveness = Liveness(Deal("app", 0, 4), AFTER, 0).observed(found((1, 7)), 0)
    assert not liveness.agrees(1, 10)  # it may have died long ago
    liveness = liveness.observed(found((1, 8)), 100)
    assert liveness.agrees(1, 200)
    assert not liveness.agrees(1, 100 + AFTER)
    assert not liveness.observed(found((1, 9), count=5), 300).agrees(1, 300)


@pytest.mark.parametrize(("gap", "left"), [(AFTER // 2, 3 * AFTER // 4), (AFTER, 3 * AFTER // 4), (10 * AFTER, AFTER)])
def test_what_nobody_could_see_is_no_silence(gap: int, left: int) -> None:
    """The store was gone for all, or we stood still: the others may just not have been able to show a sign yet."""
    assert Liveness(Deal("app", 0, 4), AFTER, 0).observed({}, gap).due({0}, gap) == []
    seen = lived(Liveness(Deal("app", 0, 4), AFTER, 0), 2 * AFTER, set())
    back = 2 * AFTER + gap
    for now in range(back, back + left + 1, AFTER // LOOKS):
        assert seen.due({0}, seen.looked or 0) == []
        seen = seen.observed(found(*((i, 2 * AFTER if i == 3 or now == back else now) for i in range(4))), now)
    assert seen.due({0}, back + left) == [3]


def test_who_looks_rarely_sees_silence_nevertheless() -> None:
    seen = Liveness(Deal("app", 0, 2), AFTER, 0)
    for now in range(0, 10 * AFTER, AFTER):
        seen = seen.observed(found((0, now), (1, 0)), now)
    assert seen.due({0}, now) == [1]


def test_a_shard_beyond_the_number_of_them_is_run_until_its_sign_is_removed() -> None:
    liveness = Liveness(Deal("app", 0, 1), AFTER, 0).observed(found((0, 1), (3, 1)), 0)
    assert liveness.due({0}, AFTER) == [3]
    assert liveness.observed(found((0, 2)), AFTER).due({0}, 2 * AFTER) == []


@given(st.integers(2, 12), st.data())
def test_each_silent_shard_has_exactly_one_that_tries_first(count: int, data: st.DataObject) -> None:
    silent = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=count - 1))
    living = set(range(count)) - silent
    tries: dict[int, list[int]] = {index: [] for index in silent}
    for index in living:
        seen = Liveness(Deal("app", index, count), AFTER, 0)
        for now in range(0, AFTER + 1, 250):
            seen = seen.observed(found(*((i, 0 if i in silent else now) for i in range(count)), count=count), now)
        for one in seen.due({index}, AFTER):
            tries[one].append(index)
    assert all(len(those) == 1 for those in tries.values())


def test_who_is_taken_over_again_and_again_waits_longer_each_time() -> None:
    waits = [wait_before_return(taken, 120_000) for taken in range(12)]
    assert waits[:4] == [0, 0, 120_000, 240_000]
    assert waits == sorted(waits)
    assert waits[-1] == LONGEST_WAIT_MS


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


class Processes:
    """Three processes of an application, which look when they are told to."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.clock = Clock()
        self.rounds = 0
        self.fleets = [self.fleet(index) for index in range(3)]

    def fleet(self, index: int) -> Fleet:
        heartbeats = Heartbeats(self.store, "app")
        return Fleet(heartbeats, Deal("app", index, 3), AFTER, self.clock, f"run-{index}-{self.clock.now}")

    def turn(self) -> int:
        self.rounds += 1
        return self.rounds

    def begin(self, *indexes: int) -> None:
        for index in indexes:
            assert self.fleets[index].may_return()
            self.fleets[index].joins(index, self.turn)

    def live(self, ms: int, *indexes: int) -> dict[int, list[int]]:
        """What each was told to run, in the end."""
        told: dict[int, list[int]] = {}
        for _ in range(0, ms, 250):
            self.clock.now += 250
            told = {index: self.fleets[index].look() for index in indexes}
        return told


def test_a_process_that_dies_is_replaced_by_one_and_gets_its_shard_back() -> None:
    world = Processes()
    world.begin(0, 1, 2)
    assert world.live(1_000, 0, 1, 2) == {0: [], 1: [], 2: []}
    told = world.live(1_500, 0, 2)
    assert told == {0: [], 2: [1]}
    world.fleets[2].joins(1, world.turn)
    assert world.fleets[2].stood_in == 1
    assert world.live(3_000, 0, 2) == {0: [], 2: []}
    assert world.fleets[2].agrees("app~1")
    assert world.fleets[0].agrees("app~1")
    world.fleets[1] = world.fleet(1)
    assert world.fleets[1].may_return()


def test_a_process_that_dies_again_and_again_waits_while_another_has_its_shard() -> None:
    world = Processes()
    world.begin(0, 1, 2)
    world.live(500, 0, 1, 2)
    for wait in (0, AFTER, 2 * AFTER):
        world.live(2_000, 0, 2)
        world.fleets[2].joins(1, world.turn)
        world.live(500, 0, 2)
        world.fleets[1] = world.fleet(1)
        began = world.clock.now
        while not world.fleets[1].may_return():
            world.live(250, 0, 2)
        assert world.clock.now - began == wait
        world.fleets[2].leaves(1, is_over=False)
        world.fleets[1].joins(1, world.turn)
        world.live(500, 0, 1, 2)


def test_a_process_that_waits_goes_on_at_once_where_nobody_has_its_shard_any_more() -> None:
    world = Processes()
    world.begin(0, 1, 2)
    Heartbeats(world.store, "app").write(Heartbeat(1, 3, "topic", 2, "dead", 5, taken=9))
    again = world.fleet(1)
    for _ in range(LOOKS):
        assert not again.may_return()
        world.clock.now += AFTER // LOOKS
    assert again.may_return()


def test_a_loop_that_hangs_shows_no_sign_of_life() -> None:
    world = Processes()
    world.begin(0, 2)
    world.fleets[1].joins(1, lambda: 17)
    assert world.live(2_000, 0, 1, 2)[2] == [1]


def test_a_process_runs_no_more_others_than_it_has_room_for() -> None:
    store, clock = MemoryStore(), Clock()
    fleet = Fleet(Heartbeats(store, "app"), Deal("app", 0, 8), AFTER, clock, "run")
    fleet.joins(0, lambda: clock.now)
    due: list[int] = []
    for _ in range(8 * LOOKS):
        clock.now += AFTER // LOOKS
        due = fleet.look()
    assert len(due) == MOST_STAND_INS
    for index in due:
        fleet.joins(index, lambda: clock.now)
    for _ in range(LOOKS):
        clock.now += AFTER // LOOKS
        assert fleet.look() == []
    assert fleet.silent == 8 - 1 - MOST_STAND_INS


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"version": 2}', b"\xff" * 5_000])
def test_a_damaged_sign_is_none(damage: bytes) -> None:
    store = MemoryStore()
    heartbeats = Heartbeats(store, "app")
    heartbeats.write(Heartbeat(3, 4, "topic", 3, "run", 1))
    store.put("_shards/app/1", damage)
    store.put("_shards/app/what", b"else")
    told = heartbeats.all()
    assert {index: each.heartbeat is not None for index, each in told.items()} == {1: False, 3: True}
    assert told[3].heartbeat == Heartbeat(3, 4, "topic", 3, "run", 1)
    heartbeats.remove(3)
    assert set(heartbeats.all()) == {1}
