"""The file as a whole: what it gives, and one line with path and hint for each thing that is wrong with it."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pydantic import ValidationError

from dev.docs.configuration import render
from offloader.config import Config
from offloader.config.aliases import ALIASES, REFUSED, REMOVED
from offloader.config.levels import PolicyLevel, Rates
from offloader.errors import ConfigError
from offloader.model import MIB, V2, V3, Source, TopicName
from tests.config.texts import BASE, parse, refused

REPOSITORY = Path(__file__).parents[2]
ANY = TopicName.parse("public/orders/any")
NO_S3 = BASE.replace("s3://archive/pulsar", "file:///var/lib/archive")


def test_the_smallest_file() -> None:
    config = parse()
    assert config.application == "orders-archive"
    assert (config.pulsar.subscription, config.pulsar.source, config.pulsar.auth_plugin) == (
        "__offloader",
        Source.BROKER,
        "none",
    )
    assert (config.storage.root, config.storage.scheme) == ("s3://archive/pulsar", "s3")
    assert (config.spark.master, config.spark.trigger_ms, config.discovery_interval_ms) == ("local[2]", 5000, 60_000)
    assert (config.metrics.port, config.metrics.host) == (9464, "127.0.0.1")
    assert (config.limits.slice.time_budget_ms, config.limits.slice.hard_limit_ms) == (5000, 15_000)


def test_empty_sections_are_allowed() -> None:
    assert parse("policies:\nnamespaces:\n  public/orders:\n    topics:\nspark:\n") != parse()
    assert parse("policies:\nspark:\nmetrics:\nlimits:\nnamespaces:\n") == parse()


def test_a_configuration_is_frozen_and_can_be_pickled() -> None:
    config = parse("namespaces: {public/orders: {enabled: true}}")
    copy = pickle.loads(pickle.dumps(config))
    assert copy == config
    assert copy.policies.of(ANY) == config.policies.of(ANY)
    name = "application"
    with pytest.raises(ValidationError):
        setattr(config, name, "other")


def test_secrets_are_never_shown() -> None:
    text = BASE.replace('"}', '", authPlugin: token, authParams: "token:SECRET"}', 1)
    config = Config.parse(text, {})
    assert "SECRET" not in repr(config)
    assert config.pulsar.auth_params is not None
    assert config.pulsar.auth_params.get_secret_value() == "token:SECRET"
    bad = BASE.replace('"}', '", authPlugin: token, authParams: "SECRET"}', 1)
    assert refused("", bad) == ["pulsar.authParams: write token:TEXT or file:///path (line 2)"]


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("enable: true", "enable: is not a setting here; did you mean policies.enabled? (line 4)"),
        (
            "namespaces: {public/orders: {enable: true}}",
            "namespaces[public/orders].enable: is not a setting; did you mean enabled? (line 4)",
        ),
        (
            "namespaces: {public/orders: {topics: {'persistent://public/orders/a': {enable: true}}}}",
            "namespaces[public/orders].topics[persistent://public/orders/a].enable: is not a setting; did you mean "
            "enabled? (line 4)",
        ),
        ("pulsr: {}", "pulsr: is not a setting; did you mean pulsar? (line 4)"),
        ("spark: {tigger: 5s}", "spark.tigger: is not a setting; did you mean trigger? (line 4)"),
        ("spark: {endpoint: x}", "spark.endpoint: is not a setting here; did you mean storage.endpoint? (line 4)"),
        ("spark: {zzz: x}", "spark.zzz: is not a setting; there are master, trigger, checkpoint, conf (line 4)"),
        (
            "policies:\n  partSizeinbyte: 8M",
            "policies.partSizeinbyte: is not a setting; did you mean partSizeInBytes? (line 5)",
        ),
        ("policies: {enabled: maybe}", "policies.enabled: must be true or false (line 4)"),
        ("policies: {source: bookie}", "policies.source: must be 'broker' or 'bookkeeper' (line 4)"),
        ("policies: [a]", "policies: must be a section with settings below it (line 4)"),
        ("namespaces: 3", "namespaces: must be a mapping of names to values (line 4)"),
        ("metrics: {port: 70000}", "metrics.port: must be at most 65535 (line 4)"),
        ("metrics: {port: http}", "metrics.port: must be a whole number (line 4)"),
        ("limits: {sealers: 0}", "limits.sealers: must be at least 1 (line 4)"),
        ("limits: {sealers: 1.5}", "limits.sealers: must be a whole number (line 4)"),
        ("discoveryInterval: 5", "discoveryInterval: 5 has no unit; write for example 5s or 5m (line 4)"),
        ("discoveryInterval: 0s", "discoveryInterval: must be more than 0 (line 4)"),
        ("spark: {master: 2}", "spark.master: must be text; put it in quotes (line 4)"),
        (
            "spark: {master: 'local[x]'}",
            "spark.master: 'local[x]' is no master of Spark's; write for example local[2] or local[*] (line 4)",
        ),
        (
            "spark: {master: 'local[0]'}",
            "spark.master: 'local[0]' is no master of Spark's; write for example local[2] or local[*] (line 4)",
        ),
        ("lifecycle: {quarantine: 36501d}", "lifecycle.quarantine: 36501d is too large; the most is 36500d (line 4)"),
        ("spark: {trigger: 8d}", "spark.trigger: 8d is too large; the most is 1w (line 4)"),
        (
            "limits: {slice: {hardLimit: 10000000w}}",
            "limits.slice.hardLimit: 10000000w is too large; the most is 1w (line 4)",
        ),
        (
            "spark: {conf: {spark.executorEnv.OFFLOADER_PULSAR_AUTH_PARAMS: token}}",
            "spark.conf: spark.executorEnv.OFFLOADER_PULSAR_AUTH_PARAMS would stand in Spark's event log; set the "
            "variable where executors are started (docs/spark.md) (line 4)",
        ),
        ("spark: {conf: {a: 1}}", "spark.conf: 'a' is not a Spark setting; its name begins with spark. (line 4)"),
        (
            "limits: {slice: {hardLimit: 1s}}",
            "limits.slice: hardLimit is below timeBudget; it is the longer of the two (line 4)",
        ),
        ("namespaces:\n  orders: {}", "namespaces.orders: is not a namespace; write TENANT/NAMESPACE (line 5)"),
        (
            "namespaces:\n  public/orders:\n    topics:\n      audit: {}",
            "namespaces[public/orders].topics.audit: is not the full name of a topic of this namespace; "
            "write persistent://public/orders/NAME (line 7)",
        ),
        (
            "namespaces:\n  public/orders:\n    policy: {}",
            "namespaces[public/orders].policy: is not a setting; did you mean policies? (line 6)",
        ),
        (
            "namespaces:\n  public/orders:\n    enabled: true\n    policies: {enabled: true}",
            "namespaces[public/orders].enabled: stands here and in policies; keep one (line 6)",
        ),
        (
            "namespaces:\n  public/orders:\n    enabled: [1]",
            "namespaces[public/orders].policies.enabled: must be true or false (line 6)",
        ),
    ],
)
def test_what_is_wrong_is_told_in_one_line_with_path_and_hint(file, line) -> None:
    assert refused(file) == [line]


@pytest.mark.parametrize(
    "master", ["local", "local[*]", "local[8]", "local[2,4]", "local[*, 4]", "spark://host:7077", "yarn", "k8s://h"]
)
def test_masters(master) -> None:
    assert parse(f"spark: {{master: '{master}'}}").spark.master == master


@pytest.mark.parametrize("name", ["connectionTimeout", "operationTimeout", "keepAlive"])
def test_nobody_waits_for_longer_than_sockets_can(name) -> None:
    def written(time):
        return BASE.replace('"}', f'", {name}: {time}}}', 1)

    assert Config.parse(written("1w"), {})
    assert refused("", written("10000000w")) == [f"pulsar.{name}: 10000000w is too large; the most is 1w (line 2)"]


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ("token:t\xf6ken", "the token has characters that no token has (or it is not text); copy it anew"),
        ("token:two\\nlines", "the token has characters that no token has (or it is not text); copy it anew"),
        ("token:abc\\n", None),
        ("file:///t\xf6ken", None),
    ],
)
def test_a_token_is_one_line_of_ascii(params, words) -> None:
    text = BASE.replace('"}', f'", authPlugin: token, authParams: "{params}"}}', 1)
    if words is None:
        assert Config.parse(text, {})
    else:
        assert refused("", text) == [f"pulsar.authParams: {words} (line 2)"]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("pulsar://a..b:6650", "pulsar.serviceUrl: not such a URL; write pulsar://host:6650 or pulsar+ssl://host:6651"),
        (
            f"pulsar://{'a' * 64}.b:6650",
            "pulsar.serviceUrl: not such a URL; write pulsar://host:6650 or pulsar+ssl://host:6651",
        ),
        (
            "http://localhost:6650",
            "pulsar.serviceUrl: not such a URL; write pulsar://host:6650 or pulsar+ssl://host:6651",
        ),
        ("localhost:6650", "pulsar.serviceUrl: not such a URL; write pulsar://host:6650 or pulsar+ssl://host:6651"),
    ],
)
def test_service_urls(wrong, words) -> None:
    (line,) = refused("", BASE.replace("pulsar://localhost:6650", wrong))
    assert line == f"{words} (line 2)"


@pytest.mark.parametrize(
    ("storage", "words"),
    [
        ("root: archive", "storage.root: not a URL"),
        ("root: 's3://'", "storage.root: s3:// needs a bucket"),
        ("root: 'file:///'", "storage.root: file:// needs an absolute folder"),
        ("root: 'file://folder/x'", "storage.root: file:// needs an absolute folder"),
        ("root: 's3://key:secret@bucket'", "storage.root: write only scheme, bucket and prefix"),
        ("root: 'file:///x', endpoint: 'http://h:1'", "storage: endpoint is for s3://, gs:// and az:// only"),
        ("root: 'az://abc/x', region: r", "storage: region is for s3:// only"),
        ("root: 's3://b', endpoint: 'http://h:1/account'", "storage: endpoint: this service's URL has no path"),
        ("root: 'az://key:secret@abc/x'", "storage.root: write only scheme, bucket and prefix"),
        ("root: 'gs://b/x', endpoint: 'http://h:1', region: r", "storage: region is for s3:// only"),
        ("root: 'file:///x', options: {a: 1}", "storage: options are not for file://"),
        ("root: 's3://b', endpoint: h", "storage.endpoint: not such a URL"),
    ],
)
def test_storage_is_checked(storage, words) -> None:
    (line,) = refused("", BASE.replace('root: "s3://archive/pulsar"', storage))
    assert line.startswith(words)
    assert "secret" not in line


def test_storage_in_azure_has_an_account_by_its_url_or_by_an_endpoint() -> None:
    for storage in (
        "root: 'abfss://abc@account.dfs.core.windows.net/x'",
        "root: 'az://abc/x', endpoint: 'http://127.0.0.1:10000/account'",
    ):
        found = Config.parse(BASE.replace('root: "s3://archive/pulsar"', storage), {}).storage
        assert found.root in storage
        assert found.endpoint is None or found.endpoint in storage


def test_authentication_must_be_complete() -> None:
    assert refused("", BASE.replace('"}', '", authPlugin: token}', 1))[0].startswith(
        "pulsar: authPlugin token needs authParams"
    )
    assert refused("", BASE.replace('"}', '", authParams: "file:///x"}', 1))[0].startswith(
        "pulsar: authParams is set but"
    )


def test_all_problems_are_told_at_once_in_the_order_of_the_file() -> None:
    lines = refused("metrics: {port: -1}\nspark: {tigger: 5s}\npolicies: {enabled: maybe}\n")
    assert [line.split(":")[0] for line in lines] == ["metrics.port", "spark.tigger", "policies.enabled"]


# Other names


def test_pulsars_class_name_of_the_token_plugin_is_accepted() -> None:
    plugin = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
    text = BASE.replace('"}', f'", authPlugin: {plugin}, authParams: "token:${{TOKEN}}"}}', 1)
    pulsar = Config.parse(text, {"TOKEN": "abc"}).pulsar
    assert (pulsar.auth_plugin, pulsar.auth_params.get_secret_value()) == ("token", "token:abc")


@pytest.mark.parametrize(
    ("written", "field", "value"),
    [
        ("maxSizePerOffloadSegmentMbytes: 512", "max_segment_size", 512 * MIB),
        ("maxSizePerOffloadSegmentMbytes: 1G", "max_segment_size", 1024 * MIB),
        ("maxOffloadSegmentRolloverTimeMinutes: 3", "max_rollover_ms", 180_000),
        ("maxOffloadSegmentRolloverTimeInSeconds: 90", "max_rollover_ms", 90_000),
        ("maxOffloadSegmentRolloverTimeInSeconds: 500ms", "max_rollover_ms", 500),
        ("managedLedgerOffloadMaxBlockSizeInBytes: 2097152", "block_size", 2 * MIB),
        ("s3ManagedLedgerOffloadMaxBlockSizeInBytes: 4M", "block_size", 4 * MIB),
    ],
)
def test_pulsars_names_are_accepted_where_they_mean_the_same(written, field, value) -> None:
    assert getattr(parse(f"policies: {{{written}}}").policies.of(ANY), field) == value


def test_an_alias_and_its_target_are_refused_together() -> None:
    lines = refused("policies:\n  maxSizePerOffloadSegmentMbytes: 1\n  maxOffloadSegmentSizeInBytes: 1G")
    assert lines == [
        (
            "policies.maxOffloadSegmentSizeInBytes: is the same setting as maxSizePerOffloadSegmentMbytes; keep one "
            "(line 6)"
        )
    ]


def test_a_wrong_value_is_told_at_the_alias_that_was_written() -> None:
    assert refused("policies: {maxSizePerOffloadSegmentMbytes: big}")[0].startswith(
        "policies.maxSizePerOffloadSegmentMbytes: 'big' is not a size"
    )


@pytest.mark.parametrize("name", REFUSED)
def test_names_whose_meaning_does_not_fit_are_refused_with_the_reason(name) -> None:
    assert refused(f"policies: {{{name}: 1}}") == [f"policies.{name}: {REFUSED[name]} (line 4)"]


@pytest.mark.parametrize("path", REMOVED, ids=".".join)
def test_what_was_removed_is_refused_with_what_to_do_instead(path) -> None:
    text = f"{path[0]}: {{interval: 10s}}" if len(path) == 1 else f"{path[0]}: {{{path[1]}: false}}"
    assert refused(text) == [f"{'.'.join(path)}: {REMOVED[path]} (line 4)"]


def test_aliases_stand_for_fields_and_no_name_is_both() -> None:
    fields = {field.alias for field in PolicyLevel.model_fields.values()}
    assert {alias.target for alias in ALIASES.values()} <= fields
    assert not (fields | set(ALIASES)) & set(REFUSED)


# Limits after the merge


@pytest.mark.parametrize(
    ("policies", "words"),
    [
        ("partSizeInBytes: 4M", "policies.partSizeInBytes: 4M is too small; S3 takes parts from 5M on"),
        (
            "equalParts: true, partSizeInBytes: 5M",
            "policies.equalParts: with equalParts an entry of 5M does not fit a part of 5M",
        ),
        ("blockSizeInBytes: 9M", "policies.blockSizeInBytes: blocks of 9M do not fit parts of 8M"),
        ("maxOffloadSegmentSizeInBytes: 2043M", "policies.maxOffloadSegmentSizeInBytes: a segment of 2043M could"),
        (
            "maxEntrySizeInBytes: 1025M",
            "policies.maxEntrySizeInBytes: a segment of 1G could with an entry of 1025M reach 2 GiB",
        ),
        (
            "minOffloadSegmentRolloverTimeInSeconds: 11m",
            "policies.minOffloadSegmentRolloverTimeInSeconds: the least age 11m is",
        ),
        ("indexStepInBytes: 4095", "policies.indexStepInBytes: 4095 is too small; the least is 4K"),
        ("blockSizeInBytes: 1K", "policies.blockSizeInBytes: 1K is too small; the least is 4K"),
        (
            "maxOffloadSegmentRolloverTimeInSeconds: 0",
            "policies.maxOffloadSegmentRolloverTimeInSeconds: 0s is too small",
        ),
        ("maxBytesPerSecond: 0", "policies.maxBytesPerSecond: 0 is too small"),
        ("source: bookkeeper", "policies.source: bookkeeper needs pulsar.metadataServiceUri"),
    ],
)
def test_limits(policies, words) -> None:
    (line,) = refused(f"policies: {{{policies}}}")
    assert line.startswith(words)


def test_an_endpoint_of_r2_needs_parts_of_equal_length() -> None:
    endpoint = "https://account.r2.cloudflarestorage.com"
    of_r2 = BASE.replace("storage: {", f'storage: {{endpoint: "{endpoint}", region: auto, ')
    assert endpoint in of_r2
    with pytest.raises(ConfigError, match="set equalParts: true"):
        Config.parse(of_r2 + "policies: {enabled: true}", {})
    Config.parse(of_r2 + "policies: {enabled: false}", {})
    config = Config.parse(of_r2 + "policies: {enabled: true, equalParts: true}", {})
    assert config.policies.of(ANY).layout.version == V3
    assert parse("").policies.of(ANY).layout.version == V2


def test_what_is_bridged_cannot_have_parts_of_equal_length() -> None:
    with pytest.raises(ConfigError, match="parts of different length"):
        Config.parse(WITH_METADATA + "policies: {equalParts: true, brokerReadable: true}", {})


def test_the_largest_allowed_segment() -> None:
    assert parse("policies: {maxOffloadSegmentSizeInBytes: 2042M}").policies.of(ANY).max_segment_size == 2042 * MIB


WITH_METADATA = BASE.replace('8080"}', '8080", metadataServiceUri: "zk://zk1:2181,zk2:2181/ledgers"}')


def test_the_source_may_be_chosen_at_every_level() -> None:
    config = Config.parse(
        WITH_METADATA.replace("8080", '8080", source: "bookkeeper')
        + """namespaces:
  public/orders:
    policies: {source: broker}
    topics:
      persistent://public/orders/audit: {policies: {source: bookkeeper}}
