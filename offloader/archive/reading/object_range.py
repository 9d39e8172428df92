"""What is wanted of one object. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from offloader.archive.continuity import LedgerPart
from offloader.archive.read_model import DataObject, ObjectRange, Selection, SplitPoint
from offloader.archive.runs import Run, clipped, runs
from offloader.errors import DamagedRecordError
from offloader.format.blocks import ENTRY_HEADER_SIZE
from offloader.metadata.layout import data_key, index_key
from offloader.model import MIB, EntryRange, EntryStats, Part, Position, Segment, TopicName

# How many bytes of an offloaded ledger stand between two places where it may be cut.
LEDGER_CUT = 8 * MIB


def may_hold(stats: EntryStats, selection: Selection) -> bool:
    """Whether entries may be wanted for their publish time. Where no entry says one, that cannot be excluded."""
    known = stats.publish_bounds
    if known is None:
        return True
    early, late = selection.published_from, selection.published_to
    too_early = early is not None and known[1] < early
    too_late = late is not None and known[0] > late
    return not (too_early or too_late)


def of_ledger(topic: TopicName, part: LedgerPart, first: Position, last: Position) -> Iterator[ObjectRange]:
    """The entries between two positions."""
    ledger = part.ledger
    found = tuple(clipped([Run.closed(ledger.start.ledger, part.start.entry, part.end.entry)], first, last))
    if not found:
        return
    per_entry = ENTRY_HEADER_SIZE + ledger.size / ledger.end.next_entry.entry
    cuts = tuple(_cuts_of_ledger(found[0], per_entry))
    yield ObjectRange(
        topic, ledger.start.incarnation, ledger.object, found, cuts, ends_object=found[0].last == ledger.end.entry
    )


def _cuts_of_ledger(run: Run, per_entry: float) -> Iterator[SplitPoint]:
    """Equally far apart, since nothing is known of the entries' lengths."""
    step = max(1, int(LEDGER_CUT / per_entry))
    for first in run.ids[::step]:
        some = EntryRange(run.ledger, first, min(first + step, run.after))
        yield SplitPoint(run.ledger, some.last, int(some.span * per_entry) + 1)


def of_segment(
    topic: TopicName, segment: Segment, first: Position, last: Position, selection: Selection
) -> Iterator[ObjectRange]:
    """Entries and gaps between two positions, without the parts that hold nothing of the times. Raises
    DamagedRecordError."""
    alone = not selection.is_timed and selection.start is not None and selection.start == selection.end
    kept: list[Run] = []
    cuts: list[_PartCut] = []
    for part, run in _by_parts(segment, clipped(runs(segment), first, last)):
        if part is None:
            kept.append(run)
        elif may_hold(part.stats, selection):
            _append(kept, run)
            if not cuts or cuts[-1].part is not part:
                cuts.append(_PartCut(part))
            cuts[-1].add(run)
    if kept:
        stored = DataObject(data_key(topic, segment.uuid), index_key(topic, segment.uuid), segment.size)
        ends = bool(cuts) and cuts[-1].last == segment.parts[-1].last
        yield ObjectRange(
            topic,
            segment.start.incarnation,
            stored,
            tuple(kept),
            tuple(c.cut(alone=alone) for c in cuts),
            ends_object=ends,
        )


def _append(kept: list[Run], run: Run) -> None:
    """Add a run, which may go on where the last one ended: parts need not end with a run."""
    if kept and kept[-1].gap is None and (kept[-1].ledger, kept[-1].after) == (run.ledger, run.first):
        run = replace(run, first=kept.pop().first)
    kept.append(run)


def _by_parts(segment: Segment, found: Iterable[Run]) -> Iterator[tuple[Part | None, Run]]:
    """The runs, cut where a part ends, with their parts (None for gaps). Raises DamagedRecordError."""
    parts = iter(segment.parts)
    part = next(parts, None)
    for run in found:
        if run.gap is not None:
            yield None, run
            continue
        at = run.first
        while at < run.after:
            while part is not None and part.last < (run.ledger, at):
                part = next(parts, None)
            if part is None or part.first > (run.ledger, at):
                raise DamagedRecordError(f"segment {segment.uuid}: {run.ledger}:{at} is in none of its parts")
            inside = Run.closed(run.ledger, at, min(part.last, (run.ledger, run.last))[1])
            yield part, inside
            at = inside.after


@dataclass(slots=True)
class _PartCut:
    """How much of a part is wanted."""

    part: Part
    entries: int = 0
    last: tuple[int, int] = (-1, -1)

    def add(self, run: Run) -> None:
        self.entries += run.span
        self.last = (run.ledger, run.last)

    def cut(self, *, alone: bool) -> SplitPoint:
        """Read whole, for only then its checksum proves what is in it; but for one entry that is wanted alone, and
        whose own does."""
        part = self.part
        if alone and part.entries > 1 and not part.stats.unreadable:
            return SplitPoint(*self.last, size=part.size // part.entries)
        return SplitPoint(*self.last, part.size, part.offset, part.crc32c)
