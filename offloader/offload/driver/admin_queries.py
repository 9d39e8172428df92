"""What is asked of Pulsar at one look, and in which order. What follows from it `evidence.py` decides."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from offloader.errors import AbsentError, BrokerUnavailableError, OffloadError, TopicNotFoundError
from offloader.metadata.state import CatalogHead
from offloader.model import TopicName
from offloader.offload.core.evidence import Look, needs_token
from offloader.ports.admin import Admin, TopicInfo

WITNESSES = 3  # topics that are asked in vain before a look goes without a witness
# A proxy may ask another broker for its version than the topic's owner: one that keeps no tokens shows sooner or later.
TOKEN_LOOKS = 8


def managed_ledger(admin: Admin, catalog: CatalogHead, subscription: str) -> TopicInfo:
    """The topic as Pulsar has it and, where that counts, its pin's token. Raises as `Admin.topic_info` and `kept`."""
    info = admin.topic_info(catalog.topic)
    if not needs_token(catalog):
        return info
    token = admin.pin_token(catalog.topic, subscription)  # after the list: the pin of the claim was there all the time
    ours = token is None or (catalog.claim is not None and token == catalog.claim.token)
    return replace(info, token=token) if ours else kept(admin, catalog, subscription)


def kept(admin: Admin, catalog: CatalogHead, subscription: str) -> TopicInfo:
    """The topic's list with the token of the pin that kept it before it was read, and after. None where brokers may
    show another one's. Raises BrokerUnavailableError where there is no pin, or another one by then."""
    if not admin.shows_pin_tokens():
        return admin.topic_info(catalog.topic)
    before = admin.pin_token(catalog.topic, subscription)
    info = admin.topic_info(catalog.topic)
    after = {admin.pin_token(catalog.topic, subscription) for _ in range(TOKEN_LOOKS)}
    if None in after:
        return replace(info, token=None)
    if after != {before}:
        raise BrokerUnavailableError(f"{catalog.topic}: the subscription {subscription} is being made anew")
    return replace(info, token=before)


def look_for(admin: Admin, catalog: CatalogHead, witnesses: Iterable[CatalogHead], clock_ms: Callable[[], int]) -> Look:
    """Ask for the topic, for the list that it belongs to, and for others of ours. Never raises: `Look.why` tells."""
    at = clock_ms()
    try:
        cluster = admin.identity()
        info = _present(admin, catalog)
        absent = info is None and _is_missing_above(admin, catalog)
        same = info is not None and catalog.is_of(info.created, info.ledgers)
        doubtful = info is not None and catalog.may_be_of(info.created, info.ledgers)
        witness = "" if doubtful else _witness(admin, witnesses)
        if admin.identity() != cluster:
            return Look(at, why="now one cluster answers and now another")
    except OffloadError as error:
        return Look(at, why=str(error))
    if info is None:
        return Look(at, cluster, witness, absent=absent, why="" if absent else "it is not there, but listed")
    if same:
        return Look(at, cluster, same=True)
    return Look(at, cluster, witness, another=info.created, why=_doubt(catalog.topic) if doubtful else "")


def _doubt(topic: TopicName) -> str:
    return (
        "a topic of that name has ledger ids of the archived one and another creation time: its metadata were "
        "restored, or the cluster was rebuilt. If the archived topic was deleted, say so: "
        f"offloader topics accept-loss {topic} --deleted"
    )


def _present(admin: Admin, catalog: CatalogHead) -> TopicInfo | None:
    """The topic of that name. None: Pulsar says that it is not there."""
    try:
        return admin.topic_info(catalog.topic)
    except TopicNotFoundError:
        return None


def _is_missing_above(admin: Admin, catalog: CatalogHead) -> bool:
    """Whether the namespace's list lacks the topic, or the tenant's the namespace; or there is no tenant."""
    topic = catalog.topic
    try:
        return topic not in admin.topics(topic.namespace)
    except AbsentError:
        pass
    try:
        return topic.namespace not in admin.namespaces_of(topic.tenant)
    except AbsentError:
        return topic.tenant not in admin.tenants()


def possible_witnesses(heads: Iterable[CatalogHead]) -> list[CatalogHead]:
    """Topics that can show which cluster answers, the first claimed ones first."""
    return sorted((head for head in heads if head.witnesses_since is not None), key=_since)


def some_witnesses(possible: Sequence[CatalogHead], topic: TopicName, seen_at: int, turn: int) -> list[CatalogHead]:
    """As many of the `possible_witnesses` as one look asks for, others each time. A topic that was claimed after the
    missing one was last seen may be of another cluster that was built in place of a lost one."""
    count = bisect_right(possible, seen_at, key=_since)
    following = (possible[(turn + n) % count] for n in range(min(WITNESSES + 1, count)))
    return [head for head in following if head.topic != topic][:WITNESSES]


def _since(head: CatalogHead) -> int:
    return head.witnesses_since or 0


def _witness(admin: Admin, others: Iterable[CatalogHead]) -> str:
    """A topic that is there as it was claimed. Its ledgers do not show that: a cluster that was lost and built again
    gives the same ids once more."""
    for other in others:
        try:
            info = admin.topic_info(other.topic)
        except OffloadError:
            continue
        if other.claim is not None and info.created == other.claim.created:
            return str(other.topic)
    return ""
