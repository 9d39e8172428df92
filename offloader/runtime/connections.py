"""The connections of one configuration: their settings, how each is opened when it is first needed, and how all are
closed."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from offloader.bookkeeper.connect import BookKeeperSettings
from offloader.bookkeeper.settings import BookieSettings
from offloader.config import Config
from offloader.config.config import ArchiveConfig, parse_archive, read_text
from offloader.config.connections import Storage
from offloader.config.levels import ENTRY_OVERHEAD
from offloader.errors import ConfigError
from offloader.metadata.catalog import Catalogs
from offloader.metadata.stock_keys import STOCK_BUCKET
from offloader.ports.admin import Admin
from offloader.ports.entry_source import EntrySource
from offloader.ports.object_store import ObjectStore
from offloader.ports.subscriptions import Subscriptions
from offloader.pulsar.settings import PulsarSettings
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings

if TYPE_CHECKING:  # each takes long to import, and most commands need none of them
    from offloader.archive.following.live import Live
    from offloader.archive.ledgers.bucket import LedgerBucket
    from offloader.archive.opened import OpenArchive
    from offloader.bookkeeper.api import Bookies
    from offloader.bookkeeper.bookie_http import BookieHttp
    from offloader.bookkeeper.metadata import MetadataTree
    from offloader.bookkeeper.nodes import Nodes
    from offloader.lifecycle.ledgers.scanned import LedgerScanner
    from offloader.migrate.proof import ShowingReader
    from offloader.model import TopicName
    from offloader.pulsar.rest import RestClient


MOST_KEPT = 256
"""Commands read a topic once: they keep the records of one stretch of a plan, and some manifests."""


def pulsar_settings(config: Config) -> PulsarSettings:
    """How the driver and the workers reach Pulsar."""
    section = config.pulsar
    return PulsarSettings(
        service_url=section.service_url,
        admin_url=section.admin_url,
        auth_plugin="" if section.auth_plugin == "none" else section.auth_plugin,
        auth_params=section.auth_params.get_secret_value() if section.auth_params else "",
        tls_trust_certs_file=section.tls_trust_certs_file_path or "",
        tls_allow_insecure=section.tls_allow_insecure_connection,
        tls_verify_hostname=section.tls_hostname_verification,
        subscription=section.subscription,
        application=config.application,
        connect_timeout=section.connection_timeout_ms / 1000,
        operation_timeout=section.operation_timeout_ms / 1000,
        keep_alive=section.keep_alive_ms / 1000,
    )


def bookkeeper_settings(config: Config) -> BookKeeperSettings | None:
    """How workers reach bookies; None: no metadata service is set."""
    section = config.pulsar.bookies
    if config.pulsar.metadata_service_uri is None:
        return None
    bookies = BookieSettings(
        connect_timeout=section.connection_timeout_ms / 1000,
        request_timeout=section.operation_timeout_ms / 1000,
        tls=section.tls,
        tls_trust_certs_file=section.tls_trust_certs_file_path or "",
        tls_certificate_file=section.tls_certificate_file_path or "",
        tls_key_file=section.tls_key_file_path or "",
        tls_allow_insecure=section.tls_allow_insecure_connection,
        tls_verify_hostname=section.tls_hostname_verification,
        max_entry=max(BookieSettings.max_entry, max(everywhere(config, "max_entry_size")) + ENTRY_OVERHEAD),
    )
    return BookKeeperSettings(config.pulsar.metadata_service_uri, bookies, bookies.request_timeout)


def everywhere(config: Config, setting: str) -> list[int]:
    """The values of a policy in all its scopes."""
    policies = config.policies
    return [int(policies.resolve(setting, layers).value) for layers in policies.scopes()]


def store_settings(section: Storage) -> StoreSettings:
    """A section `storage` as `open_store` takes it: the store's own module reads the options."""
    options = tuple(sorted((key, str(value)) for key, value in section.options.items()))
    return StoreSettings(root=section.root, endpoint=section.endpoint, region=section.region, options=options)


class _Closable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=_Closable)


class ClosableAdmin(Admin, Protocol):
    """An `Admin` that belongs to the runtime."""

    def close(self) -> None: ...


def _bucket(settings: StoreSettings) -> ObjectStore:
    return open_store(settings, read_only=True)


