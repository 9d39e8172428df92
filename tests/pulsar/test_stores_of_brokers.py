"""What brokers say of their metadata stores, against scripted HTTP servers."""

from __future__ import annotations

import pytest

from offloader.errors import AuthorizationFailedError, BrokerUnavailableError, ProtocolError
from offloader.ports.admin import BrokerStores
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.settings import PulsarSettings
from tests.pulsar.test_rest import FakeAdmin

RUNTIME, INTERNAL = "/admin/v2/brokers/configuration/runtime", "/admin/v2/brokers/internal-configuration"
# as 4.0.7 was seen to answer
NEW = {
    "zookeeperServers": "zk:h:2181",
    "configurationStoreServers": "zk:c:2181",
    "metadataStoreUrl": "zk:h:2181",
    "configurationMetadataStoreUrl": "zk:c:2181",
    "ledgersRootPath": "/ledgers",
}
OLD = {"zookeeperServers": "h:2181", "configurationStoreServers": "c:2181", "bookkeeperMetadataServiceUri": "zk://h/l"}


@pytest.fixture
def brokers():
    servers = [FakeAdmin(), FakeAdmin()]
    names = [server.host for server in servers]
    for server in servers:
        server.answers[RUNTIME] = (200, {"clusterName": "c"}, {})
        server.answers["/admin/v2/brokers/c"] = (200, names, {})
    servers[0].answers[INTERNAL] = (200, NEW, {})
    servers[1].answers[INTERNAL] = (200, OLD, {})
    yield servers
    for server in servers:
        server.close()


def asked(servers):
    admin = AdminClient(PulsarSettings(admin_url=f"http://{servers[0].host}"))
    try:
        return {one.broker: one for one in admin.stores_of_brokers()}
    finally:
        admin.close()


def test_each_broker_is_asked_itself_of_whichever_version(brokers):
    new, old = (server.host for server in brokers)
    assert asked(brokers) == {
        new: BrokerStores(new, "zk:h:2181", "zk:c:2181", ""),
        old: BrokerStores(old, "h:2181", "c:2181", "zk://h/l"),
    }


def test_one_that_refuses_or_does_not_answer_is_an_error(brokers):
    brokers[1].answers[INTERNAL] = (403, {"reason": "not a super user"}, {})
    with pytest.raises(AuthorizationFailedError):
        asked(brokers)
    for server in brokers:
        server.answers["/admin/v2/brokers/c"] = (200, [brokers[0].host, "127.0.0.1:1"], {})
    with pytest.raises(BrokerUnavailableError):
        asked(brokers)


@pytest.mark.parametrize("answer", [{}, {"metadataStoreUrl": 7}, {"metadataStoreUrl": None}, [], None])
def test_what_says_no_store_is_no_answer(brokers, answer):
    brokers[1].answers[INTERNAL] = (200, answer, {})
    with pytest.raises(ProtocolError):
        asked(brokers)
