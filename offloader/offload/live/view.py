"""All that the page shows of the application at one moment, in the order in which somebody should look at it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from offloader.model import Lane, TopicName
from offloader.offload.live.status import REFUSED, Need, TopicStatus, Trouble

NEEDS_YOU = "Needs you"
PER_PAGE = 50


@dataclass(frozen=True, slots=True)
class LaneStatus:
    """A lane's plan that is being read: `slices` of it, planned at `since`; 0: none is. `topics` travel in it."""

    lane: Lane
    since: int = 0
    slices: int = 0
    topics: int = 0


@dataclass(frozen=True, slots=True)
class LiveView:
    """What the driver's thread publishes, and never changes. `refused`: topics that are not offloaded, and why."""

    at: int
    topics: tuple[TopicStatus, ...] = ()
    refused: tuple[tuple[TopicName, str], ...] = ()
    lanes: tuple[LaneStatus, ...] = ()
    settled: bool = False


@dataclass(frozen=True, slots=True)
class Summary:
    """What all topics add up to. `states`: topics by state, `needs`: by how much they need somebody."""

    topics: int
    states: Mapping[str, int]
    needs: Mapping[Need, int]
    lag_entries: int
    lag_bytes: int
    lag_ms: int
    pinned_bytes: int
    segments: int
    entries: int
    size: int

    @property
    def in_need(self) -> int:
        return sum(count for need, count in self.needs.items() if need is not Need.NONE)


@dataclass(frozen=True, slots=True)
class Ordered:
    """A view's topics, who needs you first, then what lags most."""

    view: LiveView
    topics: tuple[TopicStatus, ...]
    summary: Summary

    @classmethod
    def of(cls, view: LiveView) -> Ordered:
        """Made once for each view that somebody looks at, in their thread."""
        refused = (TopicStatus(name, REFUSED, trouble=Trouble(why, "not-offloaded")) for name, why in view.refused)
        everything = [*view.topics, *refused]
        everything.sort(key=lambda status: (status.need(view.at), -status.lag_bytes))
        return cls(view, tuple(everything), _summary(everything, view.at))

    def need(self, status: TopicStatus) -> Need:
        """Of one of its topics."""
        return status.need(self.view.at)

    def find(self, topic: str) -> TopicStatus | None:
        """The topic of this name."""
        return next((status for status in self.topics if str(status.topic) == topic), None)

    def chosen(self, part: str, state: str) -> Sequence[TopicStatus]:
        """Those whose name has `part` in it, in a state; "": all. `NEEDS_YOU` is a state, too."""
        if state == NEEDS_YOU:
            found: Sequence[TopicStatus] = self.topics[: self.summary.in_need]
        else:
            found = [s for s in self.topics if s.state == state] if state else self.topics
        wanted = part.casefold()
        return [s for s in found if wanted in str(s.topic).casefold()] if wanted else found


@dataclass(frozen=True, slots=True)
class TopicsPage:
    """Some of the topics that were chosen. `number` counts from 1."""

    topics: Sequence[TopicStatus]
    number: int
    pages: int
    found: int

    @classmethod
    def of(cls, chosen: Sequence[TopicStatus], number: int) -> TopicsPage:
        """The page of this number, the last one where there are not so many."""
        pages = max(-(-len(chosen) // PER_PAGE), 1)
        number = min(max(number, 1), pages)
        return cls(chosen[(number - 1) * PER_PAGE : number * PER_PAGE], number, pages, len(chosen))


def _summary(topics: Sequence[TopicStatus], now: int) -> Summary:
    return Summary(
        topics=len(topics),
        states=Counter(s.state for s in topics),
        needs=Counter(s.need(now) for s in topics),
        lag_entries=sum(s.lag_entries for s in topics),
        lag_bytes=sum(s.lag_bytes for s in topics),
        lag_ms=max((s.lag_ms(now) for s in topics), default=0),
        pinned_bytes=sum(s.pinned_bytes for s in topics),
        segments=sum(s.segments for s in topics),
        entries=sum(s.entries for s in topics),
        size=sum(s.size for s in topics),
    )
