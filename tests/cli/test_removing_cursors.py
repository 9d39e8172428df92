"""`offloader topics cursors remove|undo|removals`."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import pytest

from offloader._proto import metadata_pb2 as pb
from offloader.errors import BrokerUnavailableError
from offloader.metadata.envelope import wrap
from offloader.metadata.layout import ROOT, cursor_folder
from offloader.model import TopicName
from tests.fakes.cluster_subscriptions import HeldCursor
from tests.lifecycle.topics.removing import SUB, TIMING, TOPIC, RemovalWorld, write_former

ZOOKEEPER = 'metadataServiceUri: "zk://z/ledgers", '


@pytest.fixture
def world(line):
    world = RemovalWorld()
    line.root()
    world.now = line.clock.now
    line.config = line.config.replace("pulsar: {", f"pulsar: {{{ZOOKEEPER}")
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
    """The line of the one subscription: of a deletion its fields with those of the line."""
    (found,) = line.json_lines("topics", "cursors", *arguments)
    return {**(found.get("deletion") or {}), **found}


def purged(line, *arguments, code=0):
    """What a purge says."""
    result = line.run("topics", "cursors", "purge", *arguments, "--output", "json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def test_remove_says_marks_and_deletes_and_undo_brings_back(line, world) -> None:
    before = world.facts()
    planned = one(line, "remove", str(TOPIC), SUB)
    assert (planned["outcome"], planned["held"]) == ("would be marked", 3000)
    assert any("Of 1 batches" in says for says in planned["undo"])
    marked = one(line, "remove", str(TOPIC), SUB, "--yes")
    assert (marked["outcome"], marked["state"], marked["goesAt"]) == ("marked", "marked", "2023-11-15T22:13:20.000Z")
    assert one(line, "remove", str(TOPIC), SUB, "--yes")["state"] == "marked", "its time has not come"
    line.clock.now += TIMING.effective_delay + 1
    assert one(line, "remove", str(TOPIC), SUB)["state"] == "marked", "without --yes nothing changes"
    assert one(line, "remove", str(TOPIC), SUB, "--yes")["state"] == "deleted"
    assert world.facts() is None
    assert one(line, "removals")["state"] == "deleted"
    told = one(line, "undo", str(TOPIC), SUB)
    assert told["state"] == "deleted"
    assert told["undo"]
    assert world.facts() is None
    assert told["message"].endswith("--yes brings it back")
    assert told["endedAt"] == "2023-11-15T22:13:20.001Z"
    assert one(line, "undo", str(TOPIC), SUB, "--yes")["state"] == "undone"
    assert world.facts() == before


def test_it_is_one_of_all_deletions(line, world) -> None:
    """Listed, purged, taken back, tried again and dropped by the commands for all of them."""
    one(line, "remove", str(TOPIC), SUB, "--yes")
    (listed,) = line.json_lines("orphans", "list")
    assert (listed["type"], listed["topic"], listed["cursor"]) == ("SUBSCRIPTION", str(TOPIC), SUB)
    (numbers,) = (each for each in line.json("orphans", "in-flight")["types"] if each["type"] == "SUBSCRIPTION")
    assert numbers["inFlight"] == 1
    assert line.json("orphans", "undo", listed["record"])["deletion"]["state"] == "undone"
    one(line, "remove", str(TOPIC), SUB, "--yes")
    world.brokers.faults.add("look", lambda: BrokerUnavailableError("away"), times=TIMING.max_tries)
    for _ in range(TIMING.max_tries):
        line.clock.now += TIMING.longest_wait + 1
        purged(line, "--yes", code=2)
    assert one(line, "removals")["state"] == "given up"
    assert line.json("orphans", "retry", listed["record"], "--yes")["deletions"][0]["state"] == "marked"
    assert purged(line, "--yes")["due"] == 1
    assert world.facts() is None
    assert "is there again" in line.ok("orphans", "undo", listed["record"])
    assert world.facts() is not None


def test_what_an_earlier_version_left_pending_is_named_by_each_command(line, world) -> None:
    body = pb.Body(cursor_removal=pb.CursorRemoval(state="removing"))
    line.archive.store.put(f"{cursor_folder('memory', TOPIC, SUB)}records/{0:020d}", wrap("t", body))
    named = f"{TOPIC}: the removal of subscription {SUB} is removing, as an earlier version"
    for command in (["removals"], ["purge"], ["purge", "--yes"]):
        result = line.run("topics", "cursors", *command)
        assert (result.exit_code, named in result.stderr) == (2, True)
    assert named in line.run("orphans", "list").stderr
    for command in (["remove", "--yes"], ["remove"], ["undo", "--yes"]):
        result = line.run("topics", "cursors", command[0], str(TOPIC), SUB, *command[1:])
        assert (result.exit_code, named in result.stderr) == (1, True)
    assert world.facts() is not None


@pytest.mark.parametrize("typed", [TOPIC, TOPIC.partitioned_name])
def test_what_an_earlier_version_has_removed_comes_back_with_that_version(line, world, typed) -> None:
    write_former(line.archive.store, TOPIC, "of-old", "removed", 7, cluster="memory")
    write_former(line.archive.store, TopicName.parse("public/default/other"), "of-old", "removed", 7, cluster="memory")
    write_former(line.archive.store, TOPIC, "kept", "kept", 7, cluster="memory")
    said = line.error("topics", "cursors", "undo", str(typed), "of-old", "--yes")
    assert f"{typed}: no deletion of of-old is recorded by this version" in said
    assert said.count("bring the subscription back with that version") == 1
    assert f"(`offloader topics cursors undo {TOPIC} of-old --yes`)" in said
    assert line.error("topics", "cursors", "undo", str(typed), "kept", "--yes").endswith("kept is recorded")


def test_what_is_in_use_or_not_there_gets_one_line(line, world) -> None:
    world.topic.cursors[SUB].consumers = 2
    told = line.run("topics", "cursors", "remove", str(TOPIC), SUB, "--output", "json")
    assert "2 of its consumers are connected" in json.loads(told.stdout)["why"]
    assert told.exit_code == 1
    assert "2 of its consumers are connected" in line.error("topics", "cursors", "remove", str(TOPIC), SUB, "--yes")
    world.topic.cursors["__offloader"] = HeldCursor((1, 0))
    world.brokers.flush()
    for more in ((), ("--yes",)):
        assert line.run("topics", "cursors", "remove", str(TOPIC), "__offloader", *more).exit_code == 1
    assert "there is no subscription none" in line.error("topics", "cursors", "remove", str(TOPIC), "none", "--yes")
    assert "no deletion of none is recorded" in line.error("topics", "cursors", "undo", str(TOPIC), "none", "--yes")


def test_a_replicated_one_is_removed_by_name_with_a_warning(line, world) -> None:
    world.topic.cursors[SUB].replicated = True
    world.brokers.flush()
    assert "warning: it is replicated" in line.ok("topics", "cursors", "remove", str(TOPIC), SUB)
    assert one(line, "remove", str(TOPIC), SUB, "--yes")["why"].startswith("warning: it is replicated")
    assert any("Warning: it is replicated" in says for says in one(line, "removals")["evidence"])
    listed = line.json("topics", "cursors", "list", "public/default")
    assert ["no policy removes it" in each["note"] for each in listed if each["subscription"] == SUB] == [True]


def test_what_it_holds_counts_the_ledger_that_is_open(line, world) -> None:
    world.topic.ledgers[4] = 5
    assert one(line, "remove", str(TOPIC), SUB)["held"] == 3500
    assert one(line, "remove", str(TOPIC), SUB, "--yes")["held"] == 3500


def test_a_name_that_partitions_share_is_removed_in_each_that_has_it(line, world) -> None:
    for number in range(3):
        topic = world.brokers.make(TopicName.parse(f"public/default/p-partition-{number}"), {1: 5, 2: 0})
        if number < 2:
            topic.cursors["s"] = HeldCursor((1, 0), consumers=number)
    world.brokers.flush()
    result = line.run("topics", "cursors", "remove", "public/default/p", "s", "--yes")
    assert result.exit_code == 1
    assert "p-partition-0: s is marked on 2023-11-14T22:13:20.000Z by offloader topics" in result.stdout
    assert "p-partition-1: s is not marked: 1 of its consumers" in result.stderr
    assert "p-partition-2" not in result.output
    assert "is not marked any more" in line.ok("topics", "cursors", "undo", "public/default/p", "s", "--yes")


def test_who_does_the_second_phase_is_said_at_the_mark_and_when_it_is_due(line, world) -> None:
    assert one(line, "remove", str(TOPIC), SUB, "--yes")["next"] == (
        "`offloader topics cursors purge --yes` deletes it, not before 2023-11-15T22:13:20.000Z"
    )
    line.clock.now += TIMING.effective_delay
    assert one(line, "remove", str(TOPIC), SUB)["next"] == (
        "it is due: `offloader topics cursors purge --yes` deletes it"
    )
    line.config += "lifecycle: {topicTwoPhaseDeletionEnabled: true}\n"
    assert one(line, "remove", str(TOPIC), SUB)["next"] == "it is due: the application looks again and deletes it"


def test_a_host_whose_clock_is_behind_marks_nothing(line, world) -> None:
    """Once it is set right, the quarantine would be over at once."""
    line.cluster.admin.clock_ms = lambda: line.clock.now + 400 * TIMING.effective_delay
    assert "clock is" in line.error("topics", "cursors", "remove", str(TOPIC), SUB, "--yes")
    assert line.json_lines("topics", "cursors", "removals") == []
    line.cluster.admin.clock_ms = lambda: line.clock.now
    assert one(line, "remove", str(TOPIC), SUB, "--yes")["state"] == "marked"


def test_a_host_whose_clock_is_ahead_makes_no_quarantine_shorter(line, world) -> None:
    line.ok("topics", "cursors", "remove", str(TOPIC), SUB, "--yes")
    right = line.clock.now
    line.cluster.admin.clock_ms = lambda: right
    line.clock.now += 400 * TIMING.effective_delay
    assert one(line, "remove", str(TOPIC), SUB, "--yes")["state"] == "marked"
    assert purged(line, "--yes")["ended"] == []
    assert world.facts() is not None
    line.cluster.admin.clock_ms = lambda: line.clock.now
    line.clock.now += TIMING.effective_delay + 1
    assert [each["answer"] for each in purged(line, "--yes")["ended"]] == ["deleted"]


def test_a_purge_removes_all_that_is_due_and_nothing_else(line, world) -> None:
    for number in range(3):
        world.topic.cursors[f"old{number}"] = HeldCursor((1, 0))
    world.brokers.flush()
    for name in ("old0", "old1"):
        line.ok("topics", "cursors", "remove", str(TOPIC), name, "--yes")
    waiting = purged(line, "--yes")
    assert waiting["message"] == "nothing is due; 2 more wait, the first until 2023-11-15T22:13:20.000Z"
    assert (waiting["due"], waiting["later"], waiting["nextDue"]) == (0, 2, "2023-11-15T22:13:20.000Z")
    line.clock.now += TIMING.effective_delay
    line.ok("topics", "cursors", "remove", str(TOPIC), "old2", "--yes")
    world.topic.cursors["old1"].consumers = 1
    assert purged(line)["message"].startswith("2 are due; nothing is deleted without --yes; 1 more wait")
    assert {"old0", "old1", "old2"} < world.topic.cursors.keys()
    done = purged(line, "--yes")
    assert (done["due"], done["later"]) == (2, 1)
    assert {each["cursor"]: each["answer"] for each in done["ended"]} == {"old0": "deleted", "old1": "still in use"}
    assert world.topic.cursors.keys() >= {"old1", "old2"}
    assert "old0" not in world.topic.cursors


def test_a_removal_that_fails_holds_up_no_other_and_is_a_finding(line, world) -> None:
    for name in ("old0", "old1"):
        world.topic.cursors[name] = HeldCursor((1, 0))
        world.brokers.flush()
        line.ok("topics", "cursors", "remove", str(TOPIC), name, "--yes")
    line.clock.now += TIMING.effective_delay
    world.brokers.faults.add("look", lambda: BrokerUnavailableError("away"))
    done = purged(line, "--yes", code=2)
    assert ([each["answer"] for each in done["ended"]], len(done["failed"])) == (["deleted"], 1)
    (left,) = {"old0", "old1"} & set(world.topic.cursors)  # two at once: either may have met the fault
    assert one(line, "remove", str(TOPIC), left)["why"] == "away"


@pytest.mark.parametrize(("at_once", "a_minute"), [(3, 60), (1, 6)])
def test_a_purge_looks_at_a_few_topics_at_a_time_and_within_the_rate(line, world, at_once, a_minute) -> None:
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
    assert (len(done["ended"]), done["failed"]) == (14, [])
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


def test_a_purge_forgets_what_ended_longer_ago_than_the_record_retention(line, world) -> None:
    line.ok("topics", "cursors", "remove", str(TOPIC), SUB, "--yes")
    line.ok("topics", "cursors", "undo", str(TOPIC), SUB, "--yes")
    line.clock.now += TIMING.kept
    purged(line, "--yes")
    assert one(line, "removals")["state"] == "undone"
    line.clock.now += 1
    purged(line, "--yes")
    assert line.ok("topics", "cursors", "removals") == "nothing is marked\n"


def test_in_a_bucket_that_has_nothing_yet_there_are_no_removals_and_one_can_be_begun(line, world) -> None:
    line.archive.store.delete([ROOT])
    assert line.json_lines("topics", "cursors", "removals") == []
    assert purged(line, "--yes")["due"] == 0
    assert "no deletion of old is recorded" in line.error("topics", "cursors", "undo", str(TOPIC), "old")
    assert one(line, "remove", str(TOPIC), SUB)["outcome"] == "would be marked"
    assert list(line.archive.store.list("")) == [], "without --yes nothing is written"
    assert one(line, "remove", str(TOPIC), SUB, "--yes")["state"] == "marked"
    assert one(line, "removals")["state"] == "marked"


def test_what_is_recorded_is_read_without_the_metadata_service(line, world) -> None:
    line.ok("topics", "cursors", "remove", str(TOPIC), SUB, "--yes")
    line.dependencies = replace(line.dependencies, bookkeeper=type(line.dependencies)().bookkeeper)
    line.config = line.config.replace(ZOOKEEPER, "")
    assert one(line, "removals")["state"] == "marked"
    assert purged(line)["later"] == 1
    line.clock.now += TIMING.effective_delay
    (waiting,) = purged(line, "--yes")["waiting"]
    assert (waiting["due"], waiting["why"]) == (
        1, "subscriptions are looked at in ZooKeeper: set pulsar.metadataServiceUri"
    )  # fmt: skip
    assert "found in ZooKeeper; write zk://" in line.error("topics", "cursors", "remove", str(TOPIC), SUB)


def test_a_record_that_cannot_be_read_is_told_and_is_a_finding(line, world) -> None:
    line.ok("topics", "cursors", "remove", str(TOPIC), SUB, "--yes")
    (key,) = (key for key, _ in line.archive.store.list("") if "/records/" in key or "record" in key)
    line.archive.store.put(key, b"scribble")
    result = line.run("topics", "cursors", "removals")
    assert result.exit_code == 2
    assert "damaged" in line.run("topics", "cursors", "removals", "--output", "json").stdout
    assert len(purged(line, "--yes", code=2)["damaged"]) == 1


def test_a_name_can_be_given_as_it_is_printed(line, world) -> None:
    odd = "of\tjoe\u200b"
    world.topic.cursors[odd] = HeldCursor((1, 4))
    world.brokers.flush()
    printed = r"of\tjoe\u200b"
    assert one(line, "remove", str(TOPIC), printed, "--yes")["cursor"] == odd
    assert one(line, "undo", str(TOPIC), printed, "--yes")["state"] == "undone"
    world.topic.cursors[printed] = HeldCursor((1, 4))
    world.brokers.flush()
    assert one(line, "remove", str(TOPIC), printed)["cursor"] == printed, "a name as it is comes first"
