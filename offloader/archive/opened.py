"""An open archive: stores, catalogs, and the bucket of Pulsar's own offloader. All reading of topics begins here.

Catalogs that were read before are kept. Records do not change, so only newer ones are read."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from offloader.ahead import unawaited_pool
from offloader.archive.ledgers.found import joined, without_bridged
from offloader.archive.reading.stores import Stores
from offloader.archive.records import LazyTopicRecords, TopicRecords
from offloader.bridge.core.rounds import BridgedLedgers
from offloader.bridge.log import BridgeReader
from offloader.errors import FatalError
from offloader.metadata import listing
from offloader.metadata.catalog import Catalogs
from offloader.metadata.history import MOST_KEPT, RecordCache
from offloader.metadata.layout import slot_key, topic_folder
from offloader.metadata.state import CatalogHead
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore

if TYPE_CHECKING:
    from offloader.archive.ledgers.bucket import BucketScan, LedgerBucket

log = logging.getLogger(__name__)

# Topics whose heads are remembered, each by some hundred bytes.
MOST_TOPICS = 10_000
LOOKED_AT_AGAIN = 60.0  # seconds, where there was no catalog
LOOKS = 8  # at a time
FOR_EVER = math.inf


class _Known(NamedTuple):
    head: CatalogHead
    last: str  # the etag of its last record


class CatalogCache:
    """The catalogs of a root that were used last. Safe to use from several threads."""

    def __init__(
        self,
        store: ObjectStore,
        most_kept: int = MOST_KEPT,
        most_topics: int = MOST_TOPICS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._catalogs = Catalogs(store, "")  # nothing is appended
        self._bridges = BridgeReader(store)
        self._kept = RecordCache(most_kept)
        self._most = most_topics
        self._heads: OrderedDict[TopicName, _Known] = OrderedDict()
        self._lock = threading.Lock()
        self._clock = clock
        self._looked_at: dict[TopicName, float] = {}  # whether it has a catalog; FOR_EVER: it has

    def topics(self) -> Iterator[TopicName]:
        """Every topic that has a catalog."""
        return self._catalogs.topics()

    def has(self, topic: TopicName) -> bool:
        """Whether a topic has a catalog; one request."""
        there = self._catalogs.has(topic)
        if not there:
            with self._lock:
                self._looked_at.pop(topic, None)
        return there

    def topics_of(self, namespace: str) -> list[TopicName]:
        """The topics of a namespace that have a catalog: one listing call a thousand. A topic is looked at when it is
        there for the first time, and once a minute as long as it has no catalog."""
        found = listing.topics_of(self._store, namespace)
        since = self._clock() - LOOKED_AT_AGAIN
        with self._lock:
            there = set(found)
            for topic in [one for one in self._looked_at if one.namespace == namespace and one not in there]:
                del self._looked_at[topic]
            new = [topic for topic in found if self._looked_at.get(topic, -FOR_EVER) < since]
        with unawaited_pool(LOOKS, "catalog-look") as pool:
            catalogs = list(pool.map(self._catalogs.has, new))
        with self._lock:
            now = self._clock()
            self._looked_at |= {topic: FOR_EVER if has else now for topic, has in zip(new, catalogs, strict=True)}
            return [topic for topic in found if self._looked_at.get(topic) == FOR_EVER]

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


class OpenArchive:
    """What `Archive`, the commands and Spark's processes read from. Threads may share it.

    `ledgers`: the bucket of Pulsar's own offloader; methods that take `scanned`, a result of `scan`, do not list it
    again. `catalogs`: a cache that several archives of one root share."""

    def __init__(
        self, stores: Stores, ledgers: LedgerBucket | None = None, catalogs: CatalogCache | None = None
    ) -> None:
        self.stores = stores
        self.store = stores.open().store
        self.ledgers = ledgers
        self.catalogs = catalogs or CatalogCache(self.store)

    def records(self, topic: TopicName, scanned: BucketScan | None = None) -> TopicRecords:
        """What is stored of a topic now: the list of its segments and ledgers. Raises DamagedRecordError,
        IntegrityError, what the store raises, and as `LedgerBucket.find`."""
        records = self.catalogs.records(topic)
        if self.ledgers is None:
            return records
        found = without_bridged(self.ledgers.find(topic, scanned), self.catalogs.bridged(topic))
        for one in found.contradictions:
            log.warning(
                "%s: the bucket has two complete copies of ledger %d with different entries: %s is taken, "
                "%s is left out",
                topic,
                one.ledger,
                one.taken,
                one.other,
                extra={"see": "two-copies"},
            )
        return TopicRecords(joined(records.whole.catalog, found))

    def has(self, records: TopicRecords) -> bool:
        """Whether anything is archived of the topic with these records."""
        return records.head.next_slot > 0 or (self.ledgers is not None and bool(records.whole.ledgers))

    def scan(self, wanted: Callable[[TopicName], bool] = lambda _: True) -> BucketScan | None:
        """Lists the bucket of ledgers, for the topics that are wanted; None: there is no such bucket."""
        return None if self.ledgers is None else self.ledgers.scan(wanted)

    def topics(self) -> set[TopicName]:
        """Every topic that is archived."""
        return {*self.catalogs.topics(), *self._of_brokers(self.scan())}

    def topics_of(self, namespace: str, scanned: BucketScan | None) -> list[TopicName]:
        """The archived topics of a namespace; those in the bucket of ledgers as `scanned` says."""
        beside = {topic for topic in self._of_brokers(scanned) if topic.namespace == namespace}
        return sorted({*self.catalogs.topics_of(namespace), *beside})

    def names(self) -> set[TopicName]:
        """`topics`, and those that have objects but no catalog."""
        return {*listing.topics(self.store), *self._of_brokers(self.scan())}

    def partitions(self, topic: TopicName, scanned: BucketScan | None = None) -> list[TopicName]:
        """The partitions of this name, by number; those in the bucket of ledgers only if `scanned` is given."""
        beside = {name for name in self._of_brokers(scanned) if name.partitioned_name == str(topic)}
        return sorted({*listing.partitions(self.store, topic), *beside} - {topic}, key=lambda name: name.partition)

    def unknown(self, topic: TopicName, hint: str) -> FatalError:
        """The error that there is no such topic. It names one of its partitions, or ends with the hint."""
        parts = self.partitions(topic, self.scan(lambda name: name.partitioned_name == str(topic)))
        if parts:
            return FatalError(
                f"{topic} is partitioned; name one of its {len(parts)} archived partitions, for example {parts[0]}"
            )
        return FatalError(f"{topic} is not in the archive{hint}")

    def _of_brokers(self, scanned: BucketScan | None) -> set[TopicName]:
        of_records = () if self.ledgers is None else self.ledgers.records
        return {*of_records, *(() if scanned is None else scanned.topics)}
