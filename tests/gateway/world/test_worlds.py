"""Seeded worlds of gateways that are killed, paused and stopped. And that broken variants are caught."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace

import pytest

from offloader.cursors.core import cursor as cursor_module
from offloader.cursors.log import CursorLog
from offloader.errors import OffloadError
from offloader.gateway.owners import owners as owners_module
from offloader.gateway.owners.claim import TopicClaim
from offloader.gateway.owners.owners import TopicOwners
from offloader.gateway.topics import subscription as subscription_module
from offloader.gateway.topics import topic as topic_module
from offloader.gateway.topics.subscription import ServedSubscription
from offloader.gateway.topics.topic import Member
from tests.examples import tries
from tests.gateway.world.world import WHAT_HAPPENS, BrokenRuleError, World

WORLDS = tries("OFFLOADER_GATEWAY_WORLDS", 8, 24)
TRIES = 60  # worlds, of which one must show what is broken

Living = Callable[..., World]


@pytest.fixture
def lived(monkeypatch: pytest.MonkeyPatch) -> Living:
    """A world that came to its end. What is compacted after 64 records in the product is here after two."""
    monkeypatch.setattr(cursor_module, "MOST_NAMED", 2)

    def live(seed: int, what_happens: Sequence[str] = WHAT_HAPPENS) -> World:
        world = World(seed, what_happens)
        monkeypatch.setattr(subscription_module, "time", SimpleNamespace(time=lambda: world.events.now))
        try:
            world.live()
        finally:
            world.close()
        return world

    return live


@pytest.mark.explores
@pytest.mark.parametrize("seed", range(WORLDS))
def test_whatever_is_killed_and_paused_nothing_is_lost_and_nothing_confirmed_is_forgotten(
    seed: int, lived: Living
) -> None:
    lived(seed)


def test_the_worlds_kill_and_pause_and_former_owners_deliver(lived: Living) -> None:
    worlds = [lived(seed) for seed in range(8)]
    assert sum(world.happened["kill"] for world in worlds) > 4
    assert sum(world.happened["pause"] + world.happened["pause while it writes"] for world in worlds) > 8
    assert sum(len(confirmed) for world in worlds for confirmed in world.confirmed.values()) > 100


@pytest.mark.parametrize("seed", range(4))
def test_others_serve_the_consumers_of_whoever_does_not_reach_the_store_any_more(seed: int, lived: Living) -> None:
    assert lived(seed, ["cut off for good"]).happened["cut off for good"] > 0


def test_a_seed_gives_the_same_world_again(lived: Living) -> None:
    one, same = lived(3), lived(3)
    assert (one.events.happened, one.events.now, one.given) == (same.events.happened, same.events.now, same.given)


def caught(lived: Living, what_happens: Sequence[str] = WHAT_HAPPENS) -> str:
    for seed in range(TRIES):
        try:
            lived(seed, what_happens)
        except BrokenRuleError as error:
            return str(error)
    return "nothing was noticed"


def test_answers_before_anything_is_written_are_caught(lived: Living, monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(_: Member) -> None:
        return

    monkeypatch.setattr(Member, "durable", at_once)
    assert "confirmed, and forgotten" in caught(lived)


def test_answers_while_a_thread_still_applies_acknowledgements_are_caught(
    lived: Living, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        ServedSubscription, "changed", property(lambda self: bool(self._pending) or self._acks.cursor.changed)
    )
    assert "confirmed, and forgotten" in caught(lived)


@pytest.mark.large
def test_fences_that_go_with_a_compaction_are_caught(lived: Living, monkeypatch: pytest.MonkeyPatch) -> None:
    def all_of_them(_: CursorLog, places: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int]]:
        return places

    monkeypatch.setattr(CursorLog, "_removable", all_of_them)
    assert caught(lived, ["pause while it writes"]) != "nothing was noticed"


def test_a_gateway_that_never_looks_at_its_claims_is_caught(lived: Living, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(_: TopicOwners) -> list[OffloadError]:
        return []

    monkeypatch.setattr(TopicOwners, "look", nothing)
    monkeypatch.setattr(TopicOwners, "watch", nothing)  # nor whether the store answers
    assert "still serves" in caught(lived)


def test_what_is_given_back_while_clients_come_and_go_loses_nothing(
    lived: Living, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription_module, "IDLE_FOR", 0.5)
    monkeypatch.setattr(owners_module, "IDLE", 0.5)
    monkeypatch.setattr(topic_module, "KEPT_FOR", 0.0)
    worlds = [lived(seed, ["all leave", "all leave", "kill", "pause", "pause while it writes"]) for seed in range(12)]
    assert sum(world.happened["given back"] for world in worlds) > 4


def test_gateways_that_keep_topics_though_they_do_not_reach_the_store_are_caught(
    lived: Living, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(_: TopicOwners) -> list[OffloadError]:
        return []

    monkeypatch.setattr(TopicOwners, "watch", nothing)
    assert "no rest" in caught(lived, ["cut off for good"])


def test_gateways_that_take_each_others_topics_are_caught(lived: Living, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_: TopicOwners, __: TopicClaim) -> bool:
        return False

    monkeypatch.setattr(TopicOwners, "_is_of_another", never)
    assert "take topics from each other" in caught(lived)
