"""What came of a visit. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from offloader.lifecycle.topics.unloaded import UnloadedTopic
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
