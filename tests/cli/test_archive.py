"""What goes of the archive, as the command line shows it and asks for it."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from offloader.cursors.core.records import FirstState
from offloader.cursors.durable import DurableCursor
from offloader.errors import BrokerUnavailableError, OffloadError
from offloader.lifecycle.retention.holdings import kept
from offloader.lifecycle.retention.phases import ArchiveDeletion
from offloader.lifecycle.retention.plan import aged_from
from offloader.lifecycle.retention.policy import RetentionPolicy
from offloader.lifecycle.retention.retention import ArchiveRetention
from offloader.metadata import layout, requests
from offloader.metadata.catalog import released
from offloader.metadata.deletions import DeletionBegun, PulsarTrimmed, day
from offloader.metadata.requests import RequestKind, RequestOutcome
from offloader.metadata.root import open_root
from offloader.metadata.state import Claim
from offloader.model import Position, TopicName
from offloader.storage.forwarding import ForwardingStore
from tests.archive.support import APPLICATION, TOPIC, stream
from tests.cli.support import CONFIG

POLICY = "policies: {archiveRetentionTimeInMinutes: 60}\n"
DAY_MS = 86_400_000
NOW = 1_700_000_000_000


@pytest.fixture
def old(line):
    """A topic of three segments, which were sealed long ago."""
    line.config = CONFIG + POLICY
    line.clock.now += DAY_MS  # the messages say when they were published
    line.archive.claim(1, 0)
    for number in range(3):
        line.archive.add(stream(1, 10 * number, 10 * number + 9))
    return line


def newest(line) -> int:
    """From when on the time of the first segment counts."""
    return aged_from(kept(line.archive.catalog.segments[0]), line.clock.now)


def application(line, policy: RetentionPolicy) -> list[RequestKind]:
    """Answers requests as the running application does. Its clock is the store's, too."""
    line.archive.store.backing.clock_ms = line.clock
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
                    case RequestKind.ARCHIVE_HOLD:
                        said = retention.hold(request.topic, request.by, request.hold)
                    case RequestKind.ARCHIVE_LIFT_HOLD:
                        said = retention.lift_hold(request.topic)
                    case _:
                        said = retention.asked(request.topic)
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
    began, goes = newest(old) + 3_600_000, day(NOW + 2 * DAY_MS)
    assert f"not before {goes} (archiveRetentionTimeInMinutes 60, due since {day(began)})" in text
    assert (due["since"], due["notBefore"]) == (began, NOW + 2 * DAY_MS)
    assert "next 1:20..1:29: the newest segment stays as long as the topic is offloaded; 1320 bytes" in text
    [waiting] = found["waiting"]
    assert (waiting["start"], waiting["due"], waiting["bytes"]) == ("1:20", None, segments[2].size)
    assert len(old.archive.catalog.segments) == 3


def test_what_no_policy_lets_go_is_not_shown_unless_it_is_named(old) -> None:
    old.config = CONFIG
    shown = old.run("archive", "retention", "plan")
    assert (shown.exit_code, shown.stdout) == (0, "")
    assert shown.stderr == "1 topics: no policy of app says that anything goes\n"
    assert old.ok("archive", "retention", "plan", "orders") == f"{TOPIC}: no policy says that anything goes\n"


def test_a_hold_is_told_by_its_name(old) -> None:
    for policy in ("archiveRetentionTimeInMinutes: 60, ", ""):
        old.config = CONFIG + f'policies: {{{policy}hold: "court"}}\n'
        assert old.ok("archive", "retention", "plan") == f"{TOPIC}: held by court\n"
        [found] = old.json_lines("archive", "retention", "plan", "orders")
        assert (found["due"], found["waiting"], found["note"]) == ([], [], "held by court")


def test_what_is_not_due_yet_is_shown_with_the_day_on_which_it_will_be(old) -> None:
    old.config = CONFIG + "policies: {archiveRetentionTimeInMinutes: 1000000}\n"
    text = old.ok("archive", "retention", "plan")
    due = newest(old) + 1_000_000 * 60_000
    assert text.startswith(f"{TOPIC}: nothing is due\n  next 1:0..1:9: due on {day(due)} (archiveRetentionTimeInMin")
    assert "; 3960 bytes from there on" in text
    [found] = old.json_lines("archive", "retention", "plan")
    assert (found["due"], found["note"], found["waiting"][0]["due"]) == ([], "nothing is due", due)
    old.config = CONFIG + "policies: {archiveRetentionSizeInMB: 1}\n"
    [found] = old.json_lines("archive", "retention", "plan")
    missing = 2**20 - 2 * 1320
    assert found["waiting"][0]["why"] == f"goes once {missing} bytes more are archived (archiveRetentionSizeInMB 1)"
    old.config = CONFIG + "policies: {deletedTopicRetentionTimeInMinutes: 5}\n"
    assert "goes once the topic is gone" in old.ok("archive", "retention", "plan")


