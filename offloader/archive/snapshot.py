"""What is known of a topic: what plans are made from."""

from __future__ import annotations

from dataclasses import dataclass

from offloader.archive.read_model import OffloadedLedger
from offloader.metadata.state import TopicCatalog
from offloader.model import LedgerList, TopicName, Transaction


@dataclass(frozen=True, slots=True)
class TopicSnapshot:
    """A topic's catalog, and its ledgers that stock brokers have offloaded (V1), in their order.

    `listed`: every ledger that Pulsar has of the incarnation that they are of; None: nothing proves that between two of
    them none is missing. `also_aborted`: transactions whose abort markers are in what is not in this snapshot.
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
