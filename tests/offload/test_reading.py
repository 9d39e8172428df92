"""A slice is read from the source that its segment was assigned with, or answers why it cannot be."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest

from offloader.bookkeeper.connect import BookKeeperSettings
from offloader.config import Config
from offloader.config.levels import ENTRY_OVERHEAD
from offloader.errors import ConfigError, MetadataUnavailableError
from offloader.model import MIB, FailureKind, Slice, Source
from offloader.offload.worker import entry_sources
from offloader.offload.worker.entry_sources import EntrySources
from offloader.offload.worker.slice_worker import refused
from offloader.pulsar.broker_source import BrokerSource
from offloader.pulsar.settings import PulsarSettings
from offloader.runtime.connections import bookkeeper_settings
from tests.config.texts import BASE
from tests.offload.test_worker import work

REST = 5.0


def test_the_broker_source_needs_no_metadata_service() -> None:
    sources = EntrySources(PulsarSettings(), None)
    found = sources.of(work("u"))
    assert isinstance(found, BrokerSource)
    assert sources.of(work("v")) is found
    found.close()


@pytest.mark.parametrize("source", [Source.BROKER_WITH_BOOKIES, Source.BOOKKEEPER])
def test_a_segment_whose_metadata_service_is_not_set_any_more_is_refused_in_one_line(source: Source) -> None:
    slice_ = replace(work("u"), source=source)
    with pytest.raises(ConfigError, match=f"segment {slice_.id.uuid} was begun with source {source}") as error:
        EntrySources(PulsarSettings(), None).of(slice_)
    receipt = refused(slice_, error.value)
    assert (receipt.failure_kind, receipt.parts, receipt.id.uuid) == (FailureKind.FATAL, (), slice_.id.uuid)
    assert receipt.failure_reason.startswith("ConfigError: pulsar.metadataServiceUri: is not set any more")


class Metadata:
    """A metadata service that cannot be reached for a while; `release` lets those that connect hear so."""

    def __init__(self) -> None:
        self.connecting = threading.Event()
        self.released = threading.Event()
        self.attempts = 0
        self.there = False

    def connect(self, settings: BookKeeperSettings) -> object:
        self.attempts += 1
        self.connecting.set()
        assert self.released.wait(10)
        if not self.there:
            raise MetadataUnavailableError("ZooKeeper did not answer within 10 s")
        return self


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> Metadata:
    metadata = Metadata()
    monkeypatch.setattr(entry_sources, "connect", metadata.connect)
    return metadata


@pytest.fixture
def clock() -> SimpleNamespace:
    return SimpleNamespace(now=0.0)


@pytest.fixture
def sources(clock: SimpleNamespace) -> EntrySources:
    return EntrySources(PulsarSettings(), BookKeeperSettings("zk:h1"), lambda: clock.now)


def of(source: Source) -> Slice:
    return replace(work("u"), source=source)


@pytest.mark.parametrize("source", [Source.BOOKKEEPER, Source.BROKER_WITH_BOOKIES])
def test_a_slice_from_the_broker_does_not_wait_for_another_ones_metadata_service(
    metadata: Metadata, sources: EntrySources, source: Source
) -> None:
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(sources.of, of(source))
        assert metadata.connecting.wait(10)
        assert isinstance(sources.of(of(Source.BROKER)), BrokerSource)  # made while the other one connects
        metadata.released.set()
        with pytest.raises(MetadataUnavailableError):
            slow.result(10)


def test_after_a_failed_connection_it_is_tried_again_some_seconds_later(
    metadata: Metadata, sources: EntrySources, clock: SimpleNamespace
) -> None:
    metadata.released.set()
    for _ in range(4):
        with pytest.raises(MetadataUnavailableError, match="did not answer within 10 s"):
            sources.of(of(Source.BOOKKEEPER))
    assert metadata.attempts == 1
    clock.now = REST
    metadata.there = True
    opened: list[object] = [sources.of(of(Source.BOOKKEEPER)) for _ in range(2)]
    assert all(source is metadata for source in opened)
    assert metadata.attempts == 2


def test_workers_are_told_how_to_reach_bookies() -> None:
    assert bookkeeper_settings(Config.parse(BASE, {})) is None
    text = BASE.replace(
        '8080"}',
        (
            '8080", metadataServiceUri: "zk:h1,h2", bookies: {tls: true, tlsTrustCertsFilePath: /ca.pem, '
            "operationTimeout: 2s}}"
        ),
    )
    found = bookkeeper_settings(Config.parse(text, {}))
    assert isinstance(found, BookKeeperSettings)
    assert (found.metadata_uri, found.metadata_timeout) == ("zk:h1,h2", 2.0)
    assert (found.bookies.tls, found.bookies.tls_trust_certs_file, found.bookies.request_timeout) == (
        True,
        "/ca.pem",
        2.0,
    )
    assert pickle.loads(pickle.dumps(found)) == found


def test_bookies_may_send_entries_as_large_as_any_topic_may_have() -> None:
    text = BASE.replace('8080"}', '8080", metadataServiceUri: "zk:h1"}')
    found = bookkeeper_settings(Config.parse(text, {}))
    assert found is not None
    assert found.bookies.max_entry == 16 * MIB
    topic = (
        'namespaces: {public/default: {topics: {"persistent://public/default/large": {policies: '
        "{maxEntrySizeInBytes: 64M}}}}}"
    )
    found = bookkeeper_settings(Config.parse(f"{text}\n{topic}", {}))
    assert found is not None
    assert found.bookies.max_entry == 64 * MIB + ENTRY_OVERHEAD
