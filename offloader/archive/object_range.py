"""What a plan is made of: ranges of objects that are to be read, and what is missing. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from offloader.archive.items import Missing
from offloader.errors import DamagedRecordError
from offloader.model import EntryRange, Gap, GapKind, LedgerRange, Position, Segment, TopicName


@dataclass(frozen=True, slots=True)
class Run(EntryRange):
    """Consecutive entries of one ledger: all in the object, or all in one gap."""

    gap: GapKind | None = None


class SplitPoint(NamedTuple):
    """The last entry of a portion of a range: reading may be split after it.

    With `crc32c`, the portion is a whole part of the object: `begin` is its offset, `size` its exact size in bytes,
    `crc32c` its checksum. Without, `size` estimates the portion's bytes and `begin` means nothing.
    """

    ledger: int
    entry: int
    size: int
    begin: int = 0
    crc32c: int | None = None

    @property
    def behind(self) -> tuple[int, int]:
        """The place (ledger, entry) right after it."""
        return self.ledger, self.entry + 1


@dataclass(frozen=True, slots=True)
class DataObject:
    """A data object and its index object: those of a segment, or of a ledger in Pulsar's own format (V1).

    `ledger`: the V1 ledger's id, which its index does not say; None: a segment. `size`: the data object's bytes as its
    record says; None: only the index says it. `store`: the bucket's URL; "" is the archive's own root. `is_bridged`: it
    is made of our blocks, and brokers, who own it, may delete it at any time.
    """

    data_key: str
    index_key: str
    size: int | None = None
    ledger: int | None = None
    store: str = ""
    is_bridged: bool = False


@dataclass(frozen=True, slots=True)
class ObjectRange:
    """What one object is to give: runs of entries, and gaps, in topic order. The unit of a plan.

    It names entries, and of bytes only whole parts: the index object says where an entry is, and the reader asks it.
    Positions between its runs cannot match the selection. The last of its `split_points` is at its last entry; a range
    of gaps has none, and nothing is read for it. `ends_object`: after the last entry the object must end.
    """

    topic: TopicName
    incarnation: int
    object: DataObject
    runs: tuple[Run, ...]
    split_points: tuple[SplitPoint, ...] = ()
    ends_object: bool = False

    @property
    def size(self) -> int:
        """An estimate of the bytes to be read."""
        return sum(point.size for point in self.split_points)

    @property
    def start(self) -> Position:
        return self.start_of(self.runs[0])

    @property
    def end(self) -> Position:
        return self.end_of(self.runs[-1])

    def start_of(self, run: EntryRange) -> Position:
        """The first position of some of its entries."""
        return Position(self.incarnation, run.ledger, run.first)

    def end_of(self, run: EntryRange) -> Position:
        """The last position of some of its entries."""
        return Position(self.incarnation, run.ledger, run.last)


PlanItem = ObjectRange | Missing


def object_of(items: Iterable[PlanItem], position: Position) -> str:
    """The key of the data object that a position is read from; "" where it is in none of these."""
    found = holding(items, position)
    return "" if found is None else found.data_key


def holding(items: Iterable[PlanItem], position: Position) -> DataObject | None:
    """The object that a position is read from; None: it is in none of these."""
    ranges = (item for item in items if isinstance(item, ObjectRange) and item.start <= position <= item.end)
    return next((item.object for item in ranges), None)


def size_of(items: Iterable[PlanItem]) -> int:
    """The bytes to be read, about."""
    return sum(item.size for item in items if isinstance(item, ObjectRange))


def runs(segment: Segment) -> list[Run]:
    """The segment from start to end. Raises DamagedRecordError where gaps overlap or lie outside its ledgers."""
    by_ledger: dict[int, list[Gap]] = {}
    for gap in segment.gaps:
        by_ledger.setdefault(gap.ledger, []).append(gap)
    found = [run for held in segment.ledgers for run in _runs_of(segment.uuid, held, by_ledger.pop(held.ledger, []))]
    if by_ledger:
        raise DamagedRecordError(f"segment {segment.uuid}: gaps in ledger {min(by_ledger)}, of which it holds nothing")
    return found


def clipped(found: Iterable[Run], first: Position, last: Position) -> Iterator[Run]:
    """The runs' parts between two positions, both included."""
    for run in found:
        inside = run.between(first.place, last.next_entry.place)
        if inside is not None:
            yield inside


def _runs_of(uuid: str, held: LedgerRange, gaps: list[Gap]) -> Iterator[Run]:
    at = held.first
    for gap in sorted(gaps, key=lambda g: g.first):
        if gap.first < at or not gap.first <= gap.last <= held.last:
            raise DamagedRecordError(
                f"segment {uuid}: the gap {gap.ledger}:{gap.first}..{gap.last} overlaps another or lies outside "
                f"{held.first}..{held.last}"
            )
        if gap.first > at:
            yield Run(held.ledger, at, gap.first)
        at = gap.after
        yield Run(held.ledger, gap.first, at, gap.kind)
    if at < held.after:
        yield Run(held.ledger, at, held.after)
