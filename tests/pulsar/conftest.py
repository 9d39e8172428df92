"""A fake broker, and settings that reach it."""

from __future__ import annotations

import dataclasses

import pytest

from offloader.pulsar.settings import PulsarSettings
from tests.pulsar.fake_broker import FakeBroker


@pytest.fixture
def broker():
    broker = FakeBroker()
    yield broker
    broker.close()


@pytest.fixture
def settings(broker):
    """Time-outs against hanging: nothing is expected to be slow, but a loaded machine is."""
    return PulsarSettings(service_url=broker.url, connect_timeout=60, operation_timeout=60, keep_alive=30)


@pytest.fixture
def impatient(settings):
    """For what does not answer."""
    return dataclasses.replace(settings, connect_timeout=0.3, operation_timeout=0.3)
