"""Which topics the options name, and the catalog of each: the list of its segments. Several are read at a time.

Stores and catalogs are opened once in each of Spark's processes: workers live longer than tasks.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from offloader.archive.opened import CatalogCache, OpenArchive
from offloader.archive.reading.stores import Stores
from offloader.archive.records import TopicRecords
from offloader.archive.spark.options import SourceOptions
from offloader.errors import ConfigError, DataLostError
from offloader.metadata import layout, listing
from offloader.metadata.log import READERS
from offloader.model import TopicName
from offloader.storage.settings import StoreSettings

log = logging.getLogger("offloader.archive.spark")

_STORES: dict[tuple[StoreSettings, ...], Stores] = {}
_CATALOGS: dict[StoreSettings, CatalogCache] = {}
_LOCK = threading.Lock()


def opened(options: SourceOptions) -> OpenArchive:
    """The archive that the options name. Its stores and its catalogs are this process's: later calls get them again."""
    others = () if options.ledgers is None else (options.ledgers.store,)
    with _LOCK:
        stores = _STORES.setdefault((options.store, *others), Stores(options.store, others))
    store = stores.open().store
    with _LOCK:
        catalogs = _CATALOGS.setdefault(options.store, CatalogCache(store))
    if options.ledgers is None:
        return OpenArchive(stores, catalogs=catalogs)
    from offloader.archive.ledgers.bucket import LedgerBucket  # most have none
    from offloader.pulsar.settings import PulsarSettings

    url = options.ledgers.admin_url
    admin = None if url is None else PulsarSettings(admin_url=url)
    return OpenArchive(
        stores, LedgerBucket(options.ledgers.store, admin=admin, cluster=options.ledgers.cluster), catalogs
    )


class SelectedTopics:
    """The records of the topics that the options name. Loading them again reads only what is new."""

    def __init__(self, options: SourceOptions) -> None:
        self._archive = opened(options)
        self._options = options
        self._records: dict[TopicName, TopicRecords] = {}

    def load(self) -> dict[TopicName, TopicRecords]:
        """The records as they are now, in order of names.

        Raises ConfigError if a named topic, or the archive, is not there; DataLostError if a topic's catalog is gone;
        DamagedRecordError, IntegrityError, and what the store raises."""
        partitions = self._partitions()
        names = [*self._options.topics, *partitions] if self._options.topics else self._matching()
        with ThreadPoolExecutor(READERS, "catalog-reader") as pool:
            self._records |= {records.topic: records for records in pool.map(self._archive.records, names)}
        archive = self._archive
        gone = (name for name in sorted(self._records) if not archive.has(self._records[name]))
        lost = [name for name in gone if listing.holds_data(archive.store, name)]
        self._check_none_is_missing(partitions, lost)
        self._tell_of(lost)
        return {name: self._records[name] for name in sorted(self._records) if archive.has(self._records[name])}

    def _matching(self) -> list[TopicName]:
        """The archived topics of the namespace or pattern. A wrong root must not pass for topics without data."""
        names = [name for name in self._archive.names() if self._is_meant(name)]
        may_be_empty = self._options.wait_for_topics or self._archive.ledgers is not None
        if not names and not may_be_empty and self._archive.store.stat(layout.ROOT) is None:
            url = self._archive.store.url
            raise ConfigError(f"root: there is no archive in {url}; `offloader doctor` tells more")
        return names

    def _is_meant(self, name: TopicName) -> bool:
        if self._options.namespace is not None:
            return name.namespace == self._options.namespace
        return re.fullmatch(self._options.pattern or "", str(name)) is not None

    def _partitions(self) -> list[TopicName]:
        """The partitions of the named topics: a name may have been a topic's first and a partitioned topic's later."""
        if not self._options.topics:
            return []
        scanned = self._archive.scan()
        whole = (name for name in self._options.topics if name.partition < 0)
        return [partition for name in whole for partition in self._archive.partitions(name, scanned)]

    def _check_none_is_missing(self, partitions: Iterable[TopicName], lost: Iterable[TopicName]) -> None:
        there = {*lost, *(TopicName.parse(partition.partitioned_name) for partition in partitions)}
        missing = next(
            (n for n in self._options.topics if n not in there and not self._archive.has(self._records[n])), None
        )
        if missing is not None and not self._options.wait_for_topics:
            url = self._archive.store.url
            raise ConfigError(f"topics: {missing} is not in the archive {url}; `offloader topics list` shows what is")

    def _tell_of(self, lost: Iterable[TopicName]) -> None:
        """Raises DataLostError, or logs it where `failOnDataLoss` is false."""
        for name in lost:
            url = self._archive.store.url
            why = (
                f"{name} has segments in {url}, but its catalog is gone: `offloader catalog rebuild {name}` makes it "
                "anew"
            )
            if self._options.fail_on_data_loss:
                raise DataLostError(f"{why} (failOnDataLoss=false goes on without)")
            log.warning("%s", why, extra={"see": "catalog-gone"})
