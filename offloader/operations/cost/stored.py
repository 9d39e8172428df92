"""What is stored, by what it is and by how old it is; and what was found of topics that were looked into. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from offloader.metadata.layout import (
    CLAIMS,
    DELETION,
    GATEWAYS,
    JOURNAL,
    MIGRATION,
    REQUESTS,
    RESCUED,
    ROOT,
    SHARDS,
    KeyKind,
    parse_topic_key,
)
from offloader.metadata.state import CatalogHead
from offloader.metadata.stock_keys import parse_key
from offloader.model import TopicName
from offloader.operations.cost.plan import Pace

_DAY_MS = 86_400_000


class ByteClass(StrEnum):
    """What an object is."""

    DATA = "data"
    INDEXES = "indexes"
    RECORDS = "records"
    CATALOGS = "catalogs"
    MANIFESTS = "manifests"
    CURSORS = "subscriptions, schemas"
    BRIDGE = "bridge logs"
    JOURNALS = "journals"
    BOOKKEEPING = "root, claims, requests, deletions"
    RESCUED = "rescued ledgers"
    BROKERS = "brokers' copies"
    OTHER = "other"


_OF_KEY = {
    KeyKind.DATA: ByteClass.DATA,
    KeyKind.INDEX: ByteClass.INDEXES,
    KeyKind.RECORD: ByteClass.RECORDS,
    KeyKind.CATALOG: ByteClass.CATALOGS,
    KeyKind.MANIFEST: ByteClass.MANIFESTS,
    KeyKind.BRIDGE: ByteClass.BRIDGE,
    KeyKind.CURSORS: ByteClass.CURSORS,
    KeyKind.FACTS: ByteClass.CURSORS,
    KeyKind.SUBSCRIPTION: ByteClass.CURSORS,
}
_OF_FOLDER = {
    JOURNAL: ByteClass.JOURNALS,
    CLAIMS: ByteClass.BOOKKEEPING,
    GATEWAYS: ByteClass.BOOKKEEPING,
    REQUESTS: ByteClass.BOOKKEEPING,
    DELETION: ByteClass.BOOKKEEPING,
    MIGRATION: ByteClass.BOOKKEEPING,
    ROOT: ByteClass.BOOKKEEPING,
    SHARDS: ByteClass.BOOKKEEPING,
    RESCUED: ByteClass.RESCUED,
}


def class_of(key: str) -> ByteClass:
    """What a key's object is."""
    parsed = parse_topic_key(key)
    if parsed is not None:
        return _OF_KEY[parsed.kind]
    if parse_key(key) is not None:
        return ByteClass.BROKERS
    return _OF_FOLDER.get(key.partition("/")[0], ByteClass.OTHER)


class Age(StrEnum):
    """How long ago the newest message of a segment was published."""

    DAY = "less than a day"
    WEEK = "1 to 7 days"
    MONTH = "7 to 30 days"
    YEAR = "30 to 365 days"
    OLDER = "more than a year"
    UNKNOWN = "no message says it"


_YOUNGER = ((Age.DAY, 1), (Age.WEEK, 7), (Age.MONTH, 30), (Age.YEAR, 365))


def age_of(published: int | None, now: int) -> Age:
    """Of a publish time (ms); a clock that is ahead makes it young."""
    if published is None:
        return Age.UNKNOWN
    return next((age for age, days in _YOUNGER if now - published < days * _DAY_MS), Age.OLDER)


@dataclass
class StoredSum:
    """Objects of a namespace, or of everything: how many there are of each class, and their bytes."""

    topics: int = 0
    objects: Counter[ByteClass] = field(default_factory=Counter)
    size: Counter[ByteClass] = field(default_factory=Counter)

    def take(self, of: ByteClass, size: int) -> None:
        """One more object."""
        self.objects[of] += 1
        self.size[of] += size

    def add(self, other: StoredSum) -> None:
        """All of another heap."""
        self.topics += other.topics
        self.objects.update(other.objects)
        self.size.update(other.size)


@dataclass
class Listed:
    """What a listing says: by namespace, and of each topic that is looked into its data alone. `root`: what belongs to
    no topic."""

    namespaces: dict[str, StoredSum] = field(default_factory=dict)
    data: dict[TopicName, int] = field(default_factory=dict)
    segments: dict[TopicName, int] = field(default_factory=dict)
    root: StoredSum = field(default_factory=StoredSum)

    @property
    def total(self) -> StoredSum:
        """Everything."""
        found = StoredSum()
        for heap in (*self.namespaces.values(), self.root):
            found.add(heap)
        return found


@dataclass(frozen=True)
class TopicLook:
    """What a topic's catalog says. `deleting`: bytes that go, and have not gone; `kept`: of all that is not deleted."""

    topic: TopicName
    head: CatalogHead
    ages: Counter[Age]
    pace: Pace
    deleting: int

    @property
    def kept(self) -> int:
        return self.head.kept.size


@dataclass(frozen=True, slots=True)
class StillHeld:
    """One copy of what BookKeeper has of a topic: `size` bytes, of which `archived` are in the archive, too: they stay
    for the subscription, retention or the backlog of others."""

    topic: TopicName
    size: int
    archived: int
