"""A cluster in memory in which subscriptions are removed, in virtual time, with answers that get lost."""

from __future__ import annotations

from itertools import count

from offloader.bookkeeper.metadata import MetadataTree
from offloader.errors import OutcomeUnknownError
from offloader.lifecycle.deletion.timing import HOUR_MS, DeletionTiming
from offloader.lifecycle.topics.cursors.kinds import SubscriptionNames
from offloader.lifecycle.topics.cursors.nodes import StoredTopics
from offloader.lifecycle.topics.cursors.removals import CursorRemovals
from offloader.lifecycle.topics.cursors.service import CursorRemover
from offloader.model import AcknowledgedRange, TopicName
from offloader.storage.memory import MemoryStore
from offloader.testing.cluster_subscriptions import HeldCursor, MemorySubscriptions
from offloader.testing.ledger_metadata import MemoryMetadata

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

    def put(self, key, data, *, if_absent=False):
        self.writes += 1
        if self.cut is None or self.writes != self.cut:
            return super().put(key, data, if_absent=if_absent)
        if self.effect:
            super().put(key, data, if_absent=if_absent)
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
        self.removals = CursorRemovals(self.store, "main", lambda: f"t{next(tokens)}")
        self.remover = CursorRemover(
            self.removals,
            StoredTopics(metadata, None, 0.1),
            self.brokers,
            SubscriptionNames(),
            TIMING,
            lambda: self.now,
        )
        self.make()

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

    def record(self):
        found = self.removals.read((TOPIC, SUB))
        return None if found is None else found.record

    def mark(self):
        return self.remover.mark(TOPIC, SUB, "a test")

    def go_on(self):
        return self.remover.go_on(self.removals.read((TOPIC, SUB)))

    def undo(self):
        return self.remover.undo(self.removals.read((TOPIC, SUB)))
