"""`offloader topics cursors remove|undo|removals`."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import pytest

from offloader.errors import BrokerUnavailableError
from offloader.metadata.layout import ROOT
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
    """The line of the one subscription, without a summary's."""
    (found,) = (one for one in line.json_lines("topics", "cursors", *arguments) if "topic" in one)
    return found


def purged(line, *arguments, code=0):
    """What a purge says in the end."""
    result = line.run("topics", "cursors", "purge", *arguments, "--output", "json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout.splitlines()[-1])


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
    assert one(line, "removals")["state"] == "removed"
    told = one(line, "undo", str(TOPIC), SUB)
    assert told["state"] == "removed"
    assert told["undo"]
    assert world.facts() is None
    assert (told["next"], told["ended"]) == ("--yes brings it back", "2023-11-15T22:13:20.001Z")
    assert one(line, "undo", str(TOPIC), SUB, "--yes")["state"] == "undone"
    assert world.facts() == before


def test_what_is_in_use_or_not_there_gets_one_line(line, world):
    world.topic.cursors[SUB].consumers = 2
    told = line.run("topics", "cursors", "remove", str(TOPIC), SUB, "--output", "json")
    assert "2 of its consumers are connected" in json.loads(told.stdout)["reason"]
    assert told.exit_code == 1
    assert "2 of its consumers are connected" in line.error("topics", "cursors", "remove", str(TOPIC), SUB, "--yes")
    world.topic.cursors["__offloader"] = HeldCursor((1, 0))
    world.brokers.flush()
    for more in ((), ("--yes",)):
        assert line.run("topics", "cursors", "remove", str(TOPIC), "__offloader", *more).exit_code == 1
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
    assert "p-partition-0: s is marked on 2023-11-14T22:13:20.000Z by offloader topics" in result.stdout
    assert "p-partition-1: s is not removed: 1 of its consumers" in result.stderr
    assert "p-partition-2" not in result.output
    assert "undone" in line.ok("topics", "cursors", "undo", "public/default/p", "s", "--yes")


def test_who_does_the_second_phase_is_said_at_the_mark_and_when_it_is_due(line, world):
    assert one(line, "remove", str(TOPIC), SUB, "--yes")["next"] == (
        "`offloader topics cursors purge --yes` removes it, not before 2023-11-15T22:13:20.000Z"
    )
    line.clock.now += TIMING.effective_delay
    assert one(line, "removals")["next"] == "it is due: `offloader topics cursors purge --yes` removes it"
    line.config += "lifecycle: {topicTwoPhaseDeletionEnabled: true}\n"
    line.config = line.config.replace("pulsar: {", 'pulsar: {metadataServiceUri: "zk://z/ledgers", ')
    assert one(line, "removals")["next"] == "it is due: the application looks again and removes it"


def test_a_purge_removes_all_that_is_due_and_nothing_else(line, world):
    for number in range(3):
        world.topic.cursors[f"old{number}"] = HeldCursor((1, 0))
    world.brokers.flush()
    for name in ("old0", "old1"):
        line.ok("topics", "cursors", "remove", str(TOPIC), name, "--yes")
    assert purged(line, "--yes") == {
        "message": "nothing is due; 2 waiting, the first until 2023-11-15T22:13:20.000Z",
        "due": 0, "removed": 0, "kept": 0, "failed": 0, "waiting": 2, "firstDue": "2023-11-15T22:13:20.000Z",
    }  # fmt: skip
    line.clock.now += TIMING.effective_delay
    line.ok("topics", "cursors", "remove", str(TOPIC), "old2", "--yes")
    world.topic.cursors["old1"].consumers = 1
    assert purged(line)["message"].startswith("2 removals due; nothing is removed without --yes; 1 waiting")
    assert {"old0", "old1", "old2"} < world.topic.cursors.keys()
    done = purged(line, "--yes")
    assert (done["due"], done["removed"], done["kept"], done["waiting"]) == (2, 1, 1, 1)
    assert world.topic.cursors.keys() >= {"old1", "old2"}
    assert "old0" not in world.topic.cursors


def test_a_removal_that_fails_holds_up_no_other_and_is_a_finding(line, world):
    for name in ("old0", "old1"):
        world.topic.cursors[name] = HeldCursor((1, 0))
        world.brokers.flush()
        line.ok("topics", "cursors", "remove", str(TOPIC), name, "--yes")
    line.clock.now += TIMING.effective_delay
    world.brokers.faults.add("look", lambda: BrokerUnavailableError("away"))
    done = purged(line, "--yes", code=2)
    assert (done["removed"], done["failed"]) == (1, 1)
    (left,) = {"old0", "old1"} & set(world.topic.cursors)  # two at once: either may have met the fault
    assert one(line, "remove", str(TOPIC), left)["reason"] == "away"


@pytest.mark.parametrize(("at_once", "a_minute"), [(3, 60), (1, 6)])
def test_a_purge_looks_at_a_few_topics_at_a_time_and_within_the_rate(line, world, at_once, a_minute):
    line.config += f"lifecycle: {{visits: {{atOnce: {at_once}, aMinute: {a_minute}}}}}\n"
    names = [TopicName.parse(f"public/default/many-{number}") for number in range(7)]
    for name in names:
        world.brokers.make(name, {1: 5, 2: 0}).cursors.update(a=HeldCursor((1, 0)), b=HeldCursor((1, 1)))
    world.brokers.flush()
    for name in names:
        for subscription in ("a", "b"):
            line.ok("topics", "cursors", "remove", str(name), subscription, "--yes")
    line.clock.now += TIMING.effective_delay
    looks = Looks(world.brokers.look, at_once)
    world.brokers.look = looks
    slept = line.clock.slept
    done = purged(line, "--yes")
    assert (done["removed"], done["failed"]) == (14, 0)
    assert looks.most == at_once
    assert line.clock.slept - slept == pytest.approx(6 * 60 / a_minute, abs=0.1)


class Looks:
    """Waits for as many as may look at a time, once; counts them."""

    def __init__(self, look, together: int) -> None:
        self._look, self._barrier, self._lock = look, threading.Barrier(together), threading.Lock()
        self._now = self.most = self._calls = 0
        self._together = together

    def __call__(self, *arguments):
        with self._lock:
            self._now, self._calls = self._now + 1, self._calls + 1
            self.most, first = max(self.most, self._now), self._calls <= self._together
        if first:
            self._barrier.wait(20)
        try:
            return self._look(*arguments)
        finally:
            with self._lock:
                self._now -= 1


def test_a_purge_forgets_what_ended_longer_ago_than_the_record_retention(line, world):
    line.ok("topics", "cursors", "remove", str(TOPIC), SUB, "--yes")
    line.ok("topics", "cursors", "undo", str(TOPIC), SUB, "--yes")
    line.clock.now += TIMING.kept
    purged(line, "--yes")
    assert one(line, "removals")["state"] == "undone"
    line.clock.now += 1
    purged(line, "--yes")
    assert line.ok("topics", "cursors", "removals") == "no removal is recorded in memory://\n"


def test_in_a_bucket_that_has_nothing_yet_there_are_no_removals_and_one_can_be_begun(line, world):
    line.archive.store.delete([ROOT])
    assert line.json("topics", "cursors", "removals") == {
        "message": "no removal is recorded in memory://",
        "removals": {},
    }
    assert purged(line, "--yes")["due"] == 0
    assert "no removal of old is recorded" in line.error("topics", "cursors", "undo", str(TOPIC), "old")
    assert one(line, "remove", str(TOPIC), SUB)["state"] == "none"
    assert list(line.archive.store.list("")) == [], "without --yes nothing is written"
    assert one(line, "remove", str(TOPIC), SUB, "--yes")["state"] == "marked"
    assert one(line, "removals")["state"] == "marked"


def test_what_is_recorded_is_read_without_the_metadata_service(line, world):
    line.ok("topics", "cursors", "remove", str(TOPIC), SUB, "--yes")
    line.dependencies = replace(line.dependencies, bookkeeper=type(line.dependencies)().bookkeeper)
    assert one(line, "removals")["state"] == "marked"
    assert purged(line)["waiting"] == 1
    assert "found in ZooKeeper; write zk://" in line.error("topics", "cursors", "remove", str(TOPIC), SUB)


def test_a_record_that_cannot_be_read_is_told_and_is_a_finding(line, world):
    line.ok("topics", "cursors", "remove", str(TOPIC), SUB, "--yes")
    (key,) = (key for key, _ in line.archive.store.list("") if "/records/" in key or "record" in key)
    line.archive.store.put(key, b"scribble")
    result = line.run("topics", "cursors", "removals")
    assert result.exit_code == 2
    assert f"{TOPIC}: what is recorded of {SUB} cannot be read" in result.stdout
    purged(line, "--yes", code=1)
