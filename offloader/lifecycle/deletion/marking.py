"""What came of marking one thing, on whichever side it is. Pure."""

from __future__ import annotations

from enum import StrEnum


class MarkOutcome(StrEnum):
    """What the first phase did."""

    MARKED = "marked"
    WOULD_BE_MARKED = "would be marked"
    PENDING = "pending already"
    SPARED = "spared"  # an operator has undone or dropped it before: only by its name
    KEPT = "kept"  # it holds data, and that stays known as long as it is there
    NOT_DELETABLE = "not deletable"
    CHANGED = "changed meanwhile"
