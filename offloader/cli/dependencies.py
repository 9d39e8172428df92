"""What the commands reach: the store, Pulsar, time, randomness. Passed in, so that tests can bring their own."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

from offloader.archive.following.live import Live
from offloader.bookkeeper.api import Bookies
from offloader.bookkeeper.bookie_http import BookieHttp
from offloader.bookkeeper.metadata import MetadataTree
from offloader.bookkeeper.nodes import Nodes
from offloader.config import Config
from offloader.errors import ConfigError
from offloader.lifecycle.deletion.configured import cluster_scanner
from offloader.lifecycle.ledgers.scanned import LedgerScanner
from offloader.lifecycle.ledgers.stock_copies import stock_copies
from offloader.migrate.proof import ShowingReader
from offloader.migrate.stock_reader import stock_reader
from offloader.model import TopicName
from offloader.offload import settings
from offloader.operations.doctor.probes import Probes, RealProbes
from offloader.operations.restore.ports import Cluster
from offloader.ports.admin import Admin
from offloader.ports.object_store import ObjectStore
from offloader.ports.subscriptions import Subscriptions
from offloader.ports.topic_states import TopicStates
from offloader.ports.visits import TopicVisits
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings


class ClosableAdmin(Admin, Protocol):
    """An `Admin` of the command's own."""

    def close(self) -> None: ...


def _admin(config: Config) -> ClosableAdmin:
    from offloader.pulsar.admin import AdminClient  # httpx takes 0.1 s to import

    return AdminClient(settings.pulsar(config))


class ClosableVisits(TopicVisits, Protocol):
    """`TopicVisits` of the command's own."""

    def close(self) -> None: ...


def _visits(config: Config) -> ClosableVisits:
    from offloader.pulsar.visits import BrokerVisits  # httpx takes 0.1 s to import

    return BrokerVisits(settings.pulsar(config))


def _target(config: Config) -> Cluster:
    from offloader.operations.restore.target_cluster import TargetCluster  # httpx takes 0.1 s to import

    return TargetCluster(settings.pulsar(config))


def _subscriptions(config: Config) -> Subscriptions:
    from offloader.pulsar.subscriptions import BrokerSubscriptions  # httpx takes 0.1 s to import

    return BrokerSubscriptions(settings.pulsar(config))


class ClosableTopicStates(TopicStates, Protocol):
    """`TopicStates` of the command's own."""

    def close(self) -> None: ...


def _topic_states(config: Config) -> ClosableTopicStates:
    from offloader.pulsar.topic_states import BrokerTopicStates  # httpx takes 0.1 s to import

    return BrokerTopicStates(settings.pulsar(config))


def _bookkeeper(config: Config, timeout: float) -> tuple[MetadataTree, Bookies]:
    from offloader.bookkeeper.connect import clients  # kazoo is an extra

    found = settings.bookkeeper(config)
    if found is None:
        raise ConfigError(
            "pulsar.metadataServiceUri: needed: ledgers, topics' ledger lists, subscriptions and bookies are found in "
            "ZooKeeper; write zk://host:2181/ledgers"
        )
    bookies = replace(found.bookies, request_timeout=max(found.bookies.request_timeout, timeout))
    return clients(replace(found, bookies=bookies))


def _zookeeper(hosts: tuple[str, ...]) -> Nodes:
    from offloader.bookkeeper.zookeeper import ZooKeeper  # kazoo is an extra

    return ZooKeeper(hosts)


def _scanner(
    config: Config, tree: MetadataTree, bookies: Bookies, admin: Admin, clock_ms: Callable[[], int]
) -> LedgerScanner:
    copies = stock_copies(config.lifecycle.stock_bucket, settings.store(config))
    return cluster_scanner(config.lifecycle, tree, bookies, admin, clock_ms, copies)


@dataclass(frozen=True)
class Dependencies:
    """The ways out of a command; the real ones by default."""

    store: Callable[[StoreSettings], ObjectStore] = open_store
    admin: Callable[[Config], ClosableAdmin] = _admin
    probes: Callable[[Config, Admin, ObjectStore], Probes] = RealProbes
    clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    sleep: Callable[[float], None] = time.sleep
    new_token: Callable[[], str] = lambda: str(uuid.uuid4())
    target: Callable[[Config], Cluster] = _target
    live: Callable[[Config], Live] = lambda config: Live.of(settings.pulsar(config))
    stock_reader: Callable[[Config, TopicName, int], AbstractContextManager[ShowingReader]] = (
        lambda config, topic, entry_bytes: stock_reader(settings.pulsar(config), topic, entry_bytes)
    )
    bookkeeper: Callable[[Config, float], tuple[MetadataTree, Bookies]] = _bookkeeper
    zookeeper: Callable[[tuple[str, ...]], Nodes] = _zookeeper
    scanner: Callable[[Config, MetadataTree, Bookies, Admin, Callable[[], int]], LedgerScanner] = _scanner
    subscriptions: Callable[[Config], Subscriptions] = _subscriptions
    topic_states: Callable[[Config], ClosableTopicStates] = _topic_states
    bookie_http: Callable[[str, float], BookieHttp] = BookieHttp
    visits: Callable[[Config], ClosableVisits] = _visits
