"""`offloader verify --bridged`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import cast
from uuid import UUID

import pytest

from offloader._proto.managed_ledger_pb2 import ManagedLedgerInfo
from offloader.bridge.core.record import with_contexts
from offloader.errors import BrokerUnavailableError
from offloader.ports.object_store import ObjectStore
from offloader.runtime.connections import ClosableAdmin
from offloader.state.managed_ledger import OffloadContext
from offloader.state.names import managed_ledger_name
from offloader.storage.settings import StoreSettings
from tests.archive.bridges import Bridging, drawn
from tests.archive.support import TOPIC, Archive
from tests.archive.test_bridged import archived, whole
from tests.cli.support import Line
from tests.fakes.bookkeeper import SimulatedCluster


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
    facts = OffloadContext(drawn(1), True, False, (("bucket", bucket),), "S3", 1)
    record = with_contexts(plain.SerializeToString(), {0: facts})
    bookies, metadata = pulsar.client()
    metadata.nodes.create(metadata.topic_path(TOPIC), record, parents=True)

    def store(settings: StoreSettings) -> ObjectStore:
        return bridging.brokers if settings.root == bridging.bucket else archive.store

    line.dependencies = replace(
        line.dependencies,
        store=store,
        bucket=store,
        admin=lambda _: cast("ClosableAdmin", brokers),
        bookkeeper=lambda _config, _timeout: (metadata, bookies),
    )
    return line, bridging, brokers


def test_what_agrees(bridged: tuple[Line, Bridging, Brokers]) -> None:
    line, _, _ = bridged
    assert "1 topics, 1 bridged ledgers" in line.ok("verify", "--bridged")
    told = line.json("verify", "--bridged", str(TOPIC))
    assert (told["topics"], told["ledgers"], told["offList"], told["underWay"], told["findings"]) == (1, 1, 0, 0, [])
    assert UUID(drawn(1))
    assert managed_ledger_name(TOPIC).endswith("orders")


def test_what_does_not(bridged: tuple[Line, Bridging, Brokers]) -> None:
    line, _, brokers = bridged
    brokers.offloaded = frozenset()
    result = line.run("verify", "--bridged", "--output", "json")
    assert result.exit_code == 2
    assert [each["kind"] for each in json.loads(result.stdout)["findings"]] == ["stale-broker"]


@pytest.mark.parametrize(
    "also", [["--abort-uploads"], ["--ledgers", "memory://stock"], ["--ask-pulsar"], ["--cluster", "c"]]
)
def test_it_is_a_check_of_its_own(bridged: tuple[Line, Bridging, Brokers], also: list[str]) -> None:
    line, _, _ = bridged
    result = line.run("verify", "--bridged", *also)
    assert (result.exit_code, "takes neither --abort-uploads nor --ledgers" in result.stderr) == (1, True)


def test_what_is_off_the_list_are_ledgers_not_findings(bridged: tuple[Line, Bridging, Brokers]) -> None:
    line, _, brokers = bridged
    metadata, _ = line.dependencies.bookkeeper(None, 0)
    metadata.nodes.set(metadata.topic_path(TOPIC), ManagedLedgerInfo().SerializeToString(), 0)
    brokers.offloaded = frozenset()
    assert "1 bridged ledgers (1 of them off Pulsar's list)," in line.run("verify", "--bridged").stdout


def test_a_name_that_matches_nothing_is_no_sound_topic(bridged: tuple[Line, Bridging, Brokers]) -> None:
    line, _, _ = bridged
    result = line.run("verify", "--bridged", "nosuch")
    assert (result.exit_code, "nosuch is not in the archive" in result.stderr) == (1, True)


def test_a_topic_that_cannot_be_looked_at_is_named_and_the_report_is_shown(
    bridged: tuple[Line, Bridging, Brokers], monkeypatch: pytest.MonkeyPatch
) -> None:
    line, _, brokers = bridged

    def down(_: object) -> Brokers:
        raise BrokerUnavailableError("no answer")

    monkeypatch.setattr(brokers, "topic_info", down)
    result = line.run("verify", "--bridged")
    assert (result.exit_code, "0 topics" in result.stdout) == (1, True)
    assert f"{TOPIC} was not checked: no answer" in result.stderr
