"""The commands about deletions, over a cluster in memory and the archive's store."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest

from offloader._proto.managed_ledger_pb2 import ManagedCursorInfo
from offloader.cli.orphans.decide import ask_window
from offloader.lifecycle.deletion.bookkeeper_side import BookKeeperSide
from offloader.lifecycle.deletion.machine import DeletionTry
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import (
    DeletionAnswer,
    DeletionState,
    LedgerComponent,
    LedgerType,
    PendingDeleteLedgerInfo,
    ledger_record_name,
)
from offloader.lifecycle.deletion.system_topic.messages import read_message
from offloader.lifecycle.ledgers.refusals import Refusal, RefusalKind
from tests.cli.support import CONFIG
from tests.lifecycle.deletion.cluster import DAY, JudgingScanner, OrphanCluster, list_node
from tests.lifecycle.system_topic.memory import MemoryTopics
from tests.lifecycle.system_topic.support import publisher

LONGEST_CALL = 60.0

LEDGERS = CONFIG.replace("pulsar: {", 'pulsar: {metadataServiceUri: "zk://unused:2181/ledgers", ')
LIMITS = "lifecycle: {bookkeeperIsNotShared: true, limits: {percent: 100}}\n"


class Orphans(OrphanCluster):
    """Ledgers 5 and 6 are orphans, 7 is open, 1000 is in use, 2000 may be one."""

    def __init__(self) -> None:
        super().__init__()
        self.refusals: tuple[Refusal, ...] = ()
        for ledger in (5, 6):
            self.ledger(ledger, "t", 0)
        self.ledger(1000, "t")
        self.list_ledgers("t", 1000)
        self.ledger(2000, "t", 0)
        self.network.now += DAY + 1

    def scanner(self, _config, tree, _bookies, _admin, _clock) -> JudgingScanner:
        return JudgingScanner(tree.nodes, lambda: self.now_ms, self.refusals)


@pytest.fixture
def orphans():
    return Orphans()


@pytest.fixture
def line(line, orphans):
    line.config = LEDGERS + LIMITS
    line.dependencies = replace(
        line.dependencies,
        bookkeeper=lambda _config, _timeout: tuple(reversed(orphans.client())),
        scanner=orphans.scanner,
        clock_ms=lambda: orphans.now_ms,
    )
    return line


def queue(line) -> DeletionQueue:
    return DeletionQueue(line.archive.store, "memory", lambda: "test")


def state(line, ledger: int):
    return queue(line).read(ledger_record_name(ledger)).record.state


def found(line, *arguments: str):
    """A command with findings."""
    result = line.run(*arguments, "--output", "json")
    assert result.exit_code == 2, result.output
    return json.loads(result.stdout)


def marked(line, *ledgers: int) -> None:
    line.ok("orphans", "quarantine", *(map(str, ledgers) if ledgers else ["--all-certain"]), "--yes")


def purged(line, orphans):
    orphans.network.now += DAY + 1
    return line.json("orphans", "purge", "--yes")


# quarantine


def test_quarantine_says_what_it_would_mark_and_writes_nothing_without_yes(line) -> None:
    said = line.json("orphans", "quarantine", "--all-certain")
    assert [(one["id"], one["outcome"]) for one in said["marks"]] == [(5, "would be marked"), (6, "would be marked")]
    assert all(one["evidence"] for one in said["marks"])
    assert list(line.archive.store.list("_deletion/")) == []


def test_quarantine_marks_in_a_bucket_that_has_nothing_yet(line) -> None:
    said = line.json("orphans", "quarantine", "--all-certain", "--yes")
    assert said["message"].startswith("2 ledgers are marked")
    assert said["goesAt"]
    assert state(line, 5) is DeletionState.MARKED
    again = line.json("orphans", "quarantine", "5", "--yes")
    assert [one["outcome"] for one in again["marks"]] == ["pending already"]


def test_what_is_named_and_not_certain_is_a_finding(line) -> None:
    said = found(line, "orphans", "quarantine", "2000", "1000", "4711", "--yes")
    assert {one["id"]: one["outcome"] for one in said["marks"]} == dict.fromkeys((1000, 2000, 4711), "not deletable")


def test_a_refusal_marks_nothing_and_is_a_finding(line, orphans) -> None:
    orphans.refusals = (Refusal(RefusalKind.ANOTHER_CLUSTER, "other"),)
    said = found(line, "orphans", "quarantine", "--all-certain", "--yes")
    assert "other" in said["refusals"][0]
    assert list(line.archive.store.list("_deletion/")) == []


def test_quarantine_writes_down_what_holds_data_and_no_trim_makes_it_an_orphan_to_be_marked(line, orphans) -> None:
    orphans.ledger(8, "t", 3)
    orphans.ledger(1, "t", 3)
    orphans.list_ledgers("t", 1, 1000)
    orphans.network.now += DAY + 1
    said = line.json("orphans", "quarantine", "--all-certain")
    assert {one["id"]: one["outcome"] for one in said["marks"]}[8] == "kept"
    assert list(line.archive.store.list("_deletion/")) == []
    marked(line)
    assert state(line, 8) is DeletionState.KEPT
    orphans.list_ledgers("t", 1000)  # a broker trims
    orphans.metadata.cluster.delete_ledger(1)
    said = line.json("orphans", "quarantine", "--all-certain", "--yes")
    spared = next(one for one in said["marks"] if one["id"] == 8)
    assert (spared["outcome"], spared["why"]) == ("spared", "it held data that no list had: name it to mark it")
    purged(line, orphans)
    assert orphans.ledger_ids() == {8, 1000, 2000}


def test_quarantine_wants_to_know_which(line) -> None:
    assert line.error("orphans", "quarantine") == "say which: IDs, --all-certain, or names of left-over managed ledgers"
    assert line.error("orphans", "quarantine", "5", "--all-certain").startswith("say which")


# list


def test_list_shows_states_and_when_each_goes(line, orphans) -> None:
    marked(line, 5)
    (one,) = line.json_lines("orphans", "list")
    assert (one["id"], one["state"], one["proof"], one["markedBy"]) == (5, "marked", "passed by", "command")
    assert one["goesAt"] > one["markedAt"]
    assert "marked" in line.ok("orphans", "list")
    assert line.ok("orphans", "list", "--state", "deleted", "--output", "json") == ""
    assert "nothing is marked" in line.ok("orphans", "list", "--state", "deleted")


def test_a_damaged_record_is_a_finding(line) -> None:
    marked(line)
    key = next(key for key, _ in line.archive.store.list("_deletion/") if f"{5:020d}" in key)
    line.archive.store.delete([key])
    line.archive.store.put(key, b"damaged")
    result = line.run("orphans", "list", "--output", "json")
    assert result.exit_code == 2
    assert [json.loads(text)["state"] for text in result.stdout.splitlines()] == ["damaged", "marked"]


def test_in_a_bucket_that_has_nothing_nothing_is_marked(line) -> None:
    """A monitor tells that from a failure."""
    for command in (["list"], ["in-flight"], ["purge"], ["purge", "--yes"]):
        assert "nothing is marked" in line.ok("orphans", *command)
    assert line.json_lines("orphans", "list") == []
    said = line.json("orphans", "in-flight")
    assert (said["on"], said["damaged"], {one["inFlight"] for one in said["types"]}) == (None, 0, {0})
    said = line.json("orphans", "purge", "--yes")
    assert (said["due"], said["later"], said["nextDue"], said["ended"], said["removed"]) == (0, 0, None, [], 0)
    assert list(line.archive.store.list("")) == []


def test_in_flight_counts_by_type(line, orphans) -> None:
    marked(line)
    said = line.json("orphans", "in-flight")
    of_ledgers = next(one for one in said["types"] if one["type"] == "LEDGER")
    assert (of_ledgers["inFlight"], of_ledgers["marked"], said["on"]) == (2, 2, None)
    purged(line, orphans)
    of_ledgers = next(one for one in line.json("orphans", "in-flight")["types"] if one["type"] == "LEDGER")
    assert (of_ledgers["inFlight"], of_ledgers["acknowledged"], of_ledgers["begun"]) == (0, 2, 2)


# purge


def test_purge_deletes_what_is_due_and_never_before(line, orphans) -> None:
    marked(line)
    early = line.json("orphans", "purge", "--yes")
    assert (early["due"], early["ended"], early["later"]) == (0, [], 2)
    (goes_at,) = {one["goesAt"] for one in line.json_lines("orphans", "list")}
    assert early["nextDue"] == goes_at
    assert early["message"] == f"nothing is due; 2 more wait, the first until {goes_at}"
    orphans.network.now += DAY + 1
    assert line.json("orphans", "purge")["message"] == "2 are due; nothing is deleted without --yes"
    assert {5, 6} <= orphans.ledger_ids()
    said = line.json("orphans", "purge", "--yes")
    assert [one["answer"] for one in said["ended"]] == ["deleted", "deleted"]
    assert orphans.ledger_ids() == {1000, 2000}


def test_purge_takes_more_than_one_round(line, orphans) -> None:
    line.config = LEDGERS + "lifecycle: {bookkeeperIsNotShared: true, limits: {percent: 100, aRound: 1}}\n"
    marked(line)
    assert len(purged(line, orphans)["ended"]) == 2


def test_purge_tells_what_stands_against_it(line, orphans) -> None:
    marked(line)
    orphans.network.now += DAY + 1
    orphans.refusals = (Refusal(RefusalKind.IN_TROUBLE, "b1:3181"),)
    said = found(line, "orphans", "purge", "--yes")
    assert "b1:3181" in said["refusals"][0]
    assert {5, 6} <= orphans.ledger_ids()


def test_a_purge_goes_on_with_the_other_side_where_one_refuses(line, orphans) -> None:
    line.config = LEDGERS + "lifecycle: {bookkeeperIsNotShared: true, limits: {percent: 100, aRound: 1}}\n"
    marked(line)
    for number in range(3):
        record = replace(
            queue(line).read(ledger_record_name(5)).record,
            ledger_id=-1,
            ledger_type=LedgerType.OBJECT,
            ledger_component=LedgerComponent.ARCHIVE,
            object_key=f"gone/{number}",
        )
        queue(line).write(record, None)
    orphans.network.now += DAY + 1
    orphans.refusals = (Refusal(RefusalKind.IN_TROUBLE, "b1:3181"),)
    said = found(line, "orphans", "purge", "--yes")
    assert [one["answer"] for one in said["ended"]] == ["already gone"] * 3
    assert len(said["refusals"]) == 1
    assert {5, 6} <= orphans.ledger_ids()


def test_purge_after_a_switch_off_begins_anew(line, orphans) -> None:
    marked(line)
    queue(line).set_switch(on=True, now=1)
    queue(line).set_switch(on=False, now=orphans.now_ms + 1)
    orphans.network.now += DAY + 1
    assert line.json("orphans", "purge", "--yes")["ended"] == []
    assert {5, 6} <= orphans.ledger_ids()
    assert len(purged(line, orphans)["ended"]) == 2


def test_records_that_ended_go_after_their_time_also_where_only_purges_run(line, orphans) -> None:
    """And what later versions cover goes at once."""
    line.config = LEDGERS + LIMITS.replace("lifecycle: {", "lifecycle: {recordRetention: 3d, ")
    marked(line)
    assert len(purged(line, orphans)["ended"]) == 2
    assert len(list(line.archive.store.list("_deletion/"))) == 4
    orphans.network.now += 2 * DAY
    assert line.json("orphans", "purge", "--yes")["removed"] == 0
    orphans.network.now += DAY + 1
    assert line.json("orphans", "purge")["removed"] == 0
    assert len(line.json_lines("orphans", "list")) == 2
    assert line.json("orphans", "purge", "--yes")["removed"] == 2
    assert list(line.archive.store.list("_deletion/")) == []


def test_a_purge_removes_more_than_a_round_does(line, orphans, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offloader.lifecycle.deletion.service.REMOVALS", 1)
    monkeypatch.setattr("offloader.cli.orphans.purge.REMOVALS", 1)
    marked(line)
    purged(line, orphans)
    orphans.network.now += 31 * DAY
    assert line.json("orphans", "purge", "--yes")["removed"] == 2


@pytest.mark.parametrize("use", ["publish", "accept"])
@pytest.mark.parametrize("foreign", [False, True])
def test_a_purge_sends_what_it_deletes_to_the_system_topic_where_the_configuration_says_so(
    line, orphans, monkeypatch: pytest.MonkeyPatch, use, foreign
) -> None:
    topics = MemoryTopics()
    if foreign:
        topics.consumers["patched-broker"] = {}
    monkeypatch.setattr(
        "offloader.cli.orphans.purge.system_topic",
        lambda _session, _cluster, events: SimpleNamespace(publisher=lambda: publisher(topics, events)),
    )
    line.config = LEDGERS + LIMITS.replace(
        "lifecycle: {", f"lifecycle: {{systemTopic: {use}, topicTwoPhaseDeletionEnabled: true, "
    )
    marked(line)
    said = purged(line, orphans)
    assert len(said["ended"]) == 2
    sent = use == "publish" and not foreign
    assert sorted(read_message(one.data).ledger_id for one in topics.left()) == ([5, 6] if sent else [])
    assert said["sent"] == ({"LEDGER": 2} if sent else {})
    assert said["notSent"] == ({"foreign consumer": 2} if use == "publish" and foreign else {})


# The settings, by their names


def configured(line, said: str) -> None:
    line.config = LEDGERS + LIMITS.replace("lifecycle: {", f"lifecycle: {{{said}, ")


@pytest.mark.parametrize("parallelism", [1, 3])
def test_no_more_than_the_parallelism_are_deleted_at_a_time(
    line, orphans, monkeypatch: pytest.MonkeyPatch, parallelism
) -> None:
    """Each waits until all that may go at once are there, and a moment for one more."""
    configured(line, f"twoPhaseDeletionLedgerDeletionParallelism: {parallelism}")
    for ledger in range(10, 16):
        orphans.ledger(ledger, "t", 0)
    orphans.network.now += DAY
    marked(line, *range(10, 16))
    delete, lock, now, most = BookKeeperSide.delete, threading.Lock(), [], []
    together = threading.Barrier(parallelism)

    def counted(side, record, in_time):
        with lock:
            now.append(record)
            most.append(len(now))
        together.wait(10)
        try:
            with lock:
                return delete(side, record, in_time)
        finally:
            with lock:
                now.remove(record)

    monkeypatch.setattr(BookKeeperSide, "delete", counted)
    assert len(purged(line, orphans)["ended"]) == 6
    assert max(most) == parallelism


def test_the_second_try_is_due_when_the_setting_says(line, orphans, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(line, "twoPhaseDeletionReconsumeLaterInSeconds: 5")
    tried(line, orphans, DeletionTry.REFUSED, monkeypatch)
    assert line.json("orphans", "purge", "--yes")["due"] == 0
    orphans.network.now += 5
    assert line.json("orphans", "purge", "--yes")["ended"][0]["answer"] == "deleted"


def test_a_deletion_is_given_up_after_as_many_tries_as_the_setting_says(
    line, orphans, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(line, "twoPhaseDeletionMaxRetryDeleteCount: 2")
    marked(line, 5)
    monkeypatch.setattr(BookKeeperSide, "delete", lambda *_: (DeletionTry.REFUSED, "no"))
    for tries, expected in ((1, "deleting"), (2, "deleting"), (2, "given up")):
        orphans.network.now += DAY + 1
        line.run("orphans", "purge", "--yes")
        (one,) = line.json_lines("orphans", "list")
        assert (one["tries"], one["state"]) == (tries, expected)


def test_the_quarantine_is_twice_as_long_as_the_longest_compaction(line, orphans) -> None:
    configured(line, "longestCompaction: 2d")
    marked(line)
    for due in (0, 0, 0, 2):
        orphans.network.now += DAY + 1
        assert line.json("orphans", "purge")["due"] == due
    assert len(line.json("orphans", "purge", "--yes")["ended"]) == 2


def test_more_than_the_number_of_the_limits_are_not_marked_and_do_not_go(line, orphans) -> None:
    def limited(number: int) -> None:
        line.config = LEDGERS + LIMITS.replace("percent: 100", f"percent: 100, number: {number}")

    limited(1)
    (why,) = found(line, "orphans", "quarantine", "--all-certain", "--yes")["refusals"]
    assert why.startswith("2 ledgers would go at once, more than 1:")
    limited(2)
    marked(line)
    orphans.network.now += DAY + 1
    limited(1)
    (why,) = found(line, "orphans", "purge", "--yes")["refusals"]
    assert why.startswith("2 ledgers would go at once, more than 1:")
    assert {5, 6} <= orphans.ledger_ids()
    limited(2)
    assert len(line.json("orphans", "purge", "--yes")["ended"]) == 2


# undo, retry, drop


def test_undo_of_what_is_marked_costs_nothing(line, orphans) -> None:
    marked(line)
    said = line.json("orphans", "undo", "5")
    assert (said["deletion"]["state"], said["copies"]) == ("undone", None)
    purged(line, orphans)
    assert orphans.ledger_ids() == {5, 1000, 2000}
    assert line.json("orphans", "undo", "5") == said


def test_undo_of_what_was_deleted_creates_it_again_and_reads_every_copy(line, orphans) -> None:
    orphans.ledger(8, "t", 3)
    orphans.list_ledgers("t", 900, 1000)
    orphans.ledger(900, "t")
    orphans.network.now += DAY
    marked(line, 8)
    purged(line, orphans)
    assert 8 not in orphans.ledger_ids()
    said = line.json("orphans", "undo", "8")
    assert said["message"] == "ledger 8 is there again, with every copy of its 3 entries"
    assert sum(one["there"] for one in said["copies"]) == 6
    assert {(one["windowSeconds"], one["asked"]) for one in said["copies"]} == {(900, False)}
    assert 8 in orphans.ledger_ids()
    (listed,) = line.json_lines("orphans", "list")
    assert listed["state"] == "undone"


def test_undo_tells_copies_that_are_gone(line, orphans) -> None:
    orphans.ledger(8, "t", 1)
    orphans.network.now += DAY
    marked(line, 8)
    purged(line, orphans)
    for bookie in orphans.bookies.values():
        bookie.memory.ledgers.pop(8, None)
    said = found(line, "orphans", "undo", "8")
    assert said["lost"] == [0]
    assert "no copy any more" in said["message"]


def test_undo_of_what_is_not_marked_names_what_was_typed(line) -> None:
    line.root()
    for typed, named in (("5", "ledger 5"), ("abc", "abc"), (ledger_record_name(5), ledger_record_name(5))):
        said = line.error("orphans", "undo", typed)
        assert said == f"{named} is not marked, or its record has been removed since"
        assert line.error("orphans", "retry", typed) == said


def test_an_undone_one_is_named_as_it_was_typed(line) -> None:
    marked(line, 5)
    assert line.json("orphans", "undo", "5")["message"] == "ledger 5 is not marked any more"


def tried(line, orphans, outcome: DeletionTry, monkeypatch: pytest.MonkeyPatch) -> None:
    """One try, of which that came."""
    marked(line, 5)
    orphans.network.now += DAY + 1
    with monkeypatch.context() as patched:
        patched.setattr(BookKeeperSide, "delete", lambda *_: (outcome, "no answer"))
        line.run("orphans", "purge", "--yes")
    assert state(line, 5) is DeletionState.DELETING


@pytest.mark.parametrize("outcome", [DeletionTry.REFUSED, DeletionTry.UNKNOWN])
@pytest.mark.parametrize("switched", [None, True, False])
def test_between_two_tries_an_undo_costs_nothing_also_switched_off(
    line, orphans, monkeypatch: pytest.MonkeyPatch, outcome, switched
) -> None:
    if switched is not None:
        queue(line).set_switch(on=True, now=1)
    tried(line, orphans, outcome, monkeypatch)
    if switched is False:
        queue(line).set_switch(on=False, now=2)
    said = line.json("orphans", "undo", "5")
    assert (said["deletion"]["state"], said["copies"]) == ("undone", None)
    purged(line, orphans)
    assert 5 in orphans.ledger_ids()


def test_after_an_undo_what_was_on_its_way_deletes_nothing(line, orphans, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process was paused between its record and its transaction."""
    marked(line, 5)
    orphans.network.now += DAY + 1
    delete, sent = BookKeeperSide.delete, list[PendingDeleteLedgerInfo]()

    def late(side, record, in_time):
        if not sent:
            sent.append(record)
            said = line.json("orphans", "undo", "5")
            assert said["deletion"]["state"] == "undone"
        return delete(side, record, in_time)

    monkeypatch.setattr(BookKeeperSide, "delete", late)
    found(line, "orphans", "purge", "--yes")
    assert sent
    assert 5 in orphans.ledger_ids()
    assert state(line, 5) is DeletionState.UNDONE


