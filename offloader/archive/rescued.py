"""What was rescued of one ledger, in the form in which topics are read."""

from __future__ import annotations

from offloader.archive.snapshot import TopicSnapshot
from offloader.errors import FatalError
from offloader.metadata.rescue_log import Rescues
from offloader.metadata.rescues import RescuedLedger
from offloader.metadata.root import read_root
from offloader.metadata.state import CatalogHead, TopicCatalog
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore


def rescued_ledger(store: ObjectStore, ledger: int) -> TopicSnapshot:
    """Its segments, and what no bookie gave as losses. Raises FatalError where there is nothing, ConfigError where
    there is no archive, DamagedRecordError."""
    rescues = Rescues(store, read_root(store).cluster)
    newest = rescues.newest(ledger)
    if newest.rescued is None:
        raise FatalError(f"nothing was rescued of ledger {ledger}; `offloader orphans rescued` lists what was")
    catalog = TopicCatalog(
        CatalogHead(rescued_topic(newest.rescued)), segments=newest.rescued.segments, losses=newest.rescued.losses
    )
    return TopicSnapshot(catalog.topic, catalog, folder=rescues.folder(ledger, newest.slot))


def rescued_topic(record: RescuedLedger) -> TopicName:
    """Whose it was, by its own word; a made-up name where that is no topic."""
    return owner_of_rescued(record) or TopicName("rescued", "ledger", str(record.ledger))


def owner_of_rescued(record: RescuedLedger) -> TopicName | None:
    """Whose it was; None: of no topic."""
    from offloader.bookkeeper.managed_ledgers import topic_of  # pyarrow takes long to import

    try:
        return topic_of(record.managed_ledger)
    except ValueError:
        return None
