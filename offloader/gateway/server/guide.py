"""Where a connection's next lookup leads: for clients that go to a broker by a lookup alone. Pure.

A lookup does not say for which consumer it is. Whoever subscribes for the first time asks for the partitions right
before; whoever was closed asks for nothing else. So the next lookup is that of a consumer which was led away, as long
as nobody has asked for partitions lately and no other consumer is closed. Where that is not certain the lookup leads
here: a consumer that is then wrong here is closed again.

That is why seconds may decide here: whichever way a lookup leads, nothing is lost and nothing comes twice, a consumer
only goes one way more. Counting the lookups that are to come instead would not do: Java asks for partitions every
minute, and looks nothing up.
"""

from __future__ import annotations

from offloader.gateway.protocol.answers import Address
from offloader.model import TopicName

WAITS = 5.0  # seconds: clients look up at once, both after that question and when they are closed


class LookupGuide:
    """Of one connection. `now`: seconds of any clock."""

    def __init__(self) -> None:
        self._led: dict[TopicName, tuple[Address, float]] = {}
        self._asked_at = float("-inf")

    def partitions_asked(self, now: float) -> None:
        """The next lookup may be that of a new consumer."""
        self._asked_at = now
        self.clear()

    def is_settled(self, now: float) -> bool:
        """Whether no new consumer is about to look up."""
        return now - self._asked_at >= WAITS

    def lead(self, topic: TopicName, address: Address, now: float) -> None:
        """A consumer of this topic was closed, and is to go there."""
        if self.is_settled(now):
            self._led[topic] = address, now + WAITS

    def take(self, topic: TopicName, now: float) -> Address | None:
        """Where the lookup leads, once; None: as any other."""
        address, until = self._led.pop(topic, (None, now))
        return address if now < until else None

    def clear(self) -> None:
        """Somebody else may look up."""
        self._led.clear()