def test_an_undo_of_what_a_lost_try_has_deleted_is_the_second_chance(
    line, orphans, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = BookKeeperSide.delete

    def lost(side, record, in_time):
        delete(side, record, in_time)
        return DeletionTry.UNKNOWN, "no answer"

    marked(line, 5)
    orphans.network.now += DAY + 1
    with monkeypatch.context() as patched:
        patched.setattr(BookKeeperSide, "delete", lost)
        line.run("orphans", "purge", "--yes")
    assert (state(line, 5), 5 in orphans.ledger_ids()) == (DeletionState.DELETING, False)
    said = line.json("orphans", "undo", "5")
    assert said["message"] == "ledger 5 is there again, with every copy of its 0 entries"
    assert 5 in orphans.ledger_ids()
    assert state(line, 5) is DeletionState.UNDONE


@pytest.mark.parametrize("wait", [600, 24 * 3600, 7 * 24 * 3600])
def test_an_object_in_doubt_is_left_until_no_request_can_be_on_its_way(line, orphans, wait: int) -> None:
    """However long its try may take: the ninth is followed by a day."""
    marked(line, 5)
    key = "gone/1"
    line.archive.store.put(key, b"?")
    record = replace(
        queue(line).read(ledger_record_name(5)).record,
        ledger_id=-1,
        ledger_type=LedgerType.OBJECT,
        ledger_component=LedgerComponent.ARCHIVE,
        object_key=key,
        state=DeletionState.DELETING,
        in_doubt=True,
        next_at=orphans.now_ms + 1000 * wait,
    )
    queue(line).write(record, None)
    assert "may be on its way; undo it after" in line.error("orphans", "undo", key)
    orphans.network.now += wait + 1 + LONGEST_CALL
    assert line.json("orphans", "undo", key)["deletion"]["state"] == "undone"


def test_an_object_in_doubt_that_is_gone_was_deleted(line, orphans) -> None:
    marked(line, 5)
    record = replace(
        queue(line).read(ledger_record_name(5)).record,
        ledger_id=-1,
        ledger_type=LedgerType.OBJECT,
        ledger_component=LedgerComponent.ARCHIVE,
        object_key="gone/1",
        state=DeletionState.DELETING,
        in_doubt=True,
    )
    queue(line).write(record, None)
    assert "gone/1 was deleted from the bucket" in line.error("orphans", "undo", "gone/1")
    assert queue(line).read(record.name).record.answer is DeletionAnswer.DELETED


def given_up(line, orphans) -> None:
    orphans.ledger(7, "t", 0, is_open=True)
    orphans.network.now += DAY
    marked(line, 7)
    for bookie in orphans.bookies.values():
        bookie.up = False
    for _ in range(12):
        orphans.network.now += 2 * DAY
        line.run("orphans", "purge", "--yes")
    for bookie in orphans.bookies.values():
        bookie.up = True
    assert state(line, 7) is DeletionState.GIVEN_UP


def test_what_was_given_up_is_tried_again(line, orphans) -> None:
    given_up(line, orphans)
    for asked in (["--all"], ["7"]):
        said = line.json("orphans", "retry", *asked)
        assert said["message"] == "1 deletions would be tried again; nothing is without --yes"
        assert [(one["id"], one["state"]) for one in said["deletions"]] == [(7, "marked")]
        assert state(line, 7) is DeletionState.GIVEN_UP
    said = line.json("orphans", "retry", "--all", "--yes")
    assert [one["id"] for one in said["deletions"]] == [7]
    assert purged(line, orphans)["ended"][0]["answer"] == "deleted"


def test_what_was_given_up_is_dropped_and_marked_again_only_by_its_number(line, orphans) -> None:
    given_up(line, orphans)
    line.ok("orphans", "drop", "7")
    said = line.json("orphans", "quarantine", "--all-certain", "--yes")
    assert {one["id"]: one["outcome"] for one in said["marks"]}[7] == "spared"
    assert "not given up" in line.error("orphans", "retry", "7")
    marked(line, 7)


@pytest.mark.parametrize("there", [True, False])
def test_a_drop_looks_first_where_nobody_knows_what_came_of_the_last_try(line, orphans, there) -> None:
    """Else it would tell as kept what we have deleted, and its undo would be lost."""
    given_up(line, orphans)
    record = queue(line).change(ledger_record_name(7), lambda one: replace(one, in_doubt=True)).record
    if not there:
        orphans.metadata.cluster.delete_ledger(7)
    line.ok("orphans", "drop", "--all")
    answer = queue(line).read(record.name).record.answer
    assert answer is (DeletionAnswer.DROPPED if there else DeletionAnswer.DELETED)


# ledgers delete


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["1000"], "still in use"),
        (["4711"], "already gone"),
        (["5", "--topic", "persistent://acme/orders/other"], "does not match"),
        (["5", "--component", "SCHEMA_STORAGE", "--schema-id", "acme/orders/t"], "does not match"),
        (["5", "--cursor", "sub"], "does not match"),
        (["5", "--type", "OFFLOAD_LEDGER"], "invalid"),
        (["5", "--offload-uuid", "11111111-1111-1111-1111-111111111111"], "invalid"),
        (["5", "--component", "MANAGED_CURSOR"], "invalid"),
    ],
)
def test_the_four_successes(line, orphans, arguments, answer) -> None:
    said = line.json("ledgers", "delete", *arguments, "--yes")
    assert said["answer"] == answer
    assert said["why"]
    assert list(line.archive.store.list("_deletion/")) == []


