"""What a connection needs of the topics that are served, and what these need of a connection. All on the loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from offloader._proto.pulsar_wire_pb2 import ConsumerStatsResponse
from offloader.gateway.core.events import Deliver, EntryAck, KeyPolicy
from offloader.gateway.protocol.answers import Address
from offloader.gateway.protocol.schemas import SchemaText
from offloader.gateway.values import ServedEnd, SubscriptionType
from offloader.model import Place, TopicName
from offloader.ports.admin import TopicSchema

LATEST: Place = (2**63 - 1, 2**63 - 1)


@dataclass(frozen=True, slots=True)
class Subscribing:
    """What a client asks for. `start`: the entry with which a reader begins; None: where nothing is known of the
    subscription, at its `earliest` or behind the latest entry. `rollback_seconds`: a reader begins with what is not
    older, whatever `start` says; 0: it does not say. `properties`: of the consumer and the subscription: not all
    clients have both. `schema`: with which it reads; None: it takes bytes, or asks for the messages' own. `role`: the
    client's."""

    topic: TopicName
    subscription: str
    type: SubscriptionType
    durable: bool = True
    earliest: bool = False
    start: Place | None = None
    rollback_seconds: int = 0
    consumer_name: str = ""
    priority: int = 0
    key_policy: KeyPolicy = field(default_factory=KeyPolicy)
    epoch: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    schema: SchemaText | None = None
    role: str = ""


class ConsumerPort(Protocol):
    """A client's consumer, as its subscription sees it. Nothing here waits."""

    def deliver(self, what: Deliver) -> None: ...

    def active_changed(self, *, is_active: bool) -> None: ...

    def end_reached(self) -> None: ...

    def pass_permits_on(self) -> None:
        """Entries were delivered: it may take more."""
        ...

    def closed(self) -> None:
        """It must look up and subscribe again."""
        ...

    async def is_alive(self) -> bool:
        """Whether its client answers a PING within some seconds."""
        ...


class SubscribedConsumer(Protocol):
    """A consumer, as its connection sees it. What is async raises RefusedError."""

    @property
    def partition(self) -> int: ...

    def flow(self, permits: int) -> None: ...

    def acknowledge(self, acks: Sequence[EntryAck]) -> bool:
        """Returns whether all are accepted; the others change nothing."""
        ...

    def acknowledge_up_to(self, place: Place, left: int) -> bool:
        """Returns whether it is accepted; else it changes nothing."""
        ...

    def redeliver(self, places: Sequence[Place] | None, epoch: int | None) -> None: ...

    def leave(self) -> None: ...

    async def stats(self) -> ConsumerStatsResponse:
        """As CONSUMER_STATS is answered."""
        ...

    async def durable(self) -> None:
        """Returns when what was acknowledged until now is durable, where the gateway promises that; else at once."""
        ...

    async def seek(self, place: Place, left: int | None) -> None:
        """Everything before it is acknowledged. `left`: the messages of its own entry that are to come."""
        ...

    async def seek_time(self, published_ms: int) -> None: ...

    async def last_message(self) -> tuple[ServedEnd, Place]:
        """The topic's last entry, and the subscription's mark-delete position."""
        ...

    async def unsubscribe(self) -> None: ...


class ServedTopics(Protocol):
    """All topics of a gateway. Raises RefusedError. `role`: whose request it is."""

    async def partitions(self, topic: TopicName, role: str) -> int:
        """0: it is not partitioned."""
        ...

    async def address(self, topic: TopicName, role: str) -> Address: ...

    async def topics(self, namespace: str, role: str) -> Sequence[str]:
        """Full names, sorted; partitions by their own names."""
        ...

    def changes(self, namespace: str, role: str) -> AsyncIterator[Sequence[str]]:
        """As `topics`, each time that it may have changed."""
        ...

    @property
    def answers_gateways(self) -> bool:
        """Whether other gateways are to hear that this one lives, so that they leave it what it has."""
        ...

    async def matching(self, names: Sequence[str], pattern: str) -> list[str]:
        """Those that a client's pattern means, in a thread."""
        ...

    async def schema(self, topic: TopicName, version: int | None, role: str) -> TopicSchema:
        """None: the newest."""
        ...

    async def subscribe(self, asked: Subscribing, consumer: ConsumerPort, role: str) -> SubscribedConsumer: ...


class Gatekeeper(Protocol):
    """Who somebody is."""

    @property
    def method(self) -> str:
        """The authentication method that clients must use; empty: none."""
        ...

    def role_of(self, method: str, data: bytes, now: float) -> tuple[str, float | None]:
        """The role, and until when that holds (seconds since 1970); None: for ever. Raises RefusedError."""
        ...
