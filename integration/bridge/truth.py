"""What stock clients see of topics, and whether they still see the same."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from integration.bridge.clients import Reading, Received, StockClient
from integration.bridge.topics import Made
from integration.processes import HANGS

DROPPED_SECONDS = 10  # without a message, after which no more come


@dataclass(frozen=True)
class Seen:
    """One topic in one client's eyes: the whole of it, and its compacted view."""

    made: Made
    client: StockClient
    whole: Reading
    view: Reading | None

    def again(self) -> list[str]:
        """What is different now, in words; nothing where all is the same. Read twice at once."""
        count = len(self.whole.messages)
        first, second = (self.client.read(self.made.topic, count, key=self.made.key) for _ in range(2))
        found = _differences(self, self.whole, first.result()) + _differences(self, self.whole, second.result())
        if self.view is not None:
            view = self.client.read(self.made.topic, self.made.view, compacted=True)
            found += _differences(self, self.view, view.result())
        return found

    def seek(self, choice: random.Random, times: int) -> list[str]:
        """Read a few messages from positions at random."""
        found = []
        for _ in range(times):
            at = choice.randrange(len(self.whole.messages))
            expected = self.whole.messages[at : at + 5]
            asked = self.client.read(
                self.made.topic, len(expected), start=expected[0].place, whole=False, key=self.made.key
            )
            read = asked.result()
            found += _differences(self, Reading(expected, expected, "count"), read)
        return found


def see(made: Sequence[Made], clients: Sequence[StockClient]) -> list[Seen]:
    """As things are; every client must see each topic whole, and all must see the same.

    The Go client drops what it cannot unpack, empty compressed messages and encrypted batches: it has a truth of its
    own."""
    asked = [
        (one, client, client.read(one.topic, one.count, key=one.key, patience=_patience(client)))
        for one in made
        for client in clients
    ]
    seen = []
    for one, client, request in asked:
        view = client.read(one.topic, one.view, compacted=True).result() if one.view else None
        seen.append(
            Seen(one, client, replace(request.result(), end="count") if client.drops else request.result(), view)
        )
        for reading in (seen[-1].whole, *([view] if view else [])):
            assert reading.end == "count", f"{client} of {one.topic}: {reading.end}, {len(reading.messages)} messages"
    for one in made:
        first, *others = [each for each in seen if each.made is one and not each.client.drops]
        for other in others:
            assert _common(other.whole.messages) == _common(first.whole.messages), (
                f"{one.topic}: {first.client} and {other.client}"
            )
    return seen


def _patience(client: StockClient) -> float:
    return DROPPED_SECONDS if client.drops else HANGS


def places(messages: Sequence[Received]) -> list[tuple[int, int, int]]:
    return [message.place for message in messages]


def _common(messages: Sequence[Received]) -> list[tuple[object, ...]]:
    """What all clients must agree on; batch index 0 is none to some of them."""
    return [(*message.place, *message[3:]) for message in messages]


def _differences(seen: Seen, before: Reading, now: Reading) -> list[str]:
    name = f"{seen.client} of {seen.made.topic}"
    found = [f"{name}: {now.end}"] if now.end != "count" else []
    if len(now.messages) != len(before.messages):
        found.append(f"{name}: {len(now.messages)} messages and not {len(before.messages)}")
    pairs = zip(before.messages, now.messages, strict=False)
    return found + [f"{name}: {new} and not {old}" for old, new in pairs if old != new][:3]
