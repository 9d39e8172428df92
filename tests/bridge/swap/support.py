"""Topics whose ledgers have their V1 objects, brokers in memory, and processes that swap."""

from __future__ import annotations

import random
from collections.abc import Callable
from struct import Struct
from uuid import UUID

from offloader._proto.managed_ledger_pb2 import LedgerMetadataFormat
from offloader.bridge.core.rounds import BridgedLedger, BridgePhase, BridgeRound
from offloader.bridge.core.swap_steps import SwapEnd, SwapLimits, SwapOutcome
from offloader.bridge.objects import remove_objects
from offloader.bridge.proof import BrokerProof
from offloader.bridge.swapping import Swapper, SwapWorld
from offloader.format.blocks import HEADER_SIZE
from offloader.metadata.stock_keys import data_key, index_key
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore
from offloader.state.managed_ledger import ManagedLedger
from offloader.state.managed_ledger_codec import decode_managed_ledger
from offloader.storage.memory import MemoryStore
from tests.fakes.recorded_cluster import RecordedCluster
from tests.fakes.recorded_state import record_path

TOPIC = TopicName.parse("acme/orders/events")
BUCKET = "brokers"
_BLOCK = Struct(">4sqqqq")
_PADDING = bytes.fromhex("fedcdeadfedcdead")


def write_objects(store: ObjectStore, uuid: str, ledger: int, entries: list[bytes]) -> int:
    """A pair as brokers read it, two entries a block. Returns the data object's size."""
    data, places = b"", list[tuple[int, int, int]]()
    for first in range(0, len(entries), 2):
        some = enumerate(entries[first : first + 2], first)
        body = b"".join(Struct(">iq").pack(len(one), entry) + one for entry, one in some) + _PADDING
        places.append((first, len(places) + 1, len(data)))
        head = _BLOCK.pack(bytes.fromhex("26a66d32"), HEADER_SIZE, HEADER_SIZE + len(body), first, ledger)
        data += head.ljust(HEADER_SIZE, b"\0") + body
    length = sum(map(len, entries))
    metadata = LedgerMetadataFormat(
        quorumSize=1, ensembleSize=1, length=length, lastEntryId=len(entries) - 1, state=LedgerMetadataFormat.CLOSED
    ).SerializeToString()
    index = metadata + b"".join(Struct(">qiq").pack(*place) for place in places)
    head = Struct(">4siqqii").pack(
        bytes.fromhex("de47de47"), 32 + len(index), len(data), HEADER_SIZE, len(places), len(metadata)
    )
    store.put(data_key(uuid, ledger), data)
    store.put(index_key(uuid, ledger), head + index)
    return len(data)


