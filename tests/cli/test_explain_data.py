"""`offloader explain`: why data is still there, in sentences, from what is stored and from those who answer."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from offloader._proto.bookie_service_pb2 import BookieServiceInfoFormat
from offloader._proto.managed_ledger_pb2 import ManagedLedgerInfo
from offloader.bookkeeper.metadata import decode_http_url
from offloader.bookkeeper.model import LedgerState
from offloader.cli.command import CommandDependencies
from offloader.errors import AuthorizationFailedError, BookieUnavailableError, FatalError
from offloader.lifecycle.explaining.bookie_facts import PATHS
from offloader.lifecycle.ledgers.evidence import Fact, LedgerEvidence, LedgerVerdict, Standing, seen_ledger
from offloader.lifecycle.ledgers.kinds import LedgerKind
from offloader.lifecycle.ledgers.scanned import LedgerScan
from offloader.model import TopicName
from offloader.ports.admin import KnownTopics
from offloader.ports.subscriptions import SubscriptionUse
from offloader.state.subscription import CursorState
from tests.archive.support import Archive
from tests.fakes.cluster_subscriptions import MemorySubscriptions
from tests.fakes.memory_nodes import MemoryNodes
from tests.format.support import Stored
from tests.lifecycle.topics.world import TOPIC, StoredWorld

CONFIGURATION = "/api/v1/config/server_config"
DETAILS = "/api/v1/bookie/gc_details"
FILES = "/api/v1/bookie/list_disk_file?file_type=entrylog"
FORCED = "/api/v1/bookie/gc"
SPACE = "/api/v1/bookie/info"
STATE = "/api/v1/bookie/state"
SUSPENDED = "/api/v1/bookie/gc/suspend_compaction"

URL = "http://b1:8000"


class Brokers:
    """What explanations ask: who uses what, and what is kept. Everything else would load a topic."""

    def __init__(self, cluster) -> None:
        self.cluster = cluster
        self.said: dict[TopicName, dict[str, SubscriptionUse]] = {}
        self.topics = {TOPIC}
        self.partitioned = set[TopicName]()

    def uses(self):
        return self.said

    def known_topics(self, namespace):
        return KnownTopics(frozenset(self.topics), frozenset(self.partitioned))

    def namespace_policies(self, namespace):
        return self.cluster.admin.namespace_policies(namespace)

    def close(self):
        pass


class Bookie:
    """A bookie's HTTP server as 4.17.2 answers; `is_up`: whether there is one."""

    def __init__(self) -> None:
        self.is_up = True
        self.asked: list[str] = []
        self.answers: dict[str, object] = {
            CONFIGURATION: {"gcWaitTime": "900000", "majorCompactionThreshold": "0.5", "httpServerEnabled": "true"},
            DETAILS: [
                {
                    "forceCompacting": False,
                    "majorCompacting": False,
                    "minorCompacting": False,
                    "lastMajorCompactionTime": 1_700_000_000_000,
                    "lastMinorCompactionTime": 1_700_000_360_000,
                    "lastEntryLocationCompactionTime": 1_700_000_000_000,
                    "majorCompactionCounter": 0,
                    "minorCompactionCounter": 3,
                    "entryLocationCompactionCounter": 0,
                }
            ],
            FORCED: {"is_in_force_gc": "false"},
            SUSPENDED: {"isMajorGcSuspended": "false", "isMinorGcSuspended": "false"},
            SPACE: {"freeSpace": 400_000_000_000, "totalSpace": 1_000_000_000_000},
            STATE: {"running": True, "readOnly": False, "shuttingDown": False, "availableForHighPriorityWrites": True},
            FILES: {"entrylog files": "0.log\t1.log\t2.log\t"},
        }

    def __call__(self, url, timeout):
        assert url == URL
        return self

    def get(self, path):
        self.asked.append(path)
        if not self.is_up:
            raise BookieUnavailableError(f"{URL} does not answer (refused)")
        if path not in self.answers:
            raise FatalError(f"{URL}{path} answers 404")
        found = self.answers[path]
        return found if isinstance(found, bytes) else json.dumps(found).encode()


