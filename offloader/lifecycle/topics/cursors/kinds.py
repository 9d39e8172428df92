"""Whose a subscription is: a user's, our own pin, or Pulsar's. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

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