def _admin(config: Config, largest: int | None = None) -> ClosableAdmin:
    from offloader.pulsar.admin import AdminClient

    settings = pulsar_settings(config)
    return AdminClient(settings) if largest is None else AdminClient(settings, largest=largest)


def _statistics(config: Config) -> ClosableAdmin:
    from offloader.pulsar.loaded import LARGEST_STATISTICS

    return _admin(config, LARGEST_STATISTICS)


def _subscriptions(config: Config) -> Subscriptions:
    from offloader.pulsar.subscriptions import BrokerSubscriptions

    return BrokerSubscriptions(pulsar_settings(config))


def _bookkeeper(config: Config, timeout: float) -> tuple[MetadataTree, Bookies]:
    from offloader.bookkeeper.connect import clients

    found = bookkeeper_settings(config)
    if found is None:
        raise ConfigError(
            "pulsar.metadataServiceUri: needed: ledgers, topics' ledger lists, subscriptions and bookies are found in "
            "ZooKeeper; write zk://host:2181/ledgers"
        )
    bookies = replace(found.bookies, request_timeout=max(found.bookies.request_timeout, timeout))
    return clients(replace(found, bookies=bookies))


def _zookeeper(hosts: tuple[str, ...]) -> Nodes:
    from offloader.bookkeeper.zookeeper import ZooKeeper

    return ZooKeeper(hosts)


def _scanner(
    config: Config, tree: MetadataTree, bookies: Bookies, admin: Admin, clock_ms: Callable[[], int]
) -> LedgerScanner:
    from offloader.lifecycle.ledgers.scanner import open_scanner
    from offloader.lifecycle.ledgers.stock_copies import stock_copies

    copies = stock_copies(config.lifecycle.stock_bucket, store_settings(config.storage))
    return open_scanner(
        config.lifecycle, tree, bookies, admin, connect=_zookeeper, verify_copies=copies, clock_ms=clock_ms
    )


def _live(config: Config) -> Live:
    from offloader.archive.following.live import Live

    return Live.of(pulsar_settings(config))


def _stock_reader(config: Config, topic: TopicName, entry_bytes: int) -> AbstractContextManager[ShowingReader]:
    from offloader.migrate.stock_reader import stock_reader

    return stock_reader(pulsar_settings(config), topic, entry_bytes)


def _bookie_http(address: str, timeout: float) -> BookieHttp:
    from offloader.bookkeeper.bookie_http import BookieHttp

    return BookieHttp(address, timeout)


@dataclass(frozen=True)
class Dependencies:
    """How each connection is opened, and time and randomness; the real ones by default. Tests bring their own.

    `bucket`: a bucket that is only read. `statistics`: an admin client for large answers. `scanner`: one that reads
    offloaded copies back."""

    store: Callable[[StoreSettings], ObjectStore] = open_store
    bucket: Callable[[StoreSettings], ObjectStore] = _bucket
    admin: Callable[[Config], ClosableAdmin] = _admin
    visits: Callable[[Config], ClosableAdmin] = _admin
    statistics: Callable[[Config], ClosableAdmin] = _statistics
    subscriptions: Callable[[Config], Subscriptions] = _subscriptions
    bookkeeper: Callable[[Config, float], tuple[MetadataTree, Bookies]] = _bookkeeper
    zookeeper: Callable[[tuple[str, ...]], Nodes] = _zookeeper
    bookie_http: Callable[[str, float], BookieHttp] = _bookie_http
    scanner: Callable[[Config, MetadataTree, Bookies, Admin, Callable[[], int]], LedgerScanner] = _scanner
    live: Callable[[Config], Live] = _live
    stock_reader: Callable[[Config, TopicName, int], AbstractContextManager[ShowingReader]] = _stock_reader
    clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    sleep: Callable[[float], None] = time.sleep
    new_token: Callable[[], str] = lambda: str(uuid.uuid4())


