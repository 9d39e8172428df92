"""What a cluster says of a topic that is yet to be made, before it is made."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from offloader.cursors.broker_losses import defaults_of
from offloader.errors import AuthorizationFailedError, FatalError
from offloader.operations.restore.target import TargetCluster
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.rest import RestClient
from offloader.pulsar.settings import PulsarSettings
from tests.operations.restore.support import TARGET

KEEP = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}


class World:
    """Policies of the namespace, and the broker's configuration; None: we may not see it."""

    def __init__(self) -> None:
        self.policies: dict[str, Any] = {
            "retention_policies": KEEP,
            "message_ttl_in_seconds": 0,
            "compaction_threshold": 0,
        }
        self.broker: Mapping[str, str] | None = None
        self.answers: dict[str, Any] = {}

    def configuration(self) -> Mapping[str, str]:
        if self.broker is None:
            raise AuthorizationFailedError("only super users")
        return self.broker


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(AdminClient, "namespace_policies", lambda _, namespace: world.policies)
    monkeypatch.setattr(AdminClient, "runtime_configuration", lambda _: world.configuration())
    monkeypatch.setattr(RestClient, "get", lambda _, path, **query: world.answers[path])
    monkeypatch.setattr(RestClient, "text", lambda _, path: world.answers[path])
    return world


@pytest.fixture
def cluster(world: World) -> Iterator[TargetCluster]:
    cluster = TargetCluster(PulsarSettings(service_url="pulsar://127.0.0.1:1", admin_url="http://127.0.0.1:1"))
    yield cluster
    cluster.close()


def test_where_the_namespace_says_everything_the_broker_is_not_asked(
    world: World, cluster: TargetCluster, caplog: Any
) -> None:
    cluster.check_new(TARGET)
    assert not caplog.records
    world.policies["message_ttl_in_seconds"] = 60
    with pytest.raises(FatalError, match="message TTL"):
        cluster.check_new(TARGET)
    world.policies |= {"message_ttl_in_seconds": 0, "encryption_required": True}
    with pytest.raises(FatalError, match="requires encryption"):
        cluster.check_new(TARGET)


def test_what_the_namespace_leaves_open_the_broker_decides(world: World, cluster: TargetCluster) -> None:
    world.policies["retention_policies"] = None
    world.broker = {"defaultRetentionTimeInMinutes": "0", "defaultRetentionSizeInMB": "0"}
    with pytest.raises(FatalError, match="retention"):
        cluster.check_new(TARGET)
    world.broker = {"defaultRetentionTimeInMinutes": "-1", "defaultRetentionSizeInMB": "-1"}
    cluster.check_new(TARGET)


def test_what_may_not_be_seen_is_told(world: World, cluster: TargetCluster, caplog: pytest.LogCaptureFixture) -> None:
    del world.policies["retention_policies"], world.policies["compaction_threshold"]
    with caplog.at_level(logging.WARNING):
        cluster.check_new(TARGET)
    (record,) = caplog.records
    assert f"{TARGET}: the namespace leaves retention and compaction threshold to the broker" in record.getMessage()
    world.policies["message_ttl_in_seconds"] = 60
    with pytest.raises(FatalError, match="message TTL"):
        cluster.check_new(TARGET)


EVICTS = {"limitSize": 1000, "limitTime": -1, "policy": "consumer_backlog_eviction"}
HOLDS = {"limitSize": 1000, "limitTime": -1, "policy": "producer_request_hold"}


def test_a_quota_that_evicts_is_refused_with_its_remedy(world: World, cluster: TargetCluster) -> None:
    path = f"{TARGET.rest_path}/backlogQuotaMap"
    for quotas in (None, {}, {"destination_storage": HOLDS}, {"message_age": EVICTS | {"limitSize": -1}}):
        world.answers[path] = quotas
        cluster.check_subscriptions(TARGET, new=False)
    world.answers[path] = {"message_age": EVICTS | {"limitSize": -1, "limitTime": 60}}
    with pytest.raises(FatalError, match=r"again --type message_age --limitTime 60 --policy \w+hold, or restore with"):
        cluster.check_subscriptions(TARGET, new=False)


def test_a_new_topic_will_have_the_quota_of_its_namespace_else_the_brokers(
    world: World, cluster: TargetCluster
) -> None:
    cluster.check_subscriptions(TARGET, new=True)
    world.broker = {
        "backlogQuotaDefaultLimitGB": "10.5",
        "backlogQuotaDefaultRetentionPolicy": "consumer_backlog_eviction",
    }
    with pytest.raises(FatalError, match="destination_storage --limit 11274289152 "):
        cluster.check_subscriptions(TARGET, new=True)
    world.policies["backlog_quota_map"] = {"destination_storage": HOLDS}
    cluster.check_subscriptions(TARGET, new=True)


def test_what_brokers_store_is_theirs_to_say_else_assumed(world: World, cluster: TargetCluster) -> None:
    world.answers["brokers/version"] = "4.2.4"
    assumed = cluster.storing(TARGET.namespace)
    assert assumed.settings == defaults_of("4.2.4")
    assert "the defaults of Pulsar 4.2.4, since only super users" in assumed.assumed
    world.broker = {"managedLedgerMaxUnackedRangesToPersist": "7"}
    known = cluster.storing(TARGET.namespace)
    assert (known.settings.ranges, known.settings.long_arrays, known.assumed) == (7, True, "")


def test_when_subscriptions_expire_the_namespace_says_else_the_brokers(world: World, cluster: TargetCluster) -> None:
    world.answers["brokers/version"] = "4.2.4"
    assert cluster.storing(TARGET.namespace).expires_after == 0
    world.broker = {"subscriptionExpirationTimeMinutes": "5"}
    assert cluster.storing(TARGET.namespace).expires_after == 5
    world.policies["subscription_expiration_time_minutes"] = 0
    assert cluster.storing(TARGET.namespace).expires_after == 0


def test_a_topic_s_ledgers_are_counted(world: World, cluster: TargetCluster) -> None:
    ledgers = [{"ledgerId": 3, "entries": 5}, {"ledgerId": 9, "entries": 0}]
    world.answers[f"{TARGET.rest_path}/internalStats"] = {"ledgers": ledgers, "cursors": {}}
    assert cluster.lengths(TARGET) == ((3, 5), (9, None))
