"""Which topics are meant, and what is known of each: read again from the catalogs, several at a time."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from offloader.archive.ledgers.opening import with_ledgers
from offloader.archive.records import TopicRecords
from offloader.archive.spark.opening import known_catalogs, opened_stores
from offloader.archive.spark.options import SourceOptions
from offloader.errors import ConfigError, DataLostError
from offloader.metadata import layout, listing
from offloader.metadata.log import READERS
from offloader.model import TopicName

if TYPE_CHECKING:
    from offloader.archive.ledgers.ledger_bucket import LedgerBucket


log = logging.getLogger("offloader.archive.spark")


class Views:
    """The records of the topics that the options name. Only what was written since is read when they are loaded again."""

    def __init__(self, options: SourceOptions) -> None:
        self._store = opened_stores(options).open().store
        self._options = options
        self._ledgers = _bucket(options)
        self._catalogs = known_catalogs(options)
        self._known: dict[TopicName, TopicRecords] = {}

    def load(self) -> dict[TopicName, TopicRecords]:
        """As they are now, in the order of their names. Raises ConfigError where a topic is not in the archive, or there is none."""
        if self._options.topics:
            partitions = self._partitions()
            self._refresh([*self._options.topics, *partitions])
            lost = self._lost()
            self._check_none_is_missing(partitions, lost)
        else:
            names = [name for name in self._all() if self._is_meant(name)]
            if not names:
                self._check_is_archive()
            self._refresh(names)
            lost = self._lost()
        self._tell_of(lost)
        return {name: self._known[name] for name in sorted(self._known) if self._is_archived(name)}

    def _refresh(self, names: Iterable[TopicName]) -> None:
        with ThreadPoolExecutor(READERS, "catalog-reader") as pool:
            for records in pool.map(self._records, names):
                self._known[records.topic] = records

    def _records(self, name: TopicName) -> TopicRecords:
        records = self._catalogs.records(name)
        return records if self._ledgers is None else TopicRecords.of(with_ledgers(records.whole.catalog, self._ledgers))

    def _is_archived(self, name: TopicName) -> bool:
        records = self._known[name]
        return records.head.next_slot > 0 or (self._ledgers is not None and bool(records.whole.ledgers))

    def _all(self) -> set[TopicName]:
        found = set(listing.topics(self._store))
        return found if self._ledgers is None else found | self._ledgers.scan().topics.keys()

    def _check_is_archive(self) -> None:
        """A wrong root must not pass for topics that nobody has written to."""
        may_be_empty = self._options.wait_for_topics or self._ledgers is not None
        if not may_be_empty and self._store.stat(layout.ROOT) is None:
            raise ConfigError(f"root: there is no archive in {self._store.url}; `offloader doctor` tells more")

    def _is_meant(self, name: TopicName) -> bool:
        if self._options.namespace is not None:
            return name.namespace == self._options.namespace
        return re.fullmatch(self._options.pattern or "", str(name)) is not None

    def _partitions(self) -> list[TopicName]:
        """The partitions of the named topics: a name may have been a topic's first and a partitioned topic's later."""
        of_brokers = [] if self._ledgers is None else list(self._ledgers.scan().topics)
        found: list[TopicName] = []
        for name in (name for name in self._options.topics if name.partition < 0):
            partitions = {*listing.partitions(self._store, name), *(t for t in of_brokers if t.partitioned_name == str(name))}
            found += partitions - {name}
        return found

    def _lost(self) -> list[TopicName]:
        """Topics whose objects are there and whose catalogs are not."""
        return [name for name in sorted(self._known) if not self._is_archived(name) and listing.holds_data(self._store, name)]

    def _check_none_is_missing(self, partitions: Iterable[TopicName], lost: Iterable[TopicName]) -> None:
        there = {*lost, *(TopicName.parse(partition.partitioned_name) for partition in partitions)}
        missing = next((n for n in self._options.topics if n not in there and not self._is_archived(n)), None)
        if missing is not None and not self._options.wait_for_topics:
            raise ConfigError(f"topics: {missing} is not in the archive {self._store.url}; `offloader topics list` shows what is")

    def _tell_of(self, lost: Iterable[TopicName]) -> None:
        """Raises DataLostError, unless that is to be no failure."""
        for name in lost:
            why = f"{name} has segments in {self._store.url}, but its catalog is gone: `offloader catalog rebuild {name}` makes it anew"
            if self._options.fail_on_data_loss:
                raise DataLostError(f"{why} (failOnDataLoss=false goes on without)")
            log.warning("%s", why, extra={"see": "catalog-gone"})


def _bucket(options: SourceOptions) -> LedgerBucket | None:
    given = options.ledgers
    if given is None:
        return None
    from offloader.archive.ledgers.ledger_bucket import LedgerBucket  # an HTTP client comes with it
    from offloader.pulsar.settings import PulsarSettings

    admin = None if given.admin_url is None else PulsarSettings(admin_url=given.admin_url)
    return LedgerBucket(given.store, admin=admin, cluster=given.cluster)
