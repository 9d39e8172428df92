"""Whether a broker may still write a ledger: to fence it then loses nothing, but disturbs."""

from __future__ import annotations

from collections.abc import Callable

from offloader.bookkeeper.api import LedgerMetadataStore
from offloader.bookkeeper.model import LedgerMetadata
from offloader.errors import OffloadError, TopicNotFoundError
from offloader.model import TopicName
from offloader.state.names import is_no_topic, managed_ledger_of, topic_of

CURSOR = "pulsar/cursor"
YOUNG_MS = 120_000
"""What is younger than this may belong to a topic that brokers' statistics, a minute old, do not show yet."""


def objection(
    ledger: int,
    metadata: LedgerMetadata,
    store: LedgerMetadataStore,
    loaded_by: Callable[[TopicName], str | None],
    now_ms: int,
) -> str | None:
    """Why we must not close the ledger now; None: nobody writes it. `loaded_by`: `Admin.loaded_by`."""
    name = managed_ledger_of(metadata.custom)
    if not name:
        return f"ledger {ledger} belongs to no topic: nobody can say whether its writer is gone"
    try:
        topic = topic_of(name)
        if CURSOR not in metadata.custom and not _is_last(ledger, topic, store):
            return None
        if is_no_topic(name):
            return f"ledger {ledger} belongs to transactions, {name}: no broker says whether it writes it"
        broker = loaded_by(topic)
    except (ValueError, OffloadError) as error:
        return f"ledger {ledger}: whether a broker still writes it cannot be found out ({error})"
    if broker is not None:
        return (
            f"ledger {ledger}: {topic} is loaded by the broker {broker}, which may still write it; unload the topic, "
            "or let that broker close it"
        )
    if metadata.created_ms is not None and now_ms - metadata.created_ms < YOUNG_MS:
        age = max(now_ms - metadata.created_ms, 0) // 1000
        return (
            f"ledger {ledger} was made {age} s ago, and a broker that has loaded {topic} since then does not show "
            "yet; try again in 2 minutes"
        )
    return None


def _is_last(ledger: int, topic: TopicName, store: LedgerMetadataStore) -> bool:
    """Whether it is the topic's current one: only that can be written."""
    try:
        listed = [one.ledger for one in store.managed_ledger(topic).ledgers]
    except TopicNotFoundError:
        return False
    return not listed or ledger >= max(listed)
