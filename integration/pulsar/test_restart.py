"""A broker that stops and comes back, and one that dies. It has a Pulsar of its own."""

from contextlib import ExitStack, closing, contextmanager

import pytest

from integration.conftest import PULSAR_SETTINGS
from integration.patient import PatientPulsar
from integration.pulsar.transactions import Transactions
from integration.pulsar.waiting import positions, read, until
from offloader.errors import BrokerUnavailableError, OutcomeUnknownError, RetryableError
from offloader.model import MIB, Position, TopicName
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.broker_source import BrokerSource
from offloader.pulsar.pin import BrokerPins
from offloader.pulsar.settings import PulsarSettings

pytestmark = pytest.mark.pulsar


@contextmanager
def clients(settings):
    """Admin, pins, source; closed whatever happens."""
    with ExitStack() as stack:
        yield tuple(stack.enter_context(closing(kind(settings))) for kind in (AdminClient, BrokerPins, BrokerSource))


@pytest.fixture
def own(tmp_path):
    # Without ZooKeeper a death may leave the bookie's registration, and a broker that then never finds its bookie.
    with PatientPulsar(tmp_path, zookeeper=True, configuration=PULSAR_SETTINGS) as own:
        yield own


def test_everything_comes_back_after_a_restart_and_a_death(own):
    settings = PulsarSettings(
        service_url=own.service_url, admin_url=own.admin_url, connect_timeout=5, operation_timeout=20
    )
    with clients(settings) as (admin, pins, source):
        topics = [TopicName.parse(f"public/default/t{n}") for n in range(20)]
        first = topics[0]
        for topic in topics:
            own.admin("PUT", topic.rest_path)
            pins.open(topic)
        with Transactions(own.service_url) as producer:
            sent = [producer.send(str(first), b"x") for _ in range(3)]
        created = {topic: admin.topic_info(topic).created for topic in topics}

        with closing(source.open(first, *sent[0], max_bytes=MIB)) as reader:
            assert positions(read(reader, 3)) == sent
            own.restart()
            with pytest.raises(RetryableError):
                read(reader, 1)
        until(lambda: all_there(pins, topics))
        assert {topic: admin.topic_info(topic).created for topic in topics} == created
        assert pins.ends([first])[first].last == sent[-1]
        pins.acknowledge(first, Position(0, *sent[1]))

        own.kill()
        with pytest.raises((BrokerUnavailableError, OutcomeUnknownError)):
            pins.acknowledge(first, Position(0, *sent[2]))
        assert all(isinstance(end, BrokerUnavailableError) for end in pins.ends(topics).values())
        with pytest.raises(BrokerUnavailableError):
            source.open(first, *sent[0], max_bytes=MIB)
        with pytest.raises(BrokerUnavailableError):
            admin.version()

        own.start()
        until(lambda: all_there(pins, topics))
        found = pins.ends([first])[first]
        assert found.last == sent[-1]
        assert found.mark_delete <= sent[1], "a death may take an acknowledgement back, never move it on"
        pins.acknowledge(first, Position(0, *sent[2]))
        assert pins.ends([first])[first].mark_delete == sent[2]
        assert {topic: admin.topic_info(topic).created for topic in topics} == created


def all_there(pins, topics):
    return not any(isinstance(end, Exception) for end in pins.ends(topics).values())
