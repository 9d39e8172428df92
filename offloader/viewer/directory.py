"""Which topics there are, by tenant and namespace. Each listing is bounded in time and number, and kept for a while."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from offloader.errors import RetryableError
from offloader.metadata.layout import encoded, topic_of
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore

MOST_NAMES = 200_000  # of a listing
SECONDS = 30.0  # that a listing may take
KEPT_SECONDS = 30.0
MOST_KEPT = 16  # listings,
MOST_NAMES_KEPT = 2 * MOST_NAMES  # but for the last one
MOST_FOUND = 100  # by a search
SEARCHED_SECONDS = 30.0
SEARCHES = 4  # at the same time: fewer than pages are made, so that they hold up no other page


@dataclass(frozen=True, slots=True)
class Listing:
    """Names in key order. Not `complete`: there are more than are listed."""

    names: tuple[str, ...]
    complete: bool = True


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic, or one with `partitions`, by number, that are archived."""

    name: TopicName
    partitions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search has found. Not `complete`: it ended early."""

    rows: tuple[TopicRow, ...]
    complete: bool


class Directory:
    """`clock`: seconds that only grow. Threads may share it; one that lists holds up no other."""

    def __init__(self, store: ObjectStore, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, Listing]] = OrderedDict()
        self._rows: dict[str, tuple[Listing, list[TopicRow]]] = {}  # of those that are kept
        self._lock = threading.Lock()
        self._searches = threading.BoundedSemaphore(SEARCHES)

    def tenants(self) -> Listing:
        """Those that have topics."""
        found = self._listed("")
        return Listing(tuple(unquote(name) for name in found.names if not name.startswith("_")), found.complete)

    def namespaces(self, tenant: str) -> Listing:
        """As `tenant/namespace`."""
        found = self._listed(f"{encoded(tenant)}/")
        return Listing(tuple(f"{tenant}/{unquote(name)}" for name in found.names), found.complete)

    def topics(self, namespace: str) -> tuple[list[TopicRow], bool]:
        """Of a namespace, partitions together; and whether that is all."""
        tenant, _, part = namespace.partition("/")
        prefix = f"{encoded(tenant)}/{encoded(part)}/"
        found = self._listed(prefix)
        with self._lock:
            made = self._rows.get(prefix)
        if made is None or made[0] is not found:
            names = (topic_of(f"{prefix}{name}/")[0] for name in found.names)
            made = found, rows_of(name for name in names if name is not None)
            with self._lock:
                if prefix in self._kept:
                    self._rows[prefix] = made
        return made[1], found.complete

    def search(self, text: str) -> SearchResult:
        """Topics in whose full name this stands, whatever its case. Raises RetryableError where too many search."""
        if not self._searches.acquire(blocking=False):
            raise RetryableError(f"{SEARCHES} searches are being made; try again in {SEARCHED_SECONDS:.0f} seconds")
        try:
            return self._search(text)
        finally:
            self._searches.release()

    def _search(self, text: str) -> SearchResult:
        until, wanted = self._clock() + SEARCHED_SECONDS, text.casefold()
        rows: list[TopicRow] = []
        complete = True
        for namespace, whole in self._namespaces():
            if self._clock() > until or len(rows) >= MOST_FOUND:
                return SearchResult(tuple(rows[:MOST_FOUND]), complete=False)
            topics, all_of_it = self.topics(namespace)
            complete = complete and whole and all_of_it
            rows += [row for row in topics if wanted in str(row.name).casefold()]
        return SearchResult(tuple(rows[:MOST_FOUND]), complete and len(rows) <= MOST_FOUND)

    def _namespaces(self) -> Iterator[tuple[str, bool]]:
        tenants = self.tenants()
        for tenant in tenants.names:
            found = self.namespaces(tenant)
            yield from ((name, tenants.complete and found.complete) for name in found.names)

    def _listed(self, prefix: str) -> Listing:
        now = self._clock()
        with self._lock:
            kept = self._kept.get(prefix)
        if kept is not None and now - kept[0] < KEPT_SECONDS:
            return kept[1]
        names: list[str] = []
        complete = True
        for folder in self._store.folders(prefix):
            if len(names) >= MOST_NAMES or self._clock() - now > SECONDS:
                complete = False
                break
            names.append(folder.removeprefix(prefix).removesuffix("/"))
        found = Listing(tuple(names), complete)
        with self._lock:
            self._kept[prefix] = self._clock(), found
            self._kept.move_to_end(prefix)
            while len(self._kept) > MOST_KEPT or (len(self._kept) > 1 and self._names_kept() > MOST_NAMES_KEPT):
                self._rows.pop(self._kept.popitem(last=False)[0], None)
        return found

    def _names_kept(self) -> int:
        return sum(len(listing.names) for _, listing in self._kept.values())


def rows_of(topics: Iterable[TopicName]) -> list[TopicRow]:
    """Sorted by name, the partitions of one topic together."""
    found: dict[TopicName, list[int]] = {}
    for topic in topics:
        if topic.partition < 0:
            found.setdefault(topic, [])
        else:
            found.setdefault(TopicName.parse(topic.partitioned_name), []).append(topic.partition)
    return [TopicRow(name, tuple(sorted(numbers))) for name, numbers in sorted(found.items())]
