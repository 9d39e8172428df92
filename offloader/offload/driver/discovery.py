"""Which topics are to be offloaded: the configuration's policies over what Pulsar lists."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from offloader.config.levels import TopicPolicy
from offloader.config.policies import Policies, namespace_switch
from offloader.errors import NamespaceNotFoundError, OffloadError
from offloader.model import TopicName
from offloader.offload.core.check import Check, Verdict
from offloader.offload.core.namespace_policies import check_policies
from offloader.ports.admin import Admin

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Discovery:
    """What one look found. `unread`: namespaces that could not be read; what was known of them stays as it was.

    `dangers`: per namespace that was read what its policies in Pulsar would do to our subscription; one that fails
    keeps topics from being adopted. `listed`: the topics that there are in namespaces where any may be enabled;
    `policies` has those that were asked for, too.
    """

    policies: Mapping[TopicName, TopicPolicy]
    unread: Mapping[str, OffloadError]
    dangers: Mapping[str, tuple[Check, ...]]
    listed: frozenset[TopicName]


def discover(
    admin: Admin, policies: Policies, known: Iterable[TopicName], configured: Iterable[str], interval_ms: int
) -> Discovery:
    """Every topic of each namespace that may be enabled, with its policy, and every `known` topic's."""
    found: dict[TopicName, TopicPolicy] = {}
    unread: dict[str, OffloadError] = {}
    dangers: dict[str, tuple[Check, ...]] = {}
    listed: set[TopicName] = set()
    known = list(known)
    names = set(_namespaces(admin, configured)) | {t.namespace for t in known}
    for namespace in sorted(names):
        try:
            here, topics = _in_namespace(admin, policies, namespace, [t for t in known if t.namespace == namespace])
            dangers[namespace] = _dangers(admin, namespace, here, interval_ms)
            found.update(here)
            listed.update(topics)
        except OffloadError as error:
            unread[namespace] = error
            log.warning(
                "cannot read namespace %s, its policies stay as they were: %s",
                namespace,
                error,
                extra={"see": "namespace-unread"},
            )
    return Discovery(found, unread, dangers, frozenset(listed))


def _namespaces(admin: Admin, configured: Iterable[str]) -> list[str]:
    try:
        return [*admin.namespaces(), *configured]
    except OffloadError as error:
        log.warning(
            "cannot list the namespaces, only the configured ones are looked at: %s",
            error,
            extra={"see": "namespaces-unlisted"},
        )
        return list(configured)


def _in_namespace(
    admin: Admin, policies: Policies, namespace: str, known: list[TopicName]
) -> tuple[dict[TopicName, TopicPolicy], list[TopicName]]:
    """Policies of all topics that concern us, and those that Pulsar lists."""
    try:
        switch = namespace_switch(admin.namespace_properties(namespace))
    except NamespaceNotFoundError:
        return {topic: policies.of(topic) for topic in known}, []
    topics = admin.topics(namespace) if policies.enables_any(namespace, switch) else []
    return {topic: policies.of(topic, switch) for topic in sorted({*topics, *known})}, topics


def _dangers(
    admin: Admin, namespace: str, here: Mapping[TopicName, TopicPolicy], interval_ms: int
) -> tuple[Check, ...]:
    """What is wrong with a namespace that has enabled topics."""
    policy = next((p for p in here.values() if p.enabled), None)
    if policy is None:
        return ()
    checks = check_policies(namespace, admin.namespace_policies(namespace), policy, interval_ms)
    wrong = [
        c for c in checks if c.verdict is not Verdict.OK and c.name != "retention"
    ]  # what is found already is pinned
    return tuple(c for c in wrong if c.name != "stock-offload" or not policy.start_after_offloaded)
