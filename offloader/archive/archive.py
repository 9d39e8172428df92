"""The archive for Python: everything that was offloaded to one root. Needs no broker, writes nothing."""

from __future__ import annotations

import re
from types import TracebackType
from typing import TYPE_CHECKING, Self

from offloader.archive.catalog_cache import CatalogCache
from offloader.archive.following.live import Following, Live
from offloader.archive.reading.reader import DEFAULTS, ReadOptions
from offloader.archive.reading.stores import Stores
from offloader.archive.records import TopicRecords
from offloader.archive.topic import ArchivedTopic
from offloader.errors import ConfigError, FatalError
from offloader.model import TopicName
from offloader.storage.settings import StoreSettings

if TYPE_CHECKING:
    from offloader.archive.ledgers.ledger_bucket import LedgerBucket
    from offloader.pulsar.settings import PulsarSettings


class Archive:
    """The topics that were offloaded to one root. A context manager; threads may share it.

    Args:
        root: `file:///path`, `s3://bucket/prefix` or a URL of fsspec; or `StoreSettings`, for keys and a store's own options. Without keys
            they come from where they usually do (S3: environment, profile, instance role).
        endpoint: of an S3-compatible store.
        region: of an S3 bucket.
        options: how much a request reads, how many are under way, what damage does.
        ledgers: a bucket that stock brokers have offloaded to; its ledgers are read as part of their topics.
        pulsar: where topics go on; only `follow` needs it.

    Raises ConfigError for a root that no store is known for, AccessDeniedError, BucketNotFoundError, StoreUnavailableError.

    >>> with Archive("s3://pulsar-archive/production") as archive:
    ...     orders = archive.topic("persistent://public/default/orders")
    ...     for message in orders.messages():
    ...         print(message.position, message.key, message.value)
    12:0 b'alice' b'order 0'
    12:1 b'bob' b'order 1'
    12:2 b'alice' b'order 2'
    12:3 b'bob' b'order 3'
    """

    def __init__(
        self,
        root: str | StoreSettings,
        *,
        endpoint: str | None = None,
        region: str | None = None,
        options: ReadOptions = DEFAULTS,
        ledgers: LedgerBucket | None = None,
        pulsar: PulsarSettings | None = None,
    ) -> None:
        settings = root if isinstance(root, StoreSettings) else StoreSettings(root, endpoint, region)
        self.url = settings.root
        self._options = options
        self._ledgers = ledgers
        self._stores = Stores(settings, () if ledgers is None else (ledgers.store,))
        self._catalogs = CatalogCache(self._stores.open().store)
        self._following = None if pulsar is None else Following(Live.of(pulsar), self._catalogs.records)

    def topics(self, pattern: str | None = None) -> list[TopicName]:
        """The topics' full names, sorted; each partition of a partitioned topic is one.

        Args:
            pattern: a regular expression that the whole name must match, `persistent://` included. None: all topics.

        Raises ConfigError where the pattern is none, and what the store raises.

        >>> archive = Archive("s3://pulsar-archive/production")
        >>> [str(name) for name in archive.topics("persistent://public/default/.*")]
        ['persistent://public/default/orders']
        """
        try:
            wanted = re.compile(".*" if pattern is None else pattern, re.DOTALL)
        except re.error as error:
            raise ConfigError(f"pattern: {pattern!r} is no regular expression: {error}") from error
        found = set(self._catalogs.topics())
        if self._ledgers is not None:
            found |= self._ledgers.scan().topics.keys() | self._ledgers.records.keys()
        return sorted(topic for topic in found if wanted.fullmatch(str(topic)))

    def topic(self, name: str | TopicName) -> ArchivedTopic:
        """A topic as it is archived now; what is sealed later is not in it. No data is read yet.

        Args:
            name: `persistent://tenant/namespace/name` or short (`tenant/namespace/name`, `name`); a partition with `-partition-N`.

        Raises FatalError where the archive has no such topic, ConfigError for what is no name, DamagedRecordError, and what the store raises.

        >>> archive = Archive("s3://pulsar-archive/production")
        >>> print(archive.topic("orders").name)
        persistent://public/default/orders
        """
        topic = _parsed(name)
        records = self._records(topic)
        if records.head.claim is None and not (self._ledgers is not None and records.whole.ledgers):
            raise FatalError(f"{topic} {self._why_not(topic)}")
        return ArchivedTopic(self._stores, records, self._options, self._following)

    def close(self) -> None:
        """Release connections."""
        self._stores.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _why_not(self, topic: TopicName) -> str:
        parts = [name for name in self.topics() if name.partitioned_name == str(topic)]
        if parts:
            return f"is partitioned; name one of its {len(parts)} archived partitions, for example {parts[0]}"
        return f"is not in the archive {self.url}; Archive.topics() lists what is"

    def _records(self, topic: TopicName) -> TopicRecords:
        records = self._catalogs.records(topic)
        if self._ledgers is None:
            return records
        from offloader.archive.ledgers.opening import with_ledgers

        return TopicRecords.of(with_ledgers(records.whole.catalog, self._ledgers))


def _parsed(name: str | TopicName) -> TopicName:
    if isinstance(name, TopicName):
        return name
    try:
        return TopicName.parse(name)
    except ValueError as error:
        raise ConfigError(str(error)) from error
