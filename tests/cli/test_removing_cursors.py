"""`offloader topics cursors remove|undo|removals`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offloader.model import TopicName
from offloader.testing.cluster_subscriptions import HeldCursor
from tests.lifecycle.topics.removing import SUB, TIMING, TOPIC, RemovalWorld


@pytest.fixture
def world(line):
    world = RemovalWorld()
    line.root()
    world.now = line.clock.now
    line.dependencies = replace(
        line.dependencies,
        bookkeeper=lambda _config, _timeout: (world.tree, _Nothing()),
        subscriptions=lambda _: world.brokers,
    )
    return world


class _Nothing:
    def close(self):
        pass


def one(line, *arguments):
    (found,) = line.json_lines("topics", "cursors", *arguments)
    return found


def test_remove_says_marks_and_removes_and_undo_brings_back(line, world):
    before = world.facts()
    planned = one(line, "remove", str(TOPIC), SUB)
    assert (planned["state"], planned["bytes"]) == ("none", 3000)
    assert any("Of 1 batches" in says for says in planned["undo"])
    marked = one(line, "remove", str(TOPIC), SUB, "--yes")
    assert (marked["state"], marked["due"]) == ("marked", "2023-11-15T22:13:20.000Z")
    assert one(line, "remove", str(TOPIC), SUB, "--yes")["state"] == "marked", "its time has not come"
    line.clock.now += TIMING.effective_delay + 1
    assert one(line, "remove", str(TOPIC), SUB)["state"] == "marked", "without --yes nothing changes"
    assert one(line, "remove", str(TOPIC), SUB, "--yes")["state"] == "removed"
    assert world.facts() is None
    assert line.json("topics", "cursors", "removals")[0]["state"] == "removed"
    told = one(line, "undo", str(TOPIC), SUB)
    assert told["state"] == "removed"
    assert told["undo"]
    assert world.facts() is None
    assert one(line, "undo", str(TOPIC), SUB, "--yes")["state"] == "undone"
    assert world.facts() == before


def test_what_is_in_use_or_not_there_gets_one_line(line, world):
    world.topic.cursors[SUB].consumers = 2
    assert "2 of its consumers are connected" in one(line, "remove", str(TOPIC), SUB)["reason"]
    assert "2 of its consumers are connected" in line.error("topics", "cursors", "remove", str(TOPIC), SUB, "--yes")
    assert "there is no subscription none" in line.error("topics", "cursors", "remove", str(TOPIC), "none", "--yes")
    assert "no removal of none is recorded" in line.error("topics", "cursors", "undo", str(TOPIC), "none", "--yes")


def test_a_name_that_partitions_share_is_removed_in_each_that_has_it(line, world):
    for number in range(3):
        topic = world.brokers.make(TopicName.parse(f"public/default/p-partition-{number}"), {1: 5, 2: 0})
        if number < 2:
            topic.cursors["s"] = HeldCursor((1, 0), consumers=number)
    world.brokers.flush()
    result = line.run("topics", "cursors", "remove", "public/default/p", "s", "--yes")
    assert result.exit_code == 1
    assert "p-partition-0: s is marked" in result.stdout
    assert "p-partition-1: s is not removed: 1 of its consumers" in result.stderr
    assert "p-partition-2" not in result.output
    assert "undone" in line.ok("topics", "cursors", "undo", "public/default/p", "s", "--yes")
