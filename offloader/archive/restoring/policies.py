"""Policies of a target under which a restore could not be resumed, or its entries would not stay. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from offloader.errors import FatalError
from offloader.model import TopicName

# Policies in force for a topic: our names, and the paths below the topic's, asked with `applied=true`.
APPLIED = {
    "retention": "retention",
    "message TTL": "messageTTL",
    "compaction threshold": "compactionThreshold",
}


def check_policies(target: TopicName, applied: Mapping[str, Any], *, encryption_required: bool = False) -> None:
    """Raises FatalError that names the first setting in the way, and how to change it.

    Only a retention without end proves that the tail, after which a restore is resumed, is still there.
    """
    topic = str(target.partitioned_name)
    kept = applied.get("retention") or {}
    if kept.get("retentionTimeInMinutes") != -1 or kept.get("retentionSizeInMB") != -1:
        _refuse(
            target,
            f"its retention ({kept.get('retentionTimeInMinutes', 0)} minutes, {kept.get('retentionSizeInMB', 0)} MB) may remove "
            f"what was restored",
            f"pulsar-admin topicPolicies set-retention {topic} --time -1 --size -1",
        )
    if applied.get("message TTL"):
        _refuse(
            target,
            f"its message TTL ({applied['message TTL']} s) expires restored messages, which keep their publish times",
            f"pulsar-admin topicPolicies set-message-ttl {topic} --ttl 0",
        )
    if applied.get("compaction threshold"):
        _refuse(
            target,
            f"its compaction threshold ({applied['compaction threshold']} bytes) lets the broker compact it",
            f"pulsar-admin topicPolicies set-compaction-threshold {topic} --threshold 0",
        )
    if encryption_required:
        _refuse(
            target,
            "its namespace requires encryption, and a restore publishes entries as they are",
            f"pulsar-admin namespaces set-encryption-required {target.namespace} --disable",
        )


def _refuse(target: TopicName, why: str, remedy: str) -> None:
    raise FatalError(f"{target}: {why}: {remedy}")
