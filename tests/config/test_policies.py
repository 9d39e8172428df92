"""cluster < Pulsar's namespace property < namespace < topic < partition, field by field; unset never shadows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.config.levels import DEFAULTS, Level, NamespaceSection, PolicyLevel, Rates, TopicSection
from offloader.config.policies import Policies, enabled_topics, namespace_switch
from offloader.errors import ConfigError
from offloader.model import MIB, SegmentLayout, Source, TopicName
from tests.config.texts import parse

PROPERTY = "offloader.enabled"

TOPIC = TopicName.parse("persistent://public/orders/audit")
PARTITION = TopicName.parse("persistent://public/orders/audit-partition-3")
OTHER = TopicName.parse("persistent://public/orders/other")
ELSEWHERE = TopicName.parse("persistent://public/else/audit")

EXAMPLE = """
policies: {enabled: false, maxOffloadSegmentSizeInBytes: 512M, maxBytesPerSecond: 100M}
namespaces:
  public/orders:
    enabled: true
    policies: {maxOffloadSegmentSizeInBytes: 256M, blockSizeInBytes: 2M, maxBytesPerSecond: 50M}
    topics:
      persistent://public/orders/audit: {enabled: false, policies: {indexStepInBytes: 64K, maxBytesPerSecond: 9M}}
      persistent://public/orders/audit-partition-3: {enabled: true, policies: {maxBytesPerSecond: 3M}}
