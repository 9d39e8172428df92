"""What the bridge's steps reach (objects in a bucket, brokers and their records, the bridge log), and what the
application bridges with, by its configuration. Nothing of it is reached before it is needed: neither a metadata service
nor a bucket of brokers keeps the application from starting."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from offloader.bridge.building import BuildSettings, LedgerBuilds
from offloader.bridge.core.record import no_room
from offloader.bridge.core.rounds import BridgedLedger, BridgeRound, UnbridgedLedger
from offloader.bridge.core.swap_steps import SwapOutcome
from offloader.bridge.log import BridgeLog
from offloader.bridge.proof import BrokerProof, not_ready
from offloader.bridge.sources import LedgerBookies
from offloader.bridge.swapping import StaleOrFine, Swapper, SwapWorld
from offloader.bridge.transfer import PieceWorkers
from offloader.errors import AuthorizationFailedError, ConfigError
from offloader.model import TopicName
from offloader.pulsar.offloading import broker_offloading
from offloader.runtime.connections import Runtime
from offloader.storage.open import Buckets

BUCKET = "bridge.bucket"


class BridgeReach:
    """Thread safe. `workers`: send and check parts."""

    def __init__(self, runtime: Runtime, workers: PieceWorkers, cluster: str) -> None:
        self._runtime = runtime
        self._config = runtime.config.bridge
        self._admin = runtime.admin
        self._workers = workers
        self._cluster = cluster
        self._lock = threading.Lock()
        self._buckets = runtime.closing(Buckets(runtime.storage, runtime.dependencies.store))
        self._builds: LedgerBuilds | None = None

    def parts(self, new_token: Callable[[], str]) -> BridgeParts | None:
        """None where no metadata service is configured: the records that would have to be rewritten are there."""
        if not self._runtime.has_bookkeeper:
            return None
        log = BridgeLog(self._runtime.store, new_token)
        return BridgeParts(log, self._builder, self._swapper, self.bucket_of, self.refusal, self._no_room)

    def bucket_of(self, topic: TopicName) -> str:
        """The bucket's URL. Raises ConfigError where neither we nor the brokers name one."""
        if self._config.bucket:
            return self._config.bucket
        offloading = broker_offloading(self._admin.offload_policies(topic))
        if not offloading.bucket:
            raise ConfigError(
                f"{BUCKET}: the brokers of {topic} name no bucket of theirs: set managedLedgerOffloadBucket in "
                f"broker.conf, or {BUCKET} here"
            )
        return f"s3://{offloading.bucket}"

    def refusal(self, topic: TopicName) -> str:
        """Why brokers would not keep, or not read, what is made for them: said before anything is built."""
        minutes, megabytes = self._admin.retention(topic)
        if 0 in (minutes, megabytes):
            return not_retained(topic)
        offloading = broker_offloading(self._admin.offload_policies(topic))
        try:
            configuration = dict(self._admin.runtime_configuration())
        except AuthorizationFailedError:
            configuration = None
        return not_ready(topic, offloading, configuration, self._admin.version)

    def _no_room(self, topic: TopicName, ledgers: Sequence[BridgedLedger], bucket: str) -> str:
        metadata, _ = self._runtime.bookkeeper()
        node = metadata.nodes.get(metadata.topic_path(topic), latest=True)
        return "" if node is None else no_room(topic, node.value, ledgers, bucket, self._config.record_size)

    def _builder(self) -> LedgerBuilds:
        with self._lock:
            if self._builds is None:
                rules = BuildSettings(self._cluster, self._config.copy_size)
                bookies = LedgerBookies(*self._runtime.bookkeeper())
                self._builds = LedgerBuilds(self._runtime.store, self._buckets.open, bookies, self._workers, rules)
            return self._builds

    def _swapper(self) -> Swapper:
        metadata, _ = self._runtime.bookkeeper()
        proof = BrokerProof(self._runtime.source, self._config.proof_timeout_ms / 1000)
        world = SwapWorld(self._admin, metadata.nodes, metadata.topic_path, self._buckets.open, proof, metadata.has)
        return Swapper(world)


def not_retained(topic: TopicName) -> str:
    """For a topic with retention 0."""
    return (
        f"{topic}: its retention is 0, so brokers delete what is bridged as soon as it is consumed: pulsar-admin "
        f"namespaces set-retention {topic.namespace} with as much as clients shall read"
    )


class Builds(Protocol):
    """Writes ledgers' objects into a bucket, and reads them back."""

    def build(self, topic: TopicName, ledger: BridgedLedger, bucket: str) -> BridgedLedger | UnbridgedLedger:
        """Both objects are there and right, or why they never will be. Safe to repeat."""
        ...

    def discard(self, bucket: str, ledgers: Iterable[BridgedLedger]) -> None:
        """Nothing is left of these objects, nor of their uploads. Safe to repeat."""
        ...


class Swaps(Protocol):
    """Has brokers read other objects. Each call ends with the topic unloaded behind whatever it has rewritten, or says
    that it is to be made again. `ours`: whether the round is still recorded as it was; OvertakenError passes."""

    def bridge(self, topic: TopicName, under_way: BridgeRound, ours: Callable[[], bool]) -> SwapOutcome: ...

    def withdraw(self, topic: TopicName, under_way: BridgeRound, ours: Callable[[], bool]) -> SwapOutcome: ...

    def look(self, topic: TopicName) -> StaleOrFine: ...

    def begun(self, topic: TopicName) -> Mapping[int, str]:
        """What brokers have begun to offload by themselves, and not ended: the uuids, by ledger."""
        ...

    def missing(self, topic: TopicName, ledgers: Iterable[BridgedLedger]) -> Mapping[int, bool]:
        """Those that are listed without any context, and of each whether BookKeeper has a copy."""
        ...

    def contexts(self, topic: TopicName) -> Mapping[int, str] | None:
        """The uuids that the topic's record has of offloaded ledgers; None: there is no record."""
        ...

    def broken(self, topic: TopicName, bucket: str, ledgers: Iterable[BridgedLedger]) -> Mapping[int, str]:
        """What is wrong with the objects of those that brokers list, by ledger."""
        ...


@dataclass(frozen=True)
class BridgeParts:
    """What a bridge reaches, opened when it is needed first. `bucket_of`: the URL of the bucket that brokers read a
    topic's objects from. `refusal`: why nothing is begun for a topic, for its operator; empty: it may be. `no_room`:
    why its record cannot take the contexts of more ledgers, whose objects are in a bucket; empty: it can."""

    log: BridgeLog
    builds: Callable[[], Builds]
    swaps: Callable[[], Swaps]
    bucket_of: Callable[[TopicName], str]
    refusal: Callable[[TopicName], str] = lambda _: ""
    no_room: Callable[[TopicName, Sequence[BridgedLedger], str], str] = lambda *_: ""
