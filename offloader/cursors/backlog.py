"""What a copied subscription has not acknowledged of the archive. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from offloader.cursors.copies import CopiedCursor
from offloader.cursors.core.ledger_acks import LedgerAcks
from offloader.metadata.deletions import range_of
from offloader.metadata.state import TopicCatalog
from offloader.model import LedgerRange, Place, Segment


class ArchiveBacklog(NamedTuple):
    """Archived entries that are not acknowledged as a whole, and their bytes, estimated by their ledger's average."""

    entries: int
    size: int


class Holes(NamedTuple):
    """`ranges`: of acknowledged entries behind the mark-delete position; `entries`: in them. `batches`: partly
    acknowledged ones."""

    ranges: int
    entries: int
    batches: int


def segments_to_read(catalog: TopicCatalog) -> tuple[Segment, ...]:
    """Those that are not deleted, or about to be."""
    gone = catalog.head.removed.told
    return tuple(one for one in catalog.segments if range_of(gone, one.end) is None)


def archive_backlog(cursor: CopiedCursor, segments: Iterable[Segment], incarnation: int) -> ArchiveBacklog:
    """`segments`: `segments_to_read`. Raises DamagedRecordError."""
    acks = cursor.acks()
    entries = size = 0
    for segment in (one for one in segments if one.start.incarnation == incarnation):
        for gap in segment.gaps:  # nobody can be given these
            acks.setdefault(gap.ledger, LedgerAcks()).acknowledge(gap.first, gap.last)
        for one in segment.ledgers:
            left = _left(one, cursor.mark_delete, acks.get(one.ledger))
            entries += left
            size += one.size * left // one.count if one.count else 0
    return ArchiveBacklog(entries, size)


def holes_of(cursor: CopiedCursor) -> Holes:
    """Raises DamagedRecordError."""
    acks = cursor.acks().values()
    runs = [last - first + 1 for one in acks for first, last in one.runs()]
    return Holes(len(runs), sum(runs), sum(len(one.batches) for one in acks))


def _left(one: LedgerRange, mark_delete: Place, acks: LedgerAcks | None) -> int:
    if one.ledger < mark_delete[0]:
        return 0
    first = max(one.first, mark_delete[1] + 1) if one.ledger == mark_delete[0] else one.first
    if first > one.last:
        return 0
    done = 0
    for begin, end in acks.runs() if acks else ():
        done += max(min(end, one.last) - max(begin, first) + 1, 0)
    return one.last - first + 1 - done
