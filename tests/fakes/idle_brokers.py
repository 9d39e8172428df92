"""Brokers that load, trim and unload topics by the clock, and write what Pulsar writes of it into nodes.

They do what Pulsar 4.0.7 was seen to do (`integration/pulsar/test_unloaded.py`): a load dates the last ledger, or drops
it where it is empty, and begins another; an unload closes that without a word in the list; `trim` drops what neither a
cursor nor retention keeps, oldest first, and never the current ledger.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from offloader._proto.managed_ledger_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from offloader.bookkeeper.model import Fragment, LedgerMetadata, LedgerState
from offloader.model import MIB, TopicName
from offloader.state.names import encoded, managed_ledger_name
from tests.fakes.ledger_metadata import MemoryMetadata

_BOOKIE = "bookie-1:3181"
_NO_LEDGER = -1
LedgerPlace = tuple[int, int]


@dataclass
class IdleLedger:
    """`timestamp_ms`: as the list has it. `closed`: in BookKeeper."""

    id: int
    entries: int = 0
    size: int = 0
    timestamp_ms: int = 0
    closed: bool = False
    finished: bool = False  # in the list


@dataclass
class IdleTopic:
    """`cursors`: mark-delete positions. `clients`: who is connected. `mine`: loaded for `trim` alone, by whoever asked
    for that."""

    ledgers: list[IdleLedger] = field(default_factory=list)
    cursors: dict[str, LedgerPlace] = field(default_factory=dict)
    clients: int = 0
    loaded: bool = False
    mine: bool = False
    terminated: bool = False


class IdleBrokers:
    """What brokers do. `dropped`: the ledgers that retention freed."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.metadata = MemoryMetadata(clock=lambda: self.now_ms / 1000)
        self.topics: dict[TopicName, IdleTopic] = {}
        self.retention: dict[str, tuple[int, int]] = {}
        self.configuration = {"defaultRetentionTimeInMinutes": "0", "defaultRetentionSizeInMB": "0"}
        self.dropped: list[tuple[TopicName, IdleLedger]] = []
        self.lock = threading.RLock()
        self._last_ledger = 10

    def load(self, topic: TopicName) -> None:
        """As a broker does it for whatever reason."""
        found = self.topics[topic]
        if found.loaded:
            return
        found.loaded = True
        self._recover(topic, found)
        if not found.terminated:
            self.begin(topic)
            self.write(topic)
        self.write_cursors(topic)

    def check_retention(self, topic: TopicName) -> None:
        """What a broker does every 120 s for what it has loaded, and when it is told to trim."""
        found = self.topics[topic]
        going = self._droppable(topic, found)
        found.ledgers = [one for one in found.ledgers if one not in going]
        if going:
            self.write(topic)
        for one in going:
            self.metadata.cluster.delete_ledger(one.id)
            self.dropped.append((topic, one))

    def _droppable(self, topic: TopicName, found: IdleTopic) -> list[IdleLedger]:
        minutes, megabytes = self.retention_of(topic)
        total, behind, going = sum(one.size for one in found.ledgers), 0, []
        for one in found.ledgers[:-1]:
            behind += one.size
            expired = minutes >= 0 and self.now_ms - one.timestamp_ms > minutes * 60_000
            too_much = megabytes >= 0 and total - behind >= megabytes * MIB
            held = any(place < (one.id, one.entries - 1) for place in found.cursors.values())
            if held or not (expired or too_much):
                break
            going.append(one)
        return going

    def retention_of(self, topic: TopicName) -> tuple[int, int]:
        """Minutes and megabytes; -1: any."""
        default = (
            int(self.configuration["defaultRetentionTimeInMinutes"]),
            int(self.configuration["defaultRetentionSizeInMB"]),
        )
        return self.retention.get(topic.partitioned_name, self.retention.get(topic.namespace, default))

    def _recover(self, topic: TopicName, found: IdleTopic) -> None:
        if not found.ledgers:
            return
        last = found.ledgers[-1]
        if last.entries or found.terminated:
            self.finish(last)
            self.put_ledger(topic, last)
        else:
            found.ledgers.remove(last)
            self.metadata.cluster.delete_ledger(last.id)

    def finish(self, ledger: IdleLedger) -> None:
        ledger.closed = ledger.finished = True
        ledger.timestamp_ms = self.now_ms

    def begin(self, topic: TopicName) -> None:
        for one in self.topics[topic].ledgers:
            self.put_ledger(topic, one)
        self._last_ledger += 1
        begun = IdleLedger(self._last_ledger)
        self.topics[topic].ledgers.append(begun)
        self.put_ledger(topic, begun)

    def shut(self, topic: TopicName) -> None:
        found = self.topics[topic]
        found.loaded, found.clients, found.mine = False, 0, False
        found.ledgers[-1].closed = True
        self.put_ledger(topic, found.ledgers[-1])
        self.write_cursors(topic)

    def write(self, topic: TopicName) -> None:
        info = ManagedLedgerInfo()
        for one in self.topics[topic].ledgers:
            known = one if one.finished else IdleLedger(one.id)
            info.ledgerInfo.add(ledgerId=one.id, entries=known.entries, size=known.size, timestamp=known.timestamp_ms)
        if self.topics[topic].terminated:
            last = self.topics[topic].ledgers[-1]
            info.terminatedPosition.ledgerId, info.terminatedPosition.entryId = last.id, last.entries - 1
        self.metadata.nodes.put(node_of(topic), info.SerializeToString())

    def write_cursors(self, topic: TopicName) -> None:
        for name, (ledger, entry) in self.topics[topic].cursors.items():
            info = ManagedCursorInfo(
                cursorsLedgerId=_NO_LEDGER, markDeleteLedgerId=ledger, markDeleteEntryId=entry, lastActive=self.now_ms
            )
            self.metadata.nodes.put(f"{node_of(topic)}/{encoded(name)}", info.SerializeToString())

    def put_ledger(self, topic: TopicName, ledger: IdleLedger) -> None:
        metadata = LedgerMetadata(
            ensemble_size=1,
            write_quorum=1,
            ack_quorum=1,
            state=LedgerState.CLOSED if ledger.closed else LedgerState.OPEN,
            fragments=(Fragment(0, (_BOOKIE,)),),
            last_entry=ledger.entries - 1 if ledger.closed else -1,
            length=ledger.size if ledger.closed else 0,
            custom={"application": b"pulsar", "pulsar/managed-ledger": managed_ledger_name(topic).encode()},
        )
        path = self.metadata.path_of(ledger.id)
        present = self.metadata.nodes.get(path)
        if present is None or self.metadata.read(ledger.id).metadata.state is not metadata.state:
            self.metadata.cluster.put_ledger(ledger.id, metadata)


def node_of(topic: TopicName) -> str:
    """The topic's ledger list."""
    return f"/managed-ledgers/{managed_ledger_name(topic)}"
