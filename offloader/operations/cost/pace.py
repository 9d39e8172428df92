"""How segments of a topic came lately, and what that makes of a month. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from offloader.model import RollReason, Segment
from offloader.operations.cost.requests import HOUR_MS, HOURS_A_MONTH, ByKind, added, of_segment, times

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
