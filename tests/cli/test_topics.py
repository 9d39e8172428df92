"""What is offloaded, and what is under way, in pulsar-admin's words."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from offloader.metadata.journal import Journal
from offloader.metadata.requests import Request, RequestKind, submit
from offloader.metadata.state import OpenTopic, TopicState
from offloader.model import Failure, FailureKind, OpenSegment, Position, SegmentLayout, SegmentStatus, Source
from offloader.storage.local import LocalStore
from tests.archive.support import APPLICATION, TOPIC, stream, uuid_of

OPEN = OpenSegment(uuid_of(50), Position(0, 2, 0), Source.BROKER, SegmentLayout(), 1_700_000_000_000)
FAILURE = Failure(FailureKind.RETRYABLE, "the store has no room left", 3, 0)

ZERO = "0" * 20


def record(line, state) -> None:
    with Journal.open(line.archive.store, APPLICATION, line.archive.token) as journal:
        journal.record([state])


@pytest.fixture
def offloaded(line):
    line.archive.claim(1, 0)
    line.archive.add(stream(1, 0, 9), closed={1: 9})
    return line


def test_nothing_is_offloaded(line) -> None:
    line.root()
    assert line.ok("topics", "list") == "Nothing is offloaded yet\n"
    assert line.json("topics", "list") == []


def test_a_root_that_is_none_does_not_pass_for_an_empty_archive(line) -> None:
    """It is no error either: so is one that `offloader run` has not made yet."""
    said = line.ok("topics", "list")
    assert said.startswith("Nothing is offloaded yet: there is no _root in memory://;")
    result = line.run("topics", "list", "--output", "json")
    assert (result.exit_code, json.loads(result.stdout)) == (0, [])
    assert result.stderr.startswith("there is no _root in memory://")


def test_a_folder_that_is_not_there(line, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "absent")
    line.dependencies = replace(line.dependencies, store=lambda _: store)
    assert f"there is no _root in {store.url};" in line.ok("topics", "list")
    assert not store.root.exists()


def test_a_root_above_the_right_one_is_told(line) -> None:
    line.archive.store.put(f"production/public/default/orders/_catalog/{ZERO}/{ZERO}", b"")
    result = line.run("topics", "list")
    assert (result.exit_code, result.stderr.startswith("there is no _root in memory://")) == (0, True)


@pytest.mark.parametrize(
    "key", [f"x/y/z/_catalog/{ZERO}/{ZERO}", f"public/default/orders/_catalog/{ZERO}/00000000000000000001"]
)
def test_a_catalog_that_cannot_be_read_hides_no_other_topic(offloaded, key) -> None:
    offloaded.archive.topic = replace(TOPIC, name="sound")
    offloaded.archive.claim()
    offloaded.archive.store.put(key, b"rubbish")
    result = offloaded.run("topics", "list", "--output", "json")
    assert result.exit_code == 1
    assert str(replace(TOPIC, name="sound")) in [row["topic"] for row in json.loads(result.stdout)]
    (error,) = result.stderr.splitlines()
    assert error.startswith(f"error: persistent://{key.partition('/_')[0]}: {key}")


def test_where_no_catalog_can_be_read_there_is_something_all_the_same(line) -> None:
    line.root().archive.store.put(f"public/default/orders/_catalog/{ZERO}/{ZERO}", b"rubbish")
    result = line.run("topics", "list")
    assert (result.exit_code, result.stdout) == (1, "No topic can be shown\n")


def test_list_has_topics_of_catalogs_and_journals(offloaded) -> None:
    other = replace(TOPIC, name="new")
    record(offloaded, OpenTopic(other, open=OPEN, failure=FAILURE))
    new, old = offloaded.json("topics", "list")
    assert (new["topic"], new["open"], new["failure"]) == (str(other), "Failed", "the store has no room left")
    size = offloaded.archive.catalog.segments[0].size
    assert old == {
        "topic": str(TOPIC), "application": "app", "segments": 1, "entries": 10, "bytes": size, "end": "1:9",
        "open": None, "failure": None, "bridged": None, "paused": None, "keptInPulsar": None
    }  # fmt: skip


@pytest.mark.parametrize("there", [True, False])
def test_a_paused_topic_is_listed_with_what_pulsar_keeps_of_it_and_what_a_quota_does(offloaded, there: bool) -> None:
    if there:
        offloaded.cluster.create(TOPIC)
        offloaded.cluster.produce(TOPIC, b"x" * 1000)
    quota = {"destination_storage": {"limitSize": 1000, "policy": "consumer_backlog_eviction"}}
    offloaded.cluster.namespace(TOPIC.namespace).policies["backlog_quota_map"] = quota
    record(offloaded, TopicState(TOPIC, paused_at=1_700_000_000_000))
    result = offloaded.run("topics", "list", "-o", "json")
    (row,) = json.loads(result.stdout)
    assert row["paused"].startswith("2023-11-14T22:13:20")
    assert (row["keptInPulsar"] or 0) >= 1000 * there
    assert "1 topics are paused" in result.stderr
    assert "drops entries that are not offloaded yet" in result.stderr


def test_segments_are_the_offloaded_ones_and_the_open_one(offloaded) -> None:
    record(offloaded, OpenTopic(TOPIC, open=OPEN))
    first, second = offloaded.json("topics", "segments", "orders")
    assert (first["status"], first["start"], first["end"], first["entries"], first["reason"]) == (
        "Offloaded",
        "1:0",
        "1:9",
        10,
        "size",
    )
    assert (second["uuid"], second["status"], second["start"], second["end"]) == (uuid_of(50), "Assigned", "2:0", None)
    assert second["assigned"] == "2023-11-14T22:13:20.000Z"


def test_segments_as_a_table_are_not_cut_off(offloaded) -> None:
    text = offloaded.ok("topics", "segments", "orders").splitlines()
    assert text[0].split()[:4] == ["topic", "uuid", "status", "start"]
    assert text[1].split()[0] == str(TOPIC)
    assert text[1].split()[-1] == "size"


def test_a_segment_that_is_committed_but_still_in_the_journal_is_shown_once(offloaded) -> None:
    record(offloaded, OpenTopic(TOPIC, open=replace(OPEN, uuid=offloaded.archive.catalog.segments[0].uuid)))
    assert len(offloaded.json("topics", "segments", "orders")) == 1


def test_the_partitions_of_a_topic(line) -> None:
    for number in (0, 1):
        line.archive.topic = replace(TOPIC, name=f"orders-partition-{number}")
        line.archive.claim()
        line.archive.add(stream(number + 1, 0, 3))
    assert [s["topic"][-11:] for s in line.json("topics", "segments", "orders")] == ["partition-0", "partition-1"]


def test_status_of_a_topic_that_was_never_offloaded(line) -> None:
    assert line.ok("topics", "offload-status", "orders") == f"Offload has not been run for {TOPIC}\n"


def test_status_success(offloaded) -> None:
    record(offloaded, OpenTopic(TOPIC, open=OPEN))
    assert offloaded.ok("topics", "offload-status", "orders") == "Offload was a success\n"
    assert offloaded.json("topics", "offload-status", "orders")["status"] == "success"


def test_status_error_is_exit_code_1(offloaded) -> None:
    record(offloaded, OpenTopic(TOPIC, open=OPEN, failure=FAILURE))
    result = offloaded.run("topics", "offload-status", "orders")
    assert (result.exit_code, result.stdout) == (1, "Error in offload: the store has no room left\n")


def test_status_running_while_a_segment_is_sealed_or_somebody_asked(offloaded) -> None:
    record(offloaded, OpenTopic(TOPIC, open=replace(OPEN, status=SegmentStatus.SEALING)))
    assert offloaded.ok("topics", "offload-status", "orders") == "Offload is currently running\n"
    record(offloaded, OpenTopic(TOPIC, open=OPEN))
    submit(offloaded.archive.store, APPLICATION, Request(RequestKind.CLOSE, TOPIC, 1), lambda: "t")
    assert offloaded.ok("topics", "offload-status", "orders") == "Offload is currently running\n"


def test_waiting_ends_when_it_is_not_running_any_more(offloaded) -> None:
    record(offloaded, OpenTopic(TOPIC, open=replace(OPEN, status=SegmentStatus.SEALING)))
    offloaded.clock.at.append((3, lambda: record(offloaded, TopicState(TOPIC))))
    assert offloaded.ok("topics", "offload-status", "-w", "orders") == "Offload was a success\n"
    assert offloaded.clock.slept >= 3


def test_waiting_no_longer_than_allowed(offloaded) -> None:
    record(offloaded, OpenTopic(TOPIC, open=replace(OPEN, status=SegmentStatus.SEALING)))
    assert "still running after 2s" in offloaded.error("topics", "offload-status", "-w", "--timeout", "2s", "orders")


def test_a_damaged_journal_is_named(offloaded) -> None:
    record(offloaded, OpenTopic(TOPIC, open=OPEN))
    for key, _ in list(offloaded.archive.store.list("_journal/")):
        offloaded.archive.store.put(key, b"rubbish")
    for command in (("list",), ("segments", "orders")):
        result = offloaded.run("topics", *command)
        assert result.exit_code == 0
        assert "what is under way may not be shown: _journal/app/" in result.stderr
        assert "persistent://public/default/orders" in result.stdout
    assert "error: _journal/app/" in offloaded.run("topics", "offload-status", "orders").stderr.splitlines()[-1]
    verified = offloaded.run("verify", "orders")
    assert (verified.exit_code, "damaged-record _journal/app/" in verified.stdout) == (2, True)


def test_a_folder_that_a_console_made_is_no_topic(offloaded) -> None:
    known = offloaded.json("topics", "list")
    for marker in ("public/", "public/default/", "public/default/phantom/", "public/default/other/_catalog/"):
        offloaded.archive.store.backing.objects[marker] = offloaded.archive.store.backing.objects["_root"]
    assert offloaded.json("topics", "list") == known
    offloaded.archive.store.put("public/default/other/something", b"x")
    assert len(offloaded.json("topics", "list")) == len(known) + 1, "whose catalog is gone, it seems"
