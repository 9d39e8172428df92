"""Policies of Pulsar that endanger the pin are named with their remedy."""

from __future__ import annotations

import pytest

from offloader.config import Config
from offloader.config.bridging import Bridge
from offloader.model import TopicName
from offloader.offload.core.check import Check, Verdict
from offloader.offload.core.namespace_policies import (
    backlog_quotas,
    bridge_time_to_live,
    check_policies,
    stock_offload,
)

NS = "public/default"
MINUTE, DAY = 60_000, 86_400_000
MINIMAL = """
application: a
pulsar: {serviceUrl: "pulsar://p:6650", adminUrl: "http://p:8080"}
storage: {root: "s3://bucket"}
"""
OK, WARN, FAIL = Verdict.OK, Verdict.WARN, Verdict.FAIL


def checked(**applied: object) -> dict[str, Check]:
    """By their names: the checks of a namespace whose topics roll after ten minutes, and are discovered in one."""
    policy = Config.parse(MINIMAL, {}).policies.of(TopicName.parse(f"{NS}/t"))
    return {check.name: check for check in check_policies(NS, applied, policy, MINUTE)}


@pytest.mark.parametrize(("seconds", "verdict"), [(None, OK), (0, OK), (-1, OK), (3_600, FAIL), (86_400 * 7, WARN)])
def test_messages_that_expire(seconds, verdict) -> None:
    check = checked(message_ttl_in_seconds=seconds)["message-ttl"]
    assert check.verdict is verdict
    assert ("set-message-ttl public/default" in check.remedy) == (verdict is not OK)


@pytest.mark.parametrize(
    ("hours", "bridge", "verdict"),
    [
        (0, {}, OK),
        (3, {}, FAIL),
        (3, {"minInterval": "0s"}, FAIL),
        (5, {"minInterval": "0s"}, OK),
        (5, {}, FAIL),
        (6, {}, OK),
        (24, {"quietHours": "01:00-02:00"}, FAIL),
        (29, {"quietHours": "01:00-02:00"}, OK),
        (29, {"quietHours": "01:00-02:00", "minInterval": "2d"}, FAIL),
    ],
)
def test_messages_that_expire_before_brokers_can_read_them_from_objects(hours, bridge, verdict) -> None:
    """A ledger is open for four hours, is offloaded within ten minutes, and waits for its round."""
    wait_ms = Bridge.model_validate(bridge).longest_wait_ms
    check = bridge_time_to_live(NS, hours * 3_600, 10 * MINUTE, wait_ms)
    assert check.verdict is verdict
    assert ("set-message-ttl public/default" in check.remedy) == (verdict is not OK)


@pytest.mark.parametrize(
    ("quotas", "verdict", "words"),
    [
        (None, OK, "no backlog quota"),
        (
            {"destination_storage": {"limitSize": -1, "limitTime": -1, "policy": "producer_request_hold"}},
            OK,
            "no backlog quota",
        ),
        (
            {"destination_storage": {"limitSize": 0, "limitTime": 0, "policy": "consumer_backlog_eviction"}},
            OK,
            "no backlog quota",
        ),
        (
            {"destination_storage": {"limitSize": 10, "limitTime": -1, "policy": "consumer_backlog_eviction"}},
            FAIL,
            "drops entries",
        ),
        ({"message_age": {"limitTime": 60, "policy": "producer_exception"}}, WARN, "lags by 60 s"),
        ({"destination_storage": {"limit": 99, "policy": "producer_request_hold"}}, WARN, "lags by 99 bytes"),
    ],
)
def test_backlog_quotas(quotas, verdict, words) -> None:
    (check,) = backlog_quotas(NS, quotas)
    assert check.verdict is verdict
    assert words in check.message


@pytest.mark.parametrize(("minutes", "verdict"), [(None, OK), (0, OK), (5, FAIL), (3 * 1440, WARN)])
def test_subscriptions_that_expire(minutes, verdict) -> None:
    assert checked(subscription_expiration_time_minutes=minutes)["subscription-expiration"].verdict is verdict


@pytest.mark.parametrize(
    ("policies", "verdict"),
    [
        (None, WARN),
        ({"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}, WARN),
        ({"retentionTimeInMinutes": 1, "retentionSizeInMB": 100}, OK),
        ({"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}, OK),
        ({"retentionTimeInMinutes": 60, "retentionSizeInMB": 0}, WARN),
    ],
)
def test_retention_against_discovery(policies, verdict) -> None:
    assert checked(retention_policies=policies)["retention"].verdict is verdict


@pytest.mark.parametrize(
    ("policies", "verdict"),
    [
        (None, OK),
        ({"managedLedgerOffloadDriver": "aws-s3", "managedLedgerOffloadThresholdInBytes": -1}, OK),
        ({"managedLedgerOffloadDriver": None, "managedLedgerOffloadThresholdInBytes": 0}, OK),
        ({"managedLedgerOffloadDriver": "aws-s3", "managedLedgerOffloadThresholdInSeconds": None}, OK),
        ({"managedLedgerOffloadDriver": "aws-s3", "managedLedgerOffloadThresholdInBytes": 0}, FAIL),
        ({"managedLedgerOffloadDriver": "aws-s3", "managedLedgerOffloadThresholdInSeconds": 60}, FAIL),
    ],
)
def test_pulsars_own_offloader(policies, verdict) -> None:
    assert stock_offload(NS, policies).verdict is verdict
