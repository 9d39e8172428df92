"""The names of a topic's nodes in Pulsar's metadata store, and of the managed ledger in a ledger's metadata. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote_plus, unquote_plus

from offloader.model import TopicName

# BookKeeper's custom metadata of a ledger: whose it is.
OWNER = "pulsar/managed-ledger"

# Of managed ledgers that are no topics: brokers list none of them among those that they have loaded.
PENDING_ACK_SUFFIX = "__transaction_pending_ack"
TRANSACTION_LOG_PREFIX = "pulsar/system/persistent/__transaction_log_"


def managed_ledger_name(topic: TopicName) -> str:
    """`tenant/namespace/persistent/topic`, the topic as Java's URLEncoder encodes it."""
    return f"{topic.tenant}/{topic.namespace_part}/persistent/{encoded(topic.name)}"


def topic_of(name: str) -> TopicName:
    """The topic of a managed ledger. Raises ValueError for one that is no persistent topic's."""
    pieces = name.split("/")
    if len(pieces) != 4 or pieces[2] != "persistent" or not all(pieces):
        raise ValueError(f"{name!r} is not the managed ledger of a persistent topic: tenant/namespace/persistent/topic")
    return TopicName(pieces[0], pieces[1], decoded(pieces[3]))


def is_no_topic(name: str) -> bool:
    """Whether a managed ledger is of transactions: no broker says that it has it loaded."""
    return name.startswith(TRANSACTION_LOG_PREFIX) or decoded(name).endswith(PENDING_ACK_SUFFIX)


def encoded(name: str) -> str:
    """The name of a node for a topic's or cursor's local name, as Java's URLEncoder encodes it."""
    return quote_plus(name, safe="*").replace("~", "%7E")


def decoded(node: str) -> str:
    """The local name that a node's name stands for."""
    return unquote_plus(node)


def managed_ledger_of(custom: Mapping[str, bytes]) -> str:
    """The managed ledger's name in a ledger's custom metadata; "" where it is none of a topic's."""
    return custom.get(OWNER, b"").decode(errors="replace")