@pytest.mark.parametrize("topic", ["persistent://acme/orders/t", "acme/orders/t", "acme/orders/persistent/t"])
def test_a_topic_is_named_as_in_other_commands_or_as_its_managed_ledger(line, topic) -> None:
    assert line.json("ledgers", "delete", "5", "--topic", topic)["answer"] == "would be marked"
    assert line.json("ledgers", "delete", "5", "--topic", topic + "-2")["answer"] == "does not match"


def test_what_is_certain_is_marked_and_never_skips_the_delay(line, orphans) -> None:
    given = ["5", "--topic", "persistent://acme/orders/t", "--component", "MANAGED_LEDGER"]
    assert line.json("ledgers", "delete", *given)["answer"] == "would be marked"
    said = line.json("ledgers", "delete", *given, "--yes")
    assert said["answer"] == "marked"
    assert said["deletion"]["goesAt"] > said["deletion"]["markedAt"]
    assert line.json("ledgers", "delete", "5", "--yes")["answer"] == "pending already"
    assert 5 in orphans.ledger_ids()


def test_what_is_not_proven_is_denied(line, orphans) -> None:
    assert found(line, "ledgers", "delete", "2000", "--yes")["answer"] == "denied"
    orphans.refusals = (Refusal(RefusalKind.MAY_BE_SHARED),)
    said = found(line, "ledgers", "delete", "5", "--yes")
    assert said["refusals"]
    assert line.json("ledgers", "delete", "1000")["answer"] == "still in use"
    assert list(line.archive.store.list("_deletion/")) == []