@pytest.fixture
def world():
    world = StoredWorld()
    world.topic((1, 10, 1_000_000), (2, 10, 2_000_000), (3, 10, 4_000_000), (4, 0, 0))
    world.create(4, 3, 3, 2, custom={"pulsar/managed-ledger": b"public/default/persistent/t"})
    world.cursor("slow", CursorState((2, 2), subscription_properties=(("owner", "joe"),)))
    world.cursor("__offloader", CursorState((3, 9)))
    return world


@pytest.fixture
def bookie():
    return Bookie()


@pytest.fixture
def brokers(line):
    return Brokers(line.cluster)


@pytest.fixture(autouse=True)
def reached(line, world, bookie, brokers) -> None:
    line.dependencies = replace(
        line.dependencies,
        bookkeeper=lambda _config, _timeout: tuple(reversed(world.client())),
        subscriptions=lambda _: brokers,
        visits=lambda _: brokers,
        bookie_http=bookie,
    )
    line.config = line.config.replace("pulsar: {", 'pulsar: {metadataServiceUri: "zk://z/ledgers", ')
    line.cluster.namespace("public/default").policies["retention_policies"] = {
        "retentionTimeInMinutes": 180,
        "retentionSizeInMB": -1,
    }


def explained(line, *arguments):
    (found,) = line.json_lines("explain", *arguments)
    return found


def said(found, part):
    return any(part in sentence for sentence in (*found["because"], *found["do"], *found["unknown"]))


def test_a_topic_is_told_by_who_holds_how_much(line) -> None:
    found = explained(line, str(TOPIC))
    assert found["because"][0].startswith(f"{TOPIC} has 4 ledgers of 7 MB in all")
    assert said(found, "The subscription slow (of joe) holds back 6 MB, 6 MB of it alone: 17 entries")
    assert said(found, "Retention (the namespace's) keeps what is acknowledged for 3 hours, whatever its size.")
    assert said(found, "So 1 MB should be gone by now: no subscription needs them any more.")
    assert said(found, "Held by slow (subscription) with 6 MB.")
    assert said(found, "Its last ledger, 4, is open")
    assert said(found, "No broker has it loaded, so nobody drops anything")
    assert said(found, f"offloader topics cursors remove {TOPIC} slow`")
    assert said(found, "Our own subscription keeps it because nothing of it is in the archive yet.")
    assert found["unknown"] == []


def test_who_is_past_all_of_an_unloaded_topic_holds_nothing_back(line, world) -> None:
    """Its last ledger was closed by whoever unloaded it, and stays all the same."""
    world.topic((1, 10, 1_000_000), (2, 10, 2_000_000))
    for name in ("slow", "__offloader"):
        world.cursor(name, CursorState((2, 9)))
    found = explained(line, str(TOPIC))
    assert said(found, "slow has acknowledged everything that is counted, and holds nothing back.")
    assert not said(found, "holds back")
    assert not said(found, "0 entries")
    world.cursor("slow", CursorState((2, 8)))
    assert said(explained(line, str(TOPIC)), "1 entry is not acknowledged")


def test_a_loaded_topic_with_a_consumer_and_its_own_retention(line, brokers) -> None:
    brokers.said = {TOPIC: {"slow": SubscriptionUse(1, 17)}}
    found = explained(line, str(TOPIC))
    assert said(found, "slow has consumers: let them catch up.")
    assert said(found, "Retention does not keep 1 MB: its broker drops them at its next look")
    assert not said(found, "trim-unloaded run")
    line.cluster.namespace("public/default").policies["retention_policies"] = {
        "retentionTimeInMinutes": -1, "retentionSizeInMB": -1,
    }  # fmt: skip
    found = explained(line, str(TOPIC))
    assert said(found, "It has 1 consumer now.")
    assert said(found, "Retention keeps everything for ever: any age, any size (namespace).")
    assert said(found, "`pulsar-admin namespaces set-retention public/default`")
    assert not said(found, "should be gone")
    assert said(found, "A broker has it loaded")
    assert not said(found, "cursors remove")


