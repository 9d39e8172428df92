"""The policies in force that may move, delete or overfill a pin, with the broker's defaults applied."""

from __future__ import annotations

from collections.abc import Mapping

from offloader.model import TopicName
from offloader.pulsar.admin import AdminClient

# Our names are those of the namespace's policies; the paths are below the topic's, asked with `applied=true`.
APPLIED = {
    "message_ttl_in_seconds": "messageTTL",
    "backlog_quota_map": "backlogQuotaMap",
    "retention_policies": "retention",
    "offload_policies": "offloadPolicies",
}


def effective_policies(admin: AdminClient, topic: TopicName) -> Mapping[str, object]:
    """What applies to a topic after merging broker, namespace and topic. A policy that is nowhere set is None.

    One REST call a policy: for checks, not for each round. A partition has no policies of its own (Pulsar 4.0.7 answers 412).
    """
    whole = TopicName.parse(topic.partitioned_name)
    found: dict[str, object] = {
        name: admin.rest.get(f"{whole.rest_path}/{path}", applied="true") for name, path in APPLIED.items()
    }
    found["subscription_expiration_time_minutes"] = subscription_expiration(admin, topic.namespace)
    return found


def subscription_expiration(admin: AdminClient, namespace: str) -> object:
    """Minutes after which an idle subscription is deleted, 0: never. The namespace's, else the broker's."""
    own = admin.rest.get(f"namespaces/{namespace}/subscriptionExpirationTime")
    return own if own is not None else int(admin.runtime_configuration().get("subscriptionExpirationTimeMinutes", "0"))
