"""A slice is read from the source that its segment was assigned with, or answers why it cannot be."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from offloader.bookkeeper.connect import BookKeeperSettings
from offloader.config import Config
from offloader.errors import ConfigError
from offloader.model import FailureKind, Source
from offloader.pulsar.settings import PulsarSettings
from offloader.pulsar.source import BrokerSource
from offloader.streaming import settings
from offloader.streaming.reading import Sources
from offloader.streaming.worker import refused
from tests.config.texts import BASE
from tests.streaming.test_worker import work


def test_the_broker_source_needs_no_metadata_service() -> None:
    sources = Sources(PulsarSettings(), None)
    found = sources.of(work("u"))
    assert isinstance(found, BrokerSource)
    assert sources.of(work("v")) is found
    found.close()


@pytest.mark.parametrize("source", [Source.FILLED, Source.BOOKKEEPER])
def test_a_segment_whose_metadata_service_is_not_set_any_more_is_refused_in_one_line(source: Source) -> None:
    slice_ = replace(work("u"), source=source)
    with pytest.raises(ConfigError, match=f"segment {slice_.uuid} was begun with source {source}") as error:
        Sources(PulsarSettings(), None).of(slice_)
    receipt = refused(slice_, error.value)
    assert (receipt.failure_kind, receipt.parts, receipt.uuid) == (FailureKind.FATAL, (), slice_.uuid)
    assert receipt.failure_reason.startswith("ConfigError: pulsar.metadataServiceUri: is not set any more")


def test_workers_are_told_how_to_reach_bookies() -> None:
    assert settings.bookkeeper(Config.parse(BASE, {})) is None
    text = BASE.replace(
        '8080"}',
        '8080", metadataServiceUri: "zk:h1,h2", bookies: {tls: true, tlsTrustCertsFilePath: /ca.pem, operationTimeout: 2s}}',
    )
    found = settings.bookkeeper(Config.parse(text, {}))
    assert isinstance(found, BookKeeperSettings)
    assert (found.metadata_uri, found.metadata_timeout) == ("zk:h1,h2", 2.0)
    assert (found.bookies.tls, found.bookies.tls_trust_certs_file, found.bookies.request_timeout) == (True, "/ca.pem", 2.0)
    assert pickle.loads(pickle.dumps(found)) == found