def count_in_memory(line, counts):
    """What the topic's broker counts, its open ledger included."""
    asked = []
    line.cluster.create(TOPIC)
    real = line.cluster.admin.topic_info

    def topic_info(topic):
        asked.append(topic)
        return replace(real(topic), sizes=counts)

    line.cluster.admin.topic_info = topic_info
    return asked


def test_the_open_ledger_of_a_loaded_topic_counts(line, world, brokers) -> None:
    world.topic((4, 0, 0))
    world.cursor("slow", CursorState((4, 9)))
    brokers.said = {TOPIC: {"slow": SubscriptionUse(0, 7)}}
    count_in_memory(line, {4: (500, 527_000)})
    found = explained(line, str(TOPIC))
    assert found["because"][0].startswith(f"{TOPIC} has 1 ledger of 527 kB in all.")
    assert said(found, "The subscription slow holds back 527 kB: 490 entries are not acknowledged.")
    assert said(found, "Its last ledger, 4, of 527 kB, is open: retention counts from when it is closed.")


def without_metadata_service(line, brokers, name="t"):
    """Only the admin REST answers; returns the topic, which brokers describe."""
    line.config = line.config.replace('metadataServiceUri: "zk://z/ledgers", ', "")
    topic = TopicName.parse(f"public/default/{name}")
    line.cluster.create(topic)
    memory = MemorySubscriptions(MemoryNodes(), "/managed-ledgers", lambda: 1)
    memory.make(topic, {8: 10, 9: 6})
    memory.create(topic, "slow", {"owner": "joe"})
    memory.create(topic, "__offloader", {})
    brokers.report = memory.report
    return topic


def test_a_loaded_topic_is_explained_by_the_admin_rest_alone(line, brokers) -> None:
    topic = without_metadata_service(line, brokers)
    brokers.said = {topic: {"slow": SubscriptionUse(0, 16)}}
    found = explained(line, str(topic))
    assert found["because"][0].startswith(f"{topic} has 2 ledgers of 1.6 kB in all")
    assert said(found, "The subscription slow (of joe) holds back 1.6 kB: 16 entries")
    assert said(found, "Its last ledger, 9, of 600 bytes, is open")
    assert said(found, "Retention (the namespace's) keeps what is acknowledged for 3 hours")
    assert found["unknown"] == []


def test_an_unloaded_topic_is_explained_as_far_as_its_record_says(line, brokers) -> None:
    topic = without_metadata_service(line, brokers)
    found = explained(line, str(topic))
    assert said(found, "has 2 ledgers of 1 kB in all, without one that is open")
    assert said(found, "No broker has it loaded")
    assert said(found, "set pulsar.metadataServiceUri")


def test_partitions_are_found_without_the_metadata_service(line, brokers) -> None:
    topic = without_metadata_service(line, brokers, "parts-partition-0")
    found = explained(line, "public/default/parts")
    assert found["name"] == str(topic)
    assert "the brokers know no such topic" in line.run("explain", "public/default/none").stderr


@pytest.mark.parametrize("what", ["4", "b1"])
def test_ledgers_and_bookies_need_the_metadata_service(line, brokers, what) -> None:
    without_metadata_service(line, brokers)
    line.dependencies = replace(line.dependencies, bookkeeper=CommandDependencies().bookkeeper)
    assert "pulsar.metadataServiceUri" in line.run("explain", what).stderr


def test_a_topic_is_not_loaded_to_count_its_open_ledger(line, world) -> None:
    world.topic((4, 0, 0))
    asked = count_in_memory(line, {4: (500, 527_000)})
    assert said(explained(line, str(TOPIC)), "has 1 ledger of 0 bytes in all, without one that is open.")
    assert asked == []


