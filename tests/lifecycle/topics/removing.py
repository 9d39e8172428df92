"""A cluster in memory in which subscriptions are deleted, in virtual time, with answers that get lost."""

from __future__ import annotations

from itertools import count

from offloader._proto import metadata_pb2 as pb
from offloader.bookkeeper.metadata import MetadataTree
from offloader.errors import FatalError, OutcomeUnknownError
from offloader.lifecycle.deletion.marking import Marker, MarkOutcome
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import LedgerType, subscription_record_name
from offloader.lifecycle.deletion.service import DeletionRules, LedgerDeletionService
from offloader.lifecycle.deletion.subscription_side import SubscriptionSide
from offloader.lifecycle.deletion.timing import DeletionTiming
from offloader.lifecycle.deletion.undo import undo
from offloader.lifecycle.topics.cursors.kinds import SubscriptionNames
from offloader.lifecycle.topics.cursors.nodes import StoredTopics
from offloader.metadata.envelope import wrap
from offloader.metadata.layout import cursor_folder, slot_name
from offloader.metrics import Metrics
from offloader.model import AcknowledgedRange, TopicName
from offloader.offload.deletion_told import DeletionTold
from offloader.storage.memory import MemoryStore
from tests.fakes.cluster_subscriptions import HeldCursor, MemorySubscriptions
from tests.fakes.ledger_metadata import MemoryMetadata
from tests.times import HOUR_MS

TOPIC = TopicName.parse("public/default/t")
SUB = "team/old job"
BEGIN = 1_700_000_000_000
TIMING = DeletionTiming(delay=24 * HOUR_MS)
LEDGERS = {1: 10, 2: 10, 3: 10, 4: 0}


class CutStore(MemoryStore):
    """Cuts off the `cut`-th write from now on: it is made, or not, and its answer is lost."""

    def __init__(self):
        super().__init__()
        self.cut, self.effect, self.writes = None, False, 0

    def put(self, key, data, *, meta=None, if_absent=False, as_upload=False):
        self.writes += 1
        if self.cut is None or self.writes != self.cut:
            return super().put(key, data, meta=meta, if_absent=if_absent)
        if self.effect:
            super().put(key, data, meta=meta, if_absent=if_absent)
        raise OutcomeUnknownError(f"{key}: cut off")


class RemovalWorld:
    """One topic with the subscription `SUB`, which has holes and a part of a batch, and another that keeps up."""

    def __init__(self):
        self.now = BEGIN
        metadata = MemoryMetadata(clock=lambda: self.now / 1000)
        self.nodes = metadata.nodes
        self.tree: MetadataTree = metadata
        self.brokers = MemorySubscriptions(metadata.nodes, metadata.uri.managed_ledgers, lambda: self.now)
        self.store = CutStore()
        tokens = count()
        self.queue = DeletionQueue(self.store, "main", lambda: f"t{next(tokens)}")
        self.side = SubscriptionSide(
            StoredTopics(metadata, None, 0.1), self.brokers, SubscriptionNames(), lambda: self.now
        )
        self.metrics = Metrics()
        self.service = self.service_of()
        self.make()

    def service_of(self, **rules):
        told = DeletionTold(self.metrics)
        return LedgerDeletionService(
            self.queue,
            {LedgerType.SUBSCRIPTION: self.side},
            DeletionRules(TIMING, **rules),
            told,
            lambda: self.now,
        )

    def make(self):
        self.topic = self.brokers.make(TOPIC, LEDGERS)
        self.topic.cursors["live"] = HeldCursor((3, 9))
        self.topic.cursors[SUB] = HeldCursor(
            (1, 4),
            (AcknowledgedRange((1, 6), (1, 8)), AcknowledgedRange((2, -1), (2, 3))),
            {(2, 7): (0x3E0,)},
            {"owner": "joe"},
        )
        self.brokers.flush()

    def facts(self):
        """All that a subscription is; None: there is none."""
        cursor = self.topic.cursors.get(SUB)
        if cursor is None:
            return None
        return cursor.mark, cursor.ranges, dict(cursor.batches), dict(cursor.properties)

    def pass_time(self, ms=TIMING.effective_delay + 1):
        self.now += ms

    def stored(self):
        return self.queue.read(subscription_record_name(str(TOPIC), SUB))

    def record(self):
        found = self.stored()
        return None if found is None else found.record

    def mark(self, name=SUB, by="a test", topic=TOPIC):
        marker = Marker(self.queue, lambda: self.now, None, by_name=True, dry=False, ours_ms=lambda: self.now)
        mark = self.side.mark(self.side.plan(topic, name), marker, by)
        if mark.outcome not in (MarkOutcome.MARKED, MarkOutcome.PENDING):
            raise FatalError(mark.why)
        return mark.record

    def go_on(self):
        self.service.go_on(self.stored())
        return self.record()

    def undo(self):
        undo(self.queue, self.record().name, lambda _: self.side, lambda: self.now)
        return self.record()


def write_former(store, topic, name, state, ended=0, slot=0, cluster="main"):
    """A removal as an earlier version recorded it, with what it saved."""
    folder = cursor_folder(cluster, topic, name)
    body = pb.Body(cursor_removal=pb.CursorRemoval(state=state, ended_at=ended))
    store.put(f"{folder}records/{slot_name(slot)}", wrap("t", body))
    store.put(f"{folder}saved/{slot_name(0)}", b"a state")
