"""What is asked of brokers about a topic's subscriptions and schemas, to copy them. `pulsar/topic_states.py` has the
real ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from offloader.model import AcknowledgedRange, Place, TopicName


class CursorLook(NamedTuple):
    """A cursor in its broker's memory. `ranges`: acknowledged behind the mark-delete position, in order. `properties`:
    the long ones. `is_loaded_only`: nothing of it was stored since the topic was loaded. `load`: tells that load from
    others."""

    mark_delete: Place
    ranges: tuple[AcknowledgedRange, ...]
    properties: tuple[tuple[str, int], ...] = ()
    is_loaded_only: bool = False
    load: str = ""


class CursorLooks(NamedTuple):
    """All cursors of a topic, non-durable ones too. `lengths`: the topic's ledgers in order with their entries; None:
    it is open."""

    lengths: tuple[tuple[int, int | None], ...]
    cursors: Mapping[str, CursorLook]


class SubscriptionTraits(NamedTuple):
    """What a broker says of a durable subscription besides its position. `type`: that of its last consumer, as Pulsar
    names it (`Shared`, …); empty: not said."""

    replicated: bool
    properties: tuple[tuple[str, str], ...]
    consumers: int = 0
    type: str = ""


@dataclass(frozen=True, slots=True)
class TopicSchema:
    """One version of a topic's schema. `type` as Pulsar names it (`AVRO`, `KEY_VALUE`, …). `data`: as the admin REST
    says it, which gives a JSON text of key and value for `KEY_VALUE`. `timestamp` in ms."""

    version: int
    type: str
    data: bytes = b""
    timestamp: int = 0
    properties: tuple[tuple[str, str], ...] = field(default=())


class TopicStates(Protocol):
    """Each call is one request. All raise BrokerUnavailableError, AuthorizationFailedError, ProtocolError; and
    TopicNotFoundError where Pulsar says that the topic is not there. A topic that no broker has loaded is loaded."""

    def cursors(self, topic: TopicName) -> CursorLooks: ...

    def subscriptions(self, topic: TopicName) -> Mapping[str, SubscriptionTraits]:
        """The durable ones."""
        ...

    def version(self) -> str:
        """A broker's."""
        ...

    def partitions(self, topic: TopicName) -> int | None:
        """Of the partitioned topic that it is one of; None: it is none of any."""
        ...

    def schema_version(self, topic: TopicName) -> int | None:
        """The newest; None: it has no schema."""
        ...

    def schemas(self, topic: TopicName) -> tuple[TopicSchema, ...]:
        """All versions, in order."""
        ...
