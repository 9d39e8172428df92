"""The admin REST client on a real broker."""

from typing import Any

import pytest

from integration.pulsar.waiting import limits_in_force, until
from offloader.errors import NamespaceNotFoundError, TopicNotFoundError
from offloader.model import TopicName
from offloader.pulsar.admin import effective_policies
from offloader.pulsar.exactness import check_exactness
from offloader.pulsar.lookup import TopicLookup
from offloader.pulsar.pool import ConnectionPool

pytestmark = pytest.mark.pulsar


def test_the_cluster_introduces_itself(admin, namespace):
    assert admin.version() == "4.0.7"
    assert admin.cluster() == "standalone"
    assert namespace in admin.namespaces()
    check_exactness(admin.runtime_configuration())


def test_properties_of_a_namespace(pulsar, admin, namespace):
    assert admin.namespace_properties(namespace) == {}
    pulsar.admin("PUT", f"namespaces/{namespace}/properties", json={"offloader.enabled": "true"})
    assert until(lambda: admin.namespace_properties(namespace)) == {"offloader.enabled": "true"}


def test_partitions_are_topics_and_pulsars_own_topics_are_left_out(
    pulsar, admin, topic, namespace, transactions, settings
):
    pulsar.admin("PUT", f"persistent/{namespace}/p/partitions", json=3)
    transactions.send(str(topic), b"t", transactions.begin(str(topic)))  # makes __transaction_buffer_snapshot
    assert [t.name for t in admin.topics(namespace)] == ["p-partition-0", "p-partition-1", "p-partition-2", "t0"]
    pool = ConnectionPool(settings)
    lookup = TopicLookup(pool)
    assert (lookup.partitions(TopicName.parse(f"{namespace}/p")), lookup.partitions(topic)) == (3, 0)
    pool.close()


def test_a_missing_topic_and_a_missing_namespace_are_not_the_same(admin, topic):
    with pytest.raises(TopicNotFoundError):
        admin.topic_info(TopicName(topic.tenant, topic.namespace_part, "missing"))
    with pytest.raises(TopicNotFoundError):  # a 404 in Pulsar's form is of what was asked for, whatever its words
        admin.topic_info(TopicName(topic.tenant, "missing", "t"))
    with pytest.raises(NamespaceNotFoundError):
        admin.topics(f"{topic.tenant}/missing")
    with pytest.raises(NamespaceNotFoundError):
        admin.namespace_policies(f"{topic.tenant}/missing")


def test_the_creation_date_names_the_incarnation(pulsar, admin, topic, pins, transactions):
    pins.open(topic)
    before = admin.topic_info(topic)
    for _ in range(2):
        transactions.send(str(topic), b"x")
        pulsar.admin("PUT", f"{topic.rest_path}/unload")
        transactions.forget(str(topic))
    after = admin.topic_info(topic)
    assert len(after.ledgers.spans) == 3
    assert after.created == before.created
    pulsar.admin("DELETE", f"{topic.rest_path}?force=true")
    pulsar.admin("PUT", topic.rest_path)
    assert admin.topic_info(topic).created != before.created


def test_a_full_ledger_is_followed_by_an_empty_one(admin, topic, pins, transactions):
    pins.open(topic)
    sent = [transactions.send(str(topic), b"x") for _ in range(500)]  # SMALL_LEDGERS
    info = until(lambda: (found := admin.topic_info(topic)) and len(found.ledgers.spans) == 2 and found)
    assert info.ledgers.closed_with(sent[0][0]) == 499
    assert info.ledgers.spans[1].last is None
    assert info.sizes[sent[0][0]][0] == 500
    assert info.sizes[info.ledgers.spans[1].ledger] == (0, 0)
    assert info.last_confirmed == sent[-1]


def test_policies_in_force(pulsar, admin, topic, namespace):
    found: Any = effective_policies(admin, topic)
    assert found["message_ttl_in_seconds"] == 0
    assert found["offload_policies"] is None
    assert found["subscription_expiration_time_minutes"] == 0
    pulsar.admin("POST", f"namespaces/{namespace}/messageTTL", json=60)
    quota = {"limitSize": 1000, "limitTime": -1, "policy": "consumer_backlog_eviction"}
    pulsar.admin("POST", f"namespaces/{namespace}/backlogQuota", json=quota)
    pulsar.admin("POST", f"namespaces/{namespace}/subscriptionExpirationTime", json=5)
    found = limits_in_force(admin, topic)
    assert found["message_ttl_in_seconds"] == 60
    assert found["subscription_expiration_time_minutes"] == 5
    assert found["backlog_quota_map"]["destination_storage"]["policy"] == "consumer_backlog_eviction"
    assert admin.namespace_policies(namespace)["message_ttl_in_seconds"] == 60


def test_policies_of_a_partition_are_those_of_its_topic(pulsar, admin, namespace):
    whole = TopicName.parse(f"persistent://{namespace}/parted")
    pulsar.admin("PUT", f"{whole.rest_path}/partitions", json=2)
    pulsar.admin("POST", f"namespaces/{namespace}/messageTTL", json=60)
    partition = TopicName.parse(f"{whole}-partition-1")
    until(lambda: effective_policies(admin, partition)["message_ttl_in_seconds"] == 60)


def test_the_retention_that_applies_to_a_topic(pulsar, admin, topic, namespace):
    """As followPulsarRetention asks for it: the broker's own, its namespace's, or the topic's."""
    assert admin.retention(topic) == (0, 0)
    for place, wanted in ((f"namespaces/{namespace}", (-1, -1)), (topic.rest_path, (3, 7))):
        minutes, megabytes = wanted
        said = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes}
        pulsar.admin("POST", f"{place}/retention", json=said)
        until(lambda wanted=wanted: admin.retention(topic) == wanted)  # type: ignore[misc]