def test_who_may_not_ask_what_is_loaded_is_told_the_reasons_that_hold_anyway(line, brokers) -> None:
    def for_super_users():
        raise AuthorizationFailedError("for super users")

    brokers.uses = for_super_users
    found = explained(line, str(TOPIC))
    assert said(found, "Held by slow (subscription) with 6 MB.")
    assert said(found, f"offloader topics cursors remove {TOPIC} slow`")
    assert not said(found, "trim-unloaded run")
    assert found["unknown"] == ["which topics are loaded: for super users"]


def test_who_asks_nobody_is_told_what_is_stored(line) -> None:
    found = explained(line, str(TOPIC), "--offline")
    assert said(found, "holds back 6 MB")
    assert not said(found, "Retention (")
    assert not said(found, "broker has it loaded")


def test_a_last_ledger_that_only_bookkeeper_closed_counts_from_the_next_load(line, world) -> None:
    world.metadata.cluster.put_ledger(
        4, replace(world.metadata.read(4).metadata, state=LedgerState.CLOSED, last_entry=6, length=700)
    )
    assert said(explained(line, str(TOPIC)), "of 700 bytes, is closed in BookKeeper and not in the topic's list")


def test_a_ledger_is_told_with_its_topic_and_who_holds_it(line, world) -> None:
    found = explained(line, "4")
    assert found["what"] == "ledger"
    assert said(found, "it is open: somebody may still write it")
    assert said(found, f"{TOPIC} lists it: it is number 4 of 4")
    assert said(found, "hold it back: __offloader, slow")
    world.create(99, 3, 2, 2, custom={"pulsar/managed-ledger": b"public/default/persistent/gone"})
    assert said(explained(line, "99"), "it does not say application=pulsar")
    assert said(
        explained(line, "12345"), "BookKeeper has no metadata of ledger 12345: it is deleted, or there never was one."
    )
    assert said(explained(line, "12345"), "Nothing refers to it.")


def test_a_bookie_is_told_by_what_its_http_server_says(line, bookie) -> None:
    found = explained(line, "b1:3181", "--bookie-http", URL)
    assert bookie.asked == list(PATHS)
    assert said(found, "Every 15 minutes b1:3181 looks which of its ledgers are deleted")
    assert said(found, "less than 20 % is live (minor compaction)")
    assert said(found, "It has done so 3 times since its start, last at 2023-11-14T22:19")
    assert said(found, "less than 50 % is live (major compaction)")
    assert said(found, "It has not done so since its start")
    assert said(found, "400 GB free of 1 TB: 60 % is used")
    assert said(found, "at most 1000 entries a second, whatever their size")
    assert said(found, "It has 3 entry logs.")
    assert said(found, f"curl -X PUT {URL}/api/v1/bookie/gc")
    assert not said(found, "suspended")
    assert found["unknown"] == []


def test_full_disks_that_suspend_compaction_are_told_with_what_helps(line, bookie) -> None:
    bookie.answers[SUSPENDED] = {"isMajorGcSuspended": "true", "isMinorGcSuspended": "true"}
    bookie.answers[STATE]["readOnly"] = True
    bookie.answers[CONFIGURATION] |= {"isThrottleByBytes": "true", "compactionRateByBytes": "5000000"}
    found = explained(line, "b1:3181", "--bookie-http", URL)
    assert said(found, "Its minor and major compaction are suspended")
    assert said(found, '-d \'{"forceMajor":true,"forceMinor":true}\'')
    assert said(found, "raise diskUsageThreshold")
    assert said(found, "at most 5 MB a second")
    assert said(found, "It is read only")


def test_compaction_that_is_off_needs_force_allow_compaction(line, bookie) -> None:
    bookie.answers[CONFIGURATION]["majorCompactionInterval"] = "0"
    found = explained(line, "b1:3181", "--bookie-http", URL)
    assert said(found, "Its major compaction is switched off (majorCompactionInterval is 0).")
    assert said(found, "set forceAllowCompaction=true")
    bookie.answers[CONFIGURATION]["forceAllowCompaction"] = "true"
    found = explained(line, "b1:3181", "--bookie-http", URL)
    assert said(found, "It does not lift a suspension.")
    assert not said(found, "set forceAllowCompaction=true")


