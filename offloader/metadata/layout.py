"""Where everything lies under a root: the one owner of key names.

    _root
    _journal/<application>/<epoch>/<slot>
    _requests/<application>/<id>, <id>.seen, <id>.done
    <tenant>/<namespace>/<topic>/<uuid>, <uuid>-index, _catalog/<slot>, _catalog-damaged-<time>/<slot>

Tenants, namespaces, topics and applications are URL-encoded; a leading `_` or `.` is encoded too, so that no name is
taken for one of ours, for a store's helper folder or for a parent folder. Epochs and slots have 20 digits: key order is their order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from urllib.parse import quote, unquote

from offloader.model import TopicName
from offloader.storage.base import ObjectStore

ROOT = "_root"
PROOF = "_proof"
CATALOG = "_catalog"
MOVED = "_catalog-damaged-"
JOURNAL = "_journal"
REQUESTS = "_requests"

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
LEADING = {"_": "%5F", ".": "%2E"}
SLOT = re.compile(r"\d{20}")
# Behind a folder's name it makes a key that comes after all of the folder's.
AFTER_SLASH = chr(ord("/") + 1)


class KeyKind(Enum):
    """What a topic's object is."""

    DATA = "data"
    INDEX = "index"
    CATALOG = "catalog"


@dataclass(frozen=True, slots=True)
class TopicKey:
    """A key of a topic, taken apart: `uuid` of data and index objects, `slot` of catalog records."""

    topic: TopicName
    kind: KeyKind
    uuid: str = ""
    slot: int = -1


def topic_folder(topic: TopicName) -> str:
    """Where all of a topic's objects lie, with the closing slash."""
    return f"{_encode(topic.tenant)}/{_encode(topic.namespace_part)}/{_encode(topic.name)}/"


def data_key(topic: TopicName, uuid: str) -> str:
    """A segment's data object."""
    return topic_folder(topic) + uuid


def index_key(topic: TopicName, uuid: str) -> str:
    """A segment's index object."""
    return topic_folder(topic) + uuid + "-index"


def catalog_folder(topic: TopicName) -> str:
    """A topic's catalog records, with the closing slash."""
    return f"{topic_folder(topic)}{CATALOG}/"


def moved_catalog_folder(topic: TopicName, at: int) -> str:
    """Where `catalog rebuild` at a time (ms) puts records that cannot be read, with the closing slash."""
    return f"{topic_folder(topic)}{MOVED}{at}/"


def is_moved_record(key: str) -> bool:
    """Whether a key lies in such a folder."""
    topic, rest = _topic_of(key)
    return topic is not None and rest.startswith(MOVED)


def journal_folder(application: str) -> str:
    """All epochs of an application's journal, with the closing slash."""
    return f"{JOURNAL}/{_encode(application)}/"


def epoch_folder(application: str, epoch: int) -> str:
    """One epoch's records, with the closing slash."""
    return f"{journal_folder(application)}{slot_name(epoch)}/"


def requests_folder(application: str) -> str:
    """An application's requests, with the closing slash."""
    return f"{REQUESTS}/{_encode(application)}/"


def proof_key(token: str) -> str:
    """A throw-away object by which a store is proven."""
    return f"{PROOF}/{token}"


def slot_name(number: int) -> str:
    """20 digits."""
    return f"{number:020d}"


def parse_slot(name: str) -> int | None:
    """The number that a record's name says, None where it is no record's name."""
    return int(name) if SLOT.fullmatch(name) else None


def parse_journal_key(application: str, key: str) -> tuple[int, int] | None:
    """(epoch, slot) of a key under `journal_folder(application)`, None for anything else."""
    epoch, _, slot = key.removeprefix(journal_folder(application)).partition("/")
    numbers = parse_slot(epoch), parse_slot(slot)
    return None if numbers[0] is None or numbers[1] is None else (numbers[0], numbers[1])


def parse_topic_key(key: str) -> TopicKey | None:
    """Whose object a key names; None where it is none of a topic's."""
    topic, rest = _topic_of(key)
    if topic is None:
        return None
    if UUID.fullmatch(rest):
        return TopicKey(topic, KeyKind.DATA, uuid=rest)
    if rest.endswith("-index") and UUID.fullmatch(rest.removesuffix("-index")):
        return TopicKey(topic, KeyKind.INDEX, uuid=rest.removesuffix("-index"))
    folder, _, name = rest.partition("/")
    slot = parse_slot(name)
    return TopicKey(topic, KeyKind.CATALOG, slot=slot) if folder == CATALOG and slot is not None else None


def topics(store: ObjectStore) -> Iterator[TopicName]:
    """All topics that have an object under the root, in key order; one listing call each."""
    after = ""
    while (key := next((k for k, _ in store.list("", start_after=after)), None)) is not None:
        topic, _ = _topic_of(key)
        if topic is not None:
            yield topic
        after = key if topic is None else "/".join(key.split("/")[:3]) + AFTER_SLASH
        if key.startswith("_"):
            after = key.partition("/")[0] + AFTER_SLASH


def partitions(store: ObjectStore, topic: TopicName) -> list[TopicName]:
    """The partitions of a topic that have an object under the root, by number; one listing call each."""
    prefix = topic_folder(topic).removesuffix("/") + "-partition-"
    found, after = [], ""
    while (key := next((k for k, _ in store.list(prefix, start_after=after)), None)) is not None:
        partition, _ = _topic_of(key)
        if partition is not None and partition.partitioned_name == str(topic):
            found.append(partition)
        after = "/".join(key.split("/")[:3]) + AFTER_SLASH
    return sorted(found, key=lambda partition: partition.partition)


def holds_data(store: ObjectStore, topic: TopicName) -> bool:
    """Whether segments' objects lie under the topic, whatever its catalog says; one listing call."""
    keys = (parse_topic_key(key) for key, _ in store.list(topic_folder(topic)))
    return any(key is not None and key.kind is not KeyKind.CATALOG for key in keys)


def _topic_of(key: str) -> tuple[TopicName | None, str]:
    pieces = key.split("/", 3)
    if len(pieces) < 4 or key.startswith("_"):
        return None, key
    topic = TopicName(*(unquote(p) for p in pieces[:3]))
    return (topic, pieces[3]) if key.startswith(topic_folder(topic)) else (None, key)


@lru_cache(maxsize=4096)
def _encode(name: str) -> str:
    encoded = quote(name, safe="")
    return LEADING.get(encoded[:1], encoded[:1]) + encoded[1:]
