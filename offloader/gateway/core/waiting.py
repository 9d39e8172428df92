"""Entries of consumers that share a subscription: each one that is read and not acknowledged, and where it waits."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from heapq import heappop, heappush

from offloader.gateway.core.events import Joining
from offloader.gateway.values import ServedEntry
from offloader.model import Place


class Item:
    """An entry: sent to a consumer (`holder`), waiting in a queue (`waits`), or for its time.

    `entry` is there while it waits with its bytes in memory; of the bytes of any other only the size is known."""

    __slots__ = ("entry", "holder", "left", "messages", "place", "redeliveries", "size", "sticky", "waits")

    def __init__(self, entry: ServedEntry) -> None:
        self.place, self.sticky, self.left = entry.place, entry.sticky, entry.left
        self.messages, self.size = entry.messages, len(entry.data)
        self.entry: ServedEntry | None = None
        self.holder: Subscriber | None = None
        self.redeliveries = 0
        self.waits = False

    @property
    def messages_left(self) -> int:
        """How many messages are not acknowledged."""
        return self.messages if self.left is None else self.left.bit_count()

    def shrink(self, left: int) -> int:
        """Only these messages may still be delivered. Returns how many were acknowledged by that. A set that is larger
        than the batch acknowledges nothing."""
        if left.bit_length() > self.messages:
            return 0
        kept = left if self.left is None else self.left & left
        acknowledged = self.messages_left - kept.bit_count()
        if acknowledged:
            self.left = kept
        return acknowledged


class EntryQueue:
    """The entries of a key, or of a whole subscription, that wait for a consumer: by place. Of the same key one
    consumer at a time holds entries (`held`: how many)."""

    __slots__ = ("fresh", "held", "holder", "queued_at", "returned", "sticky", "target")

    def __init__(self, sticky: int = 0) -> None:
        self.sticky = sticky
        self.returned: list[Place] = []  # a heap; acknowledged ones stay in it until they are the first
        self.fresh: OrderedDict[Place, Item] = OrderedDict()  # never delivered: behind all that are returned
        self.held = 0
        self.holder: Subscriber | None = None
        self.target: Subscriber | None = None
        self.queued_at: Place | None = None  # where its target will come to it, or a read

    def first(self, items: Mapping[Place, Item]) -> Item | None:
        """The one that is to be delivered next."""
        while self.returned:
            item = items.get(self.returned[0])
            if item is not None:
                return item
            heappop(self.returned)
        return next(iter(self.fresh.values())) if self.fresh else None

    def pop(self, item: Item) -> None:
        """Take the first one out."""
        if self.returned:
            heappop(self.returned)
        else:
            del self.fresh[item.place]

    def next_items(self, items: Mapping[Place, Item], messages: int, entries: int, size: int) -> list[Item]:
        """Those that are to be delivered next, until one of these bounds is reached. `size`: bytes."""
        found: list[Item] = []
        fresh = iter(self.fresh.values())
        popped: list[Place] = []
        while messages > 0 and len(found) < entries and size > 0:
            if self.returned:
                item = items.get(heappop(self.returned))
                if item is None:
                    continue
                popped.append(item.place)
            else:
                item = next(fresh, None)
                if item is None:
                    break
            found.append(item)
            messages -= item.messages_left
            size -= item.size
        for place in popped:
            heappush(self.returned, place)
        return found


class Subscriber:
    """Its permits, and where others share the subscription, what it has not acknowledged."""

    __slots__ = (
        "blocked",
        "epoch",
        "gone",
        "has_asked",
        "joining",
        "key",
        "knows_end",
        "name",
        "permits",
        "priority",
        "queued",
        "queues",
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
        self.has_asked = False  # for messages
        self.knows_end = False  # of the topic
        self.queued = False  # its turn comes
        self.sent: dict[Place, Item] = {}
        self.queues: list[tuple[Place, EntryQueue]] = []  # a heap: keys with entries for it, by their first ones

    @property
    def can_take(self) -> bool:
        """Whether it may be given an entry now."""
        return self.permits > 0 and not self.blocked and not self.gone
