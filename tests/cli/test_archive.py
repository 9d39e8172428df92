"""What goes of the archive, as the command line shows it and asks for it."""

from __future__ import annotations

import pytest

from offloader.errors import OffloadError
from offloader.lifecycle.retention.phases import ArchiveDeletion
from offloader.lifecycle.retention.policy import RetentionPolicy
from offloader.lifecycle.retention.retention import ArchiveRetention
from offloader.metadata import requests
from offloader.metadata.requests import RequestKind, RequestOutcome
from tests.archive.support import APPLICATION, TOPIC, stream
from tests.cli.support import CONFIG

POLICY = "policies: {archiveRetentionTimeInMinutes: 60}\n"
DAY_MS = 86_400_000


@pytest.fixture
def old(line):
    """A topic of three segments, which were sealed long ago."""
    line.config = CONFIG + POLICY
    line.clock.now += DAY_MS  # the messages say when they were published
    line.archive.claim(1, 0)
    for number in range(3):
        line.archive.add(stream(1, 10 * number, 10 * number + 9))
    return line


def application(line, policy: RetentionPolicy) -> list[RequestKind]:
    """Answers requests as the running application does."""
    catalogs = line.archive.catalogs
    deletion = ArchiveDeletion(
        line.archive.store, catalogs, catalogs.append, lambda: None, line.clock, "memory", APPLICATION
    )
    retention = ArchiveRetention(deletion, lambda _: policy, lambda _: None, DAY_MS)
    served: list[RequestKind] = []

    def work() -> None:
        line.clock.at.append((line.clock.slept + 0.1, work))
        for request_id, request in requests.pending(line.archive.store, APPLICATION, 1):
            served.append(request.kind)
            requests.mark_seen(line.archive.store, APPLICATION, request_id)
            try:
                match request.kind:
                    case RequestKind.ARCHIVE_DELETE:
                        said = retention.delete(request.topic, request.by)
                    case RequestKind.ARCHIVE_UNDELETE:
                        said = retention.undelete(request.topic, request.by)
                    case _:
                        said = retention.visit(request.topic, noted=False) or "nothing is due"
                outcome = RequestOutcome(True, said, line.clock())
            except OffloadError as error:
                outcome = RequestOutcome(False, str(error), line.clock())
            requests.mark_done(line.archive.store, APPLICATION, request_id, outcome)

    line.clock.at.append((0.1, work))
    return served


def test_a_plan_says_what_goes_when_and_how_much(old) -> None:
    [found] = old.json_lines("archive", "retention", "plan")
    segments = old.archive.catalog.segments
    assert found["topic"] == str(TOPIC)
    assert (found["pending"], found["note"]) == (None, "")
    [due] = found["due"]
    assert (due["start"], due["end"], due["segments"], due["entries"]) == ("1:0", "1:19", 2, 20)
    assert due["bytes"] == sum(segment.size for segment in segments[:2])
    assert (due["reasons"], due["policies"], due["onlyCopy"]) == (["time"], ["archiveRetentionTimeInMinutes 60"], False)
    text = old.ok("archive", "retention", "plan")
    assert "1:0..1:19: 2 segments of" in text
    assert "(archiveRetentionTimeInMinutes 60)" in text
    assert len(old.archive.catalog.segments) == 3


def test_without_a_policy_nothing_is_shown_and_a_named_topic_says_so(old) -> None:
    old.config = CONFIG
    assert old.ok("archive", "retention", "plan") == ""
    assert old.ok("archive", "retention", "plan", "orders") == f"{TOPIC}: nothing goes\n"
    old.config = CONFIG + 'policies: {archiveRetentionTimeInMinutes: 60, hold: "court"}\n'
    assert old.ok("archive", "retention", "plan", "orders") == f"{TOPIC}: held by court\n"


def test_run_asks_only_with_yes_and_then_the_plan_shows_what_is_under_way(old) -> None:
    served = application(old, RetentionPolicy(minutes=60))
    assert "1:0..1:19" in old.ok("archive", "retention", "run")
    assert served == []
    assert "deletion 0: 2 segments of" in old.ok("archive", "retention", "run", "--yes")
    assert served == [RequestKind.ARCHIVE_RETENTION]
    [found] = old.json_lines("archive", "retention", "plan")
    assert found["pending"]["notBefore"] - found["pending"]["at"] == DAY_MS
    assert found["pending"]["reason"] == "time"
    assert "go not before" in old.ok("archive", "retention", "plan")
    assert "deleted by archiveRetentionTimeInMinutes 60 on" in old.run("topics", "cat", "orders").output


def test_a_deletion_on_request_and_its_end(old) -> None:
    served = application(old, RetentionPolicy())
    old.config = CONFIG
    assert "nothing is done without --yes" in old.ok("archive", "delete", "public/default")
    assert served == []
    [asked] = old.json_lines("archive", "delete", "public/default", "--yes")
    assert asked["ok"], asked
    assert served == [RequestKind.ARCHIVE_DELETE]
    again = old.run("archive", "delete", "orders", "--yes")
    assert (again.exit_code, "is under way" in again.stdout) == (1, True)
    old.clock.now += DAY_MS
    retention = old.run("archive", "retention", "run", "orders", "--yes")
    assert "deletion 0 is done" in retention.stdout
    verified = old.json("verify", "--quick")
    assert verified["deleted"] == 2
    [shown] = old.json("topics", "list")
    assert (shown["segments"], shown["entries"]) == (1, 10)
    rows = old.json("topics", "segments", "orders")
    assert [(row["status"], row["start"], row["end"]) for row in rows] == [
        ("Deleted", "1:0", "1:19"),
        ("Offloaded", "1:20", "1:29"),
    ]
    assert "is under way" in old.error("archive", "undelete", "orders")


def test_a_changed_mind(old) -> None:
    application(old, RetentionPolicy())
    old.ok("archive", "delete", "orders", "--yes")
    assert "can be read again" in old.ok("archive", "undelete", "orders")
    assert old.archive.catalogs.head(TOPIC).removed.pending is None
    assert len(old.ok("topics", "cat", "orders").splitlines()) == 30


def test_what_is_not_there_is_told_in_one_line(old) -> None:
    assert "nothing of namespace public/other is in the archive" in old.error("archive", "delete", "public/other")
    old.config = CONFIG + "policies: {archiveRetentionTimeInMinutes: 0}\n"
    assert "are 0 together or not at all" in old.error("archive", "retention", "plan")