class Runtime:
    """The connections of one configuration. Each is opened when it is first used; `close` closes the newest first.

    `source`: the configuration, or its file. `parent`: lends its store and its admin client; everything else is opened
    anew, and closed with this runtime. Only `bookkeeper` may be called by several threads before it is opened."""

    def __init__(
        self,
        source: Config | Path | None,
        dependencies: Dependencies | None = None,
        parent: Runtime | None = None,
    ) -> None:
        self.dependencies = dependencies or Dependencies()
        self._source = source
        self._parent = parent
        self._stack = ExitStack()
        self._lock = threading.Lock()
        self._bookkeeper: tuple[MetadataTree, Bookies] | None = None

    def child(self, config: Config | None = None) -> Runtime:
        """A runtime of a shorter life, which shares the store and the admin client. `config`: of another shard."""
        return Runtime(config or self.config, self.dependencies, self)

    @cached_property
    def config(self) -> Config:
        """The configuration. Raises ConfigError."""
        return self._source if isinstance(self._source, Config) else Config.load(self._path)

    @cached_property
    def archive_config(self) -> Config | ArchiveConfig:
        """What is needed to read the archive alone. Raises ConfigError."""
        return self._source if isinstance(self._source, Config) else parse_archive(read_text(self._path))

    @cached_property
    def storage(self) -> StoreSettings:
        """How the archive is reached. Raises ConfigError."""
        return store_settings(self.archive_config.storage)

    @cached_property
    def store(self) -> ObjectStore:
        """The archive."""
        return self._parent.store if self._parent else self.closing(self.dependencies.store(self.storage))

    @cached_property
    def stock_bucket(self) -> ObjectStore:
        """The bucket of Pulsar's own offloader, which the configuration names."""
        settings = self.storage.beside(self.config.lifecycle.stock_bucket, STOCK_BUCKET)
        return self.closing(self.dependencies.bucket(settings))

    @cached_property
    def catalogs(self) -> Catalogs:
        """The archive's catalogs, for reading."""
        return Catalogs(self.store, "")

    @cached_property
    def admin(self) -> Admin:
        """Pulsar's admin REST."""
        return self._parent.admin if self._parent else self.closing(self.dependencies.admin(self.config))

    @cached_property
    def rest(self) -> RestClient:
        """The admin REST without its methods: for what `Admin` does not ask."""
        from offloader.pulsar.rest import RestClient

        return self.closing(RestClient(pulsar_settings(self.config)))

    @cached_property
    def source(self) -> EntrySource:
        """Entries as brokers deliver them."""
        from offloader.pulsar.broker_source import BrokerSource

        return self.closing(BrokerSource(pulsar_settings(self.config)))

    @cached_property
    def visits(self) -> Admin:
        """Brokers, as far as unloaded topics are visited."""
        return self.closing(self.dependencies.visits(self.config))

    @cached_property
    def statistics(self) -> Admin:
        """The admin REST, for the statistics of many topics."""
        return self.closing(self.dependencies.statistics(self.config))

    @cached_property
    def subscriptions(self) -> Subscriptions:
        """Subscriptions as brokers have them."""
        return self.closing(self.dependencies.subscriptions(self.config))

    def open_archive(self, ledgers: LedgerBucket | None = None) -> OpenArchive:
        """The archive's topics, for reading. `ledgers`: the bucket of stock brokers beside it."""
        from offloader.archive.opened import CatalogCache, OpenArchive
        from offloader.archive.reading.stores import Stores

        others = () if ledgers is None else (ledgers.store,)
        stores = self.closing(Stores(self.storage, others, borrowed=self.store, opener=self.dependencies.bucket))
        return OpenArchive(stores, ledgers, CatalogCache(self.store, MOST_KEPT))

    @property
    def has_bookkeeper(self) -> bool:
        """Whether the configuration says where ledgers' metadata are."""
        return self.config.pulsar.metadata_service_uri is not None

    def bookkeeper(self, timeout: float = 0) -> tuple[MetadataTree, Bookies]:
        """The bookies' metadata, and the bookies. `timeout`: seconds that a bookie may take, at the least; the first
        call's counts. Raises ConfigError, MetadataUnavailableError."""
        with self._lock:
            if self._bookkeeper is None:
                tree, bookies = self._bookkeeper = self.dependencies.bookkeeper(self.config, timeout)
                self.closing(tree)
                self.closing(bookies)
            return self._bookkeeper

    def closing(self, opened: C) -> C:
        """Have this closed with the runtime."""
        self._stack.callback(opened.close)
        return opened

    @property
    def _path(self) -> Path:
        if not isinstance(self._source, Path):
            raise ConfigError("no configuration: name one with --config FILE or in OFFLOADER_CONFIG")
        return self._source

    def close(self) -> None:
        """Close what was opened."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
