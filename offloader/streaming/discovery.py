"""Which topics are to be offloaded: the configuration's policies over what Pulsar lists."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from offloader.config.levels import TopicPolicy
from offloader.config.policies import Policies, namespace_switch
from offloader.errors import ConfigError, OffloadError, TopicNotFoundError
from offloader.model import TopicName
from offloader.pulsar.api import Admin

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Discovery:
    """What one look found. `unread`: namespaces that could not be read; what was known of them stays as it was."""

    policies: Mapping[TopicName, TopicPolicy]
    unread: Mapping[str, str]


def discover(admin: Admin, policies: Policies, known: Iterable[TopicName], configured: Iterable[str]) -> Discovery:
    """Every topic of each namespace that may be enabled, with its policy, and every `known` topic's."""
    found: dict[TopicName, TopicPolicy] = {}
    unread: dict[str, str] = {}
    known = list(known)
    names = set(_namespaces(admin, configured)) | {t.namespace for t in known}
    for namespace in sorted(names):
        try:
            found.update(_in_namespace(admin, policies, namespace, [t for t in known if t.namespace == namespace]))
        except (OffloadError, ConfigError) as error:
            unread[namespace] = str(error)
            log.warning("cannot read namespace %s, its policies stay as they were: %s", namespace, error)
    return Discovery(found, unread)


def _namespaces(admin: Admin, configured: Iterable[str]) -> list[str]:
    try:
        return [*admin.namespaces(), *configured]
    except OffloadError as error:
        log.warning("cannot list the namespaces, only the configured ones are looked at: %s", error)
        return list(configured)


def _in_namespace(admin: Admin, policies: Policies, namespace: str, known: list[TopicName]) -> dict[TopicName, TopicPolicy]:
    try:
        switch = namespace_switch(admin.namespace_properties(namespace))
    except TopicNotFoundError:
        switch = None
    topics = admin.topics(namespace) if policies.enables_any(namespace, switch) else []
    return {topic: policies.of(topic, switch) for topic in {*topics, *known}}
