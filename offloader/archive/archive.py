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
    """The topics under a root: `file:///path`, `s3://bucket/prefix`, or a URL of fsspec.

    Credentials come from where they usually do (for S3: environment, profile, instance role); `endpoint` and `region` are for S3.
    `ledgers`: a bucket that stock brokers have offloaded to. `pulsar`: where topics go on, for `follow`. A context manager; threads may share it.
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
        """Every topic, in the order of their names; with a pattern those whose whole name (`persistent://...`) it matches. Raises ConfigError."""
        try:
            wanted = re.compile(".*" if pattern is None else pattern, re.DOTALL)
        except re.error as error:
            raise ConfigError(f"pattern: {pattern!r} is no regular expression: {error}") from error
        found = set(self._catalogs.topics())
        if self._ledgers is not None:
            found |= self._ledgers.scan().topics.keys() | self._ledgers.records.keys()
        return sorted(topic for topic in found if wanted.fullmatch(str(topic)))

    def topic(self, name: str | TopicName) -> ArchivedTopic:
        """A topic as it is now. Raises FatalError where the archive has none of this name, ConfigError for what is no name."""
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
