"""The doctor's edges: it tries out Pulsar, the bookies, the store and this machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any, Protocol
from uuid import uuid4

from crc32c import crc32c

from offloader.bookkeeper.bookie_source import BookKeeperSource
from offloader.bookkeeper.status import Answer, answer
from offloader.bridge.operations.doctor import BridgeFacts, bridge_facts
from offloader.config.lifecycle import Lifecycle
from offloader.errors import (
    BookieUnavailableError,
    ConfigError,
    DamagedObjectError,
    OffloadError,
    SubscriptionBusyError,
    UnprovenStoreError,
)
from offloader.java import check_user, find_java
from offloader.lifecycle.ledgers.told import refusal_told
from offloader.metadata.deal import family_of
from offloader.metadata.layout import ROOT, proof_key
from offloader.metadata.root import prove, read_root
from offloader.metadata.state import Root
from offloader.model import MIB, TopicName
from offloader.operations.doctor.google_checks import GoogleBucket
from offloader.operations.doctor.store_checks import AZURES_RULE, BucketFacts
from offloader.ports.admin import Admin, TopicInfo
from offloader.ports.entry_source import Extent
from offloader.ports.object_store import ObjectStore
from offloader.runtime.connections import Runtime, pulsar_settings
from offloader.runtime.deletion import ledger_scanner
from offloader.storage.open import AZURE_SCHEMES, GOOGLE_SCHEMES
from offloader.storage.settings import StoreSettings

PARTS = 5 * MIB, 5 * MIB + 8_192, 64  # the least that S3 takes, another length, and a short last part
EQUAL_PARTS = 5 * MIB, 5 * MIB, 64
RACES, WRITERS = 10, 8  # some stores create soundly one by one, and not in a race


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
        """Pulsar's policies in force for a topic; of one that cannot be read its error."""

    def read_topic(self, topic: TopicName) -> str:
        """Hold the offload subscription and read beside it, as the application does; describes what was done."""

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

    def __init__(self, runtime: Runtime) -> None:
        self.admin = runtime.admin
        self.store = runtime.store
        self._runtime = runtime
        self._pulsar = pulsar_settings(runtime.config)
        self._lifecycle = runtime.config.lifecycle
        self._store_settings = runtime.storage

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
        return _seconds_ahead(self.admin.time_ms())

    def applied(self, topic: TopicName) -> Mapping[str, object]:
        from offloader.pulsar.admin import AdminClient, effective_policies

        with closing(AdminClient(self._pulsar)) as admin:
            return effective_policies(admin, topic)

    def read_topic(self, topic: TopicName) -> str:
        return SubscriptionProbe(self._runtime).read_topic(topic)

    def bookies(self) -> Mapping[str, OffloadError | None] | None:
        if not self._runtime.has_bookkeeper:
            return None
        with self._runtime.child() as own:
            return LedgerProbes(own).bookies()

    def read_ledger(self, topic: TopicName) -> str:
        if not self._runtime.has_bookkeeper:
            raise ConfigError("pulsar.metadataServiceUri: is not set")
        with self._runtime.child() as own:
            return LedgerProbes(own).read(topic, self.admin.topic_info(topic))

    def ledger_deletion(self) -> tuple[str, ...] | None:
        if not self._runtime.has_bookkeeper or self._lifecycle == Lifecycle():
            return None
        clock = self._runtime.dependencies.clock_ms
        with self._runtime.child() as own, closing(ledger_scanner(own, clock)) as scanner:
            return tuple(refusal_told(one) for one in scanner.prospects())

    def stock_bucket(self) -> str | None:
        if not self._lifecycle.stock_bucket:
            return None
        with self._runtime.child() as own:
            store = own.stock_bucket
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
        return bridge_facts(self._runtime, topic)


def _google_bucket(settings: StoreSettings) -> GoogleBucket:
    from offloader.storage.gcs import open_gcs

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
    """The metadata service and its bookies, reached as workers do. Raises as `Runtime.bookkeeper`."""

    def __init__(self, runtime: Runtime) -> None:
        section = runtime.config.pulsar.bookies
        self._timeout = (section.connection_timeout_ms + section.operation_timeout_ms) / 1000
        self._metadata, self._bookies = runtime.bookkeeper()
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
    from offloader.pulsar.rest import http_date_ms

    return _seconds_ahead(http_date_ms(date))


