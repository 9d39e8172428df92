"""Topics in memory, cut into segments as workers cut them, and what assembles and reads their bridged objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from random import Random

import crc32c
from hypothesis import strategies as st

from offloader.bridge.core.assembly import SourceObject
from offloader.bridge.core.coverage import LedgerCoverage, UncommittedLedger, cover
from offloader.bridge.core.pieces import ObjectPlan, PlannedPiece
from offloader.bridge.core.rounds import UnbridgedLedger
from offloader.format.index import decode_index, index_of_segment
from offloader.format.v1_parts import examine
from offloader.model import (
    V1,
    EntryRange,
    Gap,
    GapKind,
    LedgerRange,
    Position,
    RollReason,
    Segment,
    SegmentLayout,
    Source,
    merge_ranges,
)
from offloader.ports.entry_source import RawEntry
from tests.format.stock import write_blocks
from tests.format.support import Stored, cut_all, small_cuts

KINDS = (GapKind.ABORTED, GapKind.MARKER, GapKind.FILTERED)


@dataclass(frozen=True)
class ArchivedTopic:
    """`entries`: all that Pulsar has, by ledger. `objects`: data objects by key, of `segments`."""

    entries: Mapping[int, list[bytes]]
    segments: tuple[Segment, ...]
    objects: Mapping[str, bytes]
    sources: Mapping[str, SourceObject]

    def covered(self, ledger: int) -> LedgerCoverage | UnbridgedLedger | UncommittedLedger:
        return cover(self.segments, (), None, ledger, len(self.entries[ledger]) - 1)

    def whole(self, ledger: int) -> LedgerCoverage:
        covered = self.covered(ledger)
        assert isinstance(covered, LedgerCoverage), covered
        return covered

    def filled(self, missing: Iterable[EntryRange]) -> tuple[RawEntry, ...]:
        """What bookies give."""
        return tuple(RawEntry(m.ledger, e, self.entries[m.ledger][e]) for m in missing for e in m.ids)

    def bytes_of(self, piece: PlannedPiece) -> bytes:
        if isinstance(piece.source, bytes):
            return piece.source
        return self.objects[piece.source.key][piece.source.offset :][: piece.source.size]

    def uploaded(self, plan: ObjectPlan) -> bytes:
        """The object, as the parts say."""
        return b"".join(self.bytes_of(piece) for part in plan.parts for piece in part.pieces)


def archived(
    ledgers: Mapping[int, list[bytes]],
    ends: Iterable[tuple[int, int]],
    gaps: Iterable[tuple[int, int]] = (),
    *,
    begin: tuple[int, int] | None = None,
    cuts: SegmentLayout | None = None,
) -> ArchivedTopic:
    """A topic whose segments end with these (ledger, entry), the last one also with the topic; `gaps` are in none."""
    places = [(ledger, entry) for ledger, held in sorted(ledgers.items()) for entry in range(len(held))]
    places = places[0 if begin is None else places.index(begin) :]
    missing = set(gaps)
    segments, objects, sources = [], {}, {}
    for number, mine in enumerate(_split(places, set(ends))):
        held = [
            Stored(ledger, entry, ledgers[ledger][entry]) for ledger, entry in mine if (ledger, entry) not in missing
        ]
        segment, data, index = _segment(f"uuid-{number}", mine, held, cuts or SegmentLayout())
        segments.append(segment)
        if held:
            objects[f"key-{number}"] = data
            sources[segment.uuid] = SourceObject(f"key-{number}", decode_index(index))
    return ArchivedTopic(ledgers, tuple(segments), objects, sources)


def copied_from_brokers(ledger: int, entries: list[bytes], block_size: int, cuts: SegmentLayout) -> ArchivedTopic:
    """A ledger whose one segment is a copy of what brokers have offloaded, and is cut by nobody."""
    data = b"".join(write_blocks(entries, block_size))
    found = examine([data], len(data), ledger, cuts)
    held = (LedgerRange(ledger, 0, len(entries), count=len(entries), size=sum(map(len, entries))),)
    segment = Segment(
        "uuid",
        Position(0, ledger, 0),
        Position(0, ledger, len(entries) - 1),
        1,
        2,
        len(data),
        crc32c.crc32c(data),
        replace(cuts, version=V1),
        Source.OFFLOADED,
        RollReason.SIZE,
        held,
        found.parts,
    )
    source = SourceObject("key", decode_index(index_of_segment(found.index, held, len(data), 1)))
    return ArchivedTopic({ledger: entries}, (segment,), {"key": data}, {"uuid": source})


def _split(places: list[tuple[int, int]], ends: set[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    found: list[list[tuple[int, int]]] = [[]]
    for place in places:
        found[-1].append(place)
        if place in ends:
            found.append([])
    return [each for each in found if each]


def _segment(
    uuid: str, places: list[tuple[int, int]], held: list[Stored], cuts: SegmentLayout
) -> tuple[Segment, bytes, bytes]:
    cut = cut_all(held, cuts) if held else []
    data = b"".join(part.data() for part in cut)
    ledgers = merge_ranges(r for part in cut for r in part.ledgers)
    index = index_of_segment([e for part in cut for e in part.index], ledgers, len(data), 1) if cut else b""
    there = {(s.ledger, s.entry) for s in held}
    gaps = _gaps([place for place in places if place not in there])
    segment = Segment(
        uuid,
        Position(0, *places[0]),
        Position(0, *places[-1]),
        1,
        2,
        len(data),
        crc32c.crc32c(data),
        cuts,
        Source.BROKER,
        RollReason.AGE,
        ledgers,
        tuple(part.to_part("etag", crc32c.crc32c(part.data())) for part in cut),
        gaps,
    )
    return segment, data, index


def _gaps(places: list[tuple[int, int]]) -> tuple[Gap, ...]:
    """Side by side only where their kinds differ, as they are recorded."""
    found: list[Gap] = []
    for ledger, entry in places:
        kind = KINDS[entry // 3 % 3]
        if found and (found[-1].ledger, found[-1].after, found[-1].kind) == (ledger, entry, kind):
            found[-1] = Gap(ledger, found[-1].first, entry + 1, kind=kind)
        else:
            found.append(Gap(ledger, entry, entry + 1, kind=kind))
    return tuple(found)


@st.composite
def topics(draw: st.DrawFn) -> ArchivedTopic:
    """Several ledgers, entries of nothing to several blocks, segments that begin and end anywhere, gaps of any length,
    parts of any size; the archive may begin inside the first ledger."""
    random = Random(draw(st.integers(0, 2**32)))
    largest = draw(st.sampled_from([10, 60, 500, 4000]))
    ledger, ledgers = draw(st.sampled_from([0, 7, 2**53 + 1])), {}
    for count in draw(st.lists(st.sampled_from([1, 2, 5, 20, 140]), min_size=1, max_size=4)):
        ledgers[ledger] = [
            random.randbytes(random.choice((0, largest, random.randint(0, largest)))) for _ in range(count)
        ]
        ledger += random.randint(1, 3)
    places = [(ledger, entry) for ledger, held in ledgers.items() for entry in range(len(held))]
    share = draw(st.sampled_from([0, 0, 0.1, 0.5, 1]))
    gaps = {place for place in places if random.random() < share}
    if draw(st.booleans()) and places:
        first = random.randrange(len(places))
        gaps |= set(places[first : first + random.randint(1, 40)])
    ends = [place for place in places if random.random() < draw(st.sampled_from([0, 0.05, 0.3]))]
    first_ledger = next(iter(ledgers))
    begin = (first_ledger, random.randrange(len(ledgers[first_ledger]))) if draw(st.booleans()) else None
    return archived(ledgers, ends, gaps, begin=begin, cuts=draw(small_cuts()))