""",
        {},
    )
    topics = ("public/other/a", "public/orders/a", "public/orders/audit", "public/orders/audit-partition-0")
    found = [config.policies.of(TopicName.parse(name)).source for name in topics]
    assert found == [Source.BOOKKEEPER, Source.BROKER_WITH_BOOKIES, Source.BOOKKEEPER, Source.BOOKKEEPER]


def test_with_a_metadata_service_bookies_fill_what_brokers_do_not_deliver() -> None:
    assert parse().policies.of(ANY).source is Source.BROKER
    assert Config.parse(WITH_METADATA, {}).policies.of(ANY).source is Source.BROKER_WITH_BOOKIES
    assert refused("policies: {source: broker-filled}", WITH_METADATA) == [
        "policies.source: must be 'broker' or 'bookkeeper' (line 4)"
    ]


def test_another_metadata_store_than_zookeeper_is_refused_in_one_line() -> None:
    for uri in ("etcd://host:2379", "oxia://host:6648/default", "rocksdb:///data/metadata"):
        store = uri.partition(":")[0]
        assert refused("", WITH_METADATA.replace("zk://zk1:2181,zk2:2181/ledgers", uri)) == [
            (
                f"pulsar.metadataServiceUri: {uri!r}: metadata can be read from ZooKeeper only (zk:), not from {store} "
                "(line 2)"
            )
        ]


def test_tls_files_of_bookies_need_tls() -> None:
    base = WITH_METADATA.replace("8080", '8080", bookies: {tlsTrustCertsFilePath: /ca.pem}, authPlugin: "none')
    assert refused("", base) == ["pulsar.bookies: TLS files are named but tls is not true; set tls: true (line 2)"]


def test_small_parts_are_allowed_where_the_store_takes_them() -> None:
    config = Config.parse(NO_S3 + "policies: {partSizeInBytes: 64K, blockSizeInBytes: 64K}", {})
    assert config.policies.of(ANY).part_size == 65536


def test_a_limit_that_only_the_merge_violates_is_told_at_the_level_at_fault() -> None:
    topic = "persistent://public/orders/audit"
    lines = refused(
        f"""policies: {{partSizeInBytes: 16M, blockSizeInBytes: 12M}}