def test_a_suspect_data_ledger_goes_where_an_operator_says_that_this_is_enough(line, orphans) -> None:
    """Nobody has its topic loaded. The list is written anew, with its bytes: whoever has read it before has lost."""
    said = found(line, "ledgers", "delete", "2000", "--yes")
    assert (said["answer"], "--suspect" in said["why"]) == ("denied", True)
    assert line.json("ledgers", "delete", "2000", "--suspect")["answer"] == "would be marked"
    before = orphans.metadata.nodes.get(list_node("t"))
    said = line.json("ledgers", "delete", "2000", "--suspect", "--yes")
    assert (said["answer"], said["deletion"]["proof"]) == ("marked", "on demand")
    assert orphans.metadata.nodes.get(list_node("t")) == before
    assert line.json("orphans", "purge", "--yes")["due"] == 0
    done = purged(line, orphans)
    assert [(one["id"], one["answer"]) for one in done["ended"]] == [(2000, "deleted")]
    after = orphans.metadata.nodes.get(list_node("t"))
    assert (after.value, after.version) == (before.value, before.version + 1)
    assert orphans.ledger_ids() == {5, 6, 1000}


def loads(orphans: Orphans, loaded: list[str]) -> None:
    loaded.append("broker-1:8080")


def rolls(orphans: Orphans, _loaded: list[str]) -> None:
    orphans.list_ledgers("t", 1000, 2000)


