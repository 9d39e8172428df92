"""Plans and visits as lines for people and as fields for programs. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from offloader.lifecycle.explaining.words import counted, moment_text, size_text
from offloader.lifecycle.topics.unloaded import OF_NO_INTEREST, PassedOver, UnloadedTopic
from offloader.lifecycle.topics.visit_outcome import VisitEnd, VisitOutcome
from offloader.lifecycle.topics.why_not import stay_reasons, why_not

_DONE = {VisitEnd.TRIMMED, VisitEnd.LOADED, VisitEnd.GONE}


def tells(found: UnloadedTopic | PassedOver) -> bool:
    """Whether an operator wants to see it: all others are only counted."""
    if isinstance(found, PassedOver):
        return found.why not in OF_NO_INTEREST
    return bool(found.reasons or found.held or found.doubt)


def plan_text(found: UnloadedTopic | PassedOver, now_ms: int) -> str:
    """One line."""
    if isinstance(found, PassedOver):
        return f"{found.topic}: passed over: {_with(found.why, found.detail)}"
    no_visit = () if found.due(now_ms) else ("no visit is due",)
    return "; ".join((f"{found.topic}: {size_text(found.overdue)} overdue", *no_visit, *why_not(found, now_ms)))


def plan_fields(found: UnloadedTopic | PassedOver, now_ms: int) -> dict[str, Any]:
    """The same, for JSON."""
    if isinstance(found, PassedOver):
        do = [one.do for one in stay_reasons(found, now_ms) if one.do]
        return {"topic": str(found.topic), "passedOver": str(found.why), "detail": found.detail, "do": do}
    return {
        "topic": str(found.topic),
        "retention": str(found.retention),
        "bytes": found.size,
        "overdueBytes": found.overdue,
        "reasons": [str(one) for one in found.reasons],
        "due": None if found.due_ms is None else moment_text(found.due_ms),
        "dueNow": found.due(now_ms),
        "held": [
            {"cursor": one.by.cursor, "kind": str(one.by.kind), "bytes": one.size, "certain": one.by.certain}
            for one in found.held
        ],
        "openLedger": found.open_ledger,
        "why": list(why_not(found, now_ms)),
        "do": [one.do for one in stay_reasons(found, now_ms) if one.do],
    }


def outcome_text(outcome: VisitOutcome, now_ms: int) -> str:
    """One line."""
    said = f"{outcome.topic}: {_with(outcome.end, outcome.why)}, {size_text(outcome.freed)} freed"
    return "; ".join((said, *_still(outcome, now_ms)))


def outcome_fields(outcome: VisitOutcome, now_ms: int) -> dict[str, Any]:
    """The same, for JSON."""
    due_ms = outcome.now.due_ms if outcome.now is not None else None
    return {
        "topic": str(outcome.topic),
        "end": str(outcome.end),
        "freedBytes": outcome.freed,
        "stayedLoaded": outcome.left or None,
        "due": None if due_ms is None else moment_text(due_ms),
        "why": [*([outcome.why] if outcome.why else []), *_still(outcome, now_ms)],
    }


@dataclass
class PlanTally:
    """All topics of a plan."""

    topics: int = 0
    due: int = 0
    waiting: int = 0
    overdue: int = 0
    due_bytes: int = 0
    held: int = 0
    passed_over: Counter[str] = field(default_factory=Counter)

    def take(self, found: UnloadedTopic | PassedOver, now_ms: int) -> None:
        self.topics += 1
        if isinstance(found, PassedOver):
            self.passed_over[str(found.why)] += 1
            return
        self.overdue += found.overdue
        self.held += max((one.size for one in found.held), default=0)
        if found.due(now_ms):
            self.due += 1
            self.due_bytes += found.overdue
        elif found.due_ms is not None:
            self.waiting += 1

    def text(self) -> str:
        over = ", ".join(f"{why} {number}" for why, number in sorted(self.passed_over.items()))
        return (
            f"{counted(self.topics, 'topic')}: {self.due} due for a visit ({size_text(self.due_bytes)} overdue), "
            f"{self.waiting} later, cursors hold {size_text(self.held)} back"
            + (f"; passed over: {over}" if over else "")
        )

    def fields(self) -> dict[str, Any]:
        return {
            "topics": self.topics,
            "due": self.due,
            "waiting": self.waiting,
            "overdueBytes": self.overdue,
            "dueBytes": self.due_bytes,
            "heldBytes": self.held,
            "passedOver": dict(self.passed_over),
        }


@dataclass
class VisitTally:
    """All visits of a round. `failed`: also those whose topic stays loaded by mistake."""

    visits: int = 0
    failed: int = 0
    overdue: int = 0
    freed: int = 0

    def take(self, outcome: VisitOutcome) -> None:
        self.visits += 1
        self.failed += outcome.end not in _DONE or outcome.left_by_mistake
        self.overdue += outcome.planned.overdue
        self.freed += outcome.freed

    def text(self) -> str:
        if not self.visits:
            return "no visit was due"
        failed = f", {self.failed} did not go as they should" if self.failed else ""
        freed, overdue = size_text(self.freed), size_text(self.overdue)
        return f"{counted(self.visits, 'visit')}{failed}: {freed} freed of {overdue} that retention did not keep"

    def fields(self) -> dict[str, Any]:
        return {
            "visits": self.visits,
            "failed": self.failed,
            "shouldHaveFreedBytes": self.overdue,
            "freedBytes": self.freed,
        }


def _still(outcome: VisitOutcome, now_ms: int) -> tuple[str, ...]:
    left = (f"stays loaded: {outcome.left}",) if outcome.left else ()
    return (*left, *(why_not(outcome.now, now_ms) if outcome.now is not None else ()))


def _with(text: str, detail: str) -> str:
    return f"{text} ({detail})" if detail else str(text)
