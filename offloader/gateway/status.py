"""What can be seen of a gateway at one moment: values, and their JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class SubscriptionStatus:
    """`type` empty: it has no consumer. `backlog`: entries that it has not acknowledged; None: it could not be found
    out. `size`: bytes delivered; the counts are of this gateway, since it serves the subscription."""

    topic: str
    name: str
    type: str
    durable: bool
    consumers: int
    permits: int
    unacknowledged: int
    mark_delete: str
    backlog: int | None
    entries: int
    messages: int
    size: int
    redelivered: int
    acknowledgements: int


@dataclass(frozen=True, slots=True)
class NamespaceStatus:
    """Counts since the gateway has started."""

    namespace: str
    entries: int
    messages: int
    size: int
    redelivered: int
    acknowledgements: int


@dataclass(frozen=True, slots=True)
class GatewayStatus:
    """`at`: seconds, by a clock that only goes on. `buffered`: bytes that sockets have not taken. `work`: what waits
    for a thread or is being done, by kind. `topics`: served now; `owned`: whose durable subscriptions are here."""

    at: float
    connections: int
    consumers: int
    buffered: int
    accepted: int
    full: int
    refused: Mapping[str, int]
    work: Mapping[str, int]
    topics: int
    owned: int
    namespaces: Sequence[NamespaceStatus]
    subscriptions: Sequence[SubscriptionStatus]


def rates(before: GatewayStatus, after: GatewayStatus) -> dict[tuple[str, str], tuple[float, float]]:
    """Messages and bytes a second of each subscription, by topic and name. One that was not there before, or begins
    anew, has none."""
    seconds = after.at - before.at
    known = {(one.topic, one.name): one for one in before.subscriptions}
    found = dict[tuple[str, str], tuple[float, float]]()
    for one in after.subscriptions:
        former = known.get((one.topic, one.name))
        if former is not None and seconds > 0 and one.size >= former.size and one.messages >= former.messages:
            key = one.topic, one.name
            found[key] = ((one.messages - former.messages) / seconds, (one.size - former.size) / seconds)
    return found


def from_json(said: Any) -> GatewayStatus:
    """What `dataclasses.asdict` gave, read again. Raises TypeError, KeyError, ValueError where it is something else."""
    return GatewayStatus(
        **{
            **said,
            "namespaces": [NamespaceStatus(**one) for one in said["namespaces"]],
            "subscriptions": [SubscriptionStatus(**one) for one in said["subscriptions"]],
        }
    )
