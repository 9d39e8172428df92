"""The doctor's edges: it tries out Pulsar, the bookies, the store and this machine."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import closing
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Protocol
from uuid import uuid4

from crc32c import crc32c

from offloader.bookkeeper.bookie_source import BookKeeperSource
from offloader.bookkeeper.connect import BookKeeperSettings, clients
from offloader.bookkeeper.status import Answer, answer
from offloader.config import Config
from offloader.config.lifecycle import Lifecycle
from offloader.errors import BookieUnavailableError, ConfigError, OffloadError
from offloader.java import check_user, find_java
from offloader.lifecycle.ledgers.open import open_scanner
from offloader.lifecycle.ledgers.stock_copies import stock_store
from offloader.lifecycle.ledgers.told import refusal_told
from offloader.metadata.layout import PROOF, ROOT
from offloader.metadata.root import prove, read_root
from offloader.metadata.state import Root
from offloader.model import MIB, TopicName
from offloader.offload import settings
from offloader.operations.doctor.bridge_checks import BridgeFacts
from offloader.operations.doctor.bridge_probes import bridge_facts
from offloader.operations.doctor.google_checks import GoogleBucket
from offloader.operations.doctor.store_checks import AZURES_RULE, BucketFacts
from offloader.ports.admin import Admin, TopicInfo
from offloader.ports.entry_source import Extent
from offloader.ports.object_store import ObjectStore
from offloader.storage.open import AZURE_SCHEMES, GOOGLE_SCHEMES, open_store
from offloader.storage.settings import StoreSettings


class Probes(Protocol):
    """What the doctor tries out. Each call raises OffloadError where it does not work."""

    admin: Admin
    store: ObjectStore

    def java(self) -> str:
        """The Java that Spark will run on."""

    def connect(self) -> str:
        """Connect to a broker; say which."""

    def admin_clock(self) -> float | None:
        """Seconds that the broker's clock is ahead of ours."""

    def applied(self, topic: TopicName) -> Mapping[str, object]:
        """Pulsar's policies in force for a topic."""

    def open_reader(self, topic: TopicName) -> None:
        """Open and close a reader, as workers do."""

    def bookies(self) -> Mapping[str, OffloadError | None] | None:
        """The registered bookies, and why each does not answer (None: it does); None where no metadata service is
        configured."""

    def read_ledger(self, topic: TopicName) -> str:
        """Read an entry of a topic straight from bookies, as workers do; say which."""

    def ledger_deletion(self) -> tuple[str, ...] | None:
        """Why no ledger that nobody refers to could be deleted; None where the section `lifecycle` says nothing."""

    def stock_bucket(self) -> str | None:
        """Look into the bucket of Pulsar's own offloader; say which. None where none is named."""

    def bucket(self) -> tuple[BucketFacts | GoogleBucket, float | None] | None:
        """The bucket's rules, and how far its clock is ahead; None where the store has no buckets."""

    def bridge(self, topic: TopicName) -> BridgeFacts:
        """Whether brokers would read what is bridged of a topic. Raises nothing: what fails is told in its place."""


class RealProbes:
    """The real one."""

    def __init__(self, config: Config, admin: Admin, store: ObjectStore) -> None:
        self.admin = admin
        self.store = store
        self._config = config
        self._pulsar = settings.pulsar(config)
        self._bookkeeper = settings.bookkeeper(config)
        self._lifecycle = config.lifecycle
        self._store_settings = settings.store(config)

    def java(self) -> str:
        found = find_java()
        check_user()
        return f"Java {found.version} in {found.home}"

    def connect(self) -> str:
        from offloader.pulsar.pool import ConnectionPool

        with closing(ConnectionPool(self._pulsar)) as pool:
            address, _ = pool.service()
            return f"connected to {address.host}"

    def admin_clock(self) -> float | None:
        from offloader.pulsar.rest import RestClient

        with closing(RestClient(self._pulsar)) as rest:
            return ahead(rest.request("GET", "brokers/version").headers.get("Date"))

    def applied(self, topic: TopicName) -> Mapping[str, object]:
        from offloader.pulsar.admin import AdminClient, effective_policies

        with closing(AdminClient(self._pulsar)) as admin:
            return effective_policies(admin, topic)

    def open_reader(self, topic: TopicName) -> None:
        from offloader.pulsar.broker_source import BrokerSource

        with closing(BrokerSource(self._pulsar)) as source:
            source.open(topic, 0, 0, max_bytes=1).close()

    def bookies(self) -> Mapping[str, OffloadError | None] | None:
        if self._bookkeeper is None:
            return None
        with closing(LedgerProbes(self._bookkeeper)) as ledgers:
            return ledgers.bookies()

    def read_ledger(self, topic: TopicName) -> str:
        if self._bookkeeper is None:
            raise ConfigError("pulsar.metadataServiceUri: is not set")
        with closing(LedgerProbes(self._bookkeeper)) as ledgers:
            return ledgers.read(topic, self.admin.topic_info(topic))

    def ledger_deletion(self) -> tuple[str, ...] | None:
        if self._bookkeeper is None or self._lifecycle == Lifecycle():
            return None
        from offloader.bookkeeper.zookeeper import ZooKeeper  # kazoo is an extra

        tree, bookies = clients(self._bookkeeper)
        with closing(tree), closing(bookies):
            scanner = open_scanner(self._lifecycle, tree, bookies, self.admin, connect=ZooKeeper)
            with closing(scanner):
                return tuple(refusal_told(one) for one in scanner.prospects())

    def stock_bucket(self) -> str | None:
        if not self._lifecycle.stock_bucket:
            return None
        settings = stock_store(self._lifecycle.stock_bucket, self._store_settings)
        with closing(open_store(settings, read_only=True)) as store:
            next(iter(store.list("")), None)
            store.stat(ROOT)  # what is not there: only who may read is told so
            return store.url

    def bucket(self) -> tuple[BucketFacts | GoogleBucket, float | None] | None:
        if self._store_settings.scheme in GOOGLE_SCHEMES:
            return _google_bucket(self._store_settings), None
        if self._store_settings.scheme in AZURE_SCHEMES:
            return _azure_container(self._store_settings), None
        if self._store_settings.scheme != "s3":
            return None
        from offloader.storage.s3_client import life_cycle_rules

        prefix, rules, date = life_cycle_rules(self._store_settings)
        return BucketFacts(prefix, rules), ahead(date)

    def bridge(self, topic: TopicName) -> BridgeFacts:
        return bridge_facts(self._config, self.admin, self.store, topic)


