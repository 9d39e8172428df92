"""What brokers can read of topics, and what is in the way: shown, and let go of on request."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offloader._proto.managed_ledger_pb2 import ManagedLedgerInfo
from offloader.bridge.core.rounds import BridgedLedger, BridgeHead, BridgeState, BridgeVerdict, UnbridgedLedger
from offloader.bridge.log import BridgeLog
from offloader.metadata import requests
from offloader.metadata.journal import Journal
from offloader.metadata.layout import bridge_folder
from offloader.metadata.requests import RequestKind, RequestOutcome
from offloader.metadata.state import TopicState
from offloader.model import Position
from tests.archive.support import APPLICATION, TOPIC, stream
from tests.fakes.bookkeeper import SimulatedCluster

CONFIG = """
application: app
pulsar: {serviceUrl: "pulsar://localhost:6650", adminUrl: "http://localhost:8080",
         metadataServiceUri: "zk://localhost:2181/ledgers"}
storage: {root: "s3://unused"}
spark: {trigger: 1s}
policies: {brokerReadable: true}
namespaces:
  public/default: {enabled: true}
"""


@pytest.fixture
def bridged(line):
    """A topic with three closed ledgers, of which the first is bridged."""
    line.config = CONFIG
    line.cluster.create(TOPIC)
    line.cluster.add_subscription(TOPIC, "a-client")
    line.ledgers = []
    for _ in range(3):
        places = [line.cluster.produce(TOPIC, b"x" * 10) for _ in range(5)]
        line.ledgers.append(places[0][0])
        line.cluster.roll(TOPIC)
    line.archive.claim(line.ledgers[0], 0)
    for ledger in line.ledgers:
        line.archive.add(stream(ledger, 0, 4))
    line.log = BridgeLog(line.archive.store, line.dependencies.new_token)
    line.head = record(line, BridgeHead(0, None), line.ledgers[0])
    line.info = ManagedLedgerInfo()
    line.info.ledgerInfo.add(ledgerId=line.ledgers[0], entries=5, size=50)
    line.recorded = line.info.SerializeToString()
    bookies, line.metadata = SimulatedCluster(1, 3, prompt=True).client()
    line.metadata.nodes.create(line.metadata.topic_path(TOPIC), line.recorded, parents=True)
    line.dependencies = replace(line.dependencies, bookkeeper=lambda _config, _timeout: (line.metadata, bookies))
    return line


def record(line, head: BridgeHead, ledger: int) -> BridgeHead:
    ledgers = (BridgedLedger(ledger, 4, 50, f"00000000-1111-2222-3333-{ledger:012}", 90, 1),)
    state = head.state or BridgeState(TOPIC, 0)
    head = line.log.append(head, state.began(ledgers, "s3://b", "app", 1))
    head = line.log.append(head, head.state.built(ledgers))
    return line.log.append(head, head.state.proven(1_700_000_000_000))


def block(line) -> None:
    gaps = UnbridgedLedger(line.ledgers[1], 4, BridgeVerdict.GAPS, "2 entries are nowhere", at=7)
    line.head = line.log.append(line.head, line.head.state.blocked_by(gaps))


def test_status_tells_what_is_bridged_and_what_is_behind(bridged) -> None:
    (found,) = bridged.json("bridge", "status")
    assert found == {
        "topic": str(TOPIC), "state": "behind", "ledgers": 1, "bytes": 90,
        "up_to": str(Position(0, bridged.ledgers[0], 4)), "behind": 2, "behind_bytes": 100, "archive_only": None,
        "rounds": 1, "unloaded": "2023-11-14T22:13:20.000Z", "record_bytes": None, "why": None,
    }  # fmt: skip
    for ledger in bridged.ledgers[1:]:
        bridged.head = record(bridged, bridged.head, ledger)
    assert bridged.json("bridge", "status", "orders")[0]["state"] == "bridged"


def test_a_ledger_in_the_way_is_told_with_its_reason_and_exit_code_2(bridged) -> None:
    block(bridged)
    result = bridged.run("bridge", "status")
    assert result.exit_code == 2
    assert f"ledger {bridged.ledgers[1]} (gaps): 2 entries are nowhere" in result.stdout


def test_why_a_round_was_withdrawn_is_told_and_what_is_off_the_list_blocks_nothing(bridged) -> None:
    ledgers = (BridgedLedger(bridged.ledgers[1], 4, 50, "00000000-1111-2222-3333-000000000000", 90, 1),)
    state = bridged.head.state.began(ledgers, "s3://b", "app", 1).built(ledgers).withdrawing("no entry arrives")
    bridged.head = bridged.log.append(bridged.head, state)
    assert bridged.json("bridge", "status")[0]["why"] == "no entry arrives"
    bridged.head = bridged.log.append(bridged.head, state.withdrawn(2))
    assert bridged.json("bridge", "status")[0]["why"] == "withdrawn 1 times: no entry arrives"
    block(bridged)
    bridged.cluster.lose(TOPIC, bridged.ledgers[1])
    assert bridged.json("bridge", "status")[0]["state"] == "behind"


def test_the_size_of_a_topics_record_is_told_and_what_makes_it_smaller(bridged) -> None:
    assert bridged.json("bridge", "status", "orders")[0]["record_bytes"] == len(bridged.recorded)
    limit = CONFIG + "bridge: {recordSizeInBytes: 64K}\n"
    bridged.config = limit
    assert bridged.json("bridge", "status", "orders")[0]["why"] is None
    for ledger in range(1_000_000, 1_002_000):
        bridged.info.ledgerInfo.add(ledgerId=ledger, entries=50_000, size=900_000_000, timestamp=1_760_000_000_000)
    path = bridged.metadata.topic_path(TOPIC)
    bridged.metadata.nodes.set(path, bridged.info.SerializeToString(), 0)
    assert "managedLedgerInfoCompressionType=ZSTD" in bridged.json("bridge", "status", "orders")[0]["why"]
    assert bridged.json("bridge", "status")[0]["record_bytes"] is None, "only of a topic that is named"


def test_what_only_the_archive_has_is_counted_for_a_topic_that_is_named(bridged) -> None:
    bridged.cluster.lose(TOPIC, bridged.ledgers[0])  # bridged, and deleted by Pulsar
    bridged.cluster.lose(TOPIC, bridged.ledgers[1])
    (found,) = bridged.json("bridge", "status", "orders")
    assert (found["archive_only"], found["behind"]) == (1, 1)


def test_of_a_long_log_only_the_rounds_are_read_that_can_be_of_what_is_off_the_list(bridged) -> None:
    bridged.cluster.lose(TOPIC, bridged.ledgers[1])  # let go of without having been bridged
    bridged.head = record(bridged, bridged.head, bridged.ledgers[2])
    (first,) = [key for key, _ in bridged.archive.store.list() if key.endswith(f"_bridge/{2:020d}")]
    bridged.archive.store.put(first, b"damaged")  # the round of the first ledger, which is listed
    for ledger in range(bridged.ledgers[2] + 1, bridged.ledgers[2] + 4):
        bridged.head = record(bridged, bridged.head, ledger)
    result = bridged.run("bridge", "status", "orders")
    assert result.exit_code == 1, "it has to know whether that one was bridged"
    bridged.cluster.lose(TOPIC, bridged.ledgers[2])
    bridged.head = record(bridged, bridged.head, bridged.ledgers[1])
    assert bridged.json("bridge", "status", "orders")[0]["archive_only"] == 0, "both are found before"


def test_topics_that_brokers_are_not_to_read_are_left_out_unless_named(bridged) -> None:
    bridged.config = CONFIG.replace("brokerReadable: true", "brokerReadable: false")
    assert bridged.json("bridge", "status")[0]["state"] == "off"
    bridged.archive.store.delete([key for key, _ in bridged.archive.store.list() if "/_bridge/" in key])
    assert bridged.ok("bridge", "status") == "No topic is brokerReadable, and none ever was\n"
    assert bridged.json("bridge", "status", "orders")[0]["state"] == "off"
    assert "nothing of" in bridged.error("bridge", "status", "nobody")
    with Journal.open(bridged.archive.store, "app", bridged.archive.token) as journal:
        journal.record([TopicState(TOPIC, handed_over=True)])
    assert bridged.json("bridge", "status")[0]["behind"] == 3, "a topic that was handed over is to be read by brokers"
    assert bridged.json("topics", "list")[0]["bridged"] == "nothing yet"


def test_a_topic_that_cannot_be_looked_at_hides_no_other(bridged) -> None:
    other = replace(TOPIC, name="other")
    bridged.archive.store.put(f"{bridge_folder(other)}{0:020d}", b"x")
    result = bridged.run("bridge", "status")
    assert result.exit_code == 1
    assert str(TOPIC) in result.stdout
    assert result.stderr.startswith(f"error: {other}")
    assert bridged.run("bridge", "status", "other").stdout == "No topic could be looked at\n"


def test_the_list_of_topics_tells_up_to_where(bridged) -> None:
    (found,) = bridged.root().json("topics", "list")
    assert found["bridged"] == str(Position(0, bridged.ledgers[0], 4))
    block(bridged)
    assert bridged.json("topics", "list")[0]["bridged"].endswith(", blocked")


def test_letting_go_says_what_it_would_do_and_asks_with_yes(bridged) -> None:
    ledger = str(bridged.ledgers[1])
    assert "nothing is" in bridged.error("bridge", "let-go", "orders", ledger, "--yes")
    block(bridged)
    assert f"ledger {ledger} is" in bridged.error("bridge", "let-go", "orders", str(bridged.ledgers[2]), "--yes")
    assert "say --yes" in bridged.ok("bridge", "let-go", "orders", ledger)
    served = []

    def work() -> None:
        for request_id, request in requests.pending(bridged.archive.store, APPLICATION, 1):
            served.append(request)
            requests.mark_seen(bridged.archive.store, APPLICATION, request_id)
            requests.mark_done(bridged.archive.store, APPLICATION, request_id, RequestOutcome(True, "gone", 2))

    bridged.clock.at.append((0.1, work))
    assert bridged.ok("bridge", "let-go", "orders", ledger, "--yes", "--wait-complete").endswith("gone\n")
    assert [(each.kind, each.position) for each in served] == [
        (RequestKind.BRIDGE_LET_GO, Position(0, bridged.ledgers[1], 4))
    ]


def test_a_topic_that_pulsar_has_no_more_is_gone_and_no_error(bridged) -> None:
    bridged.cluster.delete(TOPIC)
    (found,) = bridged.json("bridge", "status")
    assert (found["state"], found["ledgers"]) == ("gone", 0)
    assert bridged.run("bridge", "status").exit_code == 0