def test_end_points_that_do_not_answer_are_named_with_how_to_switch_them_on(line, bookie, world) -> None:
    found = explained(line, "b1:3181")
    assert said(found, "b1:3181 publishes no address. Set httpServerEnabled=true")
    assert said(found, "every 10 minutes by default (15 minutes in Pulsar's own bookkeeper.conf)")
    assert said(found, "`Disk full, suspend`")
    bookie.is_up = False
    found = explained(line, "b1:3181", "--bookie-http", URL)
    assert said(found, "http://b1:8000 does not answer (refused). Set httpServerEnabled=true")
    assert len(bookie.asked) == 1


def test_an_older_bookie_and_wild_answers_cost_only_what_they_would_have_said(line, bookie) -> None:
    del bookie.answers[SUSPENDED]
    bookie.answers[SPACE] = b"<html>"
    bookie.answers[DETAILS] = [{"majorCompacting": 7}]
    found = explained(line, "b1:3181", "--bookie-http", URL)
    assert said(found, f"{SUSPENDED}: {URL}{SUSPENDED} answers 404")
    assert said(found, f"{SPACE}: it answers in a way that we do not know")
    assert said(found, "less than 20 % is live")


def test_the_bookies_registration_says_where_its_http_server_is(line, bookie, world) -> None:
    info = BookieServiceInfoFormat()
    info.endpoints.add(id="bookie", protocol="bookie-rpc", host="b1", port=3181)
    info.endpoints.add(id="httpserver", protocol="http", host="0.0.0.0", port=8000)
    world.metadata.nodes.put(f"{world.metadata.uri.root}/available/b1:3181", info.SerializeToString())
    assert said(explained(line, "b1:3181"), "It has 3 entry logs.")
    info.endpoints[1].host = "b1.example"
    assert decode_http_url("b", info.SerializeToString()) == "http://b1.example:8000"
    assert decode_http_url("b", b"") is None


@pytest.mark.parametrize(
    ("what", "line_of"),
    [
        (("what",), "is no ledger's number and no bookie's id; a topic is written"),
        (("b9:3181",), "there is no bookie b9:3181; there are b1:3181, b2:3181, b3:3181"),
        (("public/default/none",), "memory:1/ledgers: there is no such topic, or nobody has used it yet"),
        (("public/default",), "public/default is a namespace: name one of its topics, public/default/TOPIC;"),
        (("non-persistent://public/default/t",), "only persistent topics"),
        (("x", "--as", "ledger"), "'x' is no ledger's number"),
        (("b1:3181", "--bookie-http", "b1:8000"), "write http://host:8000"),
    ],
)
def test_what_is_unknown_or_ambiguous_gets_one_line(line, what, line_of) -> None:
    assert line_of in line.error("explain", *what)


def test_a_number_that_is_also_a_bookies_id_must_be_told_apart(line, world) -> None:
    world.metadata.cluster.put_cookie("4", b"cookie")
    assert "say --as ledger or --as bookie" in line.error("explain", "4")
    assert explained(line, "4", "--as", "ledger")["what"] == "ledger"
    assert explained(line, "4", "--as", "bookie")["what"] == "bookie"


def test_people_get_sentences(line) -> None:
    text = line.ok("explain", str(TOPIC))
    assert text.splitlines()[0] == f"topic {TOPIC}: why its data are still there"
    assert "  To do: If nobody needs slow any more: `offloader topics cursors remove" in text


