"""The topics of `recorded_cluster`."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from offloader._proto.managed_ledger_pb2 import ManagedLedgerInfo, ManagedLedgerInfoMetadata, OffloadContext
from offloader.errors import (
    BrokerUnavailableError,
    DamagedObjectError,
    ObjectNotFoundError,
    TopicNotFoundError,
    VersionConflictError,
)
from offloader.format.blocks import read_entries
from offloader.format.v1 import LedgerIndex, decode_ledger_index
from offloader.metadata.stock_keys import data_key, index_key
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore
from offloader.state.envelope import wrapped
from offloader.state.managed_ledger_codec import decode_record
from offloader.state.names import managed_ledger_name
from tests.fakes.cluster_state import Ledger, MemoryEntry, MemoryTopic, Place, State
from tests.fakes.ledger_metadata import Compression
from tests.fakes.memory_nodes import MemoryNodes

_HEADER = 128


class RecordedState(State):
    """Topics whose lists are in nodes."""

    configuration: Mapping[str, str]

    def __init__(self, rng: random.Random, entries_per_ledger: int | None) -> None:
        super().__init__(rng, entries_per_ledger)
        self.nodes = MemoryNodes()
        self.buckets: dict[str, ObjectStore] = {}
        self.now_ms = 1_767_225_600_000
        self.compression = 0  # of the lists that brokers write
        self._properties: dict[TopicName, dict[str, str]] = {}

    # Topics

    def topic(self, name: TopicName) -> MemoryTopic:
        """Loads it: whoever asks a broker for a topic has it loaded."""
        found = super().topic(name)
        if not found.loaded:
            self.load(found)
        return found

    def create(self, name: TopicName) -> None:
        super().create(name)
        self.nodes.put(record_path(name), b"")
        found = self.topics[name]
        found.version = self._node_version(found)
        self._write(found)

    def load(self, topic: MemoryTopic) -> None:
        """From the record, whatever was known before."""
        node = self.nodes.get(record_path(topic.name))
        if node is None:
            raise TopicNotFoundError(f"{topic.name} does not exist")
        info = decode_record(node.value)
        topic.loaded, topic.fenced, topic.version = True, False, node.version
        self._properties[topic.name] = {one.key: one.value for one in info.properties}
        contexts = {one.ledgerId: one.offloadContext for one in info.ledgerInfo}
        topic.ledgers = [one for one in topic.history if one.id in contexts]
        for one in topic.ledgers:
            _know(one, contexts[one.id] if contexts[one.id].ByteSize() else None)
        empty = self._opens_newest(topic)
        if topic.terminated:
            return
        begin_ledger(topic, self.new_ledger_id())
        if not self._write(topic):
            topic.loaded = False
            topic.history.remove(topic.ledgers[-1])
            raise BrokerUnavailableError(f"{topic.name}: Failed to initialize managed ledger: BadVersionException")
        if empty is not None:
            self.forget_empty(topic, empty)

    def _opens_newest(self, topic: MemoryTopic) -> Ledger | None:
        """Makes its part of the list anew, or takes it off; the ledger that is to be forgotten, as it is empty."""
        if not topic.ledgers:
            return None
        newest = topic.ledgers[-1]
        newest.closed = True
        _know(newest, None)
        if newest.entries and not newest.vanished:
            return None
        topic.drop_ledger(newest.id)
        return newest if not newest.vanished and not topic.terminated else None

    def unload(self, topic: MemoryTopic) -> None:
        """Closes the ledger, without a word in the list. Who asks for the topic next has it loaded."""
        topic.load += 1
        topic.loaded = topic.fenced = False
        for cursor in topic.cursors.values():
            cursor.owner = None
        if topic.ledgers:
            topic.ledgers[-1].closed = True

    def append(self, topic: MemoryTopic, entry: MemoryEntry) -> Place:
        """A producer that meets a fenced topic comes again, and has it loaded anew."""
        if topic.fenced:
            self.unload(topic)
            self.load(topic)
        return super().append(topic, entry)

    def roll(self, topic: MemoryTopic) -> None:
        if topic.terminated or topic.fenced:
            return
        before = list(topic.ledgers)
        begin_ledger(topic, self.new_ledger_id())
        if self._write(topic):
            self.trim(topic)
            return
        topic.history.remove(topic.ledgers[-1])  # it was made, and is deleted again
        topic.ledgers = before

    def terminate(self, topic: MemoryTopic) -> None:
        super().terminate(topic)
        self._write(topic)

    def delete(self, topic: MemoryTopic) -> None:
        for one in topic.ledgers:
            self._cleans_up(one)
        self.nodes.delete(record_path(topic.name))
        super().delete(topic)

    # The end of data

    def trim(self, topic: MemoryTopic) -> None:
        """By retention; and BookKeeper's copies of what is offloaded, by the lag."""
        if topic.fenced or not topic.loaded:
            return
        before = list(topic.ledgers)
        if not self._keeps_all(topic):
            super().trim(topic)
        gone = [one for one in before if one not in topic.ledgers]
        due = [one for one in topic.ledgers if self._is_due(topic, one)]
        for one in due:
            assert one.context is not None
            one.context.bookkeeperDeleted = True
        if not (gone or due):
            return
        if not self._write(topic):
            topic.ledgers = before
            return
        for one in gone:
            one.vanished = True
            self._cleans_up(one)
        for one in due:
            one.vanished = True

    def _keeps_all(self, topic: MemoryTopic) -> bool:
        said: Any = self.namespaces[topic.name.namespace].policies.get("retention_policies")
        return not isinstance(said, dict) or int(said.get("retentionTimeInMinutes", 0)) < 0

    def _is_due(self, topic: MemoryTopic, one: Ledger) -> bool:
        lag = self._policy(topic, "managedLedgerOffloadDeletionLagInMillis")
        context = one.context
        if lag is None or context is None or not context.complete or context.bookkeeperDeleted:
            return False
        return self.now_ms - context.timestamp > int(str(lag)) >= 0

    def _cleans_up(self, one: Ledger) -> None:
        """Acts by key, whatever is there."""
        if one.context is not None and one.context.HasField("uidMsb"):
            bucket, uuid = self._bucket(one.context), _uuid(one.context)
            if bucket is not None:
                bucket.delete([data_key(uuid, one.id), index_key(uuid, one.id)])

    # What brokers read

    def data_of(self, topic: MemoryTopic, place: Place, stored: MemoryEntry) -> bytes | None:
        """From an object, where the broker knows of one; there is no way back to BookKeeper."""
        if topic.fenced:
            return None
        one = next(found for found in topic.ledgers if found.id == place[0])
        context = one.context
        first = str(self._policy(topic, "managedLedgerOffloadedReadPriority") or "").lower().replace("_", "-")
        from_bookkeeper = first == "bookkeeper-first" and context is not None and not context.bookkeeperDeleted
        if context is None or not context.complete or from_bookkeeper:
            return None if one.vanished else stored.data
        try:
            return self._from_object(one, context, place[1])
        except (ObjectNotFoundError, DamagedObjectError):
            return None

    def skips_unreadable(self) -> bool:
        return self.configuration.get("autoSkipNonRecoverableData") == "true"

    def _from_object(self, one: Ledger, context: OffloadContext, entry: int) -> bytes:
        """As Pulsar's reader: the index leads to the entry's block, or into it."""
        bucket, uuid = self._bucket(context), _uuid(context)
        if bucket is None:
            raise ObjectNotFoundError("the context names no bucket that there is")
        index = decode_ledger_index(bucket.read(index_key(uuid, one.id))[0], one.id)
        begin, end, first = _block(index, entry)
        data = bucket.read(data_key(uuid, one.id), begin, end - begin)[0]
        for found in read_entries(data, begin, first):
            if found.entry == entry:
                return found.data
        raise DamagedObjectError(f"no entry {entry}")

    def _bucket(self, context: OffloadContext) -> ObjectStore | None:
        named = {one.key: one.value for one in context.driverMetadata.properties}
        return self.buckets.get(named.get("bucket", ""))

    def _policy(self, topic: MemoryTopic, name: str) -> object:
        own: Any = self.namespaces[topic.name.namespace].policies.get("offload_policies")
        return {**self.configuration, **(own if isinstance(own, Mapping) else {})}.get(name)

    # Brokers' own offload, and the list

    def offload(self, topic: MemoryTopic, ledger: int, uuid: str, *, complete: bool) -> bool:
        """See `RecordedCluster.offload`."""
        one = next(found for found in topic.ledgers if found.id == ledger)
        if one.context is not None and one.context.complete:
            return True
        self._cleans_up(one)
        number = UUID(uuid).int
        halves = [half - (1 << 64) if half >> 63 else half for half in (number >> 64, number & (1 << 64) - 1)]
        context = OffloadContext(uidMsb=halves[0], uidLsb=halves[1], complete=complete, timestamp=self.now_ms)
        context.driverMetadata.name = "S3"
        context.driverMetadata.properties.add(key="bucket", value="brokers")
        _know(one, context)
        return self._write(topic)

    def _write(self, topic: MemoryTopic) -> bool:
        """False: somebody else has changed it since this broker read it. What it does not know it does not keep."""
        info = ManagedLedgerInfo()
        for one in self.rng.sample(topic.ledgers, len(topic.ledgers)):  # in no order
            listed = info.ledgerInfo.add(ledgerId=one.id, timestamp=self.now_ms if one.closed else 0)
            if one.closed:
                listed.entries, listed.size = len(one.entries), sum(len(entry.data) for entry in one.entries)
            if one.context is not None:
                listed.offloadContext.CopyFrom(one.context)
        if topic.terminated:
            last = topic.last_confirmed() or (topic.ledgers[-1].id, -1)
            info.terminatedPosition.ledgerId, info.terminatedPosition.entryId = last
        for key, value in self._properties.get(topic.name, {}).items():
            info.properties.add(key=key, value=value)
        envelope = ManagedLedgerInfoMetadata(compressionType=Compression.Name(self.compression), uncompressedSize=0)
        data = wrapped(envelope if self.compression else None, info.SerializeToString())
        try:
            version = self.nodes.set(record_path(topic.name), data, topic.version)
        except VersionConflictError:
            topic.fenced = True
            return False
        topic.version = -1 if version is None else version
        return version is not None

    def _node_version(self, topic: MemoryTopic) -> int:
        node = self.nodes.get(record_path(topic.name))
        return -1 if node is None else node.version


def record_path(topic: TopicName) -> str:
    """The node of a topic's list."""
    return f"/managed-ledgers/{managed_ledger_name(topic)}"


def begin_ledger(topic: MemoryTopic, ledger: int) -> None:
    """A new ledger, also behind an empty list."""
    if topic.ledgers:
        topic.open_ledger(ledger)
    else:
        topic.ledgers.append(Ledger(ledger))
        topic.history.append(topic.ledgers[-1])


def _know(one: Ledger, context: OffloadContext | None) -> None:
    one.context = None
    if context is not None:
        one.context = OffloadContext()
        one.context.CopyFrom(context)
    one.offloaded = context is not None and context.complete


def _uuid(context: OffloadContext) -> str:
    return str(UUID(int=(context.uidMsb % 2**64 << 64) + context.uidLsb % 2**64))


def _block(index: LedgerIndex, entry: int) -> tuple[int, int, int]:
    """Where to read, up to where, and the first entry there."""
    place = max(number for number, one in enumerate(index.entries) if one.entry <= entry)
    ends = [one.offset for one in index.entries[place + 1 :]] or [index.data_length]
    return index.entries[place].offset + _HEADER, ends[0] + _HEADER, index.entries[place].entry
