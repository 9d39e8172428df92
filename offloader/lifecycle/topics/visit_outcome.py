"""What came of a visit, and what a look at all topics that nobody has loaded adds up to. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from offloader.lifecycle.topics.unloaded import OF_NO_INTEREST, PassedOver, UnloadedTopic, WhyPassedOver
from offloader.model import TopicName


class VisitEnd(StrEnum):
    """What came of a visit."""

    TRIMMED = "visited"
    UNCLEAR = "visited, and its outcome is not known"
    LOADED = "loaded meanwhile by somebody else: not touched"
    GONE = "gone meanwhile"
    REFUSED = "refused by the broker"
    NOT_PERMITTED = "not permitted"
    UNANSWERED = "not visited: no answer"


@dataclass(frozen=True, slots=True)
class VisitOutcome:
    """`freed`: bytes of the ledgers that left the list. `left`: why the topic stays loaded; "": it does not.

    `left_by_mistake`: nobody uses it, or nobody could say so. `now`: what is to be said of it after the visit; None
    where that is not known, or its broker goes on with it.
    """

    planned: UnloadedTopic
    end: VisitEnd
    freed: int = 0
    left: str = ""
    now: UnloadedTopic | None = None
    why: str = ""

    left_by_mistake: bool = False

    @property
    def topic(self) -> TopicName:
        return self.planned.topic

    @property
    def in_vain(self) -> bool:
        """Whether another visit soon would bring no more: what should have gone is still there, or nothing was done."""
        if self.freed or self.end in (VisitEnd.LOADED, VisitEnd.GONE):
            return False
        if self.now is None:
            return not self.left
        return self.now.overdue > 0 or self.now.undated or self.now.open_ledger is not None


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
