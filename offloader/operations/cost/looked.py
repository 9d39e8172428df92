"""What was found of topics that were looked into. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from offloader.metadata.state import CatalogHead
from offloader.model import TopicName
from offloader.operations.cost.pace import Pace
from offloader.operations.cost.stored import Age


@dataclass(frozen=True)
class TopicLook:
    """What a topic's catalog says. `deleting`: bytes that go, and have not gone; `kept`: of all that is not deleted."""

    topic: TopicName
    head: CatalogHead
    ages: Counter[Age]
    pace: Pace
    deleting: int

    @property
    def kept(self) -> int:
        return self.head.kept.size


@dataclass(frozen=True, slots=True)
class StillHeld:
    """One copy of what BookKeeper has of a topic: `size` bytes, of which `archived` are in the archive, too: they stay
    for the subscription, retention or the backlog of others."""

    topic: TopicName
    size: int
    archived: int
