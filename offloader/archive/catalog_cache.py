"""Catalogs that were read before. Records do not change, so only newer ones are read."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from offloader.archive.records import LazyTopicRecords
from offloader.metadata.bridge_reader import BridgeReader
from offloader.metadata.bridged import BridgedLedgers
from offloader.metadata.catalog import Catalogs
from offloader.metadata.history import MOST_KEPT, RecordCache
from offloader.metadata.layout import slot_key, topic_folder
from offloader.metadata.state import CatalogHead
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore

# Topics whose heads are remembered, each by some hundred bytes.
MOST_TOPICS = 10_000


class _Known(NamedTuple):
    head: CatalogHead
    last: str  # the etag of its last record


class CatalogCache:
    """The catalogs of a root that were used last. Safe to use from several threads."""

    def __init__(self, store: ObjectStore, most_kept: int = MOST_KEPT, most_topics: int = MOST_TOPICS) -> None:
        self._store = store
        self._catalogs = Catalogs(store, "")  # nothing is appended
        self._bridges = BridgeReader(store)
        self._kept = RecordCache(most_kept)
        self._most = most_topics
        self._heads: OrderedDict[TopicName, _Known] = OrderedDict()
        self._lock = threading.Lock()

    def topics(self) -> Iterator[TopicName]:
        """Every topic that has a catalog."""
        return self._catalogs.topics()

    def has(self, topic: TopicName) -> bool:
        """Whether a topic has a catalog; one request."""
        return self._catalogs.has(topic)

    def records(self, topic: TopicName) -> LazyTopicRecords:
        """A topic's records as they are now. Reads only new ones, or all after a rebuild. Raises DamagedRecordError,
        IntegrityError, and what the store raises."""
        known = self._heads.get(topic)
        if known is not None and self._last(known.head) != known.last:
            self._kept.forget(topic_folder(topic))
            known = None
        history = self._catalogs.history(topic, None if known is None else known.head, self._kept)
        head = history.head
        if head.next_slot == 0:
            known = None
        elif known is None or known.head.next_slot != head.next_slot:
            known = _Known(head, history.last_etag or self._last(head))
        with self._lock:
            if known is None:
                self._heads.pop(topic, None)
            else:
                self._heads[topic] = known
                self._heads.move_to_end(topic)
                while len(self._heads) > self._most:
                    self._heads.popitem(last=False)
        return LazyTopicRecords(history)

    def bridged(self, topic: TopicName) -> BridgedLedgers:
        """What a topic's bridge log says now. Raises DamagedRecordError, and what the store raises."""
        return self._bridges.of(topic)

    def _last(self, head: CatalogHead) -> str:
        """The last record's etag. Each record has a token of its own: the same etag proves the same records before."""
        stat = self._store.stat(slot_key(head.topic, head.generation, head.next_slot - 1))
        return "" if stat is None else stat.etag
