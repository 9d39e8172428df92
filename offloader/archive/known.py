"""Catalogs that were read before: records do not change, so only those that came since are read again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from offloader.metadata.catalog import Catalogs
from offloader.metadata.layout import catalog_folder, slot_name
from offloader.metadata.state import TopicCatalog
from offloader.model import TopicName
from offloader.storage.base import ObjectStore

# A segment of 1 GiB takes some 50 KiB of memory.
MOST_SEGMENTS = 5_000


class _Known(NamedTuple):
    catalog: TopicCatalog
    last: str  # the etag of its last record


class KnownCatalogs:
    """The catalogs of a root that were used last. Safe to use from several threads."""

    def __init__(self, store: ObjectStore, most_segments: int = MOST_SEGMENTS) -> None:
        self._store = store
        self._catalogs = Catalogs(store, "", str)  # nothing is appended
        self._most = most_segments
        self._kept: OrderedDict[TopicName, _Known] = OrderedDict()
        self._lock = threading.Lock()

    def topics(self) -> Iterator[TopicName]:
        """Every topic that has a catalog."""
        return self._catalogs.topics()

    def current(self, topic: TopicName) -> TopicCatalog:
        """As it is now: only records that came since are read, unless it was made anew meanwhile. Raises as `Catalogs.load`."""
        known = self._kept.get(topic)
        if known is None or self._last(known.catalog) != known.last:
            known = _Known(TopicCatalog(topic), "")
        found = self._catalogs.refresh(known.catalog)
        if found.next_slot == 0:
            with self._lock:
                self._kept.pop(topic, None)
        else:
            self._keep(found, known.last if found.next_slot == known.catalog.next_slot else self._last(found))
        return found

    def _last(self, catalog: TopicCatalog) -> str:
        """A record carries a token of its own, or names the segment before it: where the last one is the same, nobody made those before anew."""
        stat = self._store.stat(catalog_folder(catalog.topic) + slot_name(catalog.next_slot - 1))
        return "" if stat is None else stat.etag

    def _keep(self, catalog: TopicCatalog, last: str) -> None:
        with self._lock:
            self._kept[catalog.topic] = _Known(catalog, last)
            self._kept.move_to_end(catalog.topic)
            used = sum(len(known.catalog.segments) for known in self._kept.values())
            while used > self._most and len(self._kept) > 1:
                used -= len(self._kept.popitem(last=False)[1].catalog.segments)
