"""How segments of a topic came lately, what that makes of a month, and what other policies would change. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from offloader.config.units import format_size, format_time
from offloader.model import MAX_OBJECT_SIZE, MIB, RollReason, Segment
from offloader.operations.cost.requests import HOUR_MS, HOURS_A_MONTH, ByKind, Requests, added, of_segment, times, total

LARGEST_PART = 64 * MIB  # a worker's thread holds three of them
WINDOW_MS = HOURS_A_MONTH * HOUR_MS


class RecentSegment(NamedTuple):
    """What requests and plans depend on."""

    size: int
    parts: int
    reason: RollReason
    assigned_at: int
    offloaded_at: int


def recent(segment: Segment) -> RecentSegment:
    """Of a record."""
    return RecentSegment(
        segment.size, len(segment.parts), segment.roll_reason, segment.assigned_at, segment.offloaded_at
    )


@dataclass(frozen=True, slots=True)
class Pace:
    """The newest segments of a topic, in order, and how many ms before now they cover."""

    segments: tuple[RecentSegment, ...] = ()
    covered_ms: int = WINDOW_MS

    @property
    def a_month(self) -> float:
        """How many times as much a month has."""
        return WINDOW_MS / self.covered_ms


def pace_of(segments: Sequence[RecentSegment], now: int, *, all_of_them: bool) -> Pace:
    """Those of the last month. `all_of_them`: the topic has no older ones.

    Where it is younger than that, or older ones were not read, what there is stands for the month: never less than an
    hour, so that a first minute does not make a fortune."""
    found = tuple(each for each in segments if now - each.offloaded_at < WINDOW_MS)
    if not found or (len(found) < len(segments) and all_of_them):
        return Pace(found)
    begun = now - segments[0].assigned_at
    return Pace(found, min(max(begun, HOUR_MS), WINDOW_MS))


def requests_a_month(pace: Pace) -> ByKind:
    """What offloading of the topic takes in a month, if it goes on so."""
    return times(added(of_segment(each.parts) for each in pace.segments), pace.a_month)


class Cuts(NamedTuple):
    """The policies of a topic that decide how many segments and parts there are."""

    part_size: int
    segment_size: int
    roll_ms: int


class PacedTopic(NamedTuple):
    """A topic as it was offloaded lately."""

    cuts: Cuts
    pace: Pace


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """One policy, so many times as large: what that saves a month, and what else it does."""

    setting: str
    factor: int
    values: str
    saves: Requests
    but: str


def changes(topics: Sequence[PacedTopic]) -> Iterator[PolicyChange]:
    """What could be set otherwise for all of these, where it saves anything."""
    for setting, factor, but in _CHOICES:
        chosen = [topic for topic in topics if _fits(setting, topic.cuts, factor)]
        saved = _saved(setting, chosen, factor)
        if saved.writes + saved.reads + saved.lists >= 1:
            yield PolicyChange(setting, factor, _values(setting, chosen, factor), saved, but)


_PART, _ROLL, _SEGMENT = (
    "partSizeInBytes",
    "maxOffloadSegmentRolloverTimeInSeconds",
    "maxOffloadSegmentSizeInBytes",
)
_CHOICES = (
    (_PART, 2, "a worker's thread holds three parts in memory"),
    (_PART, 4, "a worker's thread holds three parts in memory"),
    (_ROLL, 2, "an entry waits so long at most until it can be read from the archive"),
    (_ROLL, 6, "an entry waits so long at most until it can be read from the archive"),
    (_SEGMENT, 2, "retention deletes whole segments"),
)


def _fits(setting: str, cuts: Cuts, factor: int) -> bool:
    if setting == _PART:
        return factor * cuts.part_size <= min(LARGEST_PART, cuts.segment_size)
    return setting == _ROLL or factor * cuts.segment_size <= MAX_OBJECT_SIZE - 64 * MIB


def _value(setting: str, cuts: Cuts, factor: int) -> str:
    if setting == _ROLL:
        return format_time(factor * cuts.roll_ms)
    return format_size(factor * (cuts.part_size if setting == _PART else cuts.segment_size))


def _values(setting: str, topics: Iterable[PacedTopic], factor: int) -> str:
    found = {(_value(setting, topic.cuts, factor), _value(setting, topic.cuts, 1)) for topic in topics}
    if len(found) == 1:
        return "{} instead of {}".format(*found.pop())
    return f"{factor} times of what it is"


def _saved(setting: str, topics: Iterable[PacedTopic], factor: int) -> Requests:
    saved = Requests()
    for cuts, pace in topics:
        changed = Pace(tuple(_changed(setting, cuts, pace.segments, factor)), pace.covered_ms)
        now, then = total(added([requests_a_month(pace)])), total(added([requests_a_month(changed)]))
        saved += now + then.times(-1)
    return saved


def _changed(setting: str, cuts: Cuts, segments: Sequence[RecentSegment], factor: int) -> Iterator[RecentSegment]:
    if setting == _PART:
        yield from (each._replace(parts=-(-each.parts // factor)) for each in segments)
    elif setting == _ROLL:
        yield from _merged(segments, RollReason.AGE, factor, cuts.segment_size, cuts.part_size)
    else:
        yield from _merged(segments, RollReason.SIZE, factor, factor * cuts.segment_size, cuts.part_size)


def _merged(
    segments: Iterable[RecentSegment], reason: RollReason, factor: int, most: int, part_size: int
) -> Iterator[RecentSegment]:
    """Segments that ended for this reason go on with what follows, up to `factor` of them and `most` bytes."""
    open_: RecentSegment | None = None
    joined = 0
    for each in segments:
        if open_ is not None and open_.reason is reason and joined < factor and open_.size + each.size <= most:
            open_, joined = _together(open_, each, part_size), joined + 1
            continue
        if open_ is not None:
            yield open_
        open_, joined = each, 1
    if open_ is not None:
        yield open_


def _together(first: RecentSegment, second: RecentSegment, part_size: int) -> RecentSegment:
    """Only their last parts can be short."""
    size, parts = first.size + second.size, first.parts + second.parts
    fewest = max(-(-size // part_size), 1 if parts else 0)
    return RecentSegment(size, min(parts, fewest), second.reason, first.assigned_at, second.offloaded_at)