def test_what_another_application_has_goes_by_its_policies(old) -> None:
    old.config = old.config.replace("application: app", "application: other")
    assert "claimed by app: it goes by that one's policies" in old.ok("archive", "retention", "plan", "orders")
    for asked in ("plan", "run"):
        shown = old.run("archive", "retention", asked)
        assert (shown.stdout, shown.stderr) == ("", "1 topics: no policy of other says that anything goes\n")
    refused = old.run("archive", "delete", "orders")
    assert (refused.exit_code, "nothing would go: is claimed by app" in refused.stdout) == (1, True)


def test_what_another_application_has_released_goes_by_that_ones_policies(old) -> None:
    claim = old.archive.catalog.claim
    old.archive.catalogs.append(old.archive.catalogs.head(TOPIC), released(claim, NOW, "released"))
    [found] = old.json_lines("archive", "retention", "plan", "orders")
    assert (len(found["due"]), found["note"]) == (1, "")
    old.config = old.config.replace("application: app", "application: other")
    [found] = old.json_lines("archive", "retention", "plan", "orders")
    assert (found["due"], found["note"]) == ([], "released by app: it goes by that one's policies")


def test_what_nobody_knows_who_has_released_goes_by_no_policy(old) -> None:
    claim = old.archive.catalog.claim
    left = replace(released(claim, NOW, "released"), released_by="")
    head = old.archive.catalogs.append(old.archive.catalogs.head(TOPIC), left)
    old.archive.store.delete([layout.record_key(TOPIC, head.claim.former)])
    [found] = old.json_lines("archive", "retention", "plan", "orders")
    assert (found["due"], "who had the topic last" in found["note"]) == ([], True)


def retention_in_pulsar(line, minutes: int) -> None:
    said = {"retention_policies": {"retentionTimeInMinutes": minutes, "retentionSizeInMB": -1}}
    line.cluster.namespace("public/default").policies.update(said)


@pytest.mark.parametrize("minutes", [0, 60])
def test_a_retention_of_0_in_pulsar_is_not_followed_and_the_plan_says_so(old, minutes) -> None:
    old.config = CONFIG + "policies: {followPulsarRetention: true}\n"
    retention_in_pulsar(old, minutes)
    catalogs = old.archive.catalogs
    catalogs.append(catalogs.head(TOPIC), PulsarTrimmed(0, 2, NOW))
    [found] = old.json_lines("archive", "retention", "plan")
    if minutes:
        assert [each["onlyCopy"] for each in found["due"]] == [True]
        assert "exist nowhere" in old.ok("archive", "retention", "plan")
    else:
        assert (found["due"], found["note"]) == (
            [],
            "no policy says that anything goes; followPulsarRetention is refused, its retention in Pulsar is 0",
        )


def test_a_pulsar_that_does_not_answer_is_asked_once_and_a_damaged_catalog_is_one_line(old) -> None:
    old.config = CONFIG + "policies: {followPulsarRetention: true}\n"
    other = TopicName.parse("persistent://public/default/another")
    old.archive.store.put(layout.slot_key(other, 0, 0), b"damaged")
    third = TopicName.parse("persistent://public/default/third")
    old.archive.catalogs.append(old.archive.catalogs.head(third), old.archive.catalogs.head(TOPIC).claim)
    calls = []

    def silent(topic):
        calls.append(topic)
        raise BrokerUnavailableError("no answer")

    old.cluster.admin.retention = silent
    for of in ("plan", "run"):
        shown = old.run("archive", "retention", of)
        assert shown.exit_code == 1
        assert shown.stdout.count("followPulsarRetention: the retention in Pulsar cannot be read: no answer") == 2
        [line] = [line for line in shown.stderr.splitlines() if str(other) in line]
        assert "damaged" in line or "record" in line
    assert len(calls) == 2


def test_a_plan_reads_several_catalogs_at_a_time_and_tells_them_in_order(line) -> None:
    line.config = CONFIG + POLICY
    names = [TopicName.parse(f"public/default/t{number}") for number in range(8)]
    for name in names:
        claim = Claim(APPLICATION, 0, 1, Position(0, 5, 0), 5, "t")
        line.archive.catalogs.append(line.archive.catalogs.head(name), claim)
    line.dependencies = replace(line.dependencies, store=lambda _: ReadTogether(line.archive.store))
    told = [one["topic"] for one in line.json_lines("archive", "retention", "plan")]
    assert told == sorted(map(str, names))


