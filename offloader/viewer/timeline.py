"""A topic on a time axis: stretches of its catalog, what is missing and what went, as bars. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from offloader.metadata.deletions import DeletedRange
from offloader.metadata.manifest import ManifestRow
from offloader.metadata.state import Record
from offloader.model import Segment
from offloader.pages.plots import WIDTH, Bar, Tick, time_ticks
from offloader.pages.rendering import bytes_text, count_text

LEAST_WIDTH = 2.5
LOSS_WIDTH = 6.0
APART = 0.8
TAIL = 0.02  # of the pieces may lie far from all others: producers' clocks are what they are

LEGEND = (
    ("good", "segment"),
    ("warn", "gap: markers, aborted or filtered entries"),
    ("bad", "loss: gone before it was offloaded"),
    ("gone", "deleted, or about to be"),
)


@dataclass(frozen=True, slots=True)
class Piece:
    """What some consecutive slots say: the records from `first` up to, and without, `after`; `record`: where it is one
    and was read."""

    first: int
    after: int
    row: ManifestRow
    record: Record | None = None

    @property
    def count(self) -> int:
        """How many records it stands for."""
        return self.after - self.first


@dataclass(frozen=True, slots=True)
class Timeline:
    """Bars and marks. Not `timed`: too few pieces say a time, so that they stand in their order. `begin`, `end`: of the
    axis, in ms."""

    bars: tuple[Bar, ...]
    ticks: tuple[Tick, ...]
    timed: bool
    legend: tuple[tuple[str, str], ...]
    begin: int = 0
    end: int = 0


def timeline(
    pieces: Iterable[Piece],
    deleted: Sequence[DeletedRange],
    link: Callable[[Piece], str],
) -> Timeline:
    """Of pieces in their order; those that account for no position have no bar."""
    shown = [piece for piece in pieces if piece.row.start is not None]
    rows = [piece.row for piece in shown]
    known = [(row.early, row.late) for row in rows if row.early is not None and row.late is not None]
    timed = len(known) * 2 >= len([piece for piece in shown if piece.row.segments]) > 0 and bool(known)
    begin, end = _bounds(known) if timed else (0, len(shown))
    bars: list[Bar] = []
    at = 0.0
    for number, piece in enumerate(shown):
        row = piece.row
        if not timed:
            left, right = number / end * WIDTH, (number + 1) / end * WIDTH
        elif row.early is None or row.late is None:  # between its neighbours
            left, right = at, _scaled(_next_time(shown, number), begin, end) if row.losses else at
        else:
            left, right = _scaled(row.early, begin, end), _scaled(row.late, begin, end)
        left = min(left, WIDTH - LEAST_WIDTH)
        width = max(right - left - APART, LEAST_WIDTH)
        at = max(at, left + width)
        bars += _bars(piece, left, min(width, WIDTH - left), deleted, link(piece))
    kinds = {bar.kind for bar in bars}
    legend = tuple((kind, text) for kind, text in LEGEND if kind in kinds)
    ticks = time_ticks(int(begin), int(end)) if timed else []
    return Timeline(tuple(bars), tuple(ticks), timed, legend, int(begin), int(end))


def _next_time(pieces: Sequence[Piece], number: int) -> int | None:
    return next((early for piece in pieces[number + 1 :] if (early := piece.row.early) is not None), None)


def _scaled(ms: int | None, begin: float, end: float) -> float:
    return WIDTH if ms is None else min(max((ms - begin) / (end - begin), 0), 1) * WIDTH


def kind_of(piece: Piece, deleted: Sequence[DeletedRange]) -> str:
    """The colour of a piece."""
    row = piece.row
    if _within(row.start, row.end, deleted):
        return "gone"
    return "bad" if row.segments == 0 and row.losses else "good"


def _within(start: object, end: object, ranges: Sequence[DeletedRange]) -> bool:
    return any(each.start <= start and end <= each.end for each in ranges)  # type: ignore[operator]


def _bars(
    piece: Piece,
    left: float,
    width: float,
    deleted: Sequence[DeletedRange],
    link: str,
) -> list[Bar]:
    kind, said = kind_of(piece, deleted), title(piece)
    found = [Bar(left, max(width, LOSS_WIDTH) if kind == "bad" else width, 1.0, kind, said, link)]
    if kind == "good":
        if piece.row.losses:
            found.append(Bar(left, width, 0.35, "bad", f"{piece.row.losses} losses in {said}", link))
        elif isinstance(piece.record, Segment) and piece.record.gaps:
            found.append(Bar(left, width, 0.35, "warn", f"{len(piece.record.gaps)} gaps in {said}", link))
    return found


def title(piece: Piece) -> str:
    """A piece in words."""
    row = piece.row
    where = f"{row.start}..{row.end}"
    if row.segments == 0:
        return f"{where}: lost" if row.losses else where
    segments = "1 segment" if row.segments == 1 else f"{count_text(row.segments)} segments"
    return f"{where}: {segments}, {count_text(row.entries)} entries, {bytes_text(row.size)}"


def _bounds(known: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """Where the axis begins and ends: all pieces, without the few that lie far outside of where the others are."""
    begin, end = min(early for early, _ in known), max(late for _, late in known)
    middles = sorted((early + late) / 2 for early, late in known)
    skip = int(len(middles) * TAIL)
    low, high = middles[skip], middles[-1 - skip]
    if high > low and end - begin > 20 * (high - low):
        begin, end = max(begin, int(low - (high - low) / 2)), min(end, int(high + (high - low) / 2))
    return begin, max(end, begin + 1)
