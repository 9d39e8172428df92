"""The archive for Python: everything that was offloaded to one root. Needs no broker, writes nothing.

What was rescued of one ledger is read in the same form as a topic."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Self

from offloader.archive.following.follower import Following
from offloader.archive.following.live import Live
from offloader.archive.opened import OpenArchive
from offloader.archive.reading.reader import DEFAULTS, ReadOptions
from offloader.archive.reading.stores import Stores
from offloader.archive.records import TopicRecords
from offloader.archive.snapshot import TopicSnapshot
from offloader.archive.topic import ArchivedTopic
from offloader.errors import ConfigError, FatalError
from offloader.metadata.rescue_log import Rescues
from offloader.metadata.rescues import RescuedLedger
from offloader.metadata.root import read_root
from offloader.metadata.state import CatalogHead, TopicCatalog
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore
from offloader.storage.settings import StoreSettings

if TYPE_CHECKING:
    from offloader.archive.ledgers.bucket import BucketScan, LedgerBucket
    from offloader.pulsar.settings import PulsarSettings


def rescued_ledger(store: ObjectStore, ledger: int) -> TopicSnapshot:
    """Its segments, and what no bookie gave as losses. Raises FatalError where there is nothing, ConfigError where
    there is no archive, DamagedRecordError."""
    rescues = Rescues(store, read_root(store).cluster)
    newest = rescues.newest(ledger)
    if newest.rescued is None:
        raise FatalError(f"nothing was rescued of ledger {ledger}; `offloader orphans rescued` lists what was")
    catalog = TopicCatalog(
        CatalogHead(rescued_topic(newest.rescued)), segments=newest.rescued.segments, losses=newest.rescued.losses
    )
    return TopicSnapshot(catalog.topic, catalog, folder=rescues.folder(ledger, newest.slot))


def rescued_topic(record: RescuedLedger) -> TopicName:
    """Whose it was, by its own word; a made-up name where that is no topic."""
    return owner_of_rescued(record) or TopicName("rescued", "ledger", str(record.ledger))


def owner_of_rescued(record: RescuedLedger) -> TopicName | None:
    """Whose it was; None: of no topic."""
    from offloader.state.names import topic_of

    try:
        return topic_of(record.managed_ledger)
    except ValueError:
        return None


class Archive:
    """The topics that were offloaded to one root. A context manager; threads may share it.

    Args:
        root: `file:///path`, `s3://bucket/prefix` or a URL of fsspec; or `StoreSettings`, for keys and a store's own
            options. Without keys they come from where they usually do (S3: environment, profile, instance role). The
            commands give what they have opened.
        endpoint: of an S3-compatible store.
        region: of an S3 bucket.
        options: how much a request reads, how many are under way, what damage does.
        ledgers: a bucket that stock brokers have offloaded to; its ledgers are read as part of their topics.
        pulsar: where topics go on; only `follow` needs it.

    Raises ConfigError for a root that no store is known for, AccessDeniedError, BucketNotFoundError,
    StoreUnavailableError.

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
        root: str | StoreSettings | OpenArchive,
        *,
        endpoint: str | None = None,
        region: str | None = None,
        options: ReadOptions = DEFAULTS,
        ledgers: LedgerBucket | None = None,
        pulsar: PulsarSettings | Live | None = None,
    ) -> None:
        if not isinstance(root, OpenArchive):
            settings = root if isinstance(root, StoreSettings) else StoreSettings(root, endpoint, region)
            root = OpenArchive(Stores(settings, () if ledgers is None else (ledgers.store,)), ledgers)
        self._opened = root
        self.url = root.store.url
        self._options = options
        live = pulsar if pulsar is None or isinstance(pulsar, Live) else Live.of(pulsar)
        self._following = None if live is None else Following(live, root.catalogs.records, root.records)

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
        return sorted(topic for topic in self._opened.topics() if wanted.fullmatch(str(topic)))

    def topic(self, name: str | TopicName) -> ArchivedTopic:
        """A topic as it is archived now; what is sealed later is not in it. No data is read yet.

        Args:
            name: `persistent://tenant/namespace/name` or short (`tenant/namespace/name`, `name`); a partition with
                `-partition-N`.

        Raises FatalError where the archive has no such topic, ConfigError for what is no name, DamagedRecordError, and
        what the store raises.

        >>> archive = Archive("s3://pulsar-archive/production")
        >>> print(archive.topic("orders").name)
        persistent://public/default/orders
        """
        try:
            topic = TopicName.parse(name) if isinstance(name, str) else name
        except ValueError as error:
            raise ConfigError(str(error)) from error
        found = self.find(topic)
        if found is None:
            raise self._opened.unknown(topic, f" {self.url}; Archive.topics() lists what is")
        return found

    def find(self, name: TopicName, scanned: BucketScan | None = None) -> ArchivedTopic | None:
        """As `topic`; None where the archive has none of this name. `scanned`: what the bucket of ledgers has, where
        that is known.

        >>> Archive("s3://pulsar-archive/production").find(TopicName.parse("nothing")) is None
        True
        """
        records = self._opened.records(name, scanned)
        if not self._opened.has(records):
            return None
        return ArchivedTopic(self._opened.stores, records, self._options, self._following)

    def rescued(self, ledger: int) -> ArchivedTopic:
        """What was copied of a ledger that no list of its topic named (`offloader orphans rescue`): as a topic that has
        only this ledger, with the name of the one whose it was. It is no part of that one.

        Raises FatalError where nothing was rescued of it, DamagedRecordError, and what the store raises.

        >>> Archive("s3://pulsar-archive/production").rescued(4711)
        Traceback (most recent call last):
        offloader.errors.FatalError: nothing was rescued of ledger 4711; `offloader orphans rescued` lists what was
        """
        snapshot = rescued_ledger(self._opened.store, ledger)
        return ArchivedTopic(self._opened.stores, TopicRecords(snapshot), self._options)

    def close(self) -> None:
        """Release connections."""
        self._opened.stores.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