namespaces:
  public/orders:
    policies: {{partSizeInBytes: 8M}}
    topics:
      {topic}: {{policies: {{partSizeInBytes: 10M, blockSizeInBytes: 11M}}}}
  public/fine:
    policies: {{partSizeInBytes: 32M}}
"""
    )
    assert [line.split(": ")[0] for line in lines] == [
        "namespaces[public/orders].policies.partSizeInBytes",
        f"namespaces[public/orders].topics[{topic}].policies.blockSizeInBytes",
    ]


def test_what_a_namespace_inherits_is_told_once() -> None:
    assert (
        len(
            refused(
                "policies: {partSizeInBytes: 4M}\nnamespaces: {public/a: {enabled: true}, public/b: {enabled: true}}"
            )
        )
        == 1
    )


def test_a_partition_is_checked_with_what_its_topic_says() -> None:
    topic = "persistent://public/orders/audit"
    (line,) = refused(
        f"""namespaces:
  public/orders:
    topics:
      {topic}: {{policies: {{partSizeInBytes: 6M}}}}
      {topic}-partition-1: {{policies: {{blockSizeInBytes: 7M}}}}
"""
    )
    assert line.startswith(f"namespaces[public/orders].topics[{topic}-partition-1].policies.blockSizeInBytes: ")


# What is delivered


def test_the_commented_configuration_is_valid() -> None:
    config = Config.load(REPOSITORY / "conf" / "offloader.yaml", {})
    payments = config.policies.of(TopicName.parse("public/orders/payments-partition-2"))
    assert payments.enabled
    assert payments.max_rollover_ms == 60_000
    assert payments.rates == Rates(200 * MIB, 50 * MIB, 20 * MIB)
    assert not config.policies.of(TopicName.parse("public/orders/audit")).enabled


def test_the_demos_configuration_is_valid() -> None:
    environment = {
        "OFFLOADER_DEMO_SERVICE_URL": "pulsar://localhost:1",
        "OFFLOADER_DEMO_ADMIN_URL": "http://localhost:2",
        "OFFLOADER_DEMO_FOLDER": "/tmp/demo",
    }
    config = Config.load(REPOSITORY / "conf" / "demo.yaml", environment)
    assert config.policies.of(ANY).enabled
    assert config.storage.root == "file:///tmp/demo"
    assert config.spark.conf == {"spark.ui.enabled": "false"}


def test_the_page_is_up_to_date() -> None:
    page = (REPOSITORY / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page == render(), "run: python -m dev.docs.configuration docs/configuration.md"


BOOKIES = BASE.replace('"}', '", metadataServiceUri: "zk://localhost:2181"}', 1)


@pytest.mark.parametrize("name", ["archiveGrace", "removeCursorsAfter"])
def test_what_is_shorter_than_an_hour_is_refused_but_where_a_setting_for_tests_allows_it(name) -> None:
    for short, shown in (("1ms", "1ms"), ("59m", "59m"), ("3599999ms", "3599999ms")):
        [said] = refused(f"lifecycle: {{{name}: {short}}}", BOOKIES)
        assert said.startswith(f"lifecycle.{name}: {shown} is less than 1h: "), said
    for sound in ("1h", "60m", "30d"):
        assert Config.parse(BOOKIES + f"lifecycle: {{{name}: {sound}}}", {})
    assert Config.parse(BOOKIES + f"lifecycle: {{{name}: 1ms, quarantineFloor: 0s}}", {})
    # A longer quarantine asks nothing more of the others.
    assert Config.parse(BOOKIES + f"lifecycle: {{{name}: 2h, quarantineFloor: 7d}}", {})
