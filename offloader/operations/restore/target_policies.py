"""Refuses policies of a target under which a restore could not be resumed, or its entries would not stay. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from offloader.errors import FatalError
from offloader.model import GIB, TopicName

# Policies in force for a topic: our names, and the paths below the topic's, asked with `applied=true`.
APPLIED = {
    "retention": "retention",
    "message TTL": "messageTTL",
    "compaction threshold": "compactionThreshold",
}
# The same policies as a namespace names them: a topic without its own has these, else those of the broker's
# configuration.
NAMESPACES = {
    "retention": "retention_policies",
    "message TTL": "message_ttl_in_seconds",
    "compaction threshold": "compaction_threshold",
}
# A broker's configuration under which nothing would be refused.
KEEPS_EVERYTHING = {"defaultRetentionTimeInMinutes": "-1", "defaultRetentionSizeInMB": "-1"}


def left_to_broker(namespace: Mapping[str, Any]) -> list[str]:
    """What a namespace's policies do not say."""
    return [ours for ours, theirs in NAMESPACES.items() if namespace.get(theirs) is None]


def inherited(namespace: Mapping[str, Any], broker: Mapping[str, str]) -> dict[str, Any]:
    """What will be in force for a topic that is made in a namespace, by its policies and the broker's configuration."""
    defaults = {
        "retention": {
            "retentionTimeInMinutes": int(broker.get("defaultRetentionTimeInMinutes", 0)),
            "retentionSizeInMB": int(broker.get("defaultRetentionSizeInMB", 0)),
        },
        "message TTL": int(broker.get("ttlDurationDefaultInSeconds", 0)),
        "compaction threshold": int(broker.get("brokerServiceCompactionThresholdInBytes", 0)),
    }
    return {
        name: default if name in left_to_broker(namespace) else namespace[NAMESPACES[name]]
        for name, default in defaults.items()
    }


def check_policies(
    target: TopicName, applied: Mapping[str, Any], *, encryption_required: bool = False, new: bool = False
) -> None:
    """Raises FatalError that names the first setting in the way and its remedy; for a `new` topic at its namespace.

    Only a retention without end proves that the tail, after which a restore is resumed, is still there.
    """
    kept = applied.get("retention") or {}
    if kept.get("retentionTimeInMinutes") != -1 or kept.get("retentionSizeInMB") != -1:
        _refuse(
            target,
            f"its retention ({kept.get('retentionTimeInMinutes', 0)} minutes, {kept.get('retentionSizeInMB', 0)} MB) "
            "may remove what was restored",
            _remedy("set-retention", "--time -1 --size -1", target, new=new),
        )
    if applied.get("message TTL"):
        _refuse(
            target,
            f"its message TTL ({applied['message TTL']} s) expires restored messages, which keep their publish times",
            _remedy("set-message-ttl", "--messageTTL 0" if new else "--ttl 0", target, new=new),
        )
    if applied.get("compaction threshold"):
        _refuse(
            target,
            f"its compaction threshold ({applied['compaction threshold']} bytes) lets the broker compact it",
            _remedy("set-compaction-threshold", "--threshold 0", target, new=new),
        )
    if encryption_required:
        _refuse(
            target,
            "its namespace requires encryption, and a restore publishes entries as they are",
            f"pulsar-admin namespaces set-encryption-required {target.namespace} --disable",
        )


def check_quotas(target: TopicName, quotas: Mapping[str, Mapping[str, Any]] | None, *, new: bool = False) -> None:
    """Before subscriptions are restored. `quotas`: the backlog quotas in force, by their type. Raises FatalError."""
    for kind, quota in sorted((quotas or {}).items()):
        size, seconds = quota.get("limitSize", quota.get("limit", -1)), quota.get("limitTime", -1)
        limit = f"--limit {size}" if size > 0 else f"--limitTime {seconds}"
        if quota.get("policy") == "consumer_backlog_eviction" and (size > 0 or seconds > 0):
            _refuse(
                target,
                f"its backlog quota ({kind}, consumer_backlog_eviction) would move restored subscriptions past what "
                "they have not acknowledged",
                _remedy("set-backlog-quota", f"--type {kind} {limit} --policy producer_request_hold", target, new=new)
                + ", or restore with --subscriptions none",
            )


def quotas_of(namespace: Mapping[str, Any], broker: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The backlog quotas that a new topic will have."""
    policy = broker.get("backlogQuotaDefaultRetentionPolicy", "")
    size = int(broker.get("backlogQuotaDefaultLimitBytes", -1))
    gigabytes = int(float(broker.get("backlogQuotaDefaultLimitGB", -1)) * GIB)
    defaults: dict[str, dict[str, Any]] = {
        "destination_storage": {"limitSize": size if size > 0 else gigabytes, "policy": policy},
        "message_age": {"limitTime": int(broker.get("backlogQuotaDefaultLimitSecond", -1)), "policy": policy},
    }
    return defaults | (namespace.get("backlog_quota_map") or {})


def _remedy(call: str, arguments: str, target: TopicName, *, new: bool) -> str:
    if new:
        return (
            f"pulsar-admin namespaces {call} {target.namespace} {arguments}, or make the topic first and give it its "
            "own policy"
        )
    return f"pulsar-admin topicPolicies {call} {target.partitioned_name} {arguments}"


def _refuse(target: TopicName, why: str, remedy: str) -> None:
    raise FatalError(f"{target}: {why}: {remedy}")
