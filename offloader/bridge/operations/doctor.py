"""What the doctor says of the bridge: whether stock brokers would read what is bridged, and keep it, and what to set
where they would not. It tries out what a bridge needs, with throw-away objects and without touching any record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from uuid import uuid4

from crc32c import crc32c

from offloader.bridge.core.record import RecordSize, size_of
from offloader.bridge.proof import SKIPS
from offloader.config.units import format_size, format_time
from offloader.errors import ConfigError, DamagedObjectError, OffloadError, TopicNotFoundError
from offloader.metadata.layout import proof_key
from offloader.model import TopicName
from offloader.offload.core.check import Check, attempt, fail, ok, remedy_for, warn
from offloader.ports.object_store import ObjectStore
from offloader.pulsar.offloading import BrokerOffloading, broker_offloading
from offloader.runtime.connections import Runtime
from offloader.state.managed_ledger_codec import decode_record

HOUR_MS = 3_600_000
TOPIC_POLICIES = "remove it (pulsar-admin topicPolicies remove-offload-policies TOPIC) and set the namespace's instead"
TRIED = b"is this the brokers' store?" * 250_000  # stores copy no ranges of objects that have less than 5 MiB


@dataclass(frozen=True, slots=True)
class TriedBucket:
    """The brokers' bucket: throw-away objects were written, read and deleted there. `copies`: it copies parts out of
    the archive by itself."""

    url: str
    copies: bool


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """A topic's managed ledger's record in Pulsar's metadata store."""

    path: str
    size: RecordSize


@dataclass(frozen=True, slots=True)
class BridgeFacts:
    """What was found of one topic that is `brokerReadable`, and in its name of its namespace. Each that could not be
    found out is the error. `own_policies`: the topic has offload policies of its own. `version`: of a broker."""

    topic: TopicName
    offloading: BrokerOffloading | OffloadError
    configuration: Mapping[str, str] | OffloadError
    retention: tuple[int, int] | OffloadError
    own_policies: bool | OffloadError
    record: FoundRecord | OffloadError
    bucket: TriedBucket | OffloadError
    endpoint: str = ""
    version: str | OffloadError = ""


def check_bridge(facts: BridgeFacts) -> Iterator[Check]:
    """All that brokers, their bucket and their metadata must be for it."""
    yield from _driver(facts)
    yield _auto_skip(facts.configuration)
    yield _retention(facts)
    yield _record(facts.topic, facts.record)
    yield from _bucket(facts)
    yield from _own_policies(facts)


def broker_settings(facts: BridgeFacts) -> str:
    """What stands in the broker.conf of a broker that reads what is bridged."""
    bucket = facts.bucket.url.removeprefix("s3://") if isinstance(facts.bucket, TriedBucket) else "BUCKET"
    endpoint = f" managedLedgerOffloadServiceEndpoint={facts.endpoint}" if facts.endpoint else ""
    return (
        f"broker.conf of each broker: managedLedgerOffloadDriver=aws-s3 offloadersDirectory=./offloaders "
        f"managedLedgerOffloadBucket={bucket}{endpoint} managedLedgerOffloadDeletionLagMs={4 * HOUR_MS} "
        f"managedLedgerDataReadPriority=tiered-storage-first {SKIPS}=false"
    )


def _driver(facts: BridgeFacts) -> Iterator[Check]:
    found, topic = facts.offloading, facts.topic
    if isinstance(found, OffloadError):
        permission = "let the role read the namespace's offload policies"
        yield fail("bridge-driver", f"{topic}: {found}", remedy_for(found, permission, "see the reason"))
        return
    if not found.driver or found.driver == "filesystem":
        what = "have no offloader" if not found.driver else "offload to a file system"
        yield fail("bridge-driver", f"{topic}: its brokers {what}, and cannot read objects", broker_settings(facts))
        return
    yield ok("bridge-driver", f"{topic}: its brokers read objects with the driver {found.driver}")
    if found.tiered_first:
        yield ok("bridge-read-priority", f"{topic}: its brokers read objects first")
    else:
        remedy = (
            "managedLedgerDataReadPriority=tiered-storage-first in broker.conf, or pulsar-admin namespaces "
            f"set-offload-policies {topic.namespace} --offloadedReadPriority tiered-storage-first"
        )
        text = f"{topic}: its brokers read BookKeeper first, so nothing would be proven, and nothing is bridged"
        yield fail("bridge-read-priority", text, remedy)
    yield _lag(facts, found)
    yield _automatic(topic, found)


