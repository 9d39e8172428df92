"""Makes an `ObjectRange` of a segment or a ledger: the entries that are selected of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from offloader.archive.continuity import LedgerPart
from offloader.archive.object_range import DataObject, ObjectRange, Run, SplitPoint, clipped, runs
from offloader.archive.selection import Selection
from offloader.archive.snapshot import OffloadedLedger, TopicSnapshot
from offloader.errors import DamagedRecordError
from offloader.format.blocks import ENTRY_HEADER_SIZE
from offloader.metadata.layout import INDEX, topic_folder
from offloader.model import MIB, EntryRange, Part, Position, Segment, TopicName

# Bytes of an offloaded ledger from one split point to the next.
LEDGER_STEP = 8 * MIB


def of_ledger(topic: TopicName, part: LedgerPart, first: Position, last: Position) -> Iterator[ObjectRange]:
    """The entries between two positions, with a split point about every `LEDGER_STEP` bytes (lengths are estimates)."""
    ledger = part.ledger
    for run in clipped([Run.closed(ledger.start.ledger, part.start.entry, part.end.entry)], first, last):
        per_entry = ENTRY_HEADER_SIZE + ledger.size / ledger.end.next_entry.entry
        step = max(1, int(LEDGER_STEP / per_entry))
        steps = (EntryRange(run.ledger, begin, min(begin + step, run.after)) for begin in run.ids[::step])
        points = tuple(SplitPoint(run.ledger, each.last, int(each.span * per_entry) + 1) for each in steps)
        ends = run.last == ledger.end.entry
        yield ObjectRange(topic, ledger.start.incarnation, ledger.object, (run,), points, ends_object=ends)


def of_segment(
    snapshot: TopicSnapshot, segment: Segment, first: Position, last: Position, selection: Selection
) -> Iterator[ObjectRange]:
    """Entries and gaps between two positions, without parts of other times. Raises DamagedRecordError."""
    alone = not selection.is_timed and selection.start is not None and selection.start == selection.end
    kept: list[Run] = []
    parts: list[_WantedPart] = []
    for part, run in by_parts(segment, clipped(runs(segment), first, last)):
        if part is None:
            kept.append(run)
        elif part.stats.publish_bounds is None or selection.meets(*part.stats.publish_bounds):
            append(kept, run)
            if not parts or parts[-1].part is not part:
                parts.append(_WantedPart(part))
            parts[-1].add(run)
    if kept:
        stored = _object_of(snapshot, segment)
        ends = bool(parts) and parts[-1].last == segment.parts[-1].last
        yield ObjectRange(
            snapshot.topic,
            segment.start.incarnation,
            stored,
            tuple(kept),
            tuple(each.split_point(alone=alone) for each in parts),
            ends_object=ends,
        )


def _object_of(snapshot: TopicSnapshot, segment: Segment) -> DataObject:
    if segment.brokers is not None:
        return OffloadedLedger.referenced(segment, segment.brokers).object
    data_key = (topic_folder(snapshot.topic) if snapshot.folder is None else snapshot.folder) + segment.uuid
    return DataObject(data_key, data_key + INDEX, segment.size)


def append(kept: list[Run], run: Run) -> None:
    """Add a run, which may go on where the last one ended: parts need not end with a run."""
    if kept and kept[-1].gap is None and (kept[-1].ledger, kept[-1].after) == (run.ledger, run.first):
        run = replace(run, first=kept.pop().first)
    kept.append(run)


def by_parts(segment: Segment, found: Iterable[Run]) -> Iterator[tuple[Part | None, Run]]:
    """The runs, split where a part ends, with their parts (None for gaps). Raises DamagedRecordError."""
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
class _WantedPart:
    """How much of a part is wanted."""

    part: Part
    entries: int = 0
    last: tuple[int, int] = (-1, -1)

    def add(self, run: Run) -> None:
        self.entries += run.span
        self.last = (run.ledger, run.last)

    def split_point(self, *, alone: bool) -> SplitPoint:
        """A part is read whole, so that its checksum proves it. An entry that is wanted alone has its own checksum."""
        part = self.part
        if alone and part.entries > 1 and not part.stats.unreadable:
            return SplitPoint(*self.last, size=part.size // part.entries)
        return SplitPoint(*self.last, part.size, part.offset, part.crc32c)
