"""Which brokers' copies of a ledger the archive reads in place of segments that it has handed over."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from offloader.metadata.catalog import Catalogs
from offloader.metadata.deletions import Tombstone
from offloader.metadata.history import History
from offloader.metadata.manifest import ManifestRow
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore


@dataclass(frozen=True)
class ReadCopies:
    """The catalogs of a root, each asked once for all ledgers in question. Calls raise IntegrityError,
    FormatVersionError, and what the store raises."""

    store: ObjectStore

    def of(self, topic: TopicName, ledgers: Collection[int]) -> frozenset[tuple[int, str]]:
        """Of these ledgers those with the uuids of copies that readers are given; none of what Pulsar has let go of."""
        history = Catalogs(self.store, "").history(topic)
        if not history.head.removed.handed_over:
            return frozenset()
        return frozenset(_copies(history, sorted(ledgers)))


def _copies(history: History, ledgers: list[int]) -> Iterator[tuple[int, str]]:
    trimmed, wanted = history.head.removed.trimmed, frozenset(ledgers)

    def has(row: ManifestRow) -> bool:
        if row.start is None or row.end is None:
            return False
        if row.start.incarnation != row.end.incarnation:
            return True
        at = bisect_left(ledgers, row.start.ledger)
        return at < len(ledgers) and ledgers[at] <= row.end.ledger

    for slot in history.slots(lambda row: row.segments > 0 and has(row)):
        for segment in history.with_tombstones(history.catalog(range(slot.number, slot.number + 1))).segments:
            if not isinstance(segment, Tombstone) or not segment.is_handed_over:
                continue
            for copy in segment.copies:
                place = segment.start.incarnation, copy.ledger
                gone = trimmed is not None and (trimmed.incarnation, trimmed.first) > place
                if copy.ledger in wanted and not gone:
                    yield copy.ledger, copy.uuid