def _lag(facts: BridgeFacts, found: BrokerOffloading) -> Check:
    name, version = "bridge-deletion-lag", facts.version if isinstance(facts.version, str) else "of an unknown version"
    lag, kept = found.deletion_lag_ms, found.kept_ms(version)
    remedy = f"managedLedgerOffloadDeletionLagMs={4 * HOUR_MS} in broker.conf, or the namespace's deletion lag"
    if kept is not None and lag is not None and lag < 0:
        text = f"{facts.topic}: brokers before 4.0 take its deletion lag of {lag} for 0 (they are {version})"
        return fail(
            name, f"{text}: BookKeeper's copy would go before anything is proven, so nothing is bridged", remedy
        )
    if kept is None:
        return ok(name, f"{facts.topic}: its brokers keep BookKeeper's copy of what is bridged, or 4 hours of it")
    text = f"{facts.topic}: its brokers delete BookKeeper's copy {format_time(kept)} after it was bridged"
    if kept >= HOUR_MS:
        return ok(name, text)
    return warn(name, f"{text}: no time is left to take a round back", remedy)


def _automatic(topic: TopicName, found: BrokerOffloading) -> Check:
    name = "bridge-automatic-offload"
    if found.threshold_bytes is None and found.threshold_seconds is None:
        return ok(name, f"{topic}: its brokers offload nothing by themselves")
    text = f"{topic}: its brokers offload by themselves, too; what they have offloaded is not bridged"
    return warn(name, text, f"pulsar-admin namespaces set-offload-threshold {topic.namespace} --size -1")


def _auto_skip(configuration: Mapping[str, str] | OffloadError) -> Check:
    name = "bridge-auto-skip"
    if isinstance(configuration, OffloadError):
        text = f"whether brokers skip what they cannot read is not known: {configuration}"
        return warn(name, text, f"use a super user's role, or make sure of {SKIPS}=false in broker.conf")
    if configuration.get(SKIPS, "").lower() == "true":
        text = f"{SKIPS}=true: brokers skip what they cannot read, and clients miss it without a word"
        return fail(name, text, f"{SKIPS}=false in broker.conf")
    return ok(name, "brokers wait for what they cannot read")


def _retention(facts: BridgeFacts) -> Check:
    name, found = "bridge-retention", facts.retention
    if isinstance(found, OffloadError):
        text = f"{facts.topic}: its retention cannot be read: {found}"
        return fail(name, text, remedy_for(found, "let the role read it", "see the reason"))
    minutes, megabytes = found
    if 0 in found:
        remedy = f"pulsar-admin namespaces set-retention {facts.topic.namespace} with as much as clients shall read"
        return fail(name, f"{facts.topic}: retention 0: brokers delete what is bridged once it is consumed", remedy)
    kept = " and ".join([f"{minutes} minutes"] * (minutes > 0) + [f"{megabytes} MB"] * (megabytes > 0))
    return ok(name, f"{facts.topic}: clients can read {kept or 'everything'} after it is consumed")


def _record(topic: TopicName, found: FoundRecord | OffloadError) -> Check:
    name = "bridge-record"
    if isinstance(found, OffloadError):
        return fail(
            name, str(found), "pulsar.metadataServiceUri: the ZooKeeper in which Pulsar has its managed ledgers"
        )
    text = f"{topic}: its record was read at {found.path}, {format_size(found.size.stored)}"
    if found.size.advice:
        return warn(name, text, found.size.advice)
    return ok(name, text)


