"""What is known of a topic at one moment: a plan is made from this and a selection."""

from __future__ import annotations

from dataclasses import dataclass

from offloader.archive.items import DAMAGED, Missing
from offloader.archive.object_range import DataObject
from offloader.bridge.core.rounds import BridgedCopy
from offloader.metadata.deletions import range_of
from offloader.metadata.state import TopicCatalog
from offloader.metadata.stock_keys import data_key, index_key
from offloader.model import LedgerList, Position, TopicName, Transaction

LAST_ENTRY = 2**63 - 1  # no entry has a higher id


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why nothing of a ledger can be read, though the bucket has an object `key` of it.

    `damaged`: the ledger had been copied; else nobody knows whether it had, or whose the object is.
    """

    key: str
    why: str
    damaged: bool = True

    def missing(self, first: Position, last: Position) -> Missing:
        """The ledger's positions, as missing."""
        what = f"{self.key}: {self.why} ({first})"
        if self.damaged:
            return Missing(first, last, DAMAGED + what, damaged=self.key)
        return Missing(first, last, f"unproven: {what}")


@dataclass(frozen=True, slots=True)
class OffloadedLedger:
    """A whole closed ledger in Pulsar's ledger-based format (V1), as a stock broker wrote it.

    `store` is the URL of the bucket, whose flat root has the two objects; "" where it is the archive's own root. `size`
    is the sum of the entries' lengths, as BookKeeper counts it. Where it is `unreadable`, nothing says how many entries
    it has: it ends with `LAST_ENTRY`. `is_bridged`: it is made of our blocks, and has entries where segments have gaps.
    """

    start: Position  # entry 0
    end: Position  # the ledger's last entry
    uuid: str
    size: int
    store: str = ""
    unreadable: Unreadable | None = None
    is_bridged: bool = False

    @classmethod
    def of(cls, bridged: BridgedCopy) -> OffloadedLedger:
        """One that is bridged."""
        ledger = bridged.ledger
        start = Position(bridged.incarnation, ledger.ledger, 0)
        return cls(start, start.at(ledger.last), ledger.uuid, ledger.length, bridged.bucket, is_bridged=True)

    @property
    def object(self) -> DataObject:
        """Where it is stored, under the keys that stock brokers give."""
        ledger = self.start.ledger
        keys = data_key(self.uuid, ledger), index_key(self.uuid, ledger)
        return DataObject(*keys, ledger=ledger, store=self.store, is_bridged=self.is_bridged)


@dataclass(frozen=True, slots=True)
class TopicSnapshot:
    """A topic's catalog, and its ledgers that Pulsar's own offloader has written (V1), in their order.

    `listed`: every ledger that Pulsar lists for their incarnation; None: nothing proves that none is missing between
    two of them. `also_aborted`: transactions whose abort markers lie outside this snapshot. `folder`: where the
    segments' objects lie, with the closing slash; None: in the topic's own.
    """

    topic: TopicName
    catalog: TopicCatalog
    ledgers: tuple[OffloadedLedger, ...] = ()
    listed: LedgerList | None = None
    also_aborted: frozenset[Transaction] = frozenset()
    folder: str | None = None

    @property
    def aborted(self) -> frozenset[Transaction]:
        """Transactions whose entries are no messages."""
        return self.catalog.aborted | self.also_aborted

    @property
    def sized_spans(self) -> list[tuple[Position, Position, int]]:
        """First and last position and size of each segment and ledger; nothing is left to read of deleted segments."""
        told = self.catalog.head.removed.told
        segments = [(s.start, s.end, 0 if told and range_of(told, s.end) else s.size) for s in self.catalog.segments]
        return [*segments, *((ledger.start, ledger.end, ledger.size) for ledger in self.ledgers)]

    @classmethod
    def of(cls, catalog: TopicCatalog) -> TopicSnapshot:
        """Of a topic that only the offloader has archived."""
        return cls(catalog.topic, catalog)
