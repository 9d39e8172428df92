"""What brokers must be to read what is bridged, each condition alone; and what is tried with throw-away objects."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatch

import pytest

from offloader.bridge.core.record import RecordSize
from offloader.bridge.operations.doctor import TRIED, BridgeFacts, FoundRecord, TriedBucket, check_bridge, try_bucket
from offloader.errors import AccessDeniedError, AuthorizationFailedError, TopicNotFoundError
from offloader.metadata.stock_keys import parse_key
from offloader.model import TopicName
from offloader.offload.core.check import Verdict
from offloader.pulsar.offloading import BrokerOffloading
from offloader.storage.memory import MemoryStore

TOPIC = TopicName.parse("public/default/t")
GOOD = BrokerOffloading("aws-s3", "brokers", "http://minio:9000", deletion_lag_ms=4 * 3_600_000)
SOUND = BridgeFacts(
    topic=TOPIC,
    offloading=GOOD,
    configuration={"autoSkipNonRecoverableData": "false"},
    retention=(-1, -1),
    own_policies=False,
    record=FoundRecord(
        "/managed-ledgers/public/default/persistent/t", RecordSize(1000, compressed=False, most=700_000)
    ),
    bucket=TriedBucket("s3://brokers", copies=True),
    endpoint="http://minio:9000/",
    version="4.0.7",
)


def found(facts: BridgeFacts) -> dict[str, Verdict]:
    return {check.name: check.verdict for check in check_bridge(facts)}


def test_a_sound_cluster_passes() -> None:
    checks = list(check_bridge(SOUND))
    assert {check.verdict for check in checks} == {Verdict.OK}
    assert len(checks) == 9


@pytest.mark.parametrize(
    ("facts", "name", "verdict", "remedy"),
    [
        (replace(SOUND, offloading=BrokerOffloading()), "driver", Verdict.FAIL, "managedLedgerOffloadDriver=aws-s3"),
        (replace(SOUND, offloading=replace(GOOD, driver="filesystem")), "driver", Verdict.FAIL, "s3"),
        (replace(SOUND, offloading=AuthorizationFailedError("no")), "driver", Verdict.FAIL, "role"),
        (
            replace(SOUND, offloading=replace(GOOD, tiered_first=False)),
            "read-priority", Verdict.FAIL, "managedLedgerDataReadPriority=tiered-storage-first",
        ),
        (replace(SOUND, offloading=replace(GOOD, deletion_lag_ms=0)), "deletion-lag", Verdict.WARN, "14400000"),
        (
            replace(SOUND, offloading=replace(GOOD, deletion_lag_ms=-1), version="3.0.7"),
            "deletion-lag", Verdict.FAIL, "14400000",
        ),
        (
            replace(SOUND, offloading=replace(GOOD, deletion_lag_ms=-1), version=AccessDeniedError("no")),
            "deletion-lag", Verdict.FAIL, "14400000",
        ),
        (replace(SOUND, offloading=replace(GOOD, threshold_bytes=0)), "automatic-offload", Verdict.WARN, "--size -1"),
        (
            replace(SOUND, configuration={"autoSkipNonRecoverableData": "true"}),
            "auto-skip", Verdict.FAIL, "autoSkipNonRecoverableData=false",
        ),
        (replace(SOUND, configuration=AuthorizationFailedError("no")), "auto-skip", Verdict.WARN, "super user"),
        (replace(SOUND, retention=(0, 0)), "retention", Verdict.FAIL, "set-retention public/default"),
        (replace(SOUND, retention=(60, 0)), "retention", Verdict.FAIL, "set-retention public/default"),
        (replace(SOUND, retention=AuthorizationFailedError("no")), "retention", Verdict.FAIL, "role"),
        (
            replace(SOUND, record=FoundRecord("/t", RecordSize(400_000, compressed=False, most=700_000))),
            "record", Verdict.WARN, "managedLedgerInfoCompressionType=ZSTD",
        ),
        (
            replace(SOUND, record=FoundRecord("/t", RecordSize(400_000, compressed=True, most=700_000))),
            "record", Verdict.WARN, "fewer ledgers",
        ),
        (replace(SOUND, record=TopicNotFoundError("none")), "record", Verdict.FAIL, "metadataServiceUri"),
        (replace(SOUND, bucket=AccessDeniedError("no")), "bucket", Verdict.FAIL, "bridge.bucket"),
        (replace(SOUND, bucket=TriedBucket("s3://brokers", copies=False)), "copies", Verdict.WARN, "same store"),
        (replace(SOUND, endpoint="http://elsewhere"), "same-store", Verdict.WARN, "make sure"),
        (replace(SOUND, own_policies=True), "topic-policies", Verdict.FAIL, "topicPolicies remove-offload-policies"),
        (replace(SOUND, own_policies=AuthorizationFailedError("no")), "topic-policies", Verdict.WARN, "role"),
    ],
)  # fmt: skip
def test_each_condition_is_a_line_with_a_remedy(facts: BridgeFacts, name: str, verdict: Verdict, remedy: str) -> None:
    (check,) = [check for check in check_bridge(facts) if check.verdict is not Verdict.OK]
    assert (check.name, check.verdict) == (f"bridge-{name}", verdict)
    assert remedy in check.remedy


def test_a_lag_below_0_is_fine_where_brokers_take_it_for_never() -> None:
    facts = replace(SOUND, offloading=replace(GOOD, deletion_lag_ms=-1))
    (lag,) = [check for check in check_bridge(facts) if check.name == "bridge-deletion-lag"]
    assert lag.verdict is Verdict.OK
    assert "keep BookKeeper's copy" in lag.message


def test_a_retention_that_is_not_for_ever_says_how_long_clients_read() -> None:
    (check,) = [check for check in check_bridge(replace(SOUND, retention=(60, -1))) if check.name == "bridge-retention"]
    assert check.message.endswith("clients can read 60 minutes after it is consumed")


@pytest.mark.parametrize("copies", [True, False])
def test_a_bucket_is_tried_with_objects_that_go_again(copies: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    archive, bucket = MemoryStore(), MemoryStore()
    bucket.put("theirs", b"x")
    if not copies:
        monkeypatch.setattr(bucket, "copy_part", lambda *_, **__: None)
    assert len(TRIED) > 5 << 20
    assert try_bucket(archive, bucket) is copies
    assert [key for key, _ in archive.list()] == []
    assert [key for key, _ in bucket.list()] == ["theirs"]
    assert list(bucket.list_uploads()) == []


def test_a_bucket_is_tried_under_a_name_that_the_documented_rights_allow_and_that_is_no_ledgers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    archive, bucket, names = MemoryStore(), MemoryStore(), list[str]()
    begin = bucket.begin

    def noted(key: str, **options: object) -> str:
        names.append(key)
        return begin(key, **options)

    monkeypatch.setattr(bucket, "begin", noted)
    try_bucket(archive, bucket)
    assert [(fnmatch(name, "*-ledger-*"), parse_key(name)) for name in names] == [(True, None)]


def test_a_bucket_that_may_not_be_written_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    archive, bucket = MemoryStore(), MemoryStore()

    def refuse(*_: object, **__: object) -> None:
        raise AccessDeniedError("no")

    monkeypatch.setattr(bucket, "commit", refuse)
    with pytest.raises(AccessDeniedError):
        try_bucket(archive, bucket)
    assert [key for key, _ in archive.list()] == []
    assert list(bucket.list_uploads()) == []
