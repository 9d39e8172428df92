"""Which broker has a topic loaded, against a scripted HTTP server."""

import pytest

from offloader.errors import AuthorizationFailedError, BrokerUnavailableError, ProtocolError
from offloader.model import TopicName
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.settings import PulsarSettings
from tests.pulsar.test_rest import FakeAdmin

TOPIC = TopicName.parse("public/ns/t")
RUNTIME, STATS = "/admin/v2/brokers/configuration/runtime", "/admin/v2/broker-stats/topics"


def statistics(*topics):
    """As a broker of 4.0.7 gives them."""
    return {
        "public/ns": {
            "0x80000000_0xc0000000": {"persistent": {topic: {"publishers": []} for topic in topics}},
            "0x0_0x8": {},
        }
    }


@pytest.fixture
def brokers():
    servers = [FakeAdmin(), FakeAdmin()]
    names = [server.host for server in servers]
    for server in servers:
        server.answers[RUNTIME] = (200, {"clusterName": "c"}, {})
        server.answers["/admin/v2/brokers/c"] = (200, names, {})
        server.answers[STATS] = (200, {}, {})
    yield servers
    for server in servers:
        server.close()


def loaded_by(servers):
    """One topic's broker, and that of all: they say the same."""
    admin = AdminClient(PulsarSettings(admin_url=f"http://{servers[0].host}"))
    try:
        found = admin.loaded_by(TOPIC)
        assert admin.loaded_topics().get(str(TOPIC)) == found
        return found
    finally:
        admin.close()


def test_every_broker_is_asked(brokers):
    assert loaded_by(brokers) is None
    brokers[1].answers[STATS] = (200, statistics(str(TOPIC), "persistent://public/ns/other"), {})
    assert loaded_by(brokers) == brokers[1].host


def test_another_topic_or_partition_is_not_it(brokers):
    brokers[0].answers[STATS] = (200, statistics(f"{TOPIC}-partition-0"), {})
    assert loaded_by(brokers) is None


def test_nothing_that_would_load_the_topic_is_asked(brokers):
    loaded_by(brokers)
    assert {path for _, path in (*brokers[0].asked, *brokers[1].asked)} == {RUNTIME, "/admin/v2/brokers/c", STATS}


def test_a_cluster_that_says_it_has_no_brokers_is_not_believed(brokers):
    brokers[0].answers["/admin/v2/brokers/c"] = (200, [], {})
    with pytest.raises(ProtocolError):
        loaded_by(brokers)


def test_a_broker_s_statistics_may_be_larger_than_a_list_of_topics(brokers, monkeypatch):
    monkeypatch.setattr("offloader.pulsar.rest.MAX_ANSWER", 1000)
    many = [f"persistent://public/ns/{number}" for number in range(100)]
    brokers[1].answers[STATS] = (200, statistics(str(TOPIC), *many), {})
    assert loaded_by(brokers) == brokers[1].host


def test_a_broker_that_does_not_answer_or_refuses(brokers):
    brokers[1].answers[STATS] = (403, {"reason": "not a super user"}, {})
    with pytest.raises(AuthorizationFailedError):
        loaded_by(brokers)
    brokers[0].answers["/admin/v2/brokers/c"] = (200, ["127.0.0.1:1"], {})
    with pytest.raises(BrokerUnavailableError):
        loaded_by(brokers)
