"""What a look at all topics that nobody has loaded adds up to, for metrics and alarms. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from offloader.lifecycle.topics.passed_over import OF_NO_INTEREST, PassedOver, WhyPassedOver
from offloader.lifecycle.topics.unloaded import UnloadedTopic


@dataclass
class UnloadedLook:
    """`not_freed`: bytes that retention alone would not keep, by why they were there when it looked. `passed_over`:
    topics that are not visited; `first`: the first one of each reason."""

    due: int = 0
    not_freed: Counter[str] = field(default_factory=Counter)
    passed_over: Counter[str] = field(default_factory=Counter)
    first: dict[WhyPassedOver, PassedOver] = field(default_factory=dict)

    def take(self, found: UnloadedTopic | PassedOver, now_ms: int, *, in_vain: bool) -> None:
        """`in_vain`: a visit not long ago brought nothing."""
        if isinstance(found, PassedOver):
            if found.why not in OF_NO_INTEREST:
                self.passed_over[str(found.why)] += 1
                self.first.setdefault(found.why, found)
            return
        due = found.due(now_ms)
        self.due += due and not in_vain
        if found.overdue:
            self.not_freed["in vain" if in_vain else "due" if due else "waits"] += found.overdue
        if found.held:  # several may hold the same bytes: whoever holds most counts
            self.not_freed[str(found.held[0].by.kind)] += found.held[0].size


class VisitCounts(Protocol):
    """Who counts what visits come to."""

    def visited(self, end: str, freed: int) -> None:
        """A visit, or what was to be one, came to an end; so many bytes went."""
        ...

    def unloaded_topics(self, due: int, not_freed: Mapping[str, int], passed_over: Mapping[str, int]) -> None:
        """All topics were looked at, and what was due was visited."""
        ...