"""


def test_a_file_that_sets_nothing_gives_the_defaults() -> None:
    policy = parse().policies.of(TOPIC)
    assert policy.enabled is False
    assert policy.layout == SegmentLayout()
    assert (policy.max_segment_size, policy.max_rollover_ms, policy.min_rollover_ms) == (1024 * MIB, 600_000, 0)
    assert (policy.fail_on_data_loss, policy.start_after_offloaded, policy.source) == (True, False, Source.BROKER)
    assert policy.rates == Rates(None, None, None)


def test_levels_are_merged_field_by_field() -> None:
    policies = parse(EXAMPLE).policies
    topic = policies.of(TOPIC)
    assert (topic.enabled, topic.max_segment_size, topic.block_size, topic.index_step) == (
        False,
        256 * MIB,
        2 * MIB,
        65536,
    )
    assert policies.of(OTHER).enabled
    assert policies.of(ELSEWHERE).max_segment_size == 512 * MIB


def test_a_topics_policy_holds_for_its_partitions_and_a_named_partition_wins() -> None:
    policies = parse(EXAMPLE).policies
    other = policies.of(TopicName.parse("persistent://public/orders/audit-partition-0"))
    assert (other.enabled, other.index_step) == (False, 65536)
    named = policies.of(PARTITION)
    assert (named.enabled, named.index_step) == (True, 65536)


def test_rate_limits_are_kept_apart() -> None:
    policies = parse(EXAMPLE).policies
    assert policies.of(TOPIC).rates == Rates(100 * MIB, 50 * MIB, 9 * MIB)
    assert policies.of(PARTITION).rates == Rates(100 * MIB, 50 * MIB, 3 * MIB)
    assert policies.of(OTHER).rates == Rates(100 * MIB, 50 * MIB, None)
    assert policies.of(ELSEWHERE).rates == Rates(100 * MIB, None, None)


@pytest.mark.parametrize(
    ("file", "switch", "enabled", "by"),
    [
        ("", None, False, Level.DEFAULT),
        ("", True, True, Level.PROPERTY),
        ("", False, False, Level.PROPERTY),
        ("policies: {enabled: true}", None, True, Level.CLUSTER),
        ("policies: {enabled: true}", False, False, Level.PROPERTY),
        ("policies: {enabled: false}", True, True, Level.PROPERTY),
        ("namespaces: {public/orders: {enabled: true}}", False, True, Level.NAMESPACE),
        ("namespaces: {public/orders: {enabled: false}}", True, False, Level.NAMESPACE),
        ("namespaces: {public/orders: {policies: {enabled: false}}}", True, False, Level.NAMESPACE),
        ("namespaces: {public/orders: {policies: {blockSizeInBytes: 2M}}}", True, True, Level.PROPERTY),
        (
            'namespaces: {public/orders: {topics: {"persistent://public/orders/audit": {enabled: false}}}}',
            True,
            False,
            Level.TOPIC,
        ),
        (
            'namespaces: {public/orders: {enabled: false, topics: {"persistent://public/orders/audit": {enabled: '
            "true}}}}",
            False,
            True,
            Level.TOPIC,
        ),
    ],
)
def test_who_decides_whether_a_topic_is_offloaded(file, switch, enabled, by) -> None:
    policies = parse(file).policies
    (told,) = (each for each in policies.explain(TOPIC, switch) if each.field == "enabled")
    assert (policies.of(TOPIC, switch).enabled, told.value, told.level) == (enabled, enabled, by)


def test_source_inherits_from_the_pulsar_section_and_a_policy_wins() -> None:
    base = "application: a\nstorage: {root: 's3://a'}\npulsar: {serviceUrl: 'pulsar://h', adminUrl: 'http://h', "
    inherits = type(parse()).parse(base + "source: bookkeeper, metadataServiceUri: 'zk://z'}", {})
    assert inherits.policies.of(TOPIC).source is Source.BOOKKEEPER
    (told,) = (r for r in inherits.policies.explain(TOPIC) if r.field == "source")
    assert (told.level, told.path) == (Level.CLUSTER, ("pulsar", "source"))
    wins = type(parse()).parse(
        base + "source: bookkeeper, metadataServiceUri: 'zk://z'}\npolicies: {source: broker}", {}
    )
    assert wins.policies.of(TOPIC).source is Source.BROKER_WITH_BOOKIES


def test_explain_names_the_level_and_the_place_of_every_value() -> None:
    told = {(r.field, r.level): r for r in parse(EXAMPLE).policies.explain(TOPIC, True)}
    assert {field for field, _ in told} == set(DEFAULTS)
    assert told["enabled", Level.TOPIC].path[-3:] == (str(TOPIC), "policies", "enabled")
    assert told["max_segment_size", Level.NAMESPACE].path == (
        "namespaces",
        "public/orders",
        "policies",
        "maxOffloadSegmentSizeInBytes",
    )
    assert told["part_size", Level.DEFAULT].value == 8 * MIB
    assert {level: r.value for (field, level), r in told.items() if field == "max_bytes_per_second"} == {
        Level.CLUSTER: 100 * MIB,
        Level.NAMESPACE: 50 * MIB,
        Level.TOPIC: 9 * MIB,
    }


def test_explain_names_the_property() -> None:
    (told,) = (r for r in parse().policies.explain(TOPIC, True) if r.field == "enabled")
    assert (told.value, told.level, told.path) == (
        True,
        Level.PROPERTY,
        ("Pulsar's namespace property offloader.enabled",),
    )


def test_which_namespaces_need_to_be_listed() -> None:
    policies = parse(EXAMPLE).policies
    assert policies.enables_any("public/orders")
    assert not policies.enables_any("public/else")
    assert policies.enables_any("public/else", True)
    only_topic = (
        'namespaces: {public/orders: {enabled: false, topics: {"persistent://public/orders/audit": {enabled: true}}}}'
    )
    assert parse(only_topic).policies.enables_any("public/orders", False)


def test_the_namespace_property() -> None:
    assert namespace_switch({}) is None
    assert namespace_switch({"offloader.enabled": "true"}) is True
    assert namespace_switch({"offloader.enabled": "False"}) is False
    with pytest.raises(ConfigError, match=r"^offloader\.enabled: .*'yes'; set it to true or false$"):
        namespace_switch({"offloader.enabled": "yes"})


# Any combination of fields at any level, against the definition of the merge.

VALUES = {
    "enabled": st.booleans(),
    "max_segment_size": st.integers(1, 2**31),
    "max_rollover_ms": st.integers(1, 10**9),
    "min_rollover_ms": st.integers(0, 10**9),
    "part_size": st.integers(1, 2**31),
    "equal_parts": st.booleans(),
    "block_size": st.integers(4096, 2**31),
    "index_step": st.integers(4096, 2**31),
    "max_entry_size": st.integers(1, 2**31),
    "fail_on_data_loss": st.booleans(),
    "pin_holds_last_entry": st.booleans(),
    "start_after_offloaded": st.booleans(),
    "broker_readable": st.booleans(),
    "source": st.sampled_from([Source.BROKER, Source.BOOKKEEPER]),
    "max_bytes_per_second": st.integers(1, 2**40),
    "archive_retention_minutes": st.integers(-1, 2**31),
    "archive_retention_mb": st.integers(-1, 2**31),
    "deleted_topic_retention_minutes": st.integers(-1, 2**31),
    "follow_pulsar_retention": st.booleans(),
    "archive_cursors": st.booleans(),
    "cursor_interval_ms": st.integers(1000, 10**6),
    "keep_unacknowledged": st.booleans(),
    "hold": st.text(max_size=5),
}
SAID = st.fixed_dictionaries({}, optional=VALUES)


def level(said):
    spelled = {PolicyLevel.model_fields[field].alias or field: value for field, value in said.items()}
    in_units = {
        name: f"{value}ms" if "Seconds" in name or name == "cursorInterval" else value
        for name, value in spelled.items()
    }
    return PolicyLevel.model_validate(in_units)


@given(SAID, SAID, SAID, SAID, st.sampled_from([None, True, False]))
def test_the_most_specific_level_that_says_something_wins_and_silence_never_does(
    cluster, namespace, topic, partition, switch
) -> None:
    sections = {
        str(TOPIC): TopicSection(policies=level(topic)),
        str(PARTITION): TopicSection(policies=level(partition)),
    }
    policies = Policies(level(cluster), {"public/orders": NamespaceSection(policies=level(namespace), topics=sections)})
    told = {} if switch is None else {"enabled": switch}
    expected = {**DEFAULTS, **cluster, **told, **namespace, **topic, **partition}
    got = policies.of(PARTITION, switch)
    assert {field: getattr(got, field) for field in DEFAULTS if field != "max_bytes_per_second"} == {
        field: value for field, value in expected.items() if field != "max_bytes_per_second"
    }
    rate = "max_bytes_per_second"
    assert got.rates == Rates(cluster.get(rate), namespace.get(rate), partition.get(rate, topic.get(rate)))


@given(SAID, SAID)
def test_a_level_without_fields_changes_nothing(cluster, namespace) -> None:
    silent = {str(TOPIC): TopicSection(), str(PARTITION): TopicSection()}
    said = Policies(level(cluster), {"public/orders": NamespaceSection(policies=level(namespace))})
    with_silence = Policies(
        level(cluster), {"public/orders": NamespaceSection(policies=level(namespace), topics=silent)}
    )
    assert with_silence.of(PARTITION) == said.of(PARTITION)
    assert with_silence.explain(PARTITION) == said.explain(PARTITION)


@given(SAID)
def test_explain_and_of_agree(said) -> None:
    policies = Policies(level(said), {})
    got = policies.of(TOPIC)
    for told in policies.explain(TOPIC):
        if told.field != "max_bytes_per_second":
            assert told.value == getattr(got, told.field)
            assert told.level is (Level.CLUSTER if told.field in said else Level.DEFAULT)


def test_policies_and_defaults_name_the_same_fields() -> None:
    assert list(DEFAULTS) == list(PolicyLevel.model_fields) == list(VALUES)
    assert all(value is None for value in PolicyLevel().model_dump().values())


def test_whether_topics_are_enabled_is_asked_anew_for_each_plan() -> None:
    """The application plans for weeks: what it heard at its start must not stay."""
    properties: dict[str, str] = {}
    enabled = enabled_topics(parse().policies, lambda _: properties)
    before = enabled(TOPIC.namespace)(TOPIC)
    properties[PROPERTY] = "true"
    assert (before, enabled(TOPIC.namespace)(TOPIC)) == (False, True)
