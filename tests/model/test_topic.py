"""Names of topics, and which of them are partitions."""

from __future__ import annotations

import pytest

from offloader.model import TopicName, split_partition

# What `TopicName.getPartitionIndex` of Pulsar 4.0.7 returns (integration/pulsar/test_topic_names.py asks a broker).
INDEXES = {
    "t": -1,
    "t-partition-0": 0,
    "t-partition-12": 12,
    "t-partition-2147483647": 2**31 - 1,
    "t-partition-2147483648": -1,
    "t-partition-20260105": 20260105,
    "t-partition-20260105093000": -1,
    "t-partition-00": -1,
    "t-partition-007": -1,
    "t-partition-": -1,
    "t-partition--1": -1,
    "t-partition--0": -1,
    "t-partition-+5": -1,
    "t-partition-1_0": -1,
    "t-partition- 1": -1,
    "t-partition-5\n": -1,
    "t-partition-1-partition-2": 2,
    "t-partition-1-partition-02": -1,
    "t-partition-partition-5": 5,
    "t-partition-5-DLQ": -1,
    "t-partition-\u0663": 3,  # Java reads digits of any script
    "t-partition-\U0001d7d8": -1,
    "t-partition-\u00b2": -1,
}


@pytest.mark.parametrize(("name", "index"), INDEXES.items())
def test_a_partition_is_what_pulsar_takes_for_one(name: str, index: int) -> None:
    topic = TopicName("public", "default", name)
    assert topic.partition == index
    base = str(topic) if index < 0 else str(topic)[: str(topic).rindex("-partition-")]
    assert topic.partitioned_name == base
    assert topic.schema_name.startswith("public/default/t")
    assert (topic.partitioned_name == str(topic)) == (index < 0)


def test_a_number_of_any_length_is_only_a_name() -> None:
    assert split_partition("t-partition-" + "9" * 10_000)[1] == -1


def test_the_suffix_alone_is_a_name() -> None:
    topic = TopicName("public", "default", "-partition-3")
    assert TopicName.parse(topic.partitioned_name) == topic


@pytest.mark.parametrize(
    ("name", "is_system"),
    [
        ("public/default/__change_events", True),
        ("public/default/__change_events-partition-3", True),
        ("public/default/__transaction_buffer_snapshot", True),
        ("public/default/__transaction_buffer_snapshot_segments", True),
        ("public/default/__transaction_buffer_snapshot_indexes", True),
        ("public/default/t-partition-1-sub__transaction_pending_ack", True),
        ("pulsar/system/transaction_coordinator_assign-partition-3", True),
        ("pulsar/system/__transaction_log_5", True),
        ("pulsar/localhost:8080/healthcheck", True),
        ("public/default/healthcheck", False),
        ("public/default/__consumer_offsets", False),
        ("public/default/__consumer_offsets-partition-0", False),
        ("public/default/__transaction_state", False),
        ("public/default/__change_events_of_orders", False),
        ("public/default/__change_events-partition-03", False),
        ("public/default/__transaction_log_5", False),
    ],
)
def test_system_topics_have_exact_names(name: str, is_system: bool) -> None:
    assert TopicName.parse(name).is_system is is_system
