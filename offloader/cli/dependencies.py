"""What the commands reach: the store, Pulsar, time, randomness. Passed in, so that tests can bring their own."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from offloader.offload import settings
from offloader.ports.admin import Admin
from offloader.ports.object_store import ObjectStore
from offloader.ports.subscriptions import Subscriptions
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings

if TYPE_CHECKING:  # each takes long to import, and most commands need none of them
    from offloader.archive.following.live import Live
    from offloader.bookkeeper.api import Bookies
    from offloader.bookkeeper.bookie_http import BookieHttp
    from offloader.bookkeeper.metadata import MetadataTree
    from offloader.bookkeeper.nodes import Nodes
    from offloader.config import Config
    from offloader.lifecycle.ledgers.scanned import LedgerScanner
    from offloader.migrate.proof import ShowingReader
    from offloader.model import TopicName
    from offloader.operations.doctor.probes import Probes
    from offloader.operations.restore.ports import Cluster


class ClosableAdmin(Admin, Protocol):
    """An `Admin` of the command's own."""

    def close(self) -> None: ...


def _admin(config: Config) -> ClosableAdmin:
    from offloader.pulsar.admin import AdminClient

    return AdminClient(settings.pulsar(config))


def _target(config: Config) -> Cluster:
    from offloader.operations.restore.target import TargetCluster

    return TargetCluster(settings.pulsar(config))


def _subscriptions(config: Config) -> Subscriptions:
    from offloader.pulsar.subscriptions import BrokerSubscriptions

    return BrokerSubscriptions(settings.pulsar(config))


def _bookkeeper(config: Config, timeout: float) -> tuple[MetadataTree, Bookies]:
    from offloader.bookkeeper.connect import clients
    from offloader.errors import ConfigError

    found = settings.bookkeeper(config)
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
    from offloader.lifecycle.deletion.configured import cluster_scanner
    from offloader.lifecycle.ledgers.stock_copies import stock_copies

    copies = stock_copies(config.lifecycle.stock_bucket, settings.store(config))
    return cluster_scanner(config.lifecycle, tree, bookies, admin, clock_ms, copies)


def _probes(config: Config, admin: Admin, store: ObjectStore) -> Probes:
    from offloader.operations.doctor.probes import RealProbes

    return RealProbes(config, admin, store)


def _live(config: Config) -> Live:
    from offloader.archive.following.live import Live

    return Live.of(settings.pulsar(config))


def _stock_reader(config: Config, topic: TopicName, entry_bytes: int) -> AbstractContextManager[ShowingReader]:
    from offloader.migrate.stock_reader import stock_reader

    return stock_reader(settings.pulsar(config), topic, entry_bytes)


def _bookie_http(address: str, timeout: float) -> BookieHttp:
    from offloader.bookkeeper.bookie_http import BookieHttp

    return BookieHttp(address, timeout)


@dataclass(frozen=True)
class Dependencies:
    """The ways out of a command; the real ones by default."""

    store: Callable[[StoreSettings], ObjectStore] = open_store
    admin: Callable[[Config], ClosableAdmin] = _admin
    probes: Callable[[Config, Admin, ObjectStore], Probes] = _probes
    clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    sleep: Callable[[float], None] = time.sleep
    new_token: Callable[[], str] = lambda: str(uuid.uuid4())
    target: Callable[[Config], Cluster] = _target
    live: Callable[[Config], Live] = _live
    stock_reader: Callable[[Config, TopicName, int], AbstractContextManager[ShowingReader]] = _stock_reader
    bookkeeper: Callable[[Config, float], tuple[MetadataTree, Bookies]] = _bookkeeper
    zookeeper: Callable[[tuple[str, ...]], Nodes] = _zookeeper
    scanner: Callable[[Config, MetadataTree, Bookies, Admin, Callable[[], int]], LedgerScanner] = _scanner
    subscriptions: Callable[[Config], Subscriptions] = _subscriptions
    bookie_http: Callable[[str, float], BookieHttp] = _bookie_http
    visits: Callable[[Config], ClosableAdmin] = _admin