class ReadTogether(ForwardingStore):
    """The first reads of four threads wait for each other."""

    def __init__(self, store) -> None:
        super().__init__(store)
        self._barrier, self._seen = threading.Barrier(4), set[threading.Thread]()

    def read(self, key, *arguments):
        thread = threading.current_thread()
        if thread.name.startswith("retention-reader") and thread not in self._seen and len(self._seen) < 4:
            self._seen.add(thread)
            self._barrier.wait(20)
        return super().read(key, *arguments)


def test_run_asks_for_every_topic_that_is_named_whatever_the_plan_says(old) -> None:
    served = application(old, RetentionPolicy(minutes=60))  # the application knows more than this command
    old.config = CONFIG
    shown = old.run("archive", "retention", "run", "--yes")
    assert (served, shown.stdout, "no policy of app says" in shown.stderr) == ([], "", True)
    assert "deletion 0: 2 segments of" in old.ok("archive", "retention", "run", "orders", "--yes")
    assert "deletion 0 is under way" in old.ok("archive", "retention", "run", "public/default", "--yes")
    assert served == [RequestKind.ARCHIVE_RETENTION] * 2


def test_a_policy_of_which_nothing_is_due_is_asked_about_all_the_same(old) -> None:
    served = application(old, RetentionPolicy(minutes=1_000_000))
    old.config = CONFIG + "policies: {archiveRetentionTimeInMinutes: 1000000}\n"
    assert old.ok("archive", "retention", "run", "--yes") == f"{TOPIC}: nothing is due\n"
    assert served == [RequestKind.ARCHIVE_RETENTION]


def test_a_deletion_that_is_not_carried_out_yet_says_what_it_would_come_to(old) -> None:
    old.config = CONFIG
    text = old.ok("archive", "delete", "orders")
    assert text.startswith(f"{TOPIC}: 2 segments of 2640 bytes would go, not before {day(NOW + 2 * DAY_MS)}; 1 stay: ")
    [told] = old.json_lines("archive", "delete", "orders")
    assert (told["ok"], told["segments"], told["bytes"], told["due"][0]["end"]) == (True, 2, 2640, "1:19")
    old.config = CONFIG + 'policies: {hold: "case 4711"}\n'
    refused = old.run("archive", "delete", "public/default")
    assert (refused.exit_code, refused.stdout) == (
        1,
        f"{TOPIC}: nothing would go: is held by case 4711: nothing of it goes before that is lifted\n",
    )
    old.config = CONFIG
    application(old, RetentionPolicy())
    old.ok("archive", "delete", "orders", "--yes")
    refused = old.run("archive", "delete", "orders")
    assert (refused.exit_code, "nothing would go: deletion 0 is under way" in refused.stdout) == (1, True)


def test_of_a_topic_of_one_segment_nothing_would_go(line) -> None:
    line.archive.claim(1, 0)
    line.archive.add(stream(1, 0, 9))
    refused = line.run("archive", "delete", "orders")
    assert (refused.exit_code, "nothing would go: there is nothing to delete; the newest" in refused.stdout) == (
        1,
        True,
    )


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
    again = old.ok("archive", "retention", "run", "--yes")
    assert f"deletion 0 is under way: it goes not before {day(found['pending']['notBefore'])}" in again
    assert "deleted by archiveRetentionTimeInMinutes 60 on" in old.run("topics", "cat", "orders").output


def test_beside_what_is_under_way_the_plan_says_what_comes_next_and_what_a_hold_makes_of_it(old) -> None:
    application(old, RetentionPolicy(minutes=60))
    old.ok("archive", "retention", "run", "--yes")
    old.archive.add(stream(1, 30, 39))
    text = old.ok("archive", "retention", "plan")
    assert "deletion 0: 2 segments of 2640 bytes go not before" in text
    assert "next 1:20..1:29: due on" in text
    assert "(archiveRetentionTimeInMinutes 60, once deletion 0 is done)" in text
    old.config += 'namespaces: {public/default: {policies: {hold: "court"}}}\n'
    old.config = old.config.replace("namespaces:\n  public/default: {enabled: true}\n", "")
    [found] = old.json_lines("archive", "retention", "plan")
    assert (found["note"], found["waiting"]) == ("held by court: the next look takes back what is under way", [])
    head = old.archive.catalogs.head(TOPIC)
    old.archive.catalogs.append(head, DeletionBegun(0, "app", NOW))
    [found] = old.json_lines("archive", "retention", "plan")
    assert found["note"] == "held by court: the deletion has begun, and what is left of it stays as long"


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
    [planned] = old.json_lines("archive", "retention", "plan", "orders")
    assert planned["deleted"] == {"segments": 2, "bytes": 2640}
    assert "2 segments of 2640 bytes were deleted before" in old.ok("archive", "retention", "plan", "orders")
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


