"""What brokers say of their own offloading, and how a topic is unloaded."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import httpx
import pytest

from offloader.errors import (
    AuthorizationFailedError,
    BrokerUnavailableError,
    FatalError,
    OffloadError,
    ProtocolError,
    TopicNotFoundError,
)
from offloader.model import TopicName
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.offloading import BrokerOffloading, broker_offloading
from offloader.pulsar.settings import PulsarSettings

TOPIC = TopicName.parse("acme/orders/a b-partition-3")
UNLOAD = "/admin/v2/persistent/acme/orders/a%20b-partition-3/unload"
POLICIES = "/admin/v2/persistent/acme/orders/a%20b/offloadPolicies?applied=true"
# As 4.0.7 answers, with S3 at the brokers and nothing at the namespace.
ANSWER: dict[str, object] = {
    "offloadersDirectory": "/pulsar/offloaders",
    "managedLedgerOffloadDriver": "S3",
    "managedLedgerOffloadMaxThreads": 2,
    "managedLedgerOffloadThresholdInBytes": -1,
    "managedLedgerOffloadThresholdInSeconds": -1,
    "managedLedgerOffloadDeletionLagInMillis": 14_400_000,
    "managedLedgerOffloadedReadPriority": "TIERED_STORAGE_FIRST",
    "managedLedgerOffloadBucket": "brokers",
    "managedLedgerOffloadRegion": "us-east-1",
    "managedLedgerOffloadServiceEndpoint": "http://store:9000",
    "s3ManagedLedgerOffloadCredentialId": "AKIA",
    "s3ManagedLedgerOffloadCredentialSecret": "very secret",
}


def admin(answer: Callable[[httpx.Request], httpx.Response], hosts: str = "one:8080") -> AdminClient:
    return AdminClient(PulsarSettings(admin_url=f"http://{hosts}"), transport=httpx.MockTransport(answer))


def said(value: object) -> Callable[[httpx.Request], httpx.Response]:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.raw_path.decode() == POLICIES
        return httpx.Response(200, text=json.dumps(value) if value is not None else "")

    return answer


def test_a_partition_has_the_policies_of_its_topic_and_no_secret_leaves_the_client():
    found = admin(said(ANSWER)).offload_policies(TOPIC)
    assert "AKIA" not in str(found)
    assert "very secret" not in str(found)
    assert found["managedLedgerOffloadBucket"] == "brokers"


def test_the_policies_as_a_value():
    assert broker_offloading(ANSWER) == BrokerOffloading(
        "S3", "brokers", "http://store:9000", tiered_first=True, deletion_lag_ms=14_400_000
    )


OLDER = {
    "aws-s3": "s3ManagedLedgerOffloadBucket",
    "google-cloud-storage": "gcsManagedLedgerOffloadBucket",
    "S3": "s3ManagedLedgerOffloadBucket",
}


@pytest.mark.parametrize(("driver", "bucket"), OLDER.items())
def test_names_of_one_driver_alone_are_read_too(driver: str, bucket: str):
    found = broker_offloading({"managedLedgerOffloadDriver": driver, bucket: "mine"})
    assert found.bucket == "mine"


@pytest.mark.parametrize(
    ("priority", "tiered"),
    [
        ("TIERED_STORAGE_FIRST", True),
        ("tiered-storage-first", True),
        (None, True),
        ("BOOKKEEPER_FIRST", False),
        ("bookkeeper-first", False),
        ("something-new", False),
    ],
)
def test_the_read_priority_as_java_names_it_or_as_a_broker_s_configuration_does(priority: str | None, tiered: bool):
    assert broker_offloading({"managedLedgerOffloadedReadPriority": priority}).tiered_first == tiered


@pytest.mark.parametrize(
    ("said_lag", "lag"), [(None, None), (-1, -1), ("-5", -5), (0, 0), ("60000", 60_000), ("never", None), (True, None)]
)
def test_a_deletion_lag_of_any_type(said_lag: object, lag: int | None):
    assert broker_offloading({"managedLedgerOffloadDeletionLagInMillis": said_lag}).deletion_lag_ms == lag


@pytest.mark.parametrize(
    ("lag", "version", "kept"),
    [
        (None, "3.0.7", None),
        (7, "3.0.7", 7),
        (-1, "4.0.7", None),
        (-1, "4.1.0-SNAPSHOT", None),
        (-1, "10.0.0", None),
        (-1, "3.0.7", 0),
        (-1, "2.8.1.7-custom", 0),
        (-1, "what?", 0),  # who cannot be asked may be one of those that delete
        (0, "4.0.7", 0),
    ],
)
def test_a_lag_below_0_is_never_for_newer_brokers_and_at_once_for_older_ones(lag: int, version: str, kept: int | None):
    assert BrokerOffloading(deletion_lag_ms=lag).kept_ms(version) == kept


def test_a_threshold_below_0_is_none():
    assert broker_offloading({"managedLedgerOffloadThresholdInBytes": -1}).threshold_bytes is None


def test_brokers_without_an_offloader_say_nothing():
    assert admin(said(None)).offload_policies(TOPIC) == {}
    assert broker_offloading({}) == BrokerOffloading()


def test_an_answer_of_another_type_is_no_policy():
    with pytest.raises(ProtocolError, match="offload policies"):
        admin(said([1])).offload_policies(TOPIC)


def test_an_unload_follows_the_redirect_to_the_topic_s_owner():
    asked: list[tuple[str, str]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append((request.method, str(request.url)))
        if request.url.host == "one":
            return httpx.Response(307, headers={"Location": f"http://two:8080{UNLOAD}"})
        return httpx.Response(204)

    admin(answer, "one:8080,two:8080").unload(TOPIC)
    assert asked == [("PUT", f"http://one:8080{UNLOAD}"), ("PUT", f"http://two:8080{UNLOAD}")]


ANSWERS: Mapping[str, tuple[int, str, type[OffloadError]]] = {
    "the bundle moves": (503, '{"reason": "unloading"}', BrokerUnavailableError),
    "a broker that fails": (500, '{"reason": "failed"}', BrokerUnavailableError),
    "no such topic": (404, '{"reason": "Topic not found"}', TopicNotFoundError),
    "an ingress": (404, "<html>", BrokerUnavailableError),
    "no right": (403, '{"reason": "no"}', AuthorizationFailedError),
    "refused": (412, '{"reason": "not allowed"}', FatalError),
}


@pytest.mark.parametrize(("status", "text", "error"), ANSWERS.values(), ids=ANSWERS)
def test_what_an_unload_may_be_answered_with(status: int, text: str, error: type[OffloadError]):
    with pytest.raises(error):
        admin(lambda _: httpx.Response(status, text=text)).unload(TOPIC)
