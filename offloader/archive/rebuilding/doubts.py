"""What stays unproven in a catalog that was made again, and what somebody says of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from offloader.archive.continuity import BreakKind, breaks
from offloader.archive.rebuilding.choose import Draft
from offloader.archive.rebuilding.found import Evidence, Given, Note, NoteKind
from offloader.errors import FatalError, IntegrityError
from offloader.metadata.layout import catalog_folder
from offloader.metadata.state import LedgerClosed, Record, TopicCatalog
from offloader.model import Loss, Position, Segment, TopicName

VOUCHED = "catalog rebuild --ended"


def vouched(evidence: Evidence, drafts: Sequence[Draft], given: Given) -> tuple[LedgerClosed, ...]:
    """The records of what is said now, and not recorded yet. Raises FatalError where nothing that is archived ends there."""
    ends = {(span.end.ledger, span.end.entry): span.end for span in drafts}
    ends |= {(r.end.ledger, r.end.entry): r.end for r in evidence.records.values() if isinstance(r, Segment | Loss)}
    found = []
    for place in dict.fromkeys(given.ended):
        end = ends.get(place)
        if end is None:
            raise FatalError(
                f"{evidence.topic}: no segment ends with {place[0]}:{place[1]}; the notes name the ends that are in doubt"
            )
        found.append(LedgerClosed(end.incarnation, end.ledger, end.entry, VOUCHED))
    return tuple(closed for closed in found if closed not in evidence.records.values())


def doubts(topic: TopicName, records: Sequence[Record]) -> Iterator[Note]:
    """A note of each place where readers report or refuse what they read."""
    try:
        catalog = TopicCatalog(topic).apply(*records)
    except IntegrityError:  # `Proposal.catalog` says so
        return
    for found in breaks(catalog):
        end: Position | None = None if found.before is None else found.before.end
        remedy = f"; --ended {end} where you know that it did" if found.kind is BreakKind.UNPROVEN and end is not None else ""
        yield Note(NoteKind.UNKNOWN, catalog_folder(topic), f"{found.message}{remedy}", found.after.start)
