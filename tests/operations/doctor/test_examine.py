"""The whole visit: a sound installation passes; each thing that is broken is a line with a remedy, and exit code 2."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from offloader.errors import (
    AccessDeniedError,
    AuthenticationFailedError,
    AuthorizationFailedError,
    BookieUnavailableError,
    BrokerUnavailableError,
    ConfigError,
    FatalError,
    MetadataUnavailableError,
    NamespaceNotFoundError,
    NotAllowedError,
    OffloadError,
    SubscriptionBusyError,
    TopicNotFoundError,
)
from offloader.metadata.root import open_root
from offloader.model import TopicName
from offloader.operations.doctor.store_checks import BucketFacts
from tests.archive.support import TOPIC
from tests.bridge.operations.test_doctor import SOUND
from tests.cli.support import Line

SILENT = BookieUnavailableError("a bookie did not answer")


@dataclass
class FakeProbes:
    """Answers, or errors by call."""

    admin: Any
    store: Any
    errors: dict[str, OffloadError] = field(default_factory=dict)
    policies: dict[str, object] = field(
        default_factory=lambda: {"retention_policies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}}
    )
    bucket_facts: Any = None
    registered: dict[str, OffloadError | None] | None = None
    offset: float | None = 0.1
    stock: str | None = None
    against_deletion: tuple[str, ...] | None = None

    def java(self) -> str:
        return self._answer("java", "Java 21 in /opt/java")

    def connect(self) -> str:
        return self._answer("connect", "connected to localhost:6650")

    def admin_clock(self) -> float | None:
        return self._answer("admin_clock", self.offset)

    def applied(self, topic) -> Any:
        return self._answer("applied", self.policies)

    def read_topic(self, topic) -> str:
        return self._answer("read_topic", f"{topic} can be read")

    def bookies(self) -> Any:
        return self._answer("bookies", self.registered)

    def read_ledger(self, topic) -> str:
        return self._answer("read_ledger", f"{topic}: entry 5:0 was read from its bookies")

    def bucket(self) -> Any:
        return self._answer("bucket", self.bucket_facts)

    def ledger_deletion(self) -> Any:
        return self._answer("ledger_deletion", self.against_deletion)

    def stock_bucket(self) -> Any:
        return self._answer("stock_bucket", self.stock)

    def bridge(self, topic) -> Any:
        return replace(SOUND, topic=topic)

    def _answer(self, call: str, answer: Any) -> Any:
        if call in self.errors:
            raise self.errors[call]
        return answer


@pytest.fixture
def line(tmp_path: Path):
    built = Line(tmp_path)
    built.cluster.create(TOPIC)
    built.probes = FakeProbes(built.cluster.admin, built.archive.store)
    return built


def verdicts(line) -> dict[str, str]:
    import json

    found = [json.loads(text) for text in line.run("doctor", "--output", "json").stdout.splitlines()]
    return {check["check"]: check["verdict"] for check in found}


def test_a_floor_that_only_tests_may_have_is_a_failure(line) -> None:
    line.config += "lifecycle: {quarantineFloor: 59m}\n"
    result = line.run("doctor")
    assert result.exit_code == 2
    assert "quarantine-floor" in result.stdout
    line.config = line.config.replace("59m", "60m")
    assert "quarantine-floor" not in line.run("doctor").stdout


def test_a_retention_of_0_in_pulsar_cannot_be_followed(line) -> None:
    line.config += "policies: {followPulsarRetention: true}\n"
    namespace = line.cluster.namespace("public/default")
    for minutes, megabytes, verdict in ((0, -1, "fail"), (-1, 0, "fail"), (-1, -1, "ok"), (5, 1, "ok")):
        namespace.policies["retention_policies"] = {
            "retentionTimeInMinutes": minutes,
            "retentionSizeInMB": megabytes,
        }
        assert verdicts(line)["follow-pulsar-retention"] == verdict
    namespace.policies["retention_policies"] = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    assert f"{TOPIC}: followPulsarRetention is refused" in line.run("doctor").stdout
    line.config = line.config.replace("policies: {follow", "policies: {hold: me, follow").replace("true}\n", "false}\n")
    assert "follow-pulsar-retention" not in verdicts(line)


def test_a_sound_installation(line) -> None:
    result = line.run("doctor")
    assert result.exit_code == 0, result.output
    assert all(text.startswith("ok  ") for text in result.stdout.splitlines()), result.stdout
    assert {
        "java",
        "broker-port",
        "admin-port",
        "exact-bytes",
        "store",
        "store-race",
        "store-multipart",
        "root",
        "read-topic",
    } <= verdicts(line).keys()
    assert line.run("doctor").stdout == result.stdout


def test_the_doctor_leaves_nothing_behind(line) -> None:
    line.run("doctor")
    assert list(line.archive.store.list()) == []
    assert list(line.archive.store.list_uploads()) == []


@pytest.mark.parametrize(
    ("call", "error", "check"),
    [
        ("java", FatalError("no Java found"), "java"),
        ("connect", BrokerUnavailableError("no answer"), "broker-port"),
        ("read_topic", AuthorizationFailedError("not allowed"), "read-topic"),
        ("read_topic", TopicNotFoundError("gone"), "read-topic"),
        ("read_topic", NotAllowedError("no Exclusive sub type"), "read-topic"),
        ("read_topic", SubscriptionBusyError("held"), "read-topic"),
        ("applied", AuthorizationFailedError("not allowed"), "policies"),
    ],
)
def test_what_does_not_work_fails(line, call, error, check) -> None:
    line.probes.errors[call] = error
    result = line.run("doctor")
    assert result.exit_code == 2
    failed = [text for text in result.stdout.splitlines() if text.startswith("fail")]
    assert failed == [f"fail  {check}: {error}" if check != "policies" else f"fail  policies: public/default: {error}"]
    assert "      -> " in result.stdout


@pytest.mark.parametrize(
    ("registered", "errors", "expected"),
    [
        (None, {}, {}),
        ({"a:1": None, "b:1": None}, {}, {"metadata-service": "ok", "bookies": "ok", "read-ledger": "ok"}),
        ({"a:1": None, "b:1": SILENT}, {}, {"metadata-service": "ok", "bookies": "warn", "read-ledger": "ok"}),
        (
            {"a:1": SILENT},
            {"read_ledger": SILENT},
            {"metadata-service": "ok", "bookies": "fail", "read-ledger": "fail"},
        ),
        (None, {"bookies": MetadataUnavailableError("ZooKeeper did not answer")}, {"metadata-service": "fail"}),
    ],
)
def test_the_metadata_service_and_bookies_where_they_are_configured(line, registered, errors, expected) -> None:
    line.probes.registered = registered
    line.probes.errors = errors
    found = verdicts(line)
    assert {name: found[name] for name in ("metadata-service", "bookies", "read-ledger") if name in found} == expected


@pytest.mark.parametrize(
    ("against", "errors", "verdict"),
    [
        (None, {}, None),
        ((), {}, "ok"),
        (("Say lifecycle.bookkeeperIsNotShared: true.",), {}, "warn"),
        ((), {"ledger_deletion": MetadataUnavailableError("ZooKeeper did not answer")}, "fail"),
    ],
)
def test_what_stands_against_deleting_ledgers(line, against, errors, verdict) -> None:
    line.probes.registered = {"a:1": None}
    line.probes.against_deletion = against
    line.probes.errors = errors
    assert verdicts(line).get("ledger-deletion") == verdict


@pytest.mark.parametrize(
    ("stock", "errors", "verdict"),
    [
        (None, {}, None),
        ("s3://pulsar-offload", {}, "ok"),
        (
            "s3://pulsar-offload",
            {"stock_bucket": ConfigError("there is no such bucket")},
            "fail",
        ),
    ],
)
def test_the_bucket_of_pulsars_own_offloader_where_one_is_named(line, stock, errors, verdict) -> None:
    line.probes.stock = stock
    line.probes.errors = errors
    assert verdicts(line).get("stock-bucket") == verdict


def test_an_admin_port_that_does_not_answer_is_told_once(line) -> None:
    line.cluster.faults.add("admin.*", lambda: BrokerUnavailableError("refused"), times=99)
    assert verdicts(line)["admin-port"] == "fail"


def test_brokers_that_take_metadata_off(line) -> None:
    line.cluster.configuration |= {
        "exposingBrokerEntryMetadataToClientEnabled": "false",
        "brokerEntryMetadataInterceptors": "[AppendIndexMetadataInterceptor]",
    }
    assert verdicts(line)["exact-bytes"] == "fail"


@pytest.mark.parametrize(("vouched", "verdict"), [("true", "ok"), ("false", "warn")])
def test_brokers_that_do_not_tell_a_role_are_vouched_for_by_the_operator(line, vouched, verdict) -> None:
    line.cluster.faults.add(
        "admin.runtime_configuration", lambda: AuthorizationFailedError("not a super user"), times=99
    )
    line.config = line.config.replace("pulsar: {", f"pulsar: {{entriesAreExact: {vouched}, ")
    assert verdicts(line)["exact-bytes"] == verdict


def test_brokers_with_larger_messages_than_we_know(line) -> None:
    line.cluster.configuration["maxMessageSize"] = str(20 * 1024 * 1024)
    assert verdicts(line)["entry-size"] == "warn"


def test_no_topic_is_enabled(line) -> None:
    line.config = line.config.replace("enabled: true", "enabled: false")
    assert verdicts(line)["topics"] == "warn"
    assert line.run("doctor").exit_code == 0


@pytest.mark.parametrize("by", ["configuration", "property"])
def test_an_enabled_namespace_without_topics_is_waited_for(line, by) -> None:
    if by == "property":
        line.config = line.config.replace("namespaces:\n  public/default: {enabled: true}\n", "")
        line.cluster.namespace("public/default").properties["offloader.enabled"] = "true"
    assert verdicts(line)["topics"] == "ok"
    for topic in list(line.cluster.state.topics):
        line.cluster.delete(topic)
    assert verdicts(line)["topics"] == "ok"
    assert "there is no topic yet in public/default" in line.run("doctor").stdout


def test_a_namespace_that_does_not_say_true_or_false(line) -> None:
    line.cluster.namespace("public/default").properties["offloader.enabled"] = "maybe"
    assert verdicts(line)["namespace"] == "fail"


def test_a_store_that_may_not_be_written(line) -> None:
    def refused(*_: object, **__: object) -> object:
        raise AccessDeniedError("the store refuses this call")

    line.archive.store.put = refused
    found = verdicts(line)
    assert found["store"] == "fail"
    assert "store-multipart" not in found


def test_a_root_of_another_cluster(line) -> None:
    open_root(line.archive.store, "elsewhere", line.archive.token)
    assert verdicts(line)["root"] == "fail"


def test_a_bucket_that_deletes(line) -> None:
    rule = {"Status": "Enabled", "Prefix": "", "Expiration": {"Days": 1}}
    line.probes.bucket_facts = (BucketFacts("archive", [rule]), 1_000.0)
    found = verdicts(line)
    assert (found["life-cycle"], found["store-clock"]) == ("fail", "fail")


def test_policies_that_move_the_pin(line) -> None:
    line.probes.policies["message_ttl_in_seconds"] = 60
    assert verdicts(line)["message-ttl"] == "fail"


def test_brokers_are_looked_at_only_where_they_are_to_read(line) -> None:
    assert not any(name.startswith("bridge-") for name in verdicts(line))
    line.config = """
        application: app
        pulsar: {serviceUrl: "pulsar://localhost:6650", adminUrl: "http://localhost:8080",
                 metadataServiceUri: "zk://localhost:2181/ledgers"}
        storage: {root: "s3://unused"}
        policies: {enabled: true, brokerReadable: true}
    """
    assert {name for name in verdicts(line) if name.startswith("bridge-")} >= {"bridge-driver", "bridge-retention"}
    assert verdicts(line)["bridge-ttl"] == "ok"
    line.probes.policies["message_ttl_in_seconds"] = 3 * 3_600
    assert verdicts(line)["bridge-ttl"] == "fail"


def test_system_topics_are_named_and_topics_of_users_are_not_taken_for_them(line) -> None:
    for name in ("__change_events", "__consumer_offsets"):
        line.cluster.create(TopicName.parse(f"public/default/{name}"))
    assert verdicts(line)["system-topics"] == "ok"
    (said,) = [row for row in line.run("doctor").output.splitlines() if "system-topics" in row]
    assert "__change_events" in said
    assert "__consumer_offsets" not in said


def test_topics_whose_names_the_store_cannot_hold_are_findings(line) -> None:
    long = TopicName.parse("public/default/" + "é" * 50)  # 300 bytes, URL-encoded
    line.cluster.create(long)
    assert "topic-names" not in verdicts(line), "object stores can"
    line.probes.store.url = "file:///archive"
    assert verdicts(line)["topic-names"] == "fail"
    (said,) = [row for row in line.run("doctor").output.splitlines() if "topic-names" in row]
    assert str(long) in said


DENIED = AuthorizationFailedError("only super users may ask")
POLICY_CHECKS = {
    "message_ttl_in_seconds": "message-ttl",
    "backlog_quota_map": "backlog-quota",
    "subscription_expiration_time_minutes": "subscription-expiration",
    "retention_policies": "retention",
    "offload_policies": "stock-offload",
}


@pytest.mark.parametrize("unread", POLICY_CHECKS)
def test_a_policy_that_cannot_be_read_hides_no_other(line, unread) -> None:
    line.probes.policies |= {
        "message_ttl_in_seconds": 60,
        "backlog_quota_map": {"destination_storage": {"limitSize": 10, "policy": "consumer_backlog_eviction"}},
        "subscription_expiration_time_minutes": 5,
        "retention_policies": {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0},
        "offload_policies": {"managedLedgerOffloadDriver": "aws-s3", "managedLedgerOffloadThresholdInBytes": 0},
        unread: DENIED,
    }
    wanted = {
        check: "warn" if key in (unread, "retention_policies") else "fail" for key, check in POLICY_CHECKS.items()
    }
    found = verdicts(line)
    assert {check: found.get(check) for check in wanted} == wanted


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (AuthenticationFailedError("who"), "pulsar.authPlugin"),
        (AuthorizationFailedError("may not"), "grant-permission"),
        (NotAllowedError("no Exclusive sub type"), "no permission is missing"),
        (SubscriptionBusyError("held"), "stop the other consumer"),
        (BrokerUnavailableError("no answer"), "whether the broker runs"),
    ],
)
def test_each_refusal_has_its_own_remedy(line, error, remedy) -> None:
    line.probes.errors["read_topic"] = error
    assert remedy in line.run("doctor").stdout


def test_a_namespace_that_does_not_exist(line) -> None:
    line.config = line.config.replace("public/default: {enabled: true}", "public/misspelt: {enabled: true}")
    line.cluster.faults.add("admin.namespace_properties", lambda: NamespaceNotFoundError("no such namespace"), times=99)
    result = line.run("doctor")
    assert result.exit_code == 2
    assert "fail  namespace: public/misspelt does not exist" in result.stdout
    assert "waited for" not in result.stdout
