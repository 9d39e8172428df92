"""What other policies would change, by the segments that topics really had. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from offloader.config.units import format_size, format_time
from offloader.model import MAX_OBJECT_SIZE, MIB, RollReason
from offloader.operations.cost.pace import Pace, RecentSegment, requests_a_month
from offloader.operations.cost.requests import Requests, added, total

LARGEST_PART = 64 * MIB  # a worker's thread holds three of them


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