def _google_bucket(settings: StoreSettings) -> GoogleBucket:
    from offloader.storage.gcs_client import open_gcs

    with closing(open_gcs(settings)) as store:
        told = store.told()
    return GoogleBucket(
        store.prefix,
        tuple(told.lifecycle_rules),
        told.soft_delete_policy.retention_duration_seconds or 0,
        told.retention_period or 0,
        bool(told.versioning_enabled),
        bool(told.default_event_based_hold),
        told.storage_class or "STANDARD",
    )


def _azure_container(settings: StoreSettings) -> BucketFacts:
    from offloader.storage.azure_client import open_azure

    with closing(open_azure(settings)) as store:
        return BucketFacts("", (AZURES_RULE,), bool(store.has_folders()))


class LedgerProbes:
    """The metadata service and its bookies, reached as workers do. Raises as `offloader.bookkeeper.connect.connect`."""

    def __init__(self, settings: BookKeeperSettings) -> None:
        self._timeout = settings.bookies.connect_timeout + settings.bookies.request_timeout
        self._metadata, self._bookies = clients(settings)
        self._source = BookKeeperSource(self._metadata, self._bookies)

    def bookies(self) -> Mapping[str, OffloadError | None]:
        """What came of asking each registered bookie something; None: it answered."""
        answers = {name: self._bookies.read_lac(name, 0) for name in sorted(self._metadata.available())}
        return {name: self._failure(name, future) for name, future in answers.items()}

    def read(self, topic: TopicName, info: TopicInfo) -> str:
        """Read the topic's first entry of which bookies must have copies; says which."""
        if info.last_confirmed is None or not info.ledgers.spans:
            return f"{topic} has no entry yet"
        kept = [span.ledger for span in info.ledgers.spans if span.ledger not in info.offloaded]
        if not kept or kept[0] > info.last_confirmed[0]:
            return f"{topic} has only entries that Pulsar itself has offloaded: none was read"
        extent = Extent(info.ledgers, info.last_confirmed)
        with closing(self._source.open(topic, kept[0], 0, max_bytes=MIB, extent=extent)) as reader:
            entries = reader.read(self._timeout)
        if not entries:
            raise BookieUnavailableError(f"{topic}: no bookie sent an entry within {self._timeout:g} s")
        return f"{topic}: entry {entries[0].ledger}:{entries[0].entry} was read from its bookies"

    def close(self) -> None:
        """End the connections."""
        self._source.close()

    def _failure(self, name: str, future: Future[Any]) -> OffloadError | None:
        try:
            future.result(self._timeout)
        except OffloadError as error:  # no such ledger is an answer, too
            return None if answer(error) is Answer.NEGATIVE else error
        except TimeoutError:
            return BookieUnavailableError(f"{name} did not answer within {self._timeout:g} s")
        return None


def ahead(date: str | None) -> float | None:
    """Seconds that an HTTP date is ahead of now."""
    if not date:
        return None
    return parsedate_to_datetime(date).astimezone(UTC).timestamp() - time.time()


def find_root(store: ObjectStore) -> Root | None:
    """What `_root` says, None where there is none yet."""
    return None if store.stat(ROOT) is None else read_root(store)


def try_store(store: ObjectStore) -> None:
    """Create, refuse to overwrite, read, list, delete. Leaves nothing behind."""
    prove(store, f"doctor-{uuid4()}")


def try_upload(store: ObjectStore) -> None:
    """Begin an upload, send a part, abort it. Leaves nothing behind."""
    upload, data = store.begin(f"{PROOF}/doctor-{uuid4()}"), b"doctor"
    try:
        store.put_part(upload, 1, 0, data, crc32c(data))
    finally:
        store.abort(upload)
