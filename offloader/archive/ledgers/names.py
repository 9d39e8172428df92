"""Names in the bucket of Pulsar's own offloader, as 4.0.7 writes them. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote_plus, unquote_plus

from offloader.metadata.layout import UUID
from offloader.model import TopicName

_KEY = re.compile(rf"({UUID.pattern.replace('(', '(?:')})-ledger-(0|[1-9]\d*)(-index)?")


class LedgerKey(NamedTuple):
    """An object's key, taken apart."""

    uuid: str
    ledger: int
    is_index: bool


def data_key(uuid: str, ledger: int) -> str:
    """A ledger's data object."""
    return f"{uuid}-ledger-{ledger}"


def index_key(uuid: str, ledger: int) -> str:
    """A ledger's index object."""
    return f"{uuid}-ledger-{ledger}-index"


def parse_key(key: str) -> LedgerKey | None:
    """What a key names, None where it is none of the offloader's."""
    match = _KEY.fullmatch(key)
    return None if match is None else LedgerKey(match[1], int(match[2]), match[3] is not None)


def managed_ledger_name(topic: TopicName) -> str:
    """`tenant/namespace/persistent/topic`, the topic as Java's URLEncoder encodes it."""
    encoded = quote_plus(topic.name, safe="*").replace("~", "%7E")
    return f"{topic.tenant}/{topic.namespace_part}/persistent/{encoded}"


def topic_of(name: str) -> TopicName:
    """The topic of a managed ledger. Raises ValueError for one that is no persistent topic's."""
    pieces = name.split("/")
    if len(pieces) != 4 or pieces[2] != "persistent" or not all(pieces):
        raise ValueError(f"{name!r} is not the managed ledger of a persistent topic: tenant/namespace/persistent/topic")
    return TopicName(pieces[0], pieces[1], unquote_plus(pieces[3]))