@pytest.mark.parametrize("position", ["1:0", "1:5", "1:9", "1:13", "1:19"])
def test_each_position_of_what_goes_is_told_to_be_deleted_also_alone(old, position) -> None:
    application(old, RetentionPolicy())
    old.config = CONFIG
    for step in ("delete", "retention run"):
        old.ok("archive", *step.split(), "orders", "--yes")
        found = old.json("topics", "peek", "orders", position)
        assert found["missing"].startswith("deleted by request of "), step
        old.clock.now += DAY_MS
    assert "entry" in old.json("topics", "peek", "orders", "1:20")
    assert "is not in the archive" in old.error("topics", "peek", "orders", "1:30")


def test_a_changed_mind(old) -> None:
    application(old, RetentionPolicy())
    old.ok("archive", "delete", "orders", "--yes")
    assert "can be read again" in old.ok("archive", "undelete", "orders")
    assert old.archive.catalogs.head(TOPIC).removed.pending is None
    assert len(old.ok("topics", "cat", "orders").splitlines()) == 30


def test_a_changed_mind_with_a_hold(old) -> None:
    open_root(old.archive.store, "memory", old.dependencies.new_token)
    application(old, RetentionPolicy(minutes=60))
    old.ok("archive", "retention", "run", "orders", "--yes")
    said = old.ok("archive", "undelete", "orders")
    assert "until its policy deletes it again (archiveRetentionTimeInMinutes 60)" in said
    assert f"`offloader archive undelete {TOPIC} --hold NAME` keeps it" in said
    assert "nothing of it goes any more: held by court" in old.ok("archive", "undelete", "orders", "--hold", "court")
    [found] = old.json_lines("archive", "retention", "plan", "orders")
    assert (found["note"], found["due"]) == ("held by court", [])
    assert "is held by court" in old.run("archive", "delete", "orders").output
    assert "the hold court is lifted" in old.ok("archive", "lift-hold", "public/default")
    assert "no hold was placed by command" in old.error("archive", "lift-hold", "orders")
    [found] = old.json_lines("archive", "retention", "plan", "orders")
    assert found["due"]
    assert "1 to 200 printable characters" in old.run("archive", "undelete", "orders", "--hold", "a\n").stderr


def test_a_changed_mind_about_a_namespace_is_not_stopped_by_a_damaged_catalog(old) -> None:
    served = application(old, RetentionPolicy(minutes=60))
    assert "deletion 0" in old.ok("archive", "delete", "public/default", "--yes")
    damaged = TopicName.parse("persistent://public/default/damaged")
    old.archive.store.put(layout.slot_key(damaged, 0, 0), b"not a record")
    said = old.run("archive", "undelete", "public/default")
    assert (said.exit_code, "deletion 0 is undone" in said.stdout) == (1, True)
    assert f"{damaged}: " in said.stderr
    assert served[-1] is RequestKind.ARCHIVE_UNDELETE


def test_what_is_not_there_is_told_in_one_line(old) -> None:
    assert "nothing of namespace public/other is in the archive" in old.error("archive", "delete", "public/other")
    old.config = CONFIG + "policies: {archiveRetentionTimeInMinutes: 0}\n"
    assert "are 0 together or not at all" in old.error("archive", "retention", "plan")


def test_the_plan_and_a_deletion_say_who_of_the_gateway_has_not_acknowledged(old) -> None:
    folder = layout.subscription_folder(TOPIC, "job")
    DurableCursor.open(old.archive.store, folder, lambda: FirstState(Position(0, 1, 12)), old.dependencies.new_token)
    waits = "the gateway's subscriptions have not acknowledged it: job (at 1:12) (keepUnacknowledged)"
    [found] = old.json_lines("archive", "retention", "plan")
    assert [each["end"] for each in found["due"]] == ["1:9"]
    assert f"it is due, but {waits}" in old.ok("archive", "retention", "plan")
    assert f"{waits}, and it counts as acknowledged then" in old.ok("archive", "delete", "orders")
    old.config = old.config.replace("policies: {", "policies: {keepUnacknowledged: false, ")
    [found] = old.json_lines("archive", "retention", "plan")
    assert [each["end"] for each in found["due"]] == ["1:19"]
