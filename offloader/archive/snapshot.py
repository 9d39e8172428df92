"""What is known of a topic at one moment: a plan is made from this and a selection."""

from __future__ import annotations

from dataclasses import dataclass

from offloader.archive.read_model import OffloadedLedger
from offloader.metadata.state import TopicCatalog
from offloader.model import LedgerList, TopicName, Transaction


@dataclass(frozen=True, slots=True)
class TopicSnapshot:
    """A topic's catalog, and its ledgers that Pulsar's own offloader has written (V1), in their order.

    `listed`: every ledger that Pulsar lists for their incarnation; None: nothing proves that none is missing between
    two of them. `also_aborted`: transactions whose abort markers lie outside this snapshot.
    """

    topic: TopicName
    catalog: TopicCatalog
    ledgers: tuple[OffloadedLedger, ...] = ()
    listed: LedgerList | None = None
    also_aborted: frozenset[Transaction] = frozenset()

    @property
    def aborted(self) -> frozenset[Transaction]:
        """Transactions whose entries are no messages."""
        return self.catalog.aborted | self.also_aborted

    @classmethod
    def of(cls, catalog: TopicCatalog) -> TopicSnapshot:
        """Of a topic that only the offloader has archived."""
        return cls(catalog.topic, catalog)
