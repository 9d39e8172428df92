"""What the archive has beside its topics' catalogs and journals, each written by whoever writes it in production."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from uuid import UUID

from offloader._proto import metadata_pb2 as pb
from offloader.bookkeeper.nodes import AclEntry
from offloader.cursors.copies import CopiedCursor, CursorCopy, CursorSource
from offloader.cursors.copy_store import write_copy
from offloader.cursors.core.ledger_acks import LedgerAcks
from offloader.cursors.core.piece_codec import encode_piece
from offloader.cursors.core.records import FirstState
from offloader.cursors.durable import DurableCursor
from offloader.cursors.facts import FactsCopier
from offloader.gateway.owners.claim_log import ClaimLog
from offloader.gateway.owners.owners import TopicOwners
from offloader.gateway.protocol.answers import Address
from offloader.gateway.topics.workers import Workers
from offloader.lifecycle.deletion.marking import Marker
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import (
    DeletionEvidence,
    DeletionOffloadContext,
    DeletionProof,
    DeletionState,
    LedgerComponent,
    LedgerNode,
    LedgerType,
)
from offloader.lifecycle.deletion.system_topic.opening import open_mark
from offloader.metadata.envelope import wrap
from offloader.metadata.former_offload import TO_STREAMING, FormerOffload, FormerOffloads
from offloader.metadata.heartbeats import Heartbeat, Heartbeats
from offloader.metadata.layout import cursor_folder, slot_name, subscription_folder
from offloader.metadata.rescue_log import Rescues
from offloader.metadata.rescues import RescueForgotten
from offloader.model import Position, TopicName
from offloader.ports.admin import TopicSchema
from offloader.ports.object_store import ObjectStore
from tests.fakes.topic_states import MemoryTopicStates
from tests.lifecycle.deletion.support import candidate
from tests.lifecycle.rescue.support import KEPT, Archive, KeptCluster, messages
from tests.lifecycle.topics.removing import BEGIN, SUB, TOPIC, RemovalWorld
from tests.offload.simulation import Simulation
from tests.release.golden import CLUSTER, FIRST, SECOND

FORGOTTEN_LEDGER = 8
SCHEMA = TopicSchema(0, "JSON", b'{"type": "record", "name": "Order", "fields": []}', 1_700_000_000, (("by", "joe"),))
NODE = LedgerNode(b"a managed ledger", 1, 2, (AclEntry(31, "world", "anyone"),), (("sub", LedgerNode(b"", 0, 2)),))
FORMER = "former"
MARKED = (
    candidate(41),
    candidate(
        42,
        ledger_type=LedgerType.OFFLOAD_LEDGER,
        offload_context=DeletionOffloadContext(str(UUID(int=42)), "aws-s3", (("bucket", "b"),)),
    ),
    candidate(
        -1,
        ledger_type=LedgerType.MANAGED_LEDGER,
        ledger_component=LedgerComponent.PENDING_ACKS,
        topic_name="public/default/persistent/t-sub-pending-ack",
        node=NODE,
        evidence=DeletionEvidence(DeletionProof.REFEREE_ABSENT, "/managed-ledgers/public/default/persistent/t"),
        state=DeletionState.GIVEN_UP,
        tries=9,
        answer=None,
        reason="no answer",
    ),
)


@dataclass(frozen=True)
class Beside:
    """Of one cluster and one topic."""

    sim: Simulation
    topic: TopicName

    @property
    def store(self) -> ObjectStore:
        assert self.sim.store is not None
        return self.sim.store

    def write(self) -> None:
        """Something of everything."""
        self._subscriptions()
        self._facts()
        self._deletions()
        self._rescued()
        self._heartbeats()
        FormerOffloads(self.store, self.sim.uuid).record(
            FormerOffload("public/default", "sim", TO_STREAMING, 1 << 20, 60, -1, -1, self.sim.clock.now)
        )

    def _subscriptions(self) -> None:
        """A copy of Pulsar's, and one that the archive keeps for gateways."""
        first = self.sim.cluster.ledgers(self.topic).spans[0].ledger
        copied = CopiedCursor(
            "job",
            (first, 3),
            {first: encode_piece(LedgerAcks(bits=bytes([0b1100000])))},
            (("#pulsar.internal.counter", 1),),
            (("by", "joe"),),
            replicated=True,
            sources=tuple(CursorSource)[:1],
            missing=("parts of batches",),
        )
        write_copy(self.store, CursorCopy(self.topic, 0, self.sim.clock.now, (copied,), "4.0.7"), self.sim.uuid, None)
        for gateway in ("one", "two"):
            asyncio.run(own(self.store, self.sim, self.topic, gateway))
            kept = self._opened(first)
            kept.acknowledge_up_to(Position(0, first, 1))
            kept.acknowledge((0, first), 4, 6)
            kept.count_property("replicated", 1)
            kept.flush()

    def _opened(self, first: int) -> DurableCursor:
        begin = FirstState(Position(0, first, -1))
        return DurableCursor.open(self.store, subscription_folder(self.topic, "reader"), lambda: begin, self.sim.uuid)

    def _facts(self) -> None:
        brokers = RemovalWorld().brokers
        brokers.make(self.topic, {1: 0})
        states = MemoryTopicStates(brokers, known_schemas={self.topic.partitioned_name: [SCHEMA]})
        FactsCopier(self.store, states, self.sim.uuid).take(self.topic, self.sim.clock.now, None, terminated=False)

    def _deletions(self) -> None:
        """A ledger and a subscription that are marked, and what system topics are marked with."""
        queue = DeletionQueue(self.store, CLUSTER, self.sim.uuid)
        switch = queue.set_switch(on=True, now=self.sim.clock.now)
        for record in MARKED:
            queue.write(replace(record, switch=switch.number), None)
        world, now = RemovalWorld(), lambda: BEGIN
        world.side.mark(world.side.plan(TOPIC, SUB), Marker(queue, now, None, by_name=True, dry=False), "operator")
        former = pb.Body(cursor_removal=pb.CursorRemoval(state="marked"))  # as before subscriptions were in the queue
        self.store.put(f"{cursor_folder(CLUSTER, TOPIC, FORMER)}records/{slot_name(0)}", wrap("token", former))
        open_mark(self.store, CLUSTER, self.sim.uuid, lambda: self.sim.rng.randbytes(32))

    def _rescued(self) -> None:
        """Of a ledger an entry is lost; what was rescued of another one is forgotten."""
        found = Archive(KeptCluster(messages(4)))
        found.cluster.with_entries(FORGOTTEN_LEDGER, "t", found.cluster.entries)
        found.cluster.lose(2)
        for ledger in (KEPT, FORGOTTEN_LEDGER):
            found.rescue(ledger, store=self.store, with_losses=True)
        rescues = Rescues(self.store, CLUSTER)
        forgotten = RescueForgotten(self.sim.clock.now, "operator")
        rescues.write(FORGOTTEN_LEDGER, rescues.last_slot(FORGOTTEN_LEDGER) + 1, forgotten, self.sim.uuid)

    def _heartbeats(self) -> None:
        for deal in (FIRST, SECOND):
            beat = Heartbeat(deal.index, deal.count, deal.by, deal.index, self.sim.uuid(), 3)
            Heartbeats(self.store, FIRST.application).write(beat)


async def own(store: ObjectStore, sim: Simulation, topic: TopicName, gateway: str, *, living: bool = False) -> None:
    """A gateway makes the topic its own. `living`: whether others are. Raises LookUpAgainError."""

    async def is_living(_: Address) -> bool:
        return living

    workers = Workers()
    here = Address(f"pulsar://{gateway}:6650")
    try:
        owners = TopicOwners(ClaimLog(store, sim.uuid), gateway, lambda: here, is_living, workers, sim.clock)
        await owners.own(topic)
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})  # former claims are removed
    finally:
        workers.close()
