"""What a ledger is for, row by row of section 2 of the reference."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.bookkeeper.model import DigestType
from offloader.lifecycle.ledgers.kinds import (
    LedgerKind,
    LedgerPurpose,
    RefereeKind,
    WhyForeign,
    managed_ledger_of_topic,
    purpose_of,
)

from .world import PULSAR, bucket_custom, cursor_of, data_of, schema_of, view_custom

ORDERS = "t/ns/persistent/orders"
LOG = "pulsar/system/persistent/__transaction_log_3"
PENDING = "t/ns/persistent/orders-sub__transaction_pending_ack"
HEALTH = "pulsar/west/broker-1:8080/persistent/healthcheck"


def purpose(custom, digest=DigestType.CRC32C):
    return purpose_of(custom, digest)


def test_data():
    assert purpose(data_of(ORDERS)) == LedgerPurpose(LedgerKind.DATA, RefereeKind.LEDGER_LIST, ORDERS)


def test_cursor():
    found = purpose(cursor_of(ORDERS, "my sub/1"))
    assert found == LedgerPurpose(LedgerKind.CURSOR, RefereeKind.CURSOR_NODE, ORDERS, "my sub/1")


def test_schema_has_no_partition():
    found = purpose(schema_of("t/ns/orders"))
    assert found == LedgerPurpose(LedgerKind.SCHEMA, RefereeKind.SCHEMA_LOCATOR, schema="t/ns/orders")
    assert found.namespace == "t/ns"


def test_compacted_view_whose_last_id_is_no_text():
    found = purpose(view_custom("t/ns/persistent/a+b"), DigestType.CRC32)
    assert (found.kind, found.referee) == (LedgerKind.COMPACTED_VIEW, RefereeKind.COMPACTION_CURSOR)
    assert (found.managed_ledger, found.cursor) == ("t/ns/persistent/a+b", "__compaction")
    assert found.compacted_to == b"\x08\xff\xfe\x10"


def test_delayed_index():
    found = purpose(bucket_custom(ORDERS, "sub", "#pulsar.internal.delayed.bucket_1_2"))
    assert (found.kind, found.referee) == (LedgerKind.DELAYED_INDEX, RefereeKind.DELAYED_BUCKETS)
    assert (found.managed_ledger, found.cursor) == (ORDERS, "sub")
    assert found.bucket == "#pulsar.internal.delayed.bucket_1_2"


def test_transaction_log_as_data_and_as_cursor():
    assert purpose(data_of(LOG)) == LedgerPurpose(LedgerKind.TRANSACTION_LOG, RefereeKind.LEDGER_LIST, LOG)
    found = purpose(cursor_of(LOG, "transaction.subscription"))
    assert (found.kind, found.referee) == (LedgerKind.TRANSACTION_LOG, RefereeKind.CURSOR_NODE)


def test_pending_acks_as_data_and_as_cursor():
    assert purpose(data_of(PENDING)) == LedgerPurpose(LedgerKind.PENDING_ACKS, RefereeKind.LEDGER_LIST, PENDING)
    found = purpose(cursor_of(PENDING, "__pending_ack_state"))
    assert (found.kind, found.referee) == (LedgerKind.PENDING_ACKS, RefereeKind.CURSOR_NODE)


@pytest.mark.parametrize("topic", ["__transaction_buffer_snapshot", "__change_events"])
def test_system_topics_of_a_namespace_are_data(topic):
    assert purpose(data_of(f"t/ns/persistent/{topic}")).kind is LedgerKind.DATA
    assert purpose(schema_of(f"t/ns/{topic}")).kind is LedgerKind.SCHEMA


def test_load_balancer_has_data_and_schemas_without_a_managed_ledger():
    assert purpose(data_of("pulsar/system/persistent/loadbalancer-service-unit-state")).kind is LedgerKind.DATA
    assert purpose(schema_of("pulsar/system/loadbalancer-broker-load-data")).kind is LedgerKind.SCHEMA


@pytest.mark.parametrize(
    ("custom", "cluster"),
    [
        (data_of(HEALTH), "west"),
        (cursor_of(HEALTH, "reader-1"), "west"),
        (schema_of("pulsar/west/broker-1:8080/healthcheck"), "west"),
        (data_of("pulsar/broker-1:8080/persistent/healthcheck"), ""),
        (schema_of("pulsar/broker-1:8080/healthcheck"), ""),
    ],
)
def test_health_check_has_five_parts_and_names_its_cluster(custom, cluster):
    found = purpose(custom)
    assert (found.kind, found.cluster) == (LedgerKind.HEALTH_CHECK, cluster)


def test_functions_packages_have_no_custom_metadata_at_all():
    found = purpose({}, DigestType.CRC32)
    assert (found.kind, found.referee, found.why_foreign) == (
        LedgerKind.FUNCTIONS_PACKAGES,
        None,
        WhyForeign.NO_METADATA,
    )


@pytest.mark.parametrize(
    ("custom", "why"),
    [
        ({}, WhyForeign.NO_METADATA),
        ({"application": b"pravega"}, WhyForeign.ANOTHER_APPLICATION),
        ({"application": b"\xff"}, WhyForeign.ANOTHER_APPLICATION),
        ({"component": b"managed-ledger", "pulsar/managed-ledger": ORDERS.encode()}, WhyForeign.ANOTHER_APPLICATION),
        (PULSAR, WhyForeign.UNKNOWN_COMPONENT),
        (PULSAR | {"component": b"new-thing"}, WhyForeign.UNKNOWN_COMPONENT),
        (PULSAR | {"component": b"managed-ledger"}, WhyForeign.NO_NAME),
        (PULSAR | {"component": b"schema"}, WhyForeign.NO_NAME),
        (data_of(ORDERS) | {"pulsar/managed-ledger": b"t/ns/persistent/\xff"}, WhyForeign.NO_TEXT),
        (cursor_of(ORDERS, "x") | {"pulsar/cursor": b"\xff"}, WhyForeign.NO_TEXT),
        (cursor_of(ORDERS, ""), WhyForeign.NO_NAME),
        (data_of("orders"), WhyForeign.NO_POSSIBLE_NAME),
        (data_of("t/../persistent/orders"), WhyForeign.NO_POSSIBLE_NAME),
        (data_of("t/ns/non-persistent/orders"), WhyForeign.NO_POSSIBLE_NAME),
        (schema_of("orders"), WhyForeign.NO_POSSIBLE_NAME),
        (view_custom(ORDERS) | {"pulsar/compactedTopic": b"t/ns/orders"}, WhyForeign.NO_POSSIBLE_NAME),
    ],
)
def test_anything_else_is_foreign_and_says_why(custom, why):
    found = purpose(custom)
    assert (found.kind, found.referee, found.why_foreign) == (LedgerKind.FOREIGN, None, why)


def test_a_bookie_affinity_group_adds_a_key_that_changes_nothing():
    config = {"EnsemblePlacementPolicyConfig": b'{"policyClass": "\xff"}'}
    assert purpose(data_of(ORDERS) | config) == purpose(data_of(ORDERS))


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("persistent://t/ns/a b", "t/ns/persistent/a+b"),
        ("persistent://t/cluster/ns/a b", "t/cluster/ns/persistent/a+b"),  # of the old form
        ("persistent://t/cluster/ns/a/b", "t/cluster/ns/persistent/a%2Fb"),
    ],
)
def test_a_topics_managed_ledger_is_the_one_that_brokers_make(topic, name):
    assert managed_ledger_of_topic(topic) == name


KEYS = st.sampled_from(
    [
        *("application", "component", "pulsar/managed-ledger", "pulsar/cursor", "pulsar/schemaId"),
        *("pulsar/compactedTopic", "pulsar/compactedTo", "pulsar/delayedIndexBucketKey"),
        *("pulsar/delayedIndexTopic", "pulsar/delayedIndexCursor", "other"),
    ]
)
VALUES = (
    st.sampled_from(
        [
            *(b"pulsar", b"managed-ledger", b"schema", b"compacted-ledger", b"delayed-index-bucket"),
            *(ORDERS.encode(), b"persistent://t/ns/x", b"t/ns/x", HEALTH.encode(), b""),
        ]
    )
    | st.binary(max_size=20)
    | st.text(max_size=20).map(lambda text: text.encode(errors="surrogatepass"))
)


@given(st.dictionaries(KEYS, VALUES), st.sampled_from(DigestType), st.booleans())
def test_whatever_the_bytes_are_there_is_an_answer(custom, digest, pulsar):
    found = purpose(PULSAR | custom if pulsar else custom, digest)
    assert (found.referee is None) == (found.why_foreign is not None)
    if found.referee is not None:
        assert found.namespace.count("/") in (1, 2)
        assert found.managed_ledger or found.schema
