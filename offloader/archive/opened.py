"""An open archive: stores, catalogs, and the bucket of Pulsar's own offloader. All reading of topics begins here."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from offloader.archive.catalog_cache import CatalogCache
from offloader.archive.ledgers.bridged import without_bridged
from offloader.archive.ledgers.found import joined
from offloader.archive.reading.stores import Stores
from offloader.archive.records import TopicRecords
from offloader.errors import FatalError
from offloader.metadata import listing
from offloader.model import TopicName

if TYPE_CHECKING:
    from offloader.archive.ledgers.bucket import BucketScan
    from offloader.archive.ledgers.ledger_bucket import LedgerBucket

log = logging.getLogger(__name__)


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
