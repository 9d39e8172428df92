"""One consumer, as its subscription's dispatcher knows it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from offloader.gateway.core.events import Joining
from offloader.model import Place

if TYPE_CHECKING:
    from offloader.gateway.core.waiting import Item, Lane


class Consumer:
    """Its permits, and where others share the subscription, what it has not acknowledged."""

    __slots__ = (
        "blocked",
        "epoch",
        "gone",
        "joining",
        "key",
        "lanes",
        "name",
        "permits",
        "priority",
        "queued",
        "sent",
        "unacknowledged",
    )

    def __init__(self, joining: Joining) -> None:
        self.joining = joining
        self.key, self.name, self.priority = joining.key, joining.name, joining.priority
        self.epoch = joining.epoch
        self.permits = 0
        self.unacknowledged = 0  # messages
        self.blocked = False  # it has too many of them
        self.gone = False
        self.queued = False  # its turn comes
        self.sent: dict[Place, Item] = {}
        self.lanes: deque[Lane] = deque()  # keys with entries for it

    @property
    def can_take(self) -> bool:
        """Whether it may be given an entry now."""
        return self.permits > 0 and not self.blocked and not self.gone
