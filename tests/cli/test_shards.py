"""`offloader shards`: what an operator sees of an application's shards; and commands that find the right one."""

from __future__ import annotations

import json
from pathlib import Path

from offloader.metadata import requests
from offloader.metadata.catalog import Catalogs
from offloader.metadata.deal import Deal
from offloader.metadata.heartbeats import Heartbeat, Heartbeats
from offloader.metadata.state import Claim
from offloader.model import Position, TopicName
from offloader.storage.memory import MemoryBacking, MemoryStore
from tests.cli.support import CONFIG, Line

TOPICS = [TopicName.parse(f"public/default/t{number}") for number in range(6)]
SHARDED = CONFIG + "shards: {count: 3, takeOverAfter: 60s}\n"
DEAL = Deal("app", 0, 3)


def line(folder: Path) -> Line:
    made = Line(folder, config=SHARDED)
    made.archive.store = MemoryStore(MemoryBacking(clock_ms=lambda: made.clock.now))
    made.root()
    for topic in TOPICS:
        made.cluster.create(topic)
    return made


def claim(made: Line, topic: TopicName, name: str) -> None:
    catalogs = Catalogs(made.archive.store, name)
    created = made.cluster.admin.topic_info(topic).created
    catalogs.append(catalogs.head(topic), Claim(name, 0, created, Position(0, 0, 0), 1))


def test_an_application_without_shards_says_so(tmp_path: Path) -> None:
    made = Line(tmp_path).root()
    result = made.run("shards")
    assert result.exit_code == 1
    assert "no such section" in result.stderr


def test_who_lives_who_is_silent_who_is_run_by_another_and_who_never_began(tmp_path: Path) -> None:
    made = line(tmp_path)
    signs = Heartbeats(made.archive.store, "app")
    signs.write(Heartbeat(0, 3, "topic", 0, "r", 5))
    signs.write(Heartbeat(4, 5, "topic", 4, "r", 5))
    made.clock.now += 59_000
    signs.write(Heartbeat(1, 3, "topic", 0, "r", 6, taken=2))
    made.clock.now += 2_000
    claim(made, TOPICS[0], "app~1")
    result = made.run("shards", "-o", "json")
    assert result.exit_code == 2
    rows = {row["shard"]: row for row in json.loads(result.stdout)}
    assert {index: row["status"] for index, row in rows.items()} == {
        0: "silent",
        1: "run by shard 0",
        2: "never started",
        4: "silent",
    }
    assert rows[1] == {
        "shard": 1,
        "name": "app~1",
        "status": "run by shard 0",
        "silentSeconds": 2,
        "deals": "3 by topic",
        "topics": 1,
        "strangers": int(DEAL.index_of(TOPICS[0]) != 1),
        "takenOver": 2,
    }
    assert rows[4]["deals"] == "5 by topic"


def test_all_well_is_exit_code_0_and_a_topic_without_a_shard_is_named_on_request(tmp_path: Path) -> None:
    made = line(tmp_path)
    for index in range(3):
        Heartbeats(made.archive.store, "app").write(Heartbeat(index, 3, "topic", index, "r", 1))
    for topic in TOPICS[1:]:
        claim(made, topic, DEAL.owner_of(topic))
    assert made.run("shards").exit_code == 0
    result = made.run("shards", "--unclaimed")
    assert result.exit_code == 2
    assert result.stderr == f"{TOPICS[0]} has no shard; it is dealt to {DEAL.owner_of(TOPICS[0])}\n"


def test_a_request_goes_to_the_shard_that_has_the_topic_and_otherwise_to_the_one_it_is_dealt_to(tmp_path: Path) -> None:
    made = line(tmp_path)
    stranger = next(topic for topic in TOPICS if DEAL.index_of(topic) != 2)
    claim(made, stranger, "app~2")
    result = made.run("topics", "release", str(stranger))
    assert "app~2 has not seen the request" in result.stderr
    assert [r.topic for _, r in requests.pending(made.archive.store, "app~2", made.clock.now)] == [stranger]
    other = next(topic for topic in TOPICS if topic != stranger)
    claim(made, other, "somebody")
    result = made.run("topics", "release", str(other))
    assert "claimed by somebody" in result.stderr