def test_the_scan_says_whether_a_ledger_is_an_orphan(line, world) -> None:
    """Whoever scans is passed in; here one that found it passed by."""
    world.create(99, 3, 2, 2, custom=OF_TOPIC)
    asked = []

    class Scanner:
        def close(self):
            """Nothing is open."""

        def scan(self, only=None):
            asked.append(tuple(only))
            seen = seen_ledger(99, 0, world.metadata.read(99).metadata)
            evidence = LedgerEvidence(Fact.PASSED_BY, "zk", "/managed-ledgers/public/default/persistent/t", 3, 100)
            verdict = LedgerVerdict(seen, Standing.CERTAIN, LedgerKind.DATA, (evidence,))
            return LedgerScan(0, 5, {}, (verdict,))

    line.dependencies = replace(line.dependencies, scanner=lambda *_: Scanner())
    found = explained(line, "99")
    assert asked == [(99,)]
    assert said(found, "So it is an orphan, and that is certain.")
    assert said(found, f"{TOPIC} does not list it as data.")
    assert said(found, "`offloader orphans quarantine 99 --yes` marks it")


def test_a_scan_that_fails_costs_only_what_it_would_have_said(line, world) -> None:
    class Scanner:
        def close(self):
            """Nothing is open."""

        def scan(self, only=None):
            raise BookieUnavailableError("away")

    line.dependencies = replace(line.dependencies, scanner=lambda *_: Scanner())
    found = explained(line, "4")
    assert found["unknown"] == ["the scan: away"]
    assert said(found, "it is number 4 of 4")
    assert not said(explained(line, "12345"), "Nothing refers to it.")


def test_our_own_pin_is_told_with_how_far_the_archive_is(line, world) -> None:
    line.archive = archive = Archive(line.archive.store, TOPIC)
    line.root()
    archive.claim(1, 0)
    archive.add([Stored(1, number, b"x") for number in range(10)])
    found = explained(line, str(TOPIC))
    assert said(found, "Our own subscription keeps what follows 1:9: the archive has everything up to there.")
    world.metadata.cluster.put_ledger(1, replace(closed(world), last_entry=9))
    assert said(explained(line, "1"), "The archive has all of it.")
    world.metadata.cluster.put_ledger(2, replace(closed(world), last_entry=9))
    assert said(explained(line, "2"), "The archive does not have all of it yet.")


OF_TOPIC = {
    "application": b"pulsar",
    "component": b"managed-ledger",
    "pulsar/managed-ledger": b"public/default/persistent/t",
}


def closed(world):
    return replace(world.create(98, 3, 3, 2, custom=OF_TOPIC), state=LedgerState.CLOSED, length=100)


def test_what_pulsars_own_offloader_has_waits_for_its_deletion_lag(line, world) -> None:
    info = ManagedLedgerInfo()
    for ledger, deleted in ((1, True), (2, False), (3, False)):
        one = info.ledgerInfo.add(ledgerId=ledger, entries=10, size=1_000_000, timestamp=1)
        one.offloadContext.complete = True
        one.offloadContext.bookkeeperDeleted = deleted
    info.ledgerInfo.add(ledgerId=4)
    world.metadata.nodes.put(world.metadata.topic_path(TOPIC), info.SerializeToString())
    line.cluster.configuration["managedLedgerOffloadDeletionLagMs"] = "14400000"
    found = explained(line, str(TOPIC))
    assert said(found, "Pulsar's own offloader has 1 ledger in its bucket only")
    assert said(found, "has copied 2 ledgers of 2 MB, and BookKeeper keeps them until the deletion lag has passed")
    assert said(found, "4 hours after the copy")


@pytest.mark.parametrize(
    ("configuration", "sentence"),
    [
        ({"defaultRetentionTimeInMinutes": "0", "defaultRetentionSizeInMB": "0"}, "(the broker's) keeps nothing"),
        ({"defaultRetentionTimeInMinutes": "-1", "defaultRetentionSizeInMB": "100"}, "for any time, up to 100 MiB"),
        ({"defaultRetentionTimeInMinutes": "x"}, None),
    ],
)
def test_retention_is_the_brokers_where_nobody_else_sets_it(line, configuration, sentence) -> None:
    del line.cluster.namespace("public/default").policies["retention_policies"]
    line.cluster.configuration.update(configuration)
    found = explained(line, str(TOPIC))
    assert said(found, sentence) if sentence else not said(found, "Retention (")


