"""Whose a subscription is: a user's, our own pin, or Pulsar's. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from offloader.ports.subscriptions import SubscriptionLook
from offloader.pulsar.subscription_rest import PIN_PROPERTY
from offloader.state.subscription import CursorState

REPLICATED = "pulsar.replicated.subscription"
"""The property of a cursor's position by which brokers recognise a replicated subscription."""
OWNER_PROPERTIES = ("owner", "team", "contact", "application", "app", "createdby", "created_by")
_NAMED = ("/", ":", "@")  # team/job, team:job, job@team


class SubscriptionKind(StrEnum):
    """Only those of users are ever removed."""

    USER = "user"
    PIN = "pin"
    COMPACTION = "compaction"
    REPLICATION = "replication"
    DEDUPLICATION = "deduplication"
    TRANSACTIONS = "transactions"
    SYSTEM = "system"


_REASONS = {
    SubscriptionKind.USER: "",
    SubscriptionKind.PIN: "it is the offloader's own: `offloader topics release` lets go of the topic",
    SubscriptionKind.COMPACTION: "it is Pulsar's own and names the compacted view: without it that view is lost",
    SubscriptionKind.REPLICATION: "it is Pulsar's own and replicates the topic: take the cluster from the topic's",
    SubscriptionKind.DEDUPLICATION: "it is Pulsar's own and keeps what deduplication knows",
    SubscriptionKind.TRANSACTIONS: "it is Pulsar's own and belongs to its transactions",
    SubscriptionKind.SYSTEM: "the brokers' additionalSystemCursorNames calls it a system's",
}
_EXACT = {
    "__compaction": SubscriptionKind.COMPACTION,
    "pulsar.dedup": SubscriptionKind.DEDUPLICATION,
    "__pending_ack_state": SubscriptionKind.TRANSACTIONS,
    "transaction.subscription": SubscriptionKind.TRANSACTIONS,
}


class SubscriptionNames(NamedTuple):
    """What the cluster's own subscriptions are called. `pin`: the offloader's."""

    pin: str = "__offloader"
    replicator_prefix: str = "pulsar.repl"
    system: frozenset[str] = frozenset()

    def kind(self, subscription: str) -> SubscriptionKind:
        """Whose it is, by its name."""
        if subscription == self.pin:
            return SubscriptionKind.PIN
        if subscription.startswith(f"{self.replicator_prefix}."):
            return SubscriptionKind.REPLICATION
        default = SubscriptionKind.SYSTEM if subscription in self.system else SubscriptionKind.USER
        return _EXACT.get(subscription, default)


def why_never_removed(kind: SubscriptionKind) -> str:
    """Why a subscription of this kind is not removed here; empty: it may be."""
    return _REASONS[kind]


def why_by_name_only(subscription: str, state: CursorState | None, look: SubscriptionLook | None) -> str:
    """Why a policy does not remove a user's subscription, and a command warns; empty: a policy may. `state`, `look`:
    what is stored, and what the broker reports; None: not read."""
    stored = state.properties if state is not None else ()
    if any(name == REPLICATED for name, _ in stored) or (look is not None and look.replicated):
        return "it is replicated: other clusters move it, and a failover to this cluster needs it"
    properties = (*(state.subscription_properties if state is not None else ()), *(look.properties if look else ()))
    # Brokers before 2.10.1 stored no property: an offload subscription that was made there has its usual name alone.
    if subscription == SubscriptionNames().pin or any(name == PIN_PROPERTY for name, _ in properties):
        return "it is the offload subscription of another archive, which loses what it has not read yet"
    if look is not None and not look.traits_known:
        return "its broker does not report whether it is replicated or another archive's offload subscription"
    return ""


def owner_of(subscription: str, properties: Iterable[tuple[str, str]]) -> str | None:
    """Who may be asked about it: what a property says, else what its name begins or ends with; None: neither does."""
    said = {name.lower(): value for name, value in properties if value}
    for name in OWNER_PROPERTIES:
        if name in said:
            return said[name]
    for mark in _NAMED:
        before, found, behind = subscription.partition(mark)
        if found:
            return (behind if mark == "@" else before) or None
    return None
