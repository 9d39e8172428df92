"""`offloader topics cursors`: who holds back how much, from nodes and bookies alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offloader.errors import AuthorizationFailedError
from offloader.model import AcknowledgedRange, TopicName
from offloader.ports.subscriptions import SubscriptionUse
from offloader.state.subscription import CursorState
from tests.lifecycle.topics.world import TOPIC, StoredWorld

NOW = 1_700_000_000_000


class Brokers:
    """Which topics are loaded. Everything else would load one."""

    def __init__(self) -> None:
        self.said: dict[TopicName, dict[str, SubscriptionUse]] = {}
        self.error: Exception | None = None

    def uses(self):
        if self.error:
            raise self.error
        return self.said

    def close(self):
        pass


@pytest.fixture
def world():
    world = StoredWorld()
    world.topic((1, 10, 1000), (2, 10, 2000), (3, 10, 4000), (4, 0, 0))
    world.create(4, 3, 3, 2)
    world.cursor("slow", CursorState((1, 2), subscription_properties=(("owner", "joe"),), last_active_ms=NOW))
    world.cursor("__offloader", CursorState((2, 3), cursor_ledger=90))
    world.cursor_ledger(90, CursorState((2, 5)), CursorState((3, 4), (AcknowledgedRange((3, 6), (3, 9)),)))
    world.cursor("team-x/job", CursorState((3, 9)))
    world.cursor("__compaction", CursorState((3, 9)))
    return world


@pytest.fixture
def brokers():
    return Brokers()


@pytest.fixture
def line(line, world, brokers):
    line.dependencies = replace(
        line.dependencies,
        bookkeeper=lambda _config, _timeout: tuple(reversed(world.client())),
        subscriptions=lambda _: brokers,
    )
    return line


def test_those_that_hold_most_come_first(line) -> None:
    found = line.json("topics", "cursors", str(TOPIC))
    assert [(one["subscription"], one["bytes"], one["alone"], one["entries"]) for one in found] == [
        ("slow", 7000, 3000, 27),
        ("__offloader", 4000, 0, 2),
        ("__compaction", 0, 0, 0),
        ("team-x/job", 0, 0, 0),
    ]
    assert [(one["kind"], one["owner"]) for one in found] == [
        ("user", "joe"), ("pin", None), ("compaction", None), ("user", "team-x"),
    ]  # fmt: skip
    assert found[0]["last active"] == "2023-11-14T22:13:20.000Z"
    assert "ledger that is still open" in found[0]["note"]
    assert "offloader topics release" in found[1]["note"]


def test_consumers_are_those_of_loaded_topics_and_nobodys_otherwise(line, brokers) -> None:
    assert {one["consumers"] for one in line.json("topics", "cursors", "list", "public/default")} == {None}
    brokers.said = {TOPIC: {"slow": SubscriptionUse(3, 27)}}
    found = line.json("topics", "cursors", "public/default")
    assert [one["consumers"] for one in found] == [3, None, None, None]
    assert line.json("topics", "cursors", "--offline")[0]["consumers"] is None


def test_who_may_not_ask_brokers_gets_the_rest(line, brokers) -> None:
    brokers.error = AuthorizationFailedError("for super users")
    result = line.run("topics", "cursors")
    assert result.exit_code == 0
    assert "slow" in result.stdout
    assert result.stderr == "consumers are not known: for super users\n"


def test_a_bookie_that_is_away_makes_a_position_doubtful_and_says_so(line, world) -> None:
    for bookie in world.bookies.values():
        bookie.up = False
    pin = next(one for one in line.json("topics", "cursors") if one["subscription"] == "__offloader")
    assert pin["bytes"] == 6000, "by the node, which is older"
    assert "its ledger 90 cannot be read" in pin["note"]


def test_what_a_newer_version_wrote_is_told(line, world) -> None:
    world.cursor("new", CursorState((1, 1), cursor_ledger=91))
    world.cursor_ledger(91, b'{"numParts":2}')
    new = next(one for one in line.json("topics", "cursors") if one["subscription"] == "new")
    assert new["bytes"] is None
    assert "not in Pulsar's own form" in new["note"]


def test_all_partitions_of_a_name(line, world) -> None:
    for number in (0, 1):
        part = TopicName.parse(f"public/default/p-partition-{number}")
        world.topic((10 + number, 5, 500), (20 + number, 0, 0), topic=part)
        world.create(20 + number, 3, 3, 2)
        world.cursor("s", CursorState((10 + number, 1)), part)
    assert [one["bytes"] for one in line.json("topics", "cursors", "public/default/p")] == [500, 500]
    assert len(line.json("topics", "cursors", "public/default/p-partition-1")) == 1


def test_what_is_not_there_gets_one_line(line) -> None:
    assert "has no managed ledger" in line.error("topics", "cursors", "public/default/none")
    assert "neither a namespace nor a topic" in line.error("topics", "cursors", "public/")
    empty = line.run("topics", "cursors", "public/empty")
    assert (empty.exit_code, empty.stdout) == (0, "there are no subscriptions\n")
    assert "public/empty: no topic has a ledger list there" in empty.stderr
    assert "no topic has a ledger list" not in line.run("topics", "cursors", "public/default").stderr


def test_what_the_node_does_not_know_is_no_date_of_1970(line, world) -> None:
    world.cursor("fresh", CursorState((1, 1), last_active_ms=0))
    (fresh,) = (one for one in line.json("topics", "cursors") if one["subscription"] == "fresh")
    assert fresh["last active"] is None
    assert "1970" not in line.ok("topics", "cursors")


def test_a_bookie_has_some_time_to_answer(line) -> None:
    assert "--timeout 0" in line.error("topics", "cursors", "list", "--timeout", "0")