def test_a_ledger_that_is_gone_and_still_named_blocks_readers_and_is_told_so(line, world) -> None:
    world.metadata.cluster.delete_ledger(4)
    found = explained(line, "4")
    assert said(found, "Ledger 4 is named by /managed-ledgers/public/default/persistent/t.")
    assert said(found, "`offloader orphans undo 4`")
    assert not said(found, "Nothing refers to it.")


def test_a_bookie_that_is_down_is_told_as_such(line, world) -> None:
    world.metadata.cluster.put_cookie("b4:3181", b"cookie")
    assert said(
        explained(line, "b4:3181"), "b4:3181 is not registered in ZooKeeper: while it is down it frees nothing."
    )
    assert not said(explained(line, "b1:3181"), "is not registered")


def test_each_partition_of_a_name_is_explained(line, world, brokers) -> None:
    for number in range(2):
        part = TopicName.parse(f"public/default/p-partition-{number}")
        brokers.topics.add(part)
        world.topic((10 + number, 10, 1_000_000), (20 + number, 0, 0), topic=part)
        world.create(20 + number, 3, 3, 2)
    names = [one["name"] for one in line.json_lines("explain", "public/default/p")]
    assert names == [f"persistent://public/default/p-partition-{number}" for number in range(2)]


def test_brokers_are_asked_once_for_their_statistics_however_many_partitions_there_are(
    line, world, brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        part = TopicName.parse(f"public/default/p-partition-{number}")
        world.topic((10 + number, 10, 1_000_000), (20 + number, 0, 0), topic=part)
        world.create(20 + number, 3, 3, 2)
    asked: list[str] = []

    def uses() -> dict[str, object]:
        asked.append("uses")
        return {}

    monkeypatch.setattr(brokers, "uses", uses)
    assert len(line.json_lines("explain", "public/default/p")) == 5
    assert asked == ["uses"]
    line.json_lines("explain", "public/default/p", "--offline")
    assert asked == ["uses"]


def test_a_topic_that_cannot_be_visited_is_explained_by_the_same_reason_as_a_plan_names(line, world, brokers) -> None:
    brokers.partitioned.add(str(TOPIC))
    found = explained(line, str(TOPIC))
    assert said(found, "A partitioned topic has the same name.")
    assert said(found, "have a client connect to it, or delete one of both")


def test_every_reason_of_a_plan_is_a_reason_of_the_explanation(line, world) -> None:
    """With what to do for each that does not pass by itself."""
    planned = plan_of(line)
    found = explained(line, str(TOPIC))
    assert planned["why"]
    assert {one[1:] for one in planned["why"]} <= {one[1:-1] for one in found["because"]}
    assert set(planned["do"]) <= set(found["do"])


def plan_of(line):
    """What `trim-unloaded plan` says of the topic."""
    visits = line.dependencies.visits(None)
    visits.version = lambda: "4.0.7"
    visits.loaded_topics = dict
    visits.runtime_configuration = line.cluster.admin.runtime_configuration
    line.cluster.configuration.update({"defaultRetentionTimeInMinutes": "0", "defaultRetentionSizeInMB": "0"})
    result = line.run("topics", "trim-unloaded", "plan", "public/default", "--output", "json")
    assert result.exit_code in (0, 2), result.output
    return json.loads(result.stdout.splitlines()[0])


def test_a_topic_that_only_the_archive_has_is_told_as_such(line) -> None:
    gone = TopicName.parse("public/default/gone")
    line.archive = archive = Archive(line.archive.store, gone)
    line.root()
    archive.claim(1, 0)
    archive.add([Stored(1, number, b"x") for number in range(10)])
    told = line.error("explain", str(gone))
    assert told.startswith(f"{gone} has no managed ledger in ")
    assert told.endswith(f"; the archive has it up to 1:9: `offloader topics segments {gone}`")


def test_a_name_that_a_shell_would_take_apart_is_quoted_in_what_to_do(line, world) -> None:
    world.cursor("old job", CursorState((1, 2)))
    assert said(explained(line, str(TOPIC)), f"`offloader topics cursors remove {TOPIC} 'old job'`")
