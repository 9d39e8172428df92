"""What readers see of a topic that a stock broker has offloaded from, too."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from offloader.archive.ledgers.joined import joined
from offloader.archive.view import TopicSnapshot
from offloader.metadata.state import TopicCatalog

if TYPE_CHECKING:
    from offloader.archive.ledgers.bucket import BucketScan
    from offloader.archive.ledgers.ledger_bucket import LedgerBucket  # an HTTP client comes with it

log = logging.getLogger(__name__)


def with_ledgers(catalog: TopicCatalog, bucket: LedgerBucket, scanned: BucketScan | None = None) -> TopicSnapshot:
    """A topic's catalog with what the bucket has of its ledgers; copies that contradict each other are logged. Raises as `LedgerBucket.find`."""
    found = bucket.find(catalog.topic, scanned)
    for one in found.contradictions:
        log.warning(
            "%s: the bucket has two complete copies of ledger %d with different entries: %s is taken, %s is left out",
            catalog.topic,
            one.ledger,
            one.taken,
            one.other,
            extra={"see": "two-copies"},
        )
    return joined(catalog, found)
