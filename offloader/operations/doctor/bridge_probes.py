"""The doctor tries out what a bridge needs, with throw-away objects and without touching any record."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from uuid import uuid4

from crc32c import crc32c

from offloader.bookkeeper.connect import clients
from offloader.bookkeeper.managed_ledgers import decode_record
from offloader.bridge.record_size import size_of
from offloader.config import Config
from offloader.errors import ConfigError, DamagedObjectError, OffloadError, TopicNotFoundError
from offloader.metadata.layout import proof_key
from offloader.model import TopicName
from offloader.offload import settings
from offloader.offload.core.check import attempt
from offloader.operations.doctor.bridge_checks import BridgeFacts, FoundRecord, TriedBucket
from offloader.ports.admin import Admin
from offloader.ports.object_store import ObjectStore
from offloader.pulsar.offloading import BrokerOffloading, broker_offloading
from offloader.storage.open import open_store

TRIED = b"is this the brokers' store?" * 250_000  # stores copy no ranges of objects that have less than 5 MiB


def bridge_facts(config: Config, admin: Admin, store: ObjectStore, topic: TopicName) -> BridgeFacts:
    """Of one topic. Each answer that fails is told in its place."""
    offloading = attempt(lambda: broker_offloading(admin.offload_policies(topic)))
    return BridgeFacts(
        topic,
        offloading,
        attempt(admin.runtime_configuration),
        attempt(partial(admin.retention, topic)),
        attempt(partial(_own_policies, config, topic)),
        attempt(partial(_record, config, topic)),
        attempt(partial(_bucket, config, store, offloading)),
        config.storage.endpoint or "",
        attempt(admin.version),
        config.bridge.keep_segments,
    )


def _own_policies(config: Config, topic: TopicName) -> bool:
    from offloader.pulsar.admin import AdminClient

    whole = TopicName.parse(topic.partitioned_name)
    with closing(AdminClient(settings.pulsar(config))) as admin:
        return bool(admin.rest.get(f"{whole.rest_path}/offloadPolicies", applied="false"))


def _record(config: Config, topic: TopicName) -> FoundRecord:
    reached = settings.bookkeeper(config)
    if reached is None:
        raise ConfigError("pulsar.metadataServiceUri: is not set")
    tree, bookies = clients(reached)
    with closing(tree), closing(bookies):
        path = tree.topic_path(topic)
        node = tree.nodes.get(path, latest=True)
        if node is None:
            raise TopicNotFoundError(f"{topic} has no managed ledger at {path}: another metadata service has it")
        decode_record(node.value)
        return FoundRecord(path, size_of(node.value, config.bridge.record_size))


def _bucket(config: Config, archive: ObjectStore, offloading: BrokerOffloading | OffloadError) -> TriedBucket:
    url = config.bridge.bucket
    if not url:
        if isinstance(offloading, OffloadError):
            raise offloading
        if not offloading.bucket:
            raise ConfigError("bridge.bucket: is not set, and the brokers name no bucket of theirs")
        url = f"s3://{offloading.bucket}"
    with closing(open_store(settings.store(config).beside(url, "bridge.bucket"))) as bucket:
        return TriedBucket(url, try_bucket(archive, bucket))


def try_bucket(archive: ObjectStore, bucket: ObjectStore) -> bool:
    """Whether the bucket copies out of the archive by itself. Leaves nothing behind. Raises DamagedObjectError where
    other bytes come back than were sent; what the stores raise. The documented rights allow the name."""
    source, target = proof_key(f"doctor-{uuid4()}"), f"{uuid4()}-ledger-doctor"
    archive.put(source, TRIED, if_absent=True)
    try:
        upload = bucket.begin(target, copies=True)
        try:
            copied = bucket.copy_part(upload, 1, 0, archive, source, 0, len(TRIED))
            part = copied or bucket.put_part(upload, 1, 0, TRIED, crc32c(TRIED))
            bucket.commit(upload, [part])
        finally:
            bucket.abort(upload)
        if bucket.read(target)[0] != TRIED:
            raise DamagedObjectError(f"{bucket.url}: what was written is not what is read")
        return copied is not None
    finally:
        archive.delete([source])
        bucket.delete([target])