class SwapTown:
    """A topic with ledgers, the brokers' bucket, and a bridge log of one round. `phase`: what the log says; None: the
    round is over."""

    def __init__(self, seed: int = 0, ledgers: int = 4, *, topic: TopicName = TOPIC) -> None:
        self.rng = random.Random(seed)
        self.cluster = RecordedCluster(seed=seed)
        self.topic = topic
        self.store = MemoryStore()
        self.cluster.buckets[BUCKET] = self.store
        self.cluster.create(topic)
        for number in range(ledgers):
            for entry in range(3):
                self.cluster.produce(topic, f"{number}:{entry}".encode() * (entry + 1))
            self.cluster.roll(topic)
        self.phase: BridgePhase | None = BridgePhase.SWAPPING
        self.number = 0
        self.waits: list[float] = []
        self.outcomes: list[SwapOutcome] = []

    @property
    def closed(self) -> list[int]:
        """The closed ledgers of the list."""
        return [one.ledger for one in self.cluster.ledgers(self.topic).spans if one.last is not None and one.last >= 0]

    def round(self, *ledgers: int, built: bool = True) -> BridgeRound:
        """One over these ledgers, by default the closed ones, their objects built."""
        made = tuple(self.built(ledger, write=built) for ledger in ledgers or self.closed)
        return BridgeRound(self.number, BridgePhase.SWAPPING, f"s3://{BUCKET}", made, 0, "app")

    def built(self, ledger: int, *, write: bool = True) -> BridgedLedger:
        entries = [one.data for one in self.cluster.entries(self.topic) if one.ledger == ledger]
        uuid = str(UUID(int=self.rng.getrandbits(128)))
        size = write_objects(self.store, uuid, ledger, entries) if write else 1
        return BridgedLedger(ledger, len(entries) - 1, sum(map(len, entries)), uuid, size)

    def swapper(self, limits: SwapLimits | None = None) -> Swapper:
        """Of one process."""
        world = SwapWorld(
            admin=self.cluster.admin,
            nodes=self.cluster.nodes,
            record_path=record_path,
            open_bucket=lambda _: self.store,
            proof=BrokerProof(self.cluster.source, 0.01),
            has_ledger=self.cluster.has_entries,
        )
        return Swapper(world, now=lambda: self.cluster.recorded.now_ms, wait=self.waits.append, limits=limits)

    def bridge(self, under_way: BridgeRound, limits: SwapLimits | None = None) -> SwapOutcome:
        """As the driver does, until it records what came of it."""
        outcome = self.swapper(limits).bridge(self.topic, under_way, self.says(BridgePhase.SWAPPING))
        self.outcomes.append(outcome)
        return outcome

    def withdraw(self, under_way: BridgeRound) -> SwapOutcome:
        """With the record of it before; and what follows the record of its end."""
        self.phase = BridgePhase.WITHDRAWING
        outcome = self.swapper().withdraw(self.topic, under_way, self.says(BridgePhase.WITHDRAWING))
        if outcome.end is SwapEnd.WITHDRAWN:
            self.phase = None
            remove_objects(self.store, [one for one in under_way.ledgers if one.ledger not in outcome.kept])
        return outcome

    def says(self, phase: BridgePhase) -> Callable[[], bool]:
        """Whether the log does, when it is asked."""
        return lambda: self.phase is phase

    def recorded(self) -> ManagedLedger:
        node = self.cluster.nodes.get(record_path(self.topic))
        assert node is not None
        return decode_managed_ledger(node.value)

    def contexts(self) -> dict[int, str]:
        """The complete ones of the record, by ledger."""
        return {one.ledger: one.copy.uuid for one in self.recorded().ledgers if one.copy.complete}

    def read(self, start: int | None = None) -> list[tuple[int, int, bytes]]:
        """What a reader gets from the broker, from the first ledger on."""
        first = self.closed[0] if start is None else start
        reader = self.cluster.source.open(self.topic, first, 0, max_bytes=2**20)
        found = []
        while some := reader.read(0):
            found += [(one.ledger, one.entry, one.data) for one in some]
        return found

    def truth(self, start: int = 0) -> list[tuple[int, int, bytes]]:
        """What was produced and is in the list."""
        listed = {one.ledger for one in self.recorded().ledgers}
        return [
            (one.ledger, one.entry, one.data)
            for one in self.cluster.entries(self.topic)
            if one.ledger in listed and one.ledger >= start
        ]

    def objects(self) -> set[str]:
        """The keys in the bucket."""
        return {key for key, _ in self.store.list()}

    def set_lag(self, milliseconds: int | None) -> None:
        """After which brokers delete BookKeeper's copy."""
        policies = self.cluster.namespace(self.topic.namespace).policies
        policies["offload_policies"] = {"managedLedgerOffloadDeletionLagInMillis": milliseconds}

    def forget_bookkeeper(self, *ledgers: int) -> None:
        """BookKeeper loses its copies, as if somebody deleted them."""
        for ledger in ledgers:
            self.cluster.vanish(self.topic, ledger)


def proven(outcome: SwapOutcome) -> SwapOutcome:
    assert outcome.end is SwapEnd.PROVEN, outcome
    return outcome
