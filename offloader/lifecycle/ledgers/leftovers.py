"""Managed ledgers of pending acks that outlived their subscription. Pure.

Their ledgers are referenced, by the managed ledger itself: it goes first, as a whole, by the same two phases. Its name
is `<topic>-<subscription>__transaction_pending_ack`, where both may have any number of `-`. Stock brokers create it
with the plain subscription; some look for it with the encoded one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from offloader.lifecycle.ledgers.evidence import Fact, LedgerEvidence, Remedy, Standing
from offloader.lifecycle.ledgers.kinds import namespace_of
from offloader.lifecycle.ledgers.references import References, UnreadableNode, cursor_path, list_path
from offloader.state.managed_ledger import ManagedLedger
from offloader.state.names import PENDING_ACK_SUFFIX, decoded, encoded
from offloader.state.subscription import CursorState

PENDING_ACK_CURSOR = "__pending_ack_state"  # the only one that brokers make there


@dataclass(frozen=True, slots=True)
class LeftoverManagedLedger:
    """A managed ledger that belongs to nobody. `ledgers`: what it refers to, its cursors' included; all of it goes.

    `size`: bytes of those that its list has, the open one not counted."""

    name: str
    version: int
    standing: Standing
    ledgers: tuple[int, ...]
    evidence: tuple[LedgerEvidence, ...]
    remedies: tuple[Remedy, ...] = ()
    size: int = 0


def leftover_managed_ledgers(store: References) -> tuple[LeftoverManagedLedger, ...]:
    """All of a store's, by name."""
    named = sorted(name for name in store.lists if is_pending_acks(name))
    return tuple(_leftover(name, store) for name in named if not _in_use(name, store))


def is_pending_acks(name: str) -> bool:
    """Whether a managed ledger's name is that of a subscription's pending acks."""
    return name.count("/") in (3, 4) and decoded(name.rpartition("/")[2]).endswith(PENDING_ACK_SUFFIX)


def owners_of(name: str) -> Iterator[tuple[str, str]]:
    """Every (managed ledger, subscription) of which a pending-ack managed ledger's name may be made."""
    for prefix, local in _readings(name):
        made_of = local.removesuffix(PENDING_ACK_SUFFIX)
        for at in (at for at, letter in enumerate(made_of) if letter == "-"):
            topic, subscription = made_of[:at], made_of[at + 1 :]
            if topic and subscription:
                owner = f"{prefix}/persistent/{encoded(topic)}"
                yield from ((owner, one) for one in dict.fromkeys((subscription, decoded(subscription))))


def _readings(name: str) -> Iterator[tuple[str, str]]:
    """Namespace and local name. With a slash in a plain subscription a broker takes the name for one of the old form,
    with a cluster: then the namespace's last part begins the local name."""
    pieces = name.split("/")
    yield "/".join(pieces[:-2]), decoded(pieces[-1])
    if len(pieces) == 5:
        yield "/".join(pieces[:2]), f"{pieces[2]}/{decoded(pieces[-1])}"


def _in_use(name: str, store: References) -> bool:
    return any(owner in store.lists and cursor in store.cursors.get(owner, {}) for owner, cursor in owners_of(name))


def _leftover(name: str, store: References) -> LeftoverManagedLedger:
    node = store.lists[name]
    cursors = store.cursors.get(name, {})
    doubts = [
        (LedgerEvidence(Fact.UNREADABLE, store.store, path, one.version, text=one.why), Remedy.REPAIR_NODE)
        for path, one in _nodes(name, store)
        if isinstance(one, UnreadableNode)
    ]
    doubts += [
        (LedgerEvidence(Fact.SAYS_MORE, store.store, path, one.version), Remedy.NEWER_OFFLOADER)
        for path, one in _nodes(name, store)
        if not isinstance(one, UnreadableNode) and one.says_more
    ]
    namespaces = {namespace_of(name), *(namespace_of(owner) for owner, _ in owners_of(name))}
    if not namespaces & store.namespaces:
        policies = f"/admin/policies/{namespace_of(name)}"
        doubts.append((LedgerEvidence(Fact.NAMESPACE_UNKNOWN, store.store, policies), Remedy.KNOW_NAMESPACE))
    doubts += [(LedgerEvidence(Fact.OTHER_USE, text=why), Remedy.REPAIR_NODE) for why in _other_uses(name, cursors)]
    listed = [one for one in node.ledgers if not one.copy.bookkeeper_deleted] if isinstance(node, ManagedLedger) else []
    ids = {one.ledger for one in listed}
    ids |= {
        one.cursor_ledger for one in cursors.values() if isinstance(one, CursorState) and one.cursor_ledger is not None
    }
    return LeftoverManagedLedger(
        name=name,
        version=node.version,
        standing=Standing.SUSPECT if doubts else Standing.CERTAIN,
        ledgers=tuple(sorted(ids)),
        evidence=(*_tried(name, store), *(fact for fact, _ in doubts)),
        remedies=tuple(dict.fromkeys(remedy for fact, remedy in doubts if fact.fact is not Fact.OTHER_USE)),
        size=sum(one.size for one in listed),
    )


def _other_uses(name: str, cursors: Collection[str]) -> Iterator[str]:
    """Why it may be an ordinary topic that somebody has given such a name."""
    others = sorted(set(cursors) - {PENDING_ACK_CURSOR})
    if others:
        yield f"it has a subscription {others[0]}"
    if not any(owners_of(name)):
        yield "its name is not made of a topic and a subscription"


def _nodes(name: str, store: References) -> Iterator[tuple[str, ManagedLedger | CursorState | UnreadableNode]]:
    yield list_path(name), store.lists[name]
    for cursor, node in store.cursors.get(name, {}).items():
        yield cursor_path(name, cursor), node


def _tried(name: str, store: References) -> tuple[LedgerEvidence, ...]:
    """One fact for each owner that it does not have: where the topic is absent the cursor need not be looked for."""
    facts = [
        LedgerEvidence(Fact.CURSOR_ABSENT, store.store, cursor_path(owner, cursor))
        if owner in store.lists
        else LedgerEvidence(Fact.OWNER_ABSENT, store.store, list_path(owner))
        for owner, cursor in owners_of(name)
    ]
    return tuple(dict.fromkeys(facts))
