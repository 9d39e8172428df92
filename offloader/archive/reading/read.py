"""Reading a topic back: every position from start to end is an entry, or is told of as missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import dropwhile

from offloader.archive.continuity import Break, BreakKind, Span, break_between, spans
from offloader.archive.items import ArchivedEntry, Item, Missing
from offloader.archive.reading.objects import READ_SIZE, Stored, naming, read_index, stored_entries
from offloader.archive.runs import Run, clipped, runs
from offloader.errors import DamagedObjectError, DamagedRecordError
from offloader.format.entry import crc_ok
from offloader.metadata.layout import data_key
from offloader.metadata.state import TopicCatalog
from offloader.model import Loss, Position, Segment, TopicName
from offloader.storage.base import ObjectStore


def entries(
    store: ObjectStore,
    catalog: TopicCatalog,
    start: Position | None = None,
    end: Position | None = None,
    *,
    missing: Callable[[Missing], None] = lambda _: None,
    read_size: int = READ_SIZE,
) -> Iterator[ArchivedEntry]:
    """The archived entries between two positions, both included, in order; `missing` hears of recorded gaps and losses.

    Raises DamagedObjectError naming object, offset and position; DamagedRecordError where the catalog has a hole or says
    something twice; ObjectNotFoundError.
    """
    for item in items(store, catalog, start, end, read_size=read_size):
        if isinstance(item, Missing):
            missing(item)
        else:
            yield item


def items(
    store: ObjectStore,
    catalog: TopicCatalog,
    start: Position | None = None,
    end: Position | None = None,
    *,
    read_size: int = READ_SIZE,
) -> Iterator[Item]:
    """Like `entries`, with what is missing in its place."""
    before: Span | None = None
    for span in spans(catalog):
        if (start is not None and span.end < start) or (end is not None and span.start > end):
            continue
        if before is not None:
            yield from _between(catalog, before, span)
        first = span.start if start is None else max(start, span.start)
        last = span.end if end is None else min(end, span.end)
        if isinstance(span, Loss):
            yield Missing(first, last, f"lost: {span.reason} (accepted by {span.accepted_by})")
        else:
            yield from segment_items(store, catalog.topic, span, first, last, read_size=read_size)
        before = span


def segment_items(
    store: ObjectStore, topic: TopicName, segment: Segment, first: Position, last: Position, *, read_size: int = READ_SIZE
) -> Iterator[Item]:
    """One segment's positions `first`..`last`, which lie within it."""
    wanted = list(clipped(runs(segment), first, last))
    kept = [run for run in wanted if run.gap is None]
    key = data_key(topic, segment.uuid)
    incarnation = segment.start.incarnation
    found = _stored(store, topic, segment, kept, read_size)
    for run in wanted:
        if run.gap is not None:
            begin, end = (Position(incarnation, run.ledger, entry) for entry in (run.first, run.last))
            yield Missing(begin, end, f"a gap: {run.gap}", run.gap)
            continue
        with naming(key):
            yield from _entries_of_run(found, run, incarnation)
    if last >= segment.end:
        with naming(key):
            _nothing_left(found)


def _stored(store: ObjectStore, topic: TopicName, segment: Segment, kept: list[Run], read_size: int) -> Iterator[Stored]:
    """What the object holds from the first to the last of the runs."""
    if not kept:
        return
    first, last = (kept[0].ledger, kept[0].first), (kept[-1].ledger, kept[-1].last)
    index = read_index(store, topic, segment.uuid)
    if index.data_length != segment.size:
        raise DamagedObjectError(f"the index is of an object of {index.data_length} bytes, the catalog's has {segment.size}")
    found = stored_entries(store, data_key(topic, segment.uuid), index, first, last, read_size)
    yield from dropwhile(lambda stored: (stored.ledger, stored.entry) < first, found)


def _entries_of_run(found: Iterator[Stored], run: Run, incarnation: int) -> Iterator[ArchivedEntry]:
    ledger = run.ledger
    for entry in range(run.first, run.last + 1):
        stored = next(found, None)
        if stored is None:
            raise DamagedObjectError(f"{ledger}:{entry} is missing: what is there ends before it")
        if stored.entry != entry or stored.ledger != ledger:
            raise DamagedObjectError(f"offset {stored.offset}: {_name(stored)} stands where {ledger}:{entry} belongs")
        if not crc_ok(stored.data):
            raise DamagedObjectError(f"offset {stored.offset}: the checksum of {_name(stored)} does not match its bytes")
        yield ArchivedEntry(Position(incarnation, ledger, entry), stored.data)


def _nothing_left(found: Iterator[Stored]) -> None:
    stored = next(found, None)
    if stored is not None:
        raise DamagedObjectError(f"offset {stored.offset}: {_name(stored)} is in the object, but not in the segment's record")


def _name(stored: Stored) -> str:
    return f"{stored.ledger}:{stored.entry}"


def _between(catalog: TopicCatalog, before: Span, after: Span) -> Iterator[Missing]:
    found: Break | None = break_between(catalog, before, after)
    if found is None:
        return
    if found.kind is not BreakKind.UNPROVEN:
        raise DamagedRecordError(f"{catalog.topic}: {found.kind}: {found.message}")
    yield Missing(before.end, after.start, f"unproven: {found.message}")