def _bucket(facts: BridgeFacts) -> Iterator[Check]:
    name, found = "bridge-bucket", facts.bucket
    if isinstance(found, OffloadError):
        remedy = "bridge.bucket: it is reached as storage is, and must be written, listed, read and deleted in"
        yield fail(name, str(found), remedy)
        return
    yield ok(name, f"{found.url} can be written, read and deleted in")
    if found.copies:
        yield ok("bridge-copies", f"{found.url} copies out of the archive by itself")
    else:
        text = f"{found.url} copies nothing out of the archive by itself: Spark's executors read and send all of it"
        yield warn("bridge-copies", text, "use a bucket of the same store, whose role may read the archive, too")
    theirs = facts.offloading.endpoint if isinstance(facts.offloading, BrokerOffloading) else ""
    if theirs and facts.endpoint and _place(theirs) != _place(facts.endpoint):
        text = f"brokers reach their store at {theirs}, we reach it at {facts.endpoint}: is it the same one?"
        yield warn("bridge-same-store", text, "make sure of it: else each round is taken back, since nothing is proven")


def _own_policies(facts: BridgeFacts) -> Iterator[Check]:
    name, found = "bridge-topic-policies", facts.own_policies
    if isinstance(found, OffloadError):
        text = f"{facts.topic}: its own offload policies cannot be read: {found}"
        yield warn(name, text, remedy_for(found, "let the role read them", "see the reason"))
    elif found:
        text = f"{facts.topic}: it has offload policies of its own, with which brokers of 4.0 cannot load it"
        yield fail(name, text, TOPIC_POLICIES.replace("TOPIC", str(facts.topic)))


def _place(endpoint: str) -> str:
    return endpoint.partition("://")[2].rstrip("/").lower() or endpoint.lower()


def bridge_facts(runtime: Runtime, topic: TopicName) -> BridgeFacts:
    """Of one topic. Each answer that fails is told in its place."""
    admin = runtime.admin
    offloading = attempt(lambda: broker_offloading(admin.offload_policies(topic)))
    return BridgeFacts(
        topic,
        offloading,
        attempt(admin.runtime_configuration),
        attempt(partial(admin.retention, topic)),
        attempt(partial(_asked_own_policies, runtime, topic)),
        attempt(partial(_found_record, runtime, topic)),
        attempt(partial(_tried_bucket, runtime, offloading)),
        runtime.config.storage.endpoint or "",
        attempt(admin.version),
    )


def _asked_own_policies(runtime: Runtime, topic: TopicName) -> bool:
    whole = TopicName.parse(topic.partitioned_name)
    return bool(runtime.rest.get(f"{whole.rest_path}/offloadPolicies", applied="false"))


def _found_record(runtime: Runtime, topic: TopicName) -> FoundRecord:
    if not runtime.has_bookkeeper:
        raise ConfigError("pulsar.metadataServiceUri: is not set")
    with runtime.child() as own:
        tree, _ = own.bookkeeper()
        path = tree.topic_path(topic)
        node = tree.nodes.get(path, latest=True)
        if node is None:
            raise TopicNotFoundError(f"{topic} has no managed ledger at {path}: another metadata service has it")
        decode_record(node.value)
        return FoundRecord(path, size_of(node.value, runtime.config.bridge.record_size))


def _tried_bucket(runtime: Runtime, offloading: BrokerOffloading | OffloadError) -> TriedBucket:
    url = runtime.config.bridge.bucket
    if not url:
        if isinstance(offloading, OffloadError):
            raise offloading
        if not offloading.bucket:
            raise ConfigError("bridge.bucket: is not set, and the brokers name no bucket of theirs")
        url = f"s3://{offloading.bucket}"
    with closing(runtime.dependencies.store(runtime.storage.beside(url, "bridge.bucket"))) as bucket:
        return TriedBucket(url, try_bucket(runtime.store, bucket))


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
