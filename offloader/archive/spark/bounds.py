"""From what is asked for, in ledger and entry ids and publish times, to a selection of one topic. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from offloader.archive.reading.once import spans_once
from offloader.archive.spark.filters import Bounds, Narrowing
from offloader.archive.stored import Selection
from offloader.archive.view import TopicView
from offloader.model import Position


@dataclass(frozen=True, slots=True)
class Extent:
    """What one segment, loss or ledger accounts for."""

    start: Position
    end: Position


def extents(view: TopicView) -> list[Extent]:
    """Everything that is known of the topic, in order."""
    return sorted((Extent(span.start, span.end) for span in spans_once(view)), key=lambda each: each.start)


def selection(known: Sequence[Extent], wanted: Selection, narrowing: Narrowing) -> Selection | None:
    """The narrowest selection that has everything that is wanted and may match; None where that is nothing."""
    if narrowing.empty:
        return None
    matching = list(_clipped(known, narrowing))
    if not matching:
        return None
    published = Bounds(wanted.published_from, wanted.published_to).narrowed(narrowing.published)
    starts = [p for p in (wanted.start, min(each.start for each in matching)) if p is not None]
    ends = [p for p in (wanted.end, max(each.end for each in matching)) if p is not None]
    found = Selection(max(starts), min(ends), published.least, published.greatest)
    return None if published.empty or max(starts) > min(ends) else found


def _clipped(known: Sequence[Extent], narrowing: Narrowing) -> Iterator[Extent]:
    """What the filters on ledger and entry leave of each extent."""
    ledger = narrowing.ledger
    entry = narrowing.entry if ledger.least is not None and ledger.least == ledger.greatest else Bounds()
    for each in known:
        incarnation = each.start.incarnation
        start, end = each.start, each.end
        if ledger.least is not None:
            start = max(start, Position(incarnation, ledger.least, entry.least or 0))
        if ledger.greatest is not None:
            greatest = 2**63 if entry.greatest is None else entry.greatest
            end = min(end, Position(incarnation, ledger.greatest, greatest))
        if start <= end:
            yield Extent(start, end)
