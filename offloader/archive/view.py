"""What is known of a topic: what plans are made from."""

from __future__ import annotations

from dataclasses import dataclass

from offloader.archive.stored import OffloadedLedger
from offloader.metadata.state import TopicCatalog
from offloader.model import LedgerList, TopicName


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic's catalog, and its ledgers that stock brokers have offloaded (V1), in their order.

    `listed`: every ledger that Pulsar has of the incarnation that they are of; None: nothing proves that between two of them none is
    missing.
    """

    topic: TopicName
    catalog: TopicCatalog
    ledgers: tuple[OffloadedLedger, ...] = ()
    listed: LedgerList | None = None

    @classmethod
    def of(cls, catalog: TopicCatalog) -> TopicView:
        """Of a topic that only the offloader has archived."""
        return cls(catalog.topic, catalog)
