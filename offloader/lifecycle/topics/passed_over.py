"""Which ledger lists are not looked at, and why. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from offloader.model import TopicName
from offloader.ports.visits import KnownTopics

_SYSTEM_NAMESPACE = "pulsar/system"
_HEALTH_CHECK = "healthcheck"
_PENDING_ACKS = "__transaction_pending_ack"


class WhyPassedOver(StrEnum):
    """Why a topic is never visited, or not now."""

    LOADED = "loaded"
    KEPT_FOR_EVER = "kept for ever"
    SYSTEM = "Pulsar's own"
    SHADOW = "shadow of another topic"
    SAME_NAME = "a partitioned topic has the same name"
    UNKNOWN = "brokers do not know it"
    NO_NAMESPACE = "its namespace is gone"
    DAMAGED = "a node of it is damaged"
    MISSING = "BookKeeper does not have its last ledger"
    UNASKED = "its namespace could not be asked about"


OF_NO_INTEREST = (WhyPassedOver.LOADED, WhyPassedOver.KEPT_FOR_EVER, WhyPassedOver.SYSTEM, WhyPassedOver.SHADOW)
"""As it should be: these are only counted."""
CANNOT_BE_VISITED = (WhyPassedOver.DAMAGED, WhyPassedOver.MISSING, WhyPassedOver.UNASKED, WhyPassedOver.SAME_NAME)
"""An operator has to do something before retention counts for these."""


@dataclass(frozen=True, slots=True)
class PassedOver:
    """One topic. `detail`: what is damaged, whose shadow it is."""

    topic: TopicName
    why: WhyPassedOver
    detail: str = ""


def passed_over(topic: TopicName, known: KnownTopics, loaded: Mapping[str, str]) -> WhyPassedOver | None:
    """By names alone. A call about a name that partitions share would go to all of them."""
    if str(topic) in loaded:
        return WhyPassedOver.LOADED
    if is_pulsars_own(topic):
        return WhyPassedOver.SYSTEM
    if str(topic) in known.partitioned:
        return WhyPassedOver.SAME_NAME
    return None if topic in known.topics else WhyPassedOver.UNKNOWN


def is_pulsars_own(topic: TopicName) -> bool:
    """Brokers load these by themselves, some of them not as topics at all."""
    whole = TopicName.parse(topic.partitioned_name)
    return (
        topic.namespace == _SYSTEM_NAMESPACE
        or whole.name.startswith("__")
        or whole.name.endswith(_PENDING_ACKS)
        or (topic.tenant == "pulsar" and whole.name == _HEALTH_CHECK)
    )