@pytest.mark.parametrize(("does", "state", "reason"), [(loads, "marked", "broker-1:8080"), (rolls, "kept", "t")])
def test_a_suspect_one_stays_where_somebody_may_use_it_by_now(
    line, orphans, monkeypatch: pytest.MonkeyPatch, does, state, reason
) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(
        "tests.fakes.cluster_clients.MemoryAdmin.loaded_topics",
        lambda _self: dict.fromkeys(["persistent://acme/orders/t"] if loaded else [], "broker-1:8080"),
    )
    line.json("ledgers", "delete", "2000", "--suspect", "--yes")
    does(orphans, loaded)
    orphans.network.now += DAY + 1
    line.run("orphans", "purge", "--yes")
    assert 2000 in orphans.ledger_ids()
    (listed,) = line.json_lines("orphans", "list")
    assert (listed["state"], reason in listed["reason"]) == (state, True)


def test_suspect_is_not_enough_where_more_speaks_against_it(line, orphans) -> None:
    orphans.ledger(2001, "t", 3)  # entries that no list has
    orphans.ledger(2002, "t", 0, **{"pulsar/cursor": b"sub"})
    orphans.put(f"{list_node('t')}/sub", ManagedCursorInfo(cursorsLedgerId=1).SerializeToString())
    orphans.ledger(2003, "t", 1, **{"pulsar/managed-ledger": b"acme/unknown/persistent/t"})  # not rescued
    for ledger in (2001, 2002, 2003):
        said = found(line, "ledgers", "delete", str(ledger), "--suspect", "--yes")
        assert said["answer"] == "denied"
        assert "--suspect" not in said["why"]
    assert list(line.archive.store.list("_deletion/")) == []


def test_nothing_but_the_command_marks_a_suspect_one(line) -> None:
    assert found(line, "orphans", "quarantine", "2000", "--yes")["marks"][0]["outcome"] == "not deletable"
    marked(line)
    assert {one["id"] for one in line.json_lines("orphans", "list")} == {5, 6}


# A bookie's window


@pytest.mark.parametrize(
    ("body", "window"),
    [
        (b'{"gcWaitTime": "30000"}', 30_000),
        (b'{"gcWaitTime": 30000}', 30_000),
        (b'{"gcWaitTime": "soon"}', None),
        (b"[1]", None),
        (b"<html>", None),
    ],
)
def test_a_bookie_says_its_window_or_something_else(body, window) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    try:
        assert ask_window("127.0.0.1", server.server_port) == window
    finally:
        thread.join()
        server.server_close()


def test_nobody_listens_at_a_bookie_s_end_point() -> None:
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.server_close()
    assert ask_window("127.0.0.1", server.server_port) is None
