"""`offloader verify --bridged`."""

from __future__ import annotations

import json
from dataclasses import replace
from uuid import UUID

import pytest

from offloader._proto.managed_ledger_pb2 import ManagedLedgerInfo
from offloader.bookkeeper.managed_ledgers import managed_ledger_name
from offloader.bridge.core.rewrite import OffloadContextFacts, with_contexts
from offloader.errors import BrokerUnavailableError
from offloader.metadata.stock_keys import data_key
from offloader.storage.memory import MemoryStore
from offloader.storage.settings import StoreSettings
from offloader.testing.bookkeeper import SimulatedCluster
from tests.archive.bridges import Bridging, drawn, hand_over
from tests.archive.support import TOPIC, Archive
from tests.archive.test_bridged import archived, whole

from .support import Line


class Brokers:
    """What the admin REST says of the topic."""

    def __init__(self) -> None:
        self.offloaded = frozenset({0})

    def topic_info(self, _: object) -> Brokers:
        return self

    def close(self) -> None:
        pass


@pytest.fixture
def bridged(line: Line) -> tuple[Line, Bridging, Brokers]:
    archive: Archive = archived()
    line.archive = archive
    bridging, brokers, pulsar = Bridging(archive), Brokers(), SimulatedCluster(1, 3, prompt=True)
    bridging.bridge({0: whole(0)})
    plain = ManagedLedgerInfo()
    plain.ledgerInfo.add(ledgerId=0, entries=20, size=sum(map(len, whole(0))))
    plain.ledgerInfo.add(ledgerId=1, entries=0)
    bucket = bridging.bucket.removeprefix("memory://")
    facts = OffloadContextFacts(drawn(1), "S3", (("bucket", bucket),), 1)
    record = with_contexts(plain.SerializeToString(), {0: facts})
    bookies, metadata = pulsar.client()
    metadata.nodes.create(metadata.topic_path(TOPIC), record, parents=True)

    def store(settings: StoreSettings) -> MemoryStore:
        return bridging.brokers if settings.root == bridging.bucket else archive.store  # type: ignore[return-value]

    line.dependencies = replace(
        line.dependencies,
        store=store,
        admin=lambda _: brokers,  # type: ignore[arg-type,return-value]
        bookkeeper=lambda _config, _timeout: (metadata, bookies),
    )
    return line, bridging, brokers


def test_what_agrees(bridged: tuple[Line, Bridging, Brokers]):
    line, _, _ = bridged
    assert "1 topics, 1 bridged ledgers" in line.ok("verify", "--bridged")
    told = line.json("verify", "--bridged", str(TOPIC))
    assert (told["topics"], told["ledgers"], told["offList"], told["underWay"], told["findings"]) == (1, 1, 0, 0, [])
    assert UUID(drawn(1))
    assert managed_ledger_name(TOPIC).endswith("orders")


def test_what_does_not(bridged: tuple[Line, Bridging, Brokers]):
    line, _, brokers = bridged
    brokers.offloaded = frozenset()
    result = line.run("verify", "--bridged", "--output", "json")
    assert result.exit_code == 2
    assert [each["kind"] for each in json.loads(result.stdout)["findings"]] == ["stale-broker"]


@pytest.mark.parametrize(
    "also", [["--abort-uploads"], ["--ledgers", "memory://stock"], ["--ask-pulsar"], ["--cluster", "c"]]
)
def test_it_is_a_check_of_its_own(bridged: tuple[Line, Bridging, Brokers], also: list[str]):
    line, _, _ = bridged
    result = line.run("verify", "--bridged", *also)
    assert (result.exit_code, "takes neither --abort-uploads nor --ledgers" in result.stderr) == (1, True)


def test_what_is_off_the_list_are_ledgers_not_findings(bridged: tuple[Line, Bridging, Brokers]):
    line, _, brokers = bridged
    metadata, _ = line.dependencies.bookkeeper(None, 0)  # type: ignore[arg-type]
    metadata.nodes.set(metadata.topic_path(TOPIC), ManagedLedgerInfo().SerializeToString(), 0)
    brokers.offloaded = frozenset()
    assert "1 bridged ledgers (1 of them off Pulsar's list)," in line.run("verify", "--bridged").stdout


def test_a_name_that_matches_nothing_is_no_sound_topic(bridged: tuple[Line, Bridging, Brokers]):
    line, _, _ = bridged
    result = line.run("verify", "--bridged", "nosuch")
    assert (result.exit_code, "nosuch is not in the archive" in result.stderr) == (1, True)


def test_a_topic_that_cannot_be_looked_at_is_named_and_the_report_is_shown(
    bridged: tuple[Line, Bridging, Brokers], monkeypatch: pytest.MonkeyPatch
):
    line, _, brokers = bridged

    def down(_: object) -> Brokers:
        raise BrokerUnavailableError("no answer")

    monkeypatch.setattr(brokers, "topic_info", down)
    result = line.run("verify", "--bridged")
    assert (result.exit_code, "0 topics" in result.stdout) == (1, True)
    assert f"{TOPIC} was not checked: no answer" in result.stderr


@pytest.mark.parametrize("folder", ["_bridge", "_catalog"])
def test_a_lost_log_or_catalog_leaves_no_topic_out(bridged: tuple[Line, Bridging, Brokers], folder: str):
    line, bridging, _ = bridged
    hand_over(line.archive, 2)
    for key, _ in list(line.archive.store.list()):
        if f"/{folder}/" in key:
            line.archive.store.delete([key])
    bridging.brokers.delete([data_key(drawn(1), 0)])
    result = line.run("verify", "--bridged", "--output", "json")
    assert result.exit_code == 2
    kinds = {each["kind"] for each in json.loads(result.stdout)["findings"]}
    assert kinds == {"missing-object"} | ({"damaged-record"} if folder == "_bridge" else set())


def test_verify_finds_what_is_handed_over_to_nobody_knows_where(line: Line):
    line.archive = archived()
    hand_over(line.archive, 2)
    result = line.run("verify")
    assert (result.exit_code, "does not say where brokers have ledger 0" in result.stdout) == (2, True)


def test_verify_tells_what_is_read_from_brokers_copies(bridged: tuple[Line, Bridging, Brokers]):
    line, _, _ = bridged
    hand_over(line.archive, 2)
    assert "2 segments are deleted, as recorded (2 are read from brokers' copies" in line.ok("verify")
    assert line.json("verify")["handedOver"] == 2


def test_topics_say_what_is_handed_over_and_where_its_entries_are(bridged: tuple[Line, Bridging, Brokers]):
    line, bridging, _ = bridged
    hand_over(line.archive, 2)
    shown = [row["status"] for row in line.json("topics", "segments", "orders")]
    assert (shown[0], "Deleted" in shown) == ("HandedOver", False)
    shown = line.json("topics", "peek", "orders", "0:0")
    assert shown["segment"]["handedOver"]["policy"] == "bridge.keepSegments: false", "this segment's object is gone"
    assert (shown["object"]["store"], shown["object"]["key"]) == (bridging.bucket, data_key(drawn(1), 0))
