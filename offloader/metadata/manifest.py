"""What manifests say: a tree over the slots of a catalog's log. Pure.

A manifest of level 0 (a *leaf*) sums up `FAN` consecutive records, one row each; one of level L sums up `FAN` manifests
of level L - 1. Numbers and slots are fixed: leaf N covers the slots from N * FAN on. Since records never change,
neither does what a manifest says: whoever makes it, and however often, makes the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from offloader.metadata.state import Record
from offloader.model import Loss, Position, Segment

FAN = 64


class ManifestNode(NamedTuple):
    """A manifest's place in the tree."""

    level: int
    number: int

    @property
    def slots(self) -> range:
        """The slots that it covers."""
        count = FAN ** (self.level + 1)
        return range(self.number * count, (self.number + 1) * count)

    def child(self, index: int) -> ManifestNode:
        """One of the manifests below."""
        return ManifestNode(self.level - 1, self.number * FAN + index)


@dataclass(frozen=True, slots=True)
class ManifestRow:
    """What some consecutive records add up to.

    `start`..`end`: the positions that they account for, if any. `early`..`late`: the bounds of their messages' publish
    times (None: no message says one); `untimed`: some messages may have any time. `aborted`: how many abort markers.
    """

    start: Position | None = None
    end: Position | None = None
    early: int | None = None
    late: int | None = None
    untimed: bool = False
    segments: int = 0
    entries: int = 0
    size: int = 0
    losses: int = 0
    aborted: int = 0

    @property
    def max_ledger(self) -> int:
        """The last ledger: ids grow over a cluster's life."""
        return -1 if self.end is None else self.end.ledger

    def ends_after(self, position: Position) -> bool:
        """Whether it reaches behind a position."""
        return self.end is not None and self.end > position

    def holds(self, position: Position) -> bool:
        """Whether a position is among those that are accounted for."""
        return self.start is not None and self.end is not None and self.start <= position <= self.end


@dataclass(frozen=True, slots=True)
class Manifest:
    """A node's rows, one for each record or manifest below. A leaf also has the lengths of its records in their common
    object, and a row of what came `before` for each node of `frontier`: who reads the newest leaf knows all."""

    node: ManifestNode
    rows: tuple[ManifestRow, ...]
    lengths: tuple[int, ...] = ()
    before: tuple[ManifestRow, ...] = ()


def row_of(record: Record) -> ManifestRow:
    """Of one record."""
    match record:
        case Segment():
            times = [part.stats.publish_bounds for part in record.parts]
            known = [bounds for bounds in times if bounds is not None]
            return ManifestRow(
                record.start,
                record.end,
                min((early for early, _ in known), default=None),
                max((late for _, late in known), default=None),
                untimed=len(known) < len(times),
                segments=1,
                entries=record.entries,
                size=record.size,
                aborted=sum(len(part.stats.aborted) for part in record.parts),
            )
        case Loss():
            return ManifestRow(record.start, record.end, losses=1)
        case _:
            return ManifestRow()


def merged(rows: Iterable[ManifestRow]) -> ManifestRow:
    """Several rows together."""
    known = list(rows)
    return ManifestRow(
        min((r.start for r in known if r.start is not None), default=None),
        max((r.end for r in known if r.end is not None), default=None),
        min((r.early for r in known if r.early is not None), default=None),
        max((r.late for r in known if r.late is not None), default=None),
        any(r.untimed for r in known),
        sum(r.segments for r in known),
        sum(r.entries for r in known),
        sum(r.size for r in known),
        sum(r.losses for r in known),
        sum(r.aborted for r in known),
    )


def frontier(leaves: int) -> list[ManifestNode]:
    """The fewest nodes that cover so many leaves, in the order of their slots."""
    found: list[ManifestNode] = []
    level, number = 0, leaves
    while number:
        found = [ManifestNode(level, n) for n in range(number - number % FAN, number)] + found
        level, number = level + 1, number // FAN
    return found


def leaf(number: int, records: Sequence[Record], lengths: Sequence[int], before: Sequence[ManifestRow]) -> Manifest:
    """The leaf of `FAN` records."""
    return Manifest(ManifestNode(0, number), tuple(map(row_of, records)), tuple(lengths), tuple(before))


def completed(manifest: Manifest) -> Iterator[Manifest]:
    """The manifests above a leaf that are complete with it, the lowest first."""
    rows, number, level = [*manifest.before, merged(manifest.rows)], manifest.node.number + 1, 0
    while number % FAN == 0:
        level, number = level + 1, number // FAN
        above = Manifest(ManifestNode(level, number - 1), tuple(rows[-FAN:]))
        yield above
        rows[-FAN:] = [merged(above.rows)]


def before_next(manifest: Manifest) -> tuple[ManifestRow, ...]:
    """What everything up to a leaf, itself included, adds up to: a row for each node of `frontier`."""
    rows = [*manifest.before, merged(manifest.rows)]
    for above in completed(manifest):
        rows[-FAN:] = [merged(above.rows)]
    return tuple(rows)
