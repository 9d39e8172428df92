"""Durable subscriptions that stand in the middle of a topic, with holes, while everything below them changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from integration.bridge.clients import Received
from integration.bridge.truth import Seen

KINDS = ("Shared", "Key_Shared")
ACKNOWLEDGE_ALL = 1 << 30


@dataclass(frozen=True)
class Halfway:
    """A subscription that has received `received` messages of a topic and has not acknowledged `left` of them."""

    seen: Seen
    subscription: str
    kind: str
    received: tuple[Received, ...]
    left: tuple[Received, ...]

    def rest(self) -> list[str]:
        """Receive and acknowledge the rest; what is wrong with it, in words."""
        client, made = self.seen.client, self.seen.made
        expected = len(self.seen.whole.messages) - len(self.received) + len(self.left)
        asked = client.consume(
            made.topic, self.subscription, expected, kind=self.kind, every=ACKNOWLEDGE_ALL, key=made.key
        )
        came = asked.result()
        name = f"{client} at {self.subscription} of {made.topic}"
        acknowledged = {message.place for message in self.received} - {message.place for message in self.left}
        places = [message.place for message in came.messages]
        found = [] if came.end == "count" else [f"{name}: {came.end} after {len(places)} of {expected}"]
        if len(set(places)) != len(places):
            found.append(f"{name}: some came twice")
        if again := acknowledged & set(places):
            found.append(f"{name}: acknowledged ones came again: {sorted(again)[:5]}")
        if missing := {message.place for message in self.left} - set(places):
            found.append(f"{name}: not acknowledged, and did not come again: {sorted(missing)[:5]}")
        before = {message.place: message for message in self.left}
        return found + [f"{name}: {one}" for one in came.messages if before.get(one.place, one) != one]


def halfway(seen: Sequence[Seen]) -> list[Halfway]:
    """A subscription of each kind for each of these: a half is received, and all but every third entry acknowledged.

    Whole entries: of an entry of which only some messages are acknowledged, a stock 4.0.7 forgets with any unload which
    ones."""
    asked = []
    for one in seen:
        for kind in KINDS:
            name, half = f"{kind}-{one.client.name}", _half(one.whole.messages)
            topic, key = one.made.topic, one.made.key
            asked.append(
                (one, name, kind, one.client.consume(topic, name, half, kind=kind, every=3, whole=False, key=key))
            )
    found = []
    for one, name, kind, request in asked:
        came = request.result()
        assert came.end == "count", f"{one.client} at {name} of {one.made.topic}: {came.end}"
        found.append(Halfway(one, name, kind, came.messages, came.left))
    return found


def _half(messages: Sequence[Received]) -> int:
    """About a half, up to the end of an entry."""
    number = len(messages) // 2
    while number < len(messages) and messages[number].place[:2] == messages[number - 1].place[:2]:
        number += 1
    return number
