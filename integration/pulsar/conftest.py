"""The product's clients and a raw producer on the shared Pulsar."""

from __future__ import annotations

import itertools

import pytest

from integration.pulsar.transactions import Transactions
from offloader.model import TopicName
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.broker_source import BrokerSource
from offloader.pulsar.pin import BrokerPins
from offloader.pulsar.settings import PulsarSettings


@pytest.fixture
def settings(pulsar):
    return PulsarSettings(service_url=pulsar.service_url, admin_url=pulsar.admin_url, application="tests")


@pytest.fixture
def admin(settings):
    admin = AdminClient(settings)
    yield admin
    admin.close()


@pytest.fixture
def source(settings):
    source = BrokerSource(settings)
    yield source
    source.close()


@pytest.fixture
def pins(settings):
    pins = BrokerPins(settings)
    yield pins
    pins.close()


@pytest.fixture
def transactions(settings):
    with Transactions(settings.service_url) as transactions:
        yield transactions


@pytest.fixture
def new_topic(pulsar, namespace):
    """Makes empty topics."""
    numbers = itertools.count()

    def new_topic():
        topic = TopicName.parse(f"{namespace}/t{next(numbers)}")
        pulsar.admin("PUT", topic.rest_path)
        return topic

    return new_topic


@pytest.fixture
def topic(new_topic):
    return new_topic()
