"""Records and entries as rows of tables, and what is said of an entry, bounded. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from offloader.archive.items import ArchivedEntry, Item, Missing
from offloader.archive.messages.filters import time_said
from offloader.format.entry import EntryFacts, inspect
from offloader.metadata.deletions import (
    Deleted,
    Deleting,
    DeletionBegun,
    DeletionUndone,
    PulsarTrimmed,
    Tombstone,
    TopicGone,
)
from offloader.metadata.state import CatalogHead, Claim, GenerationBegun, GenerationEnded, LedgerClosed, Record
from offloader.model import Loss, Position, Segment
from offloader.viewer.timeline import Piece, kind_of

TAGS = {"good": ("good", "segment"), "gone": ("", "deleted"), "bad": ("bad", "loss")}
MOST_VALUES = 5_000
MOST_OF_A_LIST = 200


@dataclass(frozen=True, slots=True)
class RecordRow:
    """A record of a catalog. `tag`: its colour and kind; `told`: what a table has no column for."""

    slot: int
    tag: tuple[str, str]
    told: str
    start: Position | None = None
    end: Position | None = None
    entries: int | None = None
    size: int | None = None
    gaps: int = 0
    early: int | None = None
    late: int | None = None


@dataclass(frozen=True, slots=True)
class EntryRow:
    """An entry, or positions of which there is none (`why`)."""

    start: Position
    end: Position
    size: int = 0
    messages: int = 0
    published: int | None = None
    sound: bool = True
    why: str = ""
    lost: bool = False


def record_row(piece: Piece, head: CatalogHead) -> RecordRow:
    """Of a piece that is one record which was read."""
    record, row = piece.record, piece.row
    assert record is not None
    if row.start is None:
        return RecordRow(piece.first, ("", _words(type(record).__name__)), _told(record))
    tag = TAGS[kind_of(piece, head.removed.told)]
    gaps = len(record.gaps) if isinstance(record, Segment) else 0
    return RecordRow(
        piece.first,
        tag,
        _told(record),
        row.start,
        row.end,
        row.entries if row.segments else None,
        row.size if row.segments else None,
        gaps,
        row.early,
        row.late,
    )


def _words(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", " ", name).lower()


def _told(record: Record) -> str:
    match record:
        case Tombstone():
            return f"deleted by {record.policy}"
        case Segment():
            return f"closed by {record.roll_reason}"
        case Loss():
            return f"{record.reason}, accepted by {record.accepted_by}"
        case Claim():
            return f"by {record.application}" if record.application else f"released: {record.reason}"
        case LedgerClosed():
            return f"ledger {record.ledger} was closed with entry {record.last}"
        case Deleting() | Deleted():
            return f"deletion {record.number}: {record.policy}, by {record.by}"
        case DeletionUndone() | DeletionBegun():
            return f"deletion {record.number}, by {record.by}"
        case TopicGone():
            return f"Pulsar has no such topic any more (incarnation {record.incarnation})"
        case PulsarTrimmed():
            return f"Pulsar has deleted every ledger below {record.first}"
        case GenerationBegun() | GenerationEnded():
            return "the catalog was made anew"


def entry_row(item: Item) -> EntryRow:
    """An entry as its frame says, or what is missing."""
    if isinstance(item, Missing):
        return EntryRow(item.start, item.end, why=item.why, lost=item.kind is None and not item.deleted)
    facts: EntryFacts = inspect(item.data)
    sound = not facts.unreadable
    return EntryRow(item.position, item.position, len(item.data), facts.messages, time_said(facts), sound)


def start_of(item: Item) -> Position:
    """Where it begins."""
    return item.position if isinstance(item, ArchivedEntry) else item.start


def state_of(head: CatalogHead) -> list[tuple[str, str]]:
    """How a topic stands, by its catalog alone: colours and words."""
    claim, removed = head.claim, head.removed
    found = []
    if claim is not None and claim.application:
        found.append(("good", f"claimed by {claim.application}"))
    else:
        found.append(("", "claimed by nobody"))
    if removed.gone is not None:
        found.append(("warn", "gone in Pulsar"))
    if removed.pending is not None:
        found.append(("warn", "being deleted" if removed.begun else "to be deleted"))
    if removed.ranges:
        found.append(("", "partly deleted"))
    return found


@dataclass(frozen=True, slots=True)
class FewFacts:
    """The first of them. `cut`: there are more."""

    facts: object
    cut: bool


def few_of(facts: Mapping[str, object], most: int = MOST_VALUES) -> FewFacts:
    """At most so many values of them, and of a list at most `MOST_OF_A_LIST`."""
    left, cut = most, False

    def copied(value: object) -> object:
        nonlocal left, cut
        left -= 1
        if isinstance(value, Mapping):
            shown = dict(islice(value.items(), max(left, 0)))
            cut = cut or len(shown) < len(value)
            return {name: copied(each) for name, each in shown.items()}
        if isinstance(value, list):
            shown_of_list = value[: max(min(left, MOST_OF_A_LIST), 0)]
            cut = cut or len(shown_of_list) < len(value)
            return [copied(each) for each in shown_of_list]
        return value

    return FewFacts(copied(facts), cut)