def _seconds_ahead(told_ms: int | None) -> float | None:
    """How far another clock is ahead of ours."""
    return None if told_ms is None else told_ms / 1000 - time.time()


def find_root(store: ObjectStore) -> Root | None:
    """What `_root` says, None where there is none yet."""
    return None if store.stat(ROOT) is None else read_root(store)


def try_store(store: ObjectStore) -> None:
    """Create, refuse to overwrite, read, list, delete. Leaves nothing behind."""
    prove(store, f"doctor-{uuid4()}")


def try_upload(store: ObjectStore, sizes: Sequence[int] = PARTS) -> None:
    """Send three parts of these lengths, complete them, read them back and delete them, as a commit does. Raises
    DamagedObjectError where other bytes come back than were sent. Leaves nothing behind."""
    key, data = proof_key(f"doctor-{uuid4()}"), b"doctor, " * (sum(sizes) // 8)
    upload, parts, offset = store.begin(key), [], 0
    try:
        for number, size in enumerate(sizes, 1):
            part = data[offset : offset + size]
            parts.append(store.put_part(upload, number, offset, part, crc32c(part)))
            offset += size
        store.commit(upload, parts)
        if store.read(key)[0] != data:
            raise DamagedObjectError(f"{store.url}: an object of {len(parts)} parts is not what was sent")
    finally:
        store.abort(upload)
        store.delete([key])


class SubscriptionProbe:
    """Acknowledges nothing. Deletes the subscription only where its token proves that this probe created it."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._settings = pulsar_settings(runtime.config)

    def read_topic(self, topic: TopicName) -> str:
        """Open a reader while the subscription is held, by this probe or by the running application. Returns what was
        done. Raises SubscriptionBusyError where another consumer holds the subscription, and what brokers raise."""
        with self._subscribed(topic) as holder, self._runtime.child() as own:
            own.source.open(topic, 0, 0, max_bytes=1).close()
        return f"{topic} can be read while the subscription {self._settings.subscription} is held{holder}"

    @contextmanager
    def _subscribed(self, topic: TopicName) -> Iterator[str]:
        from offloader.pulsar.pin import BrokerPins

        token = str(uuid4())
        with closing(BrokerPins(self._settings, lambda: token)) as pins:
            try:
                pins.open(topic)
            except SubscriptionBusyError as error:
                yield self._running_application(topic, error)
                return
            kept = self._runtime.admin.pin_token(topic, self._settings.subscription)
            try:
                yield "; it stays, since these brokers do not show whether it is new" if kept is None else ""
            finally:
                if kept == token:
                    pins.release(topic)

    def _running_application(self, topic: TopicName, busy: SubscriptionBusyError) -> str:
        """Words about the consumer that holds the subscription, if it is the application's. Raises `busy` else."""
        from offloader.pulsar.subscription_rest import consumers_of

        stats = self._runtime.rest.get(f"{topic.rest_path}/stats")
        names = [consumer.name for consumer in consumers_of(stats, self._settings.subscription)]
        if not names:
            raise busy
        if {family_of(name) for name in names} != {family_of(self._settings.application)}:
            raise SubscriptionBusyError(f"{busy}; it is held by the consumer {' '.join(map(repr, names))}") from busy
        return " by the running application"


def try_race(store: ObjectStore) -> None:
    """Whether of writers that create one object at once just one is told so, and its bytes are there. Raises
    UnprovenStoreError where it is not so. Leaves nothing behind. To pass is no proof: a race may end well by luck."""
    keys = [proof_key(f"doctor-{uuid4()}") for _ in range(RACES)]
    try:
        with ThreadPoolExecutor(WRITERS) as pool:
            for key in keys:
                _race(store, pool, key)
    finally:
        store.delete(keys)


def _race(store: ObjectStore, pool: ThreadPoolExecutor, key: str) -> None:
    together = threading.Barrier(WRITERS)

    def create(writer: int) -> bool:
        together.wait()
        return store.put(key, b"%d" % writer, if_absent=True) is not None

    won = list(pool.map(create, range(WRITERS)))
    there = store.read(key, 0, 10)[0]
    if won.count(True) != 1 or there != b"%d" % won.index(True):
        raise UnprovenStoreError(
            f"{store.url}: of {WRITERS} writers that created one object at once {won.count(True)} were told that they "
            "did: it cannot hold metadata"
        )
