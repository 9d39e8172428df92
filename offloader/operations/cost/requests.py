"""The requests that the application makes of the store: for each segment, and while nothing happens. Pure.

These numbers are those of the code, step by step; `tests/operations/cost/test_requests.py` counts a simulated
application's and compares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from offloader.metadata.manifest import FAN

HOUR_MS = 3_600_000
HOURS_A_MONTH = 730
LIST_KEPT_MS = 5_000  # of the topics of a namespace, in a gateway
HEALTH_MS = 10_000  # between two looks of a gateway at the store


class AskedFor(StrEnum):
    """What a request is for."""

    PARTS = "parts"
    INDEXES = "indexes"
    RECORDS = "records"
    CATALOGS = "catalogs"
    MANIFESTS = "manifests"
    JOURNAL = "journal"
    IDLE = "looking for work"
    RETENTION = "retention"
    DELETION = "deletion"
    GATEWAY = "gateway"


@dataclass(frozen=True, slots=True)
class Requests:
    """How many there are, in the classes that stores have prices for. Deletions cost nothing."""

    writes: float = 0
    reads: float = 0
    lists: float = 0

    def __add__(self, other: Requests) -> Requests:
        return Requests(self.writes + other.writes, self.reads + other.reads, self.lists + other.lists)

    def times(self, factor: float) -> Requests:
        """So many times as many."""
        return Requests(self.writes * factor, self.reads * factor, self.lists * factor)


ByKind = Mapping[AskedFor, Requests]

# Per record of a catalog, once for each `FAN` of them: all are read again, with the manifests before, then written as
# one object with their manifest; the hint is renewed.
MANIFEST = Requests(writes=3 / FAN, reads=(FAN + 4) / FAN)


def of_segment(parts: int) -> ByKind:
    """What a segment of so many parts takes, from its assignment to its commit.

    The journal's is the most: a record for each slice, of which a part may have one of its own, and one record serves
    all topics that change at the same time."""
    record = {
        AskedFor.RECORDS: Requests(writes=1),
        AskedFor.CATALOGS: Requests(writes=1),
        AskedFor.MANIFESTS: MANIFEST,
    }
    if not parts:  # it accounts for gaps only
        return record | {AskedFor.JOURNAL: Requests(writes=4)}
    single = parts == 1  # one PUT, with nothing begun; a part that is nearly full takes what several do
    return record | {
        # Begun and completed, and looked at then.
        AskedFor.PARTS: Requests(writes=1) if single else Requests(writes=parts + 2, reads=1),
        AskedFor.INDEXES: Requests(writes=1, reads=parts),  # each part ends with its part of the index
        AskedFor.JOURNAL: Requests(writes=4 if single else parts + 4),
    }


@dataclass(frozen=True, slots=True)
class Idling:
    """How applications look for work. `retained`: topics of which a policy says that something goes; `applications`:
    shards, each of which is one."""

    trigger_ms: int
    deletion_interval_ms: int
    deletes: bool = False
    retained: int = 0
    applications: int = 1


def of_idle_hour(idling: Idling) -> ByKind:
    """What they take in an hour in which nothing happens, whatever the number of its topics: whether another
    process has its journal, and whether requests have come. Retention lists all topics and loads the head of each that
    it is for."""
    looks, rounds = HOUR_MS / idling.trigger_ms, HOUR_MS / idling.deletion_interval_ms
    found = {AskedFor.IDLE: Requests(reads=looks, lists=looks + 1).times(idling.applications)}
    if idling.retained:
        found[AskedFor.RETENTION] = Requests(
            reads=3 * idling.retained, lists=2 * idling.retained + 5 * idling.applications
        ).times(rounds)
    if idling.deletes:
        found[AskedFor.DELETION] = Requests(reads=1, lists=3).times(rounds * idling.applications)
    return found


@dataclass(frozen=True, slots=True)
class Serving:
    """What a gateway serves all the time: topics with consumers, durable subscriptions that acknowledge, and namespaces
    with watched patterns."""

    topics: int
    subscriptions: int
    namespaces: int
    refresh_ms: int
    flush_ms: int
    claim_ms: int

    @property
    def is_idle(self) -> bool:
        """Whether it serves nothing."""
        return not (self.topics or self.subscriptions or self.namespaces)


def of_serving_hour(serving: Serving) -> ByKind:
    """What a gateway takes in an hour, whatever is read: catalogs are looked at, acknowledgements written, claims and
    namespaces listed (each up to a thousand)."""
    per_topic = Requests(reads=1, lists=1).times(serving.topics * HOUR_MS / serving.refresh_ms)
    acknowledgements = Requests(writes=serving.subscriptions * HOUR_MS / serving.flush_ms)
    claims = Requests(lists=HOUR_MS / serving.claim_ms if serving.subscriptions else 0)
    watched = Requests(lists=serving.namespaces * HOUR_MS / LIST_KEPT_MS)
    look = Requests(reads=HOUR_MS / HEALTH_MS)
    return {AskedFor.GATEWAY: per_topic + acknowledgements + claims + watched + look}


def added(some: Iterable[ByKind]) -> dict[AskedFor, Requests]:
    """All of them together, in the order of the kinds."""
    total: dict[AskedFor, Requests] = {}
    for each in some:
        for kind, requests in each.items():
            total[kind] = total.get(kind, Requests()) + requests
    return {kind: total[kind] for kind in AskedFor if kind in total}


def times(some: ByKind, factor: float) -> dict[AskedFor, Requests]:
    """Each of them so many times."""
    return {kind: requests.times(factor) for kind, requests in some.items()}


def total(some: ByKind) -> Requests:
    """Whatever they are for."""
    return sum(some.values(), Requests())
