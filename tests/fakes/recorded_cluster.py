"""An in-memory Pulsar that keeps each topic's list of ledgers where Pulsar does, in a node with a version, and reads
from offloaded objects what that list says.

Its brokers do what 4.0.7 was seen to do, and what ManagedLedgerImpl of 3.0 to 4.2 has in common: a loaded topic goes by
its own copy of the list; each change of it is a compare-and-set, and whoever is refused is fenced; a load drops the
newest ledger's context, and writes the list unless the topic is terminated.
"""

from __future__ import annotations

from offloader._proto.managed_ledger_pb2 import ManagedLedgerInfo
from offloader.errors import TopicNotFoundError
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore
from offloader.state.managed_ledger_codec import decode_record
from tests.fakes.cluster import MemoryCluster
from tests.fakes.memory_nodes import MemoryNodes
from tests.fakes.recorded_state import RecordedState, record_path


class RecordedCluster(MemoryCluster):
    """`nodes`: Pulsar's metadata. `buckets`: by name. Retention is infinite and nothing is deleted, unless
    `retention_policies` and `offload_policies` of the namespace say otherwise."""

    def __init__(self, *, seed: int = 0, name: str = "memory", entries_per_ledger: int | None = None) -> None:
        super().__init__(seed=seed, name=name, entries_per_ledger=entries_per_ledger, state=RecordedState)
        self.configuration |= {
            "managedLedgerOffloadDriver": "S3",
            "managedLedgerOffloadBucket": "brokers",
            "managedLedgerOffloadServiceEndpoint": "http://store",
            "managedLedgerOffloadedReadPriority": "tiered-storage-first",
            "autoSkipNonRecoverableData": "false",
        }
        self.recorded.configuration = self.configuration

    @property
    def recorded(self) -> RecordedState:
        assert isinstance(self.state, RecordedState)
        return self.state

    @property
    def nodes(self) -> MemoryNodes:
        return self.recorded.nodes

    @property
    def buckets(self) -> dict[str, ObjectStore]:
        return self.recorded.buckets

    def record(self, topic: TopicName) -> ManagedLedgerInfo:
        """What stands in the topic's node."""
        node = self.nodes.get(record_path(topic))
        if node is None:
            raise TopicNotFoundError(f"{topic} has no record")
        return decode_record(node.value)

    def is_loaded(self, topic: TopicName) -> bool:
        """Without loading it."""
        found = self.state.topics.get(topic)
        return found is not None and found.loaded

    def is_fenced(self, topic: TopicName) -> bool:
        """Whether its broker has closed it because it was refused."""
        return self.state.topics[topic].fenced

    def offload(self, topic: TopicName, ledger: int, uuid: str, *, complete: bool = True) -> bool:
        """The broker's own offload of a ledger, as far as the list goes; objects of an attempt before are deleted.

        False: it was refused, and is fenced."""
        with self.lock:
            return self.recorded.offload(self.state.topic(topic), ledger, uuid, complete=complete)

    def has_entries(self, ledger: int) -> bool:
        """Whether BookKeeper has the ledger."""
        found = (one for topic in self.state.topics.values() for one in topic.history if one.id == ledger)
        return any(not one.vanished for one in found)
